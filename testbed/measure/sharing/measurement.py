"""Jobs under one policy after another on an open lab, predicted beside measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.design.sharing.jobs import Placement, SharedJob
from testbed.errors import CollectiveError
from testbed.leases.model import parts_of
from testbed.measure.sharing.agents import AgentRow, jobs_by_nic, run_agents
from testbed.measure.sharing.links import JobLinks, links_of_jobs
from testbed.measure.sharing.policies import Conditions, Policy, Schedule, predicted, schedule_of
from testbed.measure.sharing.queues import Queues, held_queues
from testbed.operate.journal import Journal
from testbed.operate.session import Design, LabSession

if TYPE_CHECKING:
    from testbed.leases.fence import Fence


@dataclass(frozen=True, slots=True)
class MeasuredJob:
    """Iterations of a job on hosts under a policy, beside the mean that the model predicts for as many."""

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
    def difference(self) -> float:
        """Prediction over measurement, less 1."""
        return self.predicted_ms / self.mean_ms - 1


def measure(
    session: LabSession,
    journal: Journal,
    design: Design,
    jobs: Sequence[SharedJob],
    placement: Placement,
    shifted: Schedule,
    policies: Sequence[Policy],
    conditions: Conditions,
    *,
    spread: bool = False,
    note: Callable[[str], object] = lambda _text: None,
    done: Callable[[Sequence[MeasuredJob]], object] = lambda _rows: None,
) -> list[MeasuredJob]:
    """Run the jobs under each policy; `done` gets the rows of one as soon as they are measured.

    The hosts are held under the lease of `--lease`, or an implicit one; their queues are put back in the end. Raises
    `CollectiveError`, `TopologyError`, `HostError`, `LeaseDenied`.
    """
    from testbed.leases.fence import fenced  # SQLAlchemy: not for a plan

    if session.fleet is None:
        raise CollectiveError(
            "jobs run on hosts; the hosts of this lab are only modelled (kernel hosts need root)"
        )
    placed = links_of_jobs(session.lab, design.wiring, jobs, placement, spread=spread)
    parts = parts_of(
        session.lab, {f"host:{session.lab.hosts[host].name}" for one in placed for host in one.hosts}
    )
    measured: list[MeasuredJob] = []
    with fenced(journal.database, session.lab.name, parts) as fence:
        for policy in policies:
            note(f"{policy}: {conditions.iterations} iterations")
            schedule = schedule_of(policy, jobs, shifted, conditions)
            found = _under(session, fence, placed, policy, schedule, conditions)
            done(found)
            measured += found
    return measured


def _under(
    session: LabSession,
    fence: Fence,
    placed: Sequence[JobLinks],
    policy: Policy,
    schedule: Schedule,
    conditions: Conditions,
) -> list[MeasuredJob]:
    """Run the jobs under a policy. The lease cannot end while queues are set; they are put back whatever it becomes."""
    assert session.fleet is not None  # checked by `measure`
    queues = _queues(session, placed, policy, conditions)
    with ExitStack() as stack:
        with fence.sending():
            stack.enter_context(held_queues(session.fleet, session.lab, queues))
        rows = run_agents(session.fleet, session.lab, placed, policy, schedule, conditions)
    expected = predicted(policy, placed, session.lab.link.represents_gbps, schedule, conditions)
    return [_measured(row, policy, one.mean_ms) for row, one in zip(rows, expected, strict=True)]


def _queues(
    session: LabSession, placed: Sequence[JobLinks], policy: Policy, conditions: Conditions
) -> Queues:
    lab = session.lab
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for nic, names in jobs_by_nic(placed).items():
        found.setdefault(lab.hosts[nic.node].name, {})[lab.nic(nic).name] = {
            "rate_mbps": lab.link.rate_mbps,
            "limit": conditions.queue_of(policy),
            "shares": conditions.shares(policy, names),
        }
    return found


def _measured(row: AgentRow, policy: Policy, predicted_ms: float) -> MeasuredJob:
    return MeasuredJob(
        job=row.job,
        policy=policy,
        mean_ms=statistics.mean(row.iterations_ms),
        p99_ms=float(np.percentile(row.iterations_ms, 99)),
        alignments=row.alignments,
        retransmits=row.retransmits,
        predicted_ms=predicted_ms,
        computed_ms=row.computed_ms,
        iterations_ms=row.iterations_ms,
    )
