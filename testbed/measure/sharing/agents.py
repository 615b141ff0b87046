"""The agents of the hosts. An agent is a command that runs its host's part of each job and reports the results."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from typing import Any

from testbed.design.model import Link, Nic
from testbed.errors import CollectiveError
from testbed.lab.hosts.fleet import Fleet
from testbed.lab.model import Lab
from testbed.measure.collectives.rank_reports import RankReports
from testbed.measure.sharing.policies import Conditions, PlacedJob, Policy, Schedule, Transport

PROGRAM_FILES = (
    "guard.py",
    "periodic_job.py",
    "transfers.py",
    "udp_ends.py",
    "transport.py",
    "congestion.py",
)
QUEUE_HANDLE = 0x1B
"""Handle of the queues that `testbed.node.queues` sets."""
START_DELAY_S = 2.0
"""Time from the last answer of an agent to the start of the jobs, in which all agents connect."""
TIMEOUT_S = 60.0
PAYLOAD_SHARE: dict[Transport, float] = {"tcp": 1448 / 1514, "udp": 1400 / 1470}
"""Payload of a packet divided by its size on the link, including the Ethernet header."""


@dataclass(frozen=True, slots=True)
class AgentRow:
    """Iterations of a job: times and alignments at its first host, retransmitted packets of all its hosts."""

    job: str
    iterations_ms: tuple[float, ...]
    computed_ms: float
    alignments: int
    retransmits: int


def run_agents(
    fleet: Fleet,
    lab: Lab,
    placed_jobs: Sequence[PlacedJob],
    policy: Policy,
    schedule: Schedule,
    conditions: Conditions,
) -> list[AgentRow]:
    """Run the jobs on their hosts. Raise `CollectiveError` if a job fails or does not end, and `HostError`."""
    folder = fleet.put(
        {name: resources.files("testbed.node").joinpath(name).read_bytes() for name in PROGRAM_FILES}
    )
    hosts = sorted({host for placed_job in placed_jobs for host in placed_job.hosts})
    deadline_s = _compute_deadline_s(placed_jobs, schedule, conditions)
    commands = {lab.hosts[host].name: _make_command(lab, host, folder, deadline_s) for host in hosts}
    reports, transport = RankReports(), conditions.choose_transport(policy)
    with fleet.start(commands) as launch:
        for host in hosts:
            launch.send(
                json.dumps({"members": _make_members(lab, placed_jobs, host, transport)}) + "\n",
                lab.hosts[host].name,
            )
        reports.read_until(launch, reports.ready_message_by_host, len(hosts), deadline_s)
        if len(reports.ready_message_by_host) == len(hosts):
            parts_by_host = _make_job_parts(lab, placed_jobs, reports, policy, schedule, conditions)
            start_time_s = time.time() + START_DELAY_S
            for name, jobs in parts_by_host.items():
                launch.send(json.dumps({"epoch": start_time_s, "jobs": jobs}) + "\n", name)
            reports.read_until(launch, reports.done_hosts, len(hosts), deadline_s)
        if len(reports.done_hosts) < len(hosts):
            launch.close_input()
            raise _make_error(reports, list(commands), deadline_s)
    first_rows = [_find_first_row(lab, placed_job, reports) for placed_job in placed_jobs]
    end_s = min(row["begins_s"][-1] for row in first_rows)
    return [
        _make_row(placed_job, row, reports, end_s)
        for placed_job, row in zip(placed_jobs, first_rows, strict=True)
    ]


def _compute_deadline_s(
    placed_jobs: Sequence[PlacedJob], schedule: Schedule, conditions: Conditions
) -> float:
    """Return the deadline of the jobs: `TIMEOUT_S`, plus twice the sum of all periods for each iteration."""
    periods_ms = sum(
        max(placed_job.job.period_ms, schedule.slots_ms[placed_job.job.name]) for placed_job in placed_jobs
    )
    return TIMEOUT_S + 2e-3 * periods_ms * (conditions.iterations + 1)


def _make_command(lab: Lab, host: int, folder: str, deadline_s: float) -> str:
    python = lab.hosts[host].python
    guard_command = [python, "-IS", f"{folder}/guard.py", "--deadline", f"{deadline_s:g}", "--renew", "--"]
    return shlex.join([*guard_command, python, "-IS", f"{folder}/periodic_job.py"])


def _make_members(
    lab: Lab, placed_jobs: Sequence[PlacedJob], host: int, transport: Transport
) -> list[dict[str, Any]]:
    """Return the jobs of a host. A job that receives there listens at the address of the NIC at the end of its link."""
    host_jobs = []
    for placed_job in placed_jobs:
        if host in placed_job.hosts:
            incoming_link = next((link for link in placed_job.links if link.target.node == host), None)
            listen_address = str(lab.get_nic(incoming_link.target).address) if incoming_link else None
            host_jobs.append({"job": placed_job.job.name, "listen": listen_address, "transport": transport})
    return host_jobs


def _make_job_parts(
    lab: Lab,
    placed_jobs: Sequence[PlacedJob],
    reports: RankReports,
    policy: Policy,
    schedule: Schedule,
    conditions: Conditions,
) -> dict[str, dict[str, Any]]:
    """Return the second input line of each agent: by host, its part of each job."""
    jobs_by_nic = group_jobs_by_nic(placed_jobs)
    parts_by_host: dict[str, dict[str, Any]] = {}
    for placed_job in placed_jobs:
        for host, link in zip(placed_job.hosts, placed_job.outgoing_links, strict=True):
            part = _make_shared_part(lab, placed_job, policy, schedule, conditions) | _make_next_hop(
                lab, placed_job, host, link, reports
            )
            if link and conditions.compute_shares(policy, jobs_by_nic[link.source]):
                part["mark"] = QUEUE_HANDLE << 16 | jobs_by_nic[link.source].index(placed_job.job.name) + 1
            parts_by_host.setdefault(lab.hosts[host].name, {})[placed_job.job.name] = part
    return parts_by_host


def _make_next_hop(
    lab: Lab, placed_job: PlacedJob, host: int, link: Link | None, reports: RankReports
) -> dict[str, Any]:
    if link is None:
        return {"next": None, "port": 0, "source": ""}
    target = lab.hosts[link.target.node].name
    return {
        "next": str(lab.get_nic(link.target).address),
        "port": reports.ready_message_by_host[target]["ports"][placed_job.job.name],
        "source": str(lab.hosts[host].address),
    }


def _make_shared_part(
    lab: Lab, placed_job: PlacedJob, policy: Policy, schedule: Schedule, conditions: Conditions
) -> dict[str, Any]:
    """Return the settings that all hosts of a job share: phases in seconds and bytes, slots, transport."""
    transport = conditions.choose_transport(policy)
    bytes_per_s = lab.link.rate_mbps * 1e6 / 8 * PAYLOAD_SHARE[transport]
    phases, burst_end_ms = [], 0.0
    for burst in placed_job.job.bursts:
        rate_share = min(burst.gbps / lab.link.represents_gbps, 1.0)
        burst_bytes = round(burst.length_ms * 1e-3 * rate_share * bytes_per_s)
        pace_bytes_per_s = bytes_per_s * rate_share if rate_share < 1 else 0.0
        phases.append([(burst.start_ms - burst_end_ms) * 1e-3, max(burst_bytes, 1), pace_bytes_per_s])
        burst_end_ms = burst.end_ms
    is_mltcp = policy == "mltcp"
    return {
        "transport": transport,
        "mark": 0,
        "phases": phases,
        "rest_s": max(placed_job.job.period_ms - burst_end_ms, 0.0) * 1e-3,
        "steps": placed_job.step_count,
        "iterations": conditions.iterations,
        "start_s": schedule.starts_ms[placed_job.job.name] * 1e-3,
        "slot_s": schedule.slots_ms[placed_job.job.name] * 1e-3,
        "tolerance": conditions.tolerance,
        "most_alignments": conditions.most_alignments,
        "control": conditions.control,
        "slope": conditions.slope if is_mltcp else 0.0,
        "intercept": conditions.intercept if is_mltcp else 1.0,
        "give_up_s": TIMEOUT_S,
    }


def group_jobs_by_nic(placed_jobs: Sequence[PlacedJob]) -> dict[Nic, list[str]]:
    """Return the names of the jobs that send on each NIC, in order."""
    jobs_by_nic: dict[Nic, list[str]] = {}
    for placed_job in placed_jobs:
        for link in placed_job.links:
            jobs_by_nic.setdefault(link.source, []).append(placed_job.job.name)
    return jobs_by_nic


def _make_error(reports: RankReports, host_names: Sequence[str], deadline_s: float) -> CollectiveError:
    if reports.error_by_host:
        errors_text = "; ".join(f"host {host}: {message}" for host, message in reports.error_by_host.items())
        return CollectiveError(f"jobs did not end: {errors_text}. All agents were stopped")
    missing_text = ", ".join(host for host in host_names if host not in reports.done_hosts)
    return CollectiveError(
        f"jobs did not end within {deadline_s:.0f} s: no message from {missing_text}. All agents were "
        "stopped; check with `testbed verify`"
    )


def _find_first_row(lab: Lab, placed_job: PlacedJob, reports: RankReports) -> Mapping[str, Any]:
    """Return the row of the job's first host."""
    host = lab.hosts[placed_job.hosts[0]].name
    return next(row for row in reports.rows if row["job"] == placed_job.job.name and row["host"] == host)


def _make_row(placed_job: PlacedJob, row: Mapping[str, Any], reports: RankReports, end_s: float) -> AgentRow:
    """Return the iterations that ended while all jobs were running. Later iterations had less competition.

    At least the first iteration counts. Retransmissions are summed over all hosts of the job.
    """
    iteration_spans = list(pairwise(row["begins_s"]))
    contended_spans = [span for span in iteration_spans if span[1] <= end_s] or iteration_spans[:1]
    return AgentRow(
        job=placed_job.job.name,
        iterations_ms=tuple((end_s - start_s) * 1e3 for start_s, end_s in contended_spans),
        computed_ms=row["computed_s"] * 1e3 / len(iteration_spans),
        alignments=row["alignments"],
        retransmits=sum(
            other_row["retransmits"] for other_row in reports.rows if other_row["job"] == placed_job.job.name
        ),
    )
