"""Measurements of jobs on the hosts of a lab, recorded as a run, and jobs read from recorded runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from testbed.design.sharing.jobs import Burst, Placement, SharedJob
from testbed.errors import WorkloadError
from testbed.lab.inventory import fix_link_rate, load_lab
from testbed.lab.model import Lab
from testbed.lab.simulated.lifecycle import find_hosts_in_use, list_simulated_labs, start_lab
from testbed.measure.current_topology import check_design_in_force
from testbed.measure.plan_job import PLAN_JOB_PHASE as PLAN_JOB
from testbed.measure.results.records import Json
from testbed.measure.results.run import Run
from testbed.measure.results.store import RunStore
from testbed.measure.sharing.measurement import MeasuredJob, measure_jobs
from testbed.measure.sharing.policies import Conditions, Policy, Schedule
from testbed.operate.apply import check_permission
from testbed.operate.choice import find_running_design
from testbed.operate.design import Design, build_design
from testbed.operate.journal import Journal, open_journal
from testbed.operate.named_topology import NamedTopology
from testbed.operate.session import LabSession, open_lab

AddNote = Callable[[str], object]
SHARED_JOBS_PHASE = "shared jobs"


@dataclass(frozen=True, slots=True)
class HostRun:
    """Jobs, their placement and shifts, and the conditions under which they run on the hosts of a lab."""

    jobs: Sequence[SharedJob]
    placement: Placement
    shifted_schedule: Schedule
    policies: Sequence[Policy]
    conditions: Conditions
    is_spread: bool = False


@contextmanager
def open_current_lab(
    lab_file: Path, placement: Placement, runs_dir: Path, add_note: AddNote
) -> Iterator[tuple[LabSession, Design, Journal, str]]:
    """Yield (session, design, journal, kind of hosts) of a running lab. Start a simulated lab if it is down.

    A lab that is started here has only the hosts of the jobs, and its own topology. Raises the errors of opening a lab,
    and `VerifyFailed` if the topology is not in force.
    """
    lab = load_lab(lab_file)
    is_up = any(entry["live"] and entry["lab"] == lab.name for entry in list_simulated_labs())
    if is_up or not lab.simulated:
        current_choice = find_running_design(lab_file, NamedTopology(), runs_dir)
        host_kind = find_hosts_in_use(current_choice.lab)
        with (
            open_journal(runs_dir) as journal,
            open_lab(current_choice.lab, None, model_hosts=host_kind == "model") as session,
        ):
            check_design_in_force(session, current_choice.design)
            yield session, current_choice.design, journal, host_kind
        return
    # The reduced lab has its own name, because somebody may start the lab itself meanwhile. Its links keep the rate of
    # the file, since few of them carry traffic.
    placed_hosts = {host for hosts in placement.values() for host in hosts}
    hosts = tuple(host for host in lab.hosts if host.name in placed_hosts)
    reduced_lab = fix_link_rate(
        replace(lab, name=f"{lab.name}-{os.getpid()}", hosts=hosts), lab.link.rate_mbps
    )
    with start_lab(reduced_lab, hosts="auto", may_move=True) as running_lab:
        add_note(
            f"SIMULATED lab {running_lab.lab_id} at {running_lab.lab.management}, hosts: {running_lab.hosts_mode}"
        )
        with (
            open_journal(runs_dir) as journal,
            open_lab(
                running_lab.lab, journal, model_hosts=running_lab.hosts_mode == "model", keep_intent=False
            ) as session,
        ):
            design = build_design(running_lab.lab)
            session.bring_up(design)
            yield session, design, journal, running_lab.hosts_mode


def run_on_hosts(
    lab_file: Path, host_run: HostRun, runs_dir: Path, really_move: str | None, add_note: AddNote
) -> tuple[str, list[MeasuredJob]]:
    """Run the jobs, and record rows as soon as they are measured. Return the id of the run and its rows."""
    check_permission(load_lab(lab_file), really_move)
    with open_current_lab(lab_file, host_run.placement, runs_dir, add_note) as (
        session,
        design,
        journal,
        host_kind,
    ):
        lab = session.lab
        with RunStore(runs_dir).begin_run(lab, lab.simulated, host_kind, seeds={}) as run:
            rows = measure_jobs(
                session,
                journal,
                design,
                host_run.jobs,
                host_run.placement,
                host_run.shifted_schedule,
                host_run.policies,
                host_run.conditions,
                is_spread=host_run.is_spread,
                add_note=add_note,
                on_rows=lambda rows: record_rows(run, lab, rows),
            )
    return run.run_id, rows


def record_rows(run: Run, lab: Lab, rows: Sequence[MeasuredJob]) -> None:
    """Record rows as a phase of the run."""
    run.add_phase(SHARED_JOBS_PHASE, to_json(rows, lab.link.represents_gbps))


def to_json(rows: Sequence[MeasuredJob], rate_gbps: float) -> dict[str, Json]:
    """Return the data of the run's phase `SHARED_JOBS_PHASE`."""
    return {
        "rate_gbps": rate_gbps,
        "measured": [
            cast("dict[str, Json]", asdict(row) | {"iterations_ms": list(row.iterations_ms)}) for row in rows
        ],
    }


def read_measured_bursts(store: RunStore, run_id: str, job: str) -> tuple[float, tuple[Burst, ...]]:
    """Return the period in ms and the bursts of a job that a run measured: computation, then one burst at link rate.

    A job that shared links is described by its fastest iteration, which is closest to an iteration alone. A run of
    `testbed job` has a single job, whose most loaded link determines the burst. Raises `WorkloadError` if the run did
    not measure the job.
    """
    stored_run = store.load_run(run_id)
    phases = [phase for phase in stored_run.phases if phase.name in (SHARED_JOBS_PHASE, PLAN_JOB)]
    for phase in reversed(phases):
        data = cast("Mapping[str, Any]", phase.data)
        period_ms, send_ms, gbps = (
            _read_plan_job(data) if phase.name == PLAN_JOB else _read_shared_job(data, job)
        )
        if period_ms:
            return period_ms, (Burst(period_ms - send_ms, send_ms, gbps),) if send_ms else ()
    raise WorkloadError(
        f"run {run_id} measured no job {job!r}: name a run of `testbed schedule --run` or `testbed job`"
    )


def _read_shared_job(data: Mapping[str, Any], job: str) -> tuple[float, float, float]:
    rows = [row for row in data["measured"] if row["job"] == job]
    if not rows:
        return 0.0, 0.0, 0.0
    row = min(rows, key=lambda candidate: min(candidate["iterations_ms"]))
    period_ms = min(row["iterations_ms"])
    return period_ms, max(period_ms - row["computed_ms"], 0.0), data["rate_gbps"]


def _read_plan_job(data: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return the median iteration in ms, the time in which the most loaded link sends (ms), and its rate in Gb/s."""
    times_s = sorted(data["times_s"])
    period_s, rate_gbps = times_s[len(times_s) // 2], data.get("rate_gbps", 0.0)
    planned_bytes = max((link["planned_bytes"] for link in data["links"]), default=0) / max(1, len(times_s))
    if not planned_bytes or not rate_gbps:
        return 0.0, 0.0, 0.0
    send_s = min(planned_bytes * 8 / data["rate_mbps"] / 1e6, period_s)
    return period_s * 1e3, send_s * 1e3, rate_gbps
