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
from testbed.lab.hosts.fleet import Fleet, Launch
from testbed.lab.model import Lab
from testbed.measure.collectives.rank_reports import RankReports
from testbed.measure.sharing.policies import Conditions, JobLinks, Policy, Schedule, Transport

PROGRAMS = ("guard.py", "periodic_job.py", "transfers.py", "udp_ends.py", "transport.py", "congestion.py")
HANDLE = 0x1B
"""Handle of the queues that `testbed.node.queues` sets."""
START_DELAY_S = 2.0
"""Time from the last answer of an agent to the start of the jobs, in which all agents connect."""
TIMEOUT_S = 60.0
EFFICIENCY: dict[Transport, float] = {"tcp": 1448 / 1514, "udp": 1400 / 1470}
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
    placed: Sequence[JobLinks],
    policy: Policy,
    schedule: Schedule,
    conditions: Conditions,
) -> list[AgentRow]:
    """Run the jobs on their hosts. Raise `CollectiveError` if a job fails or does not end, and `HostError`."""
    folder = fleet.put(
        {name: resources.files("testbed.node").joinpath(name).read_bytes() for name in PROGRAMS}
    )
    hosts = sorted({host for one in placed for host in one.hosts})
    deadline_s = _compute_deadline_s(placed, schedule, conditions)
    commands = {lab.hosts[host].name: _make_command(lab, host, folder, deadline_s) for host in hosts}
    reports, transport = RankReports(), conditions.choose_transport(policy)
    with fleet.start(commands) as launch:
        for host in hosts:
            launch.send(
                json.dumps({"members": _make_members(lab, placed, host, transport)}) + "\n",
                lab.hosts[host].name,
            )
        _read_until(launch, reports, "ready", len(hosts), deadline_s)
        if len(reports.ready) == len(hosts):
            parts = _make_parts(lab, placed, reports, policy, schedule, conditions)
            epoch = time.time() + START_DELAY_S
            for name, jobs in parts.items():
                launch.send(json.dumps({"epoch": epoch, "jobs": jobs}) + "\n", name)
            _read_until(launch, reports, "done", len(hosts), deadline_s)
        if len(reports.done) < len(hosts):
            launch.close_input()
            raise _make_error(reports, list(commands), deadline_s)
    first = [_find_first_row(lab, one, reports) for one in placed]
    until_s = min(row["begins_s"][-1] for row in first)
    return [_make_row(one, row, reports, until_s) for one, row in zip(placed, first, strict=True)]


def _compute_deadline_s(placed: Sequence[JobLinks], schedule: Schedule, conditions: Conditions) -> float:
    """Return the deadline of the jobs: `TIMEOUT_S`, plus twice the sum of all periods for each iteration."""
    periods_ms = sum(max(one.job.period_ms, schedule.slots_ms[one.job.name]) for one in placed)
    return TIMEOUT_S + 2e-3 * periods_ms * (conditions.iterations + 1)


def _make_command(lab: Lab, host: int, folder: str, deadline_s: float) -> str:
    python = lab.hosts[host].python
    guard = [python, "-IS", f"{folder}/guard.py", "--deadline", f"{deadline_s:g}", "--renew", "--"]
    return shlex.join([*guard, python, "-IS", f"{folder}/periodic_job.py"])


def _make_members(
    lab: Lab, placed: Sequence[JobLinks], host: int, transport: Transport
) -> list[dict[str, Any]]:
    """Return the jobs of a host. A job that receives there listens at the address of the NIC at the end of its link."""
    members = []
    for one in placed:
        if host in one.hosts:
            into = next((link for link in one.links if link.target.node == host), None)
            listen = str(lab.nic(into.target).address) if into else None
            members.append({"job": one.job.name, "listen": listen, "transport": transport})
    return members


def _make_parts(
    lab: Lab,
    placed: Sequence[JobLinks],
    reports: RankReports,
    policy: Policy,
    schedule: Schedule,
    conditions: Conditions,
) -> dict[str, dict[str, Any]]:
    """Return the second input line of each agent: by host, its part of each job."""
    users = group_jobs_by_nic(placed)
    parts: dict[str, dict[str, Any]] = {}
    for one in placed:
        for host, link in zip(one.hosts, one.out, strict=True):
            part = _make_shared_part(lab, one, policy, schedule, conditions) | _find_next_member(
                lab, one, host, link, reports
            )
            if link and conditions.shares(policy, users[link.source]):
                part["mark"] = HANDLE << 16 | users[link.source].index(one.job.name) + 1
            parts.setdefault(lab.hosts[host].name, {})[one.job.name] = part
    return parts


def _find_next_member(
    lab: Lab, one: JobLinks, host: int, link: Link | None, reports: RankReports
) -> dict[str, Any]:
    if link is None:
        return {"next": None, "port": 0, "source": ""}
    target = lab.hosts[link.target.node].name
    return {
        "next": str(lab.nic(link.target).address),
        "port": reports.ready[target]["ports"][one.job.name],
        "source": str(lab.hosts[host].address),
    }


def _make_shared_part(
    lab: Lab, one: JobLinks, policy: Policy, schedule: Schedule, conditions: Conditions
) -> dict[str, Any]:
    """Return the settings that all hosts of a job share: phases in seconds and bytes, slots, transport."""
    transport = conditions.choose_transport(policy)
    bytes_per_s = lab.link.rate_mbps * 1e6 / 8 * EFFICIENCY[transport]
    phases, ended_ms = [], 0.0
    for burst in one.job.bursts:
        part = min(burst.gbps / lab.link.represents_gbps, 1.0)
        size = round(burst.length_ms * 1e-3 * part * bytes_per_s)
        pace = bytes_per_s * part if part < 1 else 0.0
        phases.append([(burst.start_ms - ended_ms) * 1e-3, max(size, 1), pace])
        ended_ms = burst.end_ms
    is_mltcp = policy == "mltcp"
    return {
        "transport": transport,
        "mark": 0,
        "phases": phases,
        "rest_s": max(one.job.period_ms - ended_ms, 0.0) * 1e-3,
        "steps": one.steps,
        "iterations": conditions.iterations,
        "start_s": schedule.starts_ms[one.job.name] * 1e-3,
        "slot_s": schedule.slots_ms[one.job.name] * 1e-3,
        "tolerance": conditions.tolerance,
        "most_alignments": conditions.most_alignments,
        "control": conditions.control,
        "slope": conditions.slope if is_mltcp else 0.0,
        "intercept": conditions.intercept if is_mltcp else 1.0,
        "give_up_s": TIMEOUT_S,
    }


def group_jobs_by_nic(placed: Sequence[JobLinks]) -> dict[Nic, list[str]]:
    """Return the names of the jobs that send on each NIC, in order."""
    users: dict[Nic, list[str]] = {}
    for one in placed:
        for link in one.links:
            users.setdefault(link.source, []).append(one.job.name)
    return users


def _read_until(launch: Launch, reports: RankReports, until: str, hosts: int, deadline_s: float) -> None:
    """Read lines until all hosts have sent the event `until`, a host has failed, or the time is up."""
    ends_at = time.monotonic() + deadline_s
    while (left_s := ends_at - time.monotonic()) > 0 and launch.running and not reports.failed:
        if len(getattr(reports, until)) == hosts:
            return
        for host, line in launch.lines(min(0.5, left_s)):
            if reports.store_event(host, line) == "row":
                reports.rows[-1]["host"] = host
            if len(getattr(reports, until)) == hosts or reports.failed:
                break


def _make_error(reports: RankReports, hosts: Sequence[str], deadline_s: float) -> CollectiveError:
    if reports.errors:
        errors = "; ".join(f"host {host}: {message}" for host, message in reports.errors.items())
        return CollectiveError(f"jobs did not end: {errors}. All agents were stopped")
    missing = ", ".join(host for host in hosts if host not in reports.done)
    return CollectiveError(
        f"jobs did not end within {deadline_s:.0f} s: no message from {missing}. All agents were "
        "stopped; check with `testbed verify`"
    )


def _find_first_row(lab: Lab, one: JobLinks, reports: RankReports) -> Mapping[str, Any]:
    """Return the row of the job's first host."""
    host = lab.hosts[one.hosts[0]].name
    return next(row for row in reports.rows if row["job"] == one.job.name and row["host"] == host)


def _make_row(one: JobLinks, row: Mapping[str, Any], reports: RankReports, until_s: float) -> AgentRow:
    """Return the iterations that ended while all jobs were running, because later ones had less competition.

    At least the first iteration counts. Retransmissions are summed over all hosts of the job.
    """
    spans = list(pairwise(row["begins_s"]))
    shared_spans = [span for span in spans if span[1] <= until_s] or spans[:1]
    return AgentRow(
        job=one.job.name,
        iterations_ms=tuple((after - before) * 1e3 for before, after in shared_spans),
        computed_ms=row["computed_s"] * 1e3 / len(spans),
        alignments=row["alignments"],
        retransmits=sum(other["retransmits"] for other in reports.rows if other["job"] == one.job.name),
    )
