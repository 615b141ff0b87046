"""`testbed reproduce sharing --lab LAB`: the sets of jobs on two hosts of a lab, kept as a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import WorkloadError

if TYPE_CHECKING:
    from testbed.design.reproductions.sharing.setup import Figures, JobSet, Policy, Scale
    from testbed.measure.results.run import Run
    from testbed.measure.sharing.policies import Conditions
    from testbed.operate.journal import Journal
    from testbed.operate.session import Design, LabSession


@dataclass(frozen=True, slots=True)
class SharingOnHosts:
    """A lab whose first two hosts run the jobs, and where that is kept."""

    lab_file: Path
    runs_dir: Path
    really_move: str | None
    iterations: int
    note: Callable[[str], object]


@contextmanager
def with_hosts(scale: Scale, paper: str, asked: SharingOnHosts) -> Iterator[Scale]:
    """Provide the scale of a reproduction that measures on hosts as well. Raises `WorkloadError` for another paper."""
    if paper != "sharing":
        raise WorkloadError(f"--lab is for `testbed reproduce sharing`; {paper} runs no jobs on hosts")
    from testbed.cli.schedule_run import lab_in_hand
    from testbed.lab.inventory import load_lab
    from testbed.measure.results.store import RunStore
    from testbed.measure.sharing.policies import Conditions
    from testbed.operate.apply import check_permission

    lab = load_lab(asked.lab_file)
    check_permission(lab, asked.really_move)
    hosts = tuple(host.name for host in lab.hosts[:2])
    opened = lab_in_hand(asked.lab_file, {"jobs": hosts}, asked.runs_dir, asked.note)
    with opened as (session, design, journal, mode):
        here = session.lab
        with RunStore(asked.runs_dir).begin(here, here.simulated, mode, seeds={}) as run:
            asked.note(f"run {run.run_id}: {asked.iterations} iterations of each set")
            conditions = Conditions(iterations=asked.iterations)
            measured = _Measured(session, design, journal, run, hosts, conditions)
            yield replace(scale, measure=measured.figures)


@dataclass(frozen=True, slots=True)
class _Measured:
    session: LabSession
    design: Design
    journal: Journal
    run: Run
    hosts: tuple[str, ...]
    conditions: Conditions

    def figures(self, chosen: JobSet, policy: Policy) -> list[Figures]:
        from testbed.cli.schedule_run import keep
        from testbed.design.reproductions.sharing.setup import Figures
        from testbed.design.sharing.cassini.schedule import Scheduler
        from testbed.design.sharing.jobs import LabLinks
        from testbed.measure.sharing.measurement import measure
        from testbed.measure.sharing.policies import Schedule

        rate_gbps = self.session.lab.link.represents_gbps
        jobs = chosen.jobs(rate_gbps, self.hosts)
        placement = {job.name: self.hosts for job in jobs}
        found = Scheduler(jobs, LabLinks(self.hosts, rate_gbps)).schedule([placement])
        shifted = Schedule(found.starts_ms, {one.job: one.slot_ms for one in found.predicted})
        where = (self.session, self.journal, self.design, jobs, placement, shifted)
        rows = measure(
            *where, [policy], self.conditions, done=lambda rows: keep(self.run, self.session.lab, rows)
        )
        return [Figures(row.job, row.mean_ms, row.p99_ms, row.retransmits) for row in rows]
