"""The sets of jobs of `testbed reproduce sharing` on two hosts of a lab, recorded as a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.design.sharing.cassini.schedule import Scheduler
from testbed.design.sharing.jobs import LabLinks
from testbed.lab.inventory import load_lab
from testbed.measure.results.run import Run
from testbed.measure.results.store import RunStore
from testbed.measure.sharing.host_run import open_current_lab, record_rows
from testbed.measure.sharing.measurement import measure_jobs
from testbed.measure.sharing.policies import Conditions, convert_cassini_schedule
from testbed.operate.apply import check_permission
from testbed.operate.design import Design
from testbed.operate.journal import Journal
from testbed.operate.session import LabSession

if TYPE_CHECKING:
    from testbed.design.reproductions.sharing.setup import JobSet, JobStatistics, Policy


@contextmanager
def open_two_hosts(
    lab_file: Path,
    iterations: int,
    really_move: str | None,
    runs_dir: Path,
    add_note: Callable[[str], object],
) -> Iterator[TwoHosts]:
    """Open a lab and yield its first two hosts, with a new run. Raises the errors of `open_current_lab`."""
    lab = load_lab(lab_file)
    check_permission(lab, really_move)
    hosts = tuple(host.name for host in lab.hosts[:2])
    with open_current_lab(lab_file, {"jobs": hosts}, runs_dir, add_note) as (
        session,
        design,
        journal,
        host_kind,
    ):
        opened_lab = session.lab
        with RunStore(runs_dir).begin_run(opened_lab, opened_lab.simulated, host_kind, seeds={}) as run:
            add_note(f"run {run.run_id}: {iterations} iterations of each set")
            yield TwoHosts(session, design, journal, run, hosts, Conditions(iterations=iterations))


@dataclass(frozen=True, slots=True)
class TwoHosts:
    """Two hosts of an open lab, and the run that records their measurements."""

    session: LabSession
    design: Design
    journal: Journal
    run: Run
    hosts: tuple[str, ...]
    conditions: Conditions

    def measure(self, job_set: JobSet, policy: Policy) -> list[JobStatistics]:
        """Run a set of jobs under a policy, record it, and return the iteration times of each job."""
        from testbed.design.reproductions.sharing.setup import JobStatistics

        rate_gbps = self.session.lab.link.represents_gbps
        jobs = job_set.make_jobs(rate_gbps, self.hosts)
        placement = {job.name: self.hosts for job in jobs}
        schedule = Scheduler(jobs, LabLinks(self.hosts, rate_gbps)).schedule([placement])
        rows = measure_jobs(
            self.session,
            self.journal,
            self.design,
            jobs,
            placement,
            convert_cassini_schedule(schedule),
            [policy],
            self.conditions,
            on_rows=lambda rows: record_rows(self.run, self.session.lab, rows),
        )
        return [JobStatistics(row.job, row.mean_ms, row.p99_ms, row.retransmits) for row in rows]
