"""The main job: patch a topology, prove it, measure collectives, re-patch for a workload, measure again, report.

Everything that happens goes into the run's record as soon as it is known. The job itself is a sequence; its steps
are in `job_steps`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from testbed.lab.inventory import render_lab
from testbed.lab.model import Lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.lab.simulated.link_rate import LinkRate
from testbed.measure.collectives.ranks import Ranks
from testbed.measure.gain import RingGain, largest_of_each, ring_gain
from testbed.measure.job_steps import MainJob, Narrator
from testbed.measure.model import Timing
from testbed.measure.report.page import write_report
from testbed.measure.results.records import LINK_RATE, Repatch
from testbed.measure.results.run import Run
from testbed.measure.results.store import RunStore
from testbed.operate.apply import check_permission
from testbed.operate.journal import Journal, journal_in
from testbed.operate.session import LabSession, open_lab


@dataclass(frozen=True, slots=True)
class JobResult:
    """The results of the main job; `link_rate` is how a simulated lab chose its own, None where it is fixed."""

    run_id: str
    directory: Path
    report: Path
    lab: Lab
    hosts: str
    links: int
    verified: bool
    timings: tuple[Timing, ...]
    repatch: Repatch | None
    link_rate: LinkRate | None

    @property
    def largest(self) -> tuple[Timing, ...]:
        """Each configuration of the first topology at its largest size."""
        return largest_of_each(self.timings)

    @property
    def ring_gain(self) -> RingGain | None:
        """The gain of all rings over one at the largest size; None where the topology has one."""
        return ring_gain(self.largest)


@contextmanager
def lab_at_hand(
    lab: Lab, hosts: Literal["auto", "kernel", "model"], narrator: Narrator
) -> Iterator[tuple[Lab, str, LinkRate | None]]:
    """Provide the lab to be opened, what its hosts are (`real`, `kernel`, `model`), and the rate if it was chosen.

    A simulated lab is started (on the next free subnet if its own is taken) and torn down on leaving.
    """
    if not lab.simulated:
        yield lab, "real", None
        return
    with start_lab(lab, hosts=hosts, move=True) as started:
        why = f" ({started.reason})" if started.reason else ""
        narrator.note(
            f"SIMULATED lab {started.lab_id} at {started.lab.management}, hosts: {started.hosts}{why}"
        )
        if started.link_rate:
            narrator.note(started.link_rate.describe())
        yield started.lab, started.hosts, started.link_rate


def run_job(
    lab: Lab,
    *,
    hosts: Literal["auto", "kernel", "model"],
    sizes: Sequence[int],
    runs_dir: Path,
    narrator: Narrator,
    deadline_s: float = 60.0,
    really_move: str | None = None,
) -> JobResult:
    """Do the main job on a lab and leave its record in `runs_dir`.

    Raises `RefusedToMove` for a real lab that was not named, and the errors of every step; whatever was
    built is torn down and the run is on record as failed or interrupted.
    """
    check_permission(lab, really_move)
    narrator.phase("Starting the lab")
    with lab_at_hand(lab, hosts, narrator) as (here, mode, link_rate):
        store = RunStore(runs_dir)
        with store.begin(here, lab.simulated, mode, seeds={}) as run, journal_in(runs_dir) as journal:
            _record_lab(run, here, link_rate)
            with (
                _opened(here, mode, journal) as session,
                _ranks_on(session, deadline_s) as ranks,
            ):
                outcome = MainJob(session, run, mode, tuple(sizes), narrator, deadline_s, ranks).run()
    report = run.directory / "report.html"
    write_report(store.load(run.run_id), report)
    return JobResult(
        run_id=run.run_id,
        directory=run.directory,
        report=report,
        lab=here,
        hosts=mode,
        links=len(outcome.design.topology.links),
        verified=outcome.verified,
        timings=outcome.timings,
        repatch=outcome.repatch,
        link_rate=link_rate,
    )


def _opened(lab: Lab, mode: str, journal: Journal) -> AbstractContextManager[LabSession]:
    """Open the lab; a simulated one goes when the job ends, and is not meant to be anything after it."""
    return open_lab(lab, journal, model_hosts=mode == "model", keep_intent=not lab.simulated)


def _record_lab(run: Run, lab: Lab, link_rate: LinkRate | None) -> None:
    (run.directory / "lab.yaml").write_text(render_lab(lab), encoding="utf-8")
    if link_rate:
        run.add_phase(LINK_RATE, asdict(link_rate) | {"text": link_rate.describe()})


def _ranks_on(session: LabSession, deadline_s: float) -> AbstractContextManager[Ranks | None]:
    """Return ranks for all measurements of a job; none where hosts are only modelled."""
    return Ranks(session.fleet, session.lab, deadline_s) if session.fleet else nullcontext()
