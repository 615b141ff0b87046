"""`testbed reproduce sharing --lab LAB`: the sets of jobs on two hosts of a lab, kept as a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.options import ReallyMove
from testbed.errors import WorkloadError

if TYPE_CHECKING:
    from testbed.design.reproductions.sharing.setup import Figures, JobSet, Policy
    from testbed.measure.results.run import Run
    from testbed.measure.sharing.policies import Conditions
    from testbed.operate.journal import Journal
    from testbed.operate.session import Design, LabSession


@dataclass(frozen=True, slots=True)
class SharingOnHosts:
    """A lab whose first two hosts run the jobs, or none, and how often."""

    lab_file: Path | None = None
    iterations: int = 100
    really_move: str | None = None

    @classmethod
    def of(
        cls,
        lab_file: Annotated[
            Path | None,
            typer.Option(
                "--lab", metavar="LAB", help="Of sharing: run the jobs on two hosts of this lab, too."
            ),
        ] = None,
        iterations: Annotated[
            int, typer.Option("--iterations", metavar="N", min=1, help="Of a job on the hosts.")
        ] = 100,
        really_move: ReallyMove = None,
    ) -> SharingOnHosts:
        """Return the options of a command."""
        return cls(lab_file, iterations, really_move)

    @contextmanager
    def scale(
        self, setup: Any, paper: str, runs_dir: Path, note: Callable[[str], object], *, quick: bool
    ) -> Iterator[Any]:
        """Provide the scale of a reproduction, which measures on hosts as well where there is a lab.

        Raises `WorkloadError` for another paper than `sharing`.
        """
        scale = setup.QUICK if quick else setup.PAPER
        if self.lab_file is None:
            yield scale
            return
        if paper != "sharing":
            raise WorkloadError(f"--lab is for `testbed reproduce sharing`; {paper} runs no jobs on hosts")
        with self._opened(self.lab_file, runs_dir, note) as measured:
            yield replace(scale, measure=measured.figures)

    @contextmanager
    def _opened(self, lab_file: Path, runs_dir: Path, note: Callable[[str], object]) -> Iterator[_Measured]:
        from testbed.cli.schedule_run import lab_in_hand
        from testbed.lab.inventory import load_lab
        from testbed.measure.results.store import RunStore
        from testbed.measure.sharing.policies import Conditions
        from testbed.operate.apply import check_permission

        lab = load_lab(lab_file)
        check_permission(lab, self.really_move)
        hosts = tuple(host.name for host in lab.hosts[:2])
        with lab_in_hand(lab_file, {"jobs": hosts}, runs_dir, note) as (session, design, journal, mode):
            here = session.lab
            with RunStore(runs_dir).begin(here, here.simulated, mode, seeds={}) as run:
                note(f"run {run.run_id}: {self.iterations} iterations of each set")
                conditions = Conditions(iterations=self.iterations)
                yield _Measured(session, design, journal, run, hosts, conditions)


NO_HOSTS = SharingOnHosts()


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
        from testbed.measure.sharing.policies import shifted_schedule

        rate_gbps = self.session.lab.link.represents_gbps
        jobs = chosen.jobs(rate_gbps, self.hosts)
        placement = {job.name: self.hosts for job in jobs}
        found = Scheduler(jobs, LabLinks(self.hosts, rate_gbps)).schedule([placement])
        shifted = shifted_schedule(found)
        where = (self.session, self.journal, self.design, jobs, placement, shifted)
        rows = measure(
            *where, [policy], self.conditions, done=lambda rows: keep(self.run, self.session.lab, rows)
        )
        return [Figures(row.job, row.mean_ms, row.p99_ms, row.retransmits) for row in rows]
