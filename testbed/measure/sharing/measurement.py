"""Jobs under one policy after another on an open lab, predicted and measured.

While jobs run, a process on each host sets the queues of its NICs. The process restores the earlier queues when its
input ends. The input ends with our session: by exit, interrupt, kill or a lost connection. If a host does not report
that its queues are restored, we run a second command there, which restores the remaining queues.
"""

from __future__ import annotations

import json
import shlex
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.design.sharing.jobs import Placement, SharedJob
from testbed.errors import CollectiveError, HostError
from testbed.lab.hosts.fleet import Fleet, Launch
from testbed.lab.model import Lab
from testbed.leases.model import find_parts
from testbed.measure.sharing.agents import group_jobs_by_nic, run_agents
from testbed.measure.sharing.policies import (
    Conditions,
    PlacedJob,
    Policy,
    Schedule,
    find_job_links,
    make_schedule,
    predict_jobs,
)
from testbed.operate.design import Design
from testbed.operate.journal import Journal
from testbed.operate.session import LabSession

if TYPE_CHECKING:
    from testbed.leases.fence import Fence


SYSCTL_SETTINGS = {
    "ipv4/tcp_slow_start_after_idle": 0,
    "ipv4/tcp_no_metrics_save": 1,
    "ipv4/tcp_rto_min_us": 20_000,
}
"""Kernel settings of hosts while jobs run. Settings that a kernel lacks are skipped."""
SET_TIMEOUT_S, RESTORE_TIMEOUT_S = 20.0, 10.0

Queues = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Rate, queue limit and shares of each NIC, by host name and NIC name."""


@contextmanager
def hold_queues(fleet: Fleet, lab: Lab, queues: Queues) -> Iterator[None]:
    """Set queues of NICs and kernel settings of their hosts for the block, then restore the earlier ones.

    Raises `HostError`, naming the host, if queues cannot be set or restored.
    """
    program_name = "queues.py"
    folder = fleet.put({program_name: resources.files("testbed.node").joinpath(program_name).read_bytes()})
    python_by_host = {host.name: host.python for host in lab.hosts}
    command_by_host = {host: [python_by_host[host], "-IS", f"{folder}/{program_name}"] for host in queues}
    message_by_host: dict[str, dict[str, Any]] = {}
    try:
        with fleet.start(
            {host: shlex.join([*command, "hold"]) for host, command in command_by_host.items()}
        ) as launch:
            for host, nics in queues.items():
                launch.send(json.dumps({"nics": nics, "sysctls": SYSCTL_SETTINGS}) + "\n", host)
            _await_events(launch, message_by_host, {"set"}, SET_TIMEOUT_S, len(queues))
            _check_queues_set(message_by_host, queues)
            try:
                yield
            finally:
                launch.close_input()
                _await_events(launch, message_by_host, {"restored"}, RESTORE_TIMEOUT_S, len(queues))
    finally:
        # Programs may have died or not answered in time. Restore their hosts with another command.
        _restore_hosts(
            fleet,
            {
                host: command
                for host, command in command_by_host.items()
                if host not in message_by_host or message_by_host[host]["event"] != "restored"
            },
        )


def _await_events(
    launch: Launch,
    message_by_host: dict[str, dict[str, Any]],
    events: set[str],
    timeout_s: float,
    host_count: int,
) -> None:
    """Read lines until every host has sent one of `events` or an error, or the time is up."""
    end_s = time.monotonic() + timeout_s
    while (remaining_s := end_s - time.monotonic()) > 0 and launch.running:
        if sum(message["event"] in events | {"error"} for message in message_by_host.values()) == host_count:
            return
        for host, line in launch.read_lines(min(0.2, remaining_s)):
            with suppress(ValueError):
                message_by_host[host] = json.loads(line)
            break


def _check_queues_set(message_by_host: Mapping[str, Mapping[str, Any]], queues: Queues) -> None:
    for host in queues:
        message = message_by_host.get(host, {"event": "", "message": "it sent nothing"})
        if message["event"] != "set":
            reason = message.get("message", "it ended")
            raise HostError(f"the queues of host {host} cannot be set: {reason}", host=host)


def _restore_hosts(fleet: Fleet, command_by_host: Mapping[str, list[str]]) -> None:
    """Restore hosts that did not report their restoration. Raise `HostError` if that fails."""
    if not command_by_host:
        return
    result_by_host = fleet.run(
        {host: shlex.join([*command, "restore"]) for host, command in command_by_host.items()}
    )
    for host, result in result_by_host.items():
        if result.exit_status:
            reason = result.stdout.strip() or result.stderr.strip()
            raise HostError(
                f"the queues of host {host} may not be restored: {reason}. Check there with `tc qdisc show`",
                host=host,
            )


@dataclass(frozen=True, slots=True)
class MeasuredJob:
    """Iterations of a job on hosts under a policy, and the mean that the model predicts for them."""

    job: str
    policy: Policy
    mean_ms: float
    p99_ms: float
    alignments: int
    retransmits: int
    predicted_ms: float
    computed_ms: float
    iterations_ms: tuple[float, ...]

    @property
    def prediction_error(self) -> float:
        """Prediction divided by measurement, minus 1."""
        return self.predicted_ms / self.mean_ms - 1


def measure_jobs(
    session: LabSession,
    journal: Journal,
    design: Design,
    jobs: Sequence[SharedJob],
    placement: Placement,
    shifted_schedule: Schedule,
    policies: Sequence[Policy],
    conditions: Conditions,
    *,
    is_spread: bool = False,
    add_note: Callable[[str], object] = lambda _text: None,
    on_rows: Callable[[Sequence[MeasuredJob]], object] = lambda _rows: None,
) -> list[MeasuredJob]:
    """Run the jobs under each policy, and call `on_rows` with the rows of each policy as soon as they are measured.

    The hosts are leased by `--lease` or implicitly. Their queues are restored at the end. Raises `CollectiveError`,
    `TopologyError`, `HostError` or `LeaseDenied`.
    """
    from testbed.leases.fence import hold_fence  # imports SQLAlchemy: only if needed

    if session.fleet is None:
        raise CollectiveError(
            "jobs need real hosts or kernel hosts; the hosts of this lab are only modelled (kernel hosts "
            "need root)"
        )
    placed_jobs = find_job_links(session.lab, design.wiring, jobs, placement, is_spread=is_spread)
    leased_parts = find_parts(
        session.lab,
        {f"host:{session.lab.hosts[host].name}" for placed_job in placed_jobs for host in placed_job.hosts},
    )
    measured_jobs: list[MeasuredJob] = []
    with hold_fence(journal.database, session.lab.name, leased_parts) as fence:
        for policy in policies:
            add_note(f"{policy}: {conditions.iterations} iterations")
            schedule = make_schedule(policy, jobs, shifted_schedule, conditions)
            rows = _measure_policy(session, fence, placed_jobs, policy, schedule, conditions)
            on_rows(rows)
            measured_jobs += rows
    return measured_jobs


def _measure_policy(
    session: LabSession,
    fence: Fence,
    placed_jobs: Sequence[PlacedJob],
    policy: Policy,
    schedule: Schedule,
    conditions: Conditions,
) -> list[MeasuredJob]:
    """Run the jobs under a policy. Queues are set only while the lease holds, and restored even if it has ended."""
    assert session.fleet is not None  # `measure_jobs` has checked this
    lab = session.lab
    queues_by_host: dict[str, dict[str, dict[str, Any]]] = {}
    for nic, names in group_jobs_by_nic(placed_jobs).items():
        queues_by_host.setdefault(lab.hosts[nic.node].name, {})[lab.get_nic(nic).name] = {
            "rate_mbps": lab.link.rate_mbps,
            "limit": conditions.choose_queue_length(policy),
            "shares": conditions.compute_shares(policy, names),
        }
    with ExitStack() as stack:
        with fence.guard_sending():
            stack.enter_context(hold_queues(session.fleet, session.lab, queues_by_host))
        rows = run_agents(session.fleet, session.lab, placed_jobs, policy, schedule, conditions)
    predictions = predict_jobs(policy, placed_jobs, session.lab.link.represents_gbps, schedule, conditions)
    return [
        MeasuredJob(
            job=row.job,
            policy=policy,
            mean_ms=statistics.mean(row.iterations_ms),
            p99_ms=float(np.percentile(row.iterations_ms, 99)),
            alignments=row.alignments,
            retransmits=row.retransmits,
            predicted_ms=prediction.mean_ms,
            computed_ms=row.computed_ms,
            iterations_ms=row.iterations_ms,
        )
        for row, prediction in zip(rows, predictions, strict=True)
    ]
