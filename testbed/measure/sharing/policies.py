"""Policies by which jobs on hosts share links, the links that their bursts use, and predicted iteration times.

In a burst, each host of a job sends to the next host over a circuit of the current topology. The contention model
predicts iteration times under each policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from testbed.design.model import Link, Wiring
from testbed.design.sharing.cassini.prediction import PolicyPrediction, predict_policy
from testbed.design.sharing.jobs import Placement, SharedJob, place_jobs
from testbed.errors import TopologyError
from testbed.lab.model import Lab

if TYPE_CHECKING:
    from testbed.design.sharing.cassini.schedule import Schedule as CassiniSchedule


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job on hosts of the lab. `hosts` are node numbers in the order of its ring.

    `outgoing_links[i]` is the link on which host i sends, or None if the host only receives.
    """

    job: SharedJob
    hosts: tuple[int, ...]
    outgoing_links: tuple[Link | None, ...]

    @property
    def step_count(self) -> int:
        """Number of parts of a burst that follow one after the other: 2 (k - 1) for an AllReduce of k hosts, else 1."""
        return 2 * (len(self.hosts) - 1) if is_allreduce(self.job, len(self.hosts)) else 1

    @property
    def links(self) -> tuple[Link, ...]:
        """Links on which the job sends."""
        return tuple(link for link in self.outgoing_links if link)


def is_allreduce(job: SharedJob, host_count: int) -> bool:
    """Return whether the hosts of a job exchange parts of a burst. Otherwise each host sends its burst as a whole."""
    return job.traffic == "allreduce" or (not job.traffic and host_count > 2)


def find_job_links(
    lab: Lab, wiring: Wiring, jobs: Sequence[SharedJob], placement: Placement, *, is_spread: bool = False
) -> list[PlacedJob]:
    """Return the links of each job. With `is_spread`, jobs on the same hosts use parallel links in turn.

    Raises `TopologyError` if hosts have no links between them, and for a job on a single host.
    """
    node_by_host = {host.name: node for node, host in enumerate(lab.hosts)}
    placed_jobs: list[PlacedJob] = []
    for job in jobs:
        hosts = tuple(node_by_host[name] for name in placement[job.name])
        if len(hosts) < 2:
            raise TopologyError(f"job {job.name!r} sends nothing on a single host: give it at least two")
        earlier_job_count = (
            sum(set(hosts) == set(placed_job.hosts) for placed_job in placed_jobs) if is_spread else 0
        )
        placed_jobs.append(_find_job_links(lab, wiring, job, hosts, earlier_job_count))
    return placed_jobs


def _find_job_links(
    lab: Lab, wiring: Wiring, job: SharedJob, hosts: tuple[int, ...], link_index: int
) -> PlacedJob:
    """Return the links of a job, from each host to the next in the order of `hosts`.

    If a link is missing, use the reverse order. A job with two hosts starts with the host of the lower number.
    """
    if len(hosts) == 2:
        hosts = (min(hosts), max(hosts))
    for order in (hosts, hosts[::-1]):
        is_one_way = len(order) == 2 and not is_allreduce(job, 2)
        pairs = [(order[0], order[1])] if is_one_way else list(zip(order, order[1:] + order[:1], strict=True))
        ring_links = [_find_link(wiring, pair, link_index) for pair in pairs]
        if None not in ring_links:
            return PlacedJob(job, order, (*ring_links, *((None,) if is_one_way else ())))
    hosts_text = ", ".join(lab.hosts[host].name for host in hosts)
    raise TopologyError(
        f"no circuits join the hosts of job {job.name!r} ({hosts_text}) in the current topology: choose "
        "hosts that are neighbours (`testbed verify` lists links), or apply a topology that joins "
        "them"
    )


def _find_link(wiring: Wiring, pair: tuple[int, int], link_index: int) -> Link | None:
    links = sorted(link for link in wiring.links if (link.source.node, link.target.node) == pair)
    return links[link_index % len(links)] if links else None


Policy = Literal["fair", "weights", "shifts", "mltcp"]
Transport = Literal["tcp", "udp"]
POLICIES: tuple[Policy, ...] = ("fair", "weights", "shifts", "mltcp")
SHORT_QUEUE_PACKETS, CLASS_QUEUE_PACKETS = 16, 50
"""Queue lengths in packets: of a queue that all jobs share, and of the queue that each job has under HTB."""
STAGGER_SHARE = 0.01
"""Offset between starts of jobs under MLTCP, as a fraction of the shortest period. Without it, jobs stay in step."""
PERIOD_SLACK = 0.03
"""Fraction by which a job's period is extended, so that the job can recover from disturbances."""

MAX_SLOT_USE = 1.02
"""Maximum of (iteration time in the model) / (slot length). A job with a larger ratio would miss its slots."""
SLOT_TOLERANCE = 0.1
"""Fraction of its slot by which an iteration may be late before it waits for the next slot.

A late iteration delays the jobs of the following slots, and these delay others. Beyond this tolerance, the delays cost
more than one slot."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions under which jobs run.

    `weights` maps jobs to weights; jobs without an entry have weight 1. If there are no entries, the first job has
    weight 3. `slope` and `intercept` are parameters of MLTCP. A negative `stagger_ms` and a `queue` of 0 select the
    defaults.
    """

    iterations: int = 100
    transport: Transport = "tcp"
    control: str = "reno"
    weights: Mapping[str, float] = field(default_factory=dict)
    slope: float = 1.75
    intercept: float = 0.25
    most_alignments: int = 100
    tolerance: float = SLOT_TOLERANCE
    slack: float = PERIOD_SLACK
    stagger_ms: float = -1.0
    queue: int = 0

    def list_weights(self, names: Sequence[str]) -> tuple[float, ...]:
        """Return the weights of these jobs, in order."""
        weights = self.weights or {names[0]: 3.0}
        return tuple(float(weights.get(name, 1.0)) for name in names)

    def choose_transport(self, policy: Policy) -> Transport:
        """Return the transport. MLTCP needs our own transport over UDP."""
        return "udp" if policy == "mltcp" else self.transport

    def choose_queue_length(self, policy: Policy) -> int:
        """Return the length of a queue in packets."""
        return self.queue or (CLASS_QUEUE_PACKETS if policy in ("fair", "weights") else SHORT_QUEUE_PACKETS)

    def compute_shares(self, policy: Policy, names: Sequence[str]) -> list[float]:
        """Return the guaranteed fraction of a link for each of these jobs, or [] if they share one queue."""
        if policy == "fair":
            return [1 / len(names)] * len(names)
        if policy == "weights":
            weights = self.list_weights(names)
            return [weight / sum(weights) for weight in weights]
        return []


@dataclass(frozen=True, slots=True)
class Schedule:
    """Start times and slot lengths by job, in ms. A job with a slot length of 0 has no slots."""

    starts_ms: Mapping[str, float]
    slots_ms: Mapping[str, float]


def convert_cassini_schedule(cassini_schedule: CassiniSchedule) -> Schedule:
    """Return starts and slots of Cassini's schedule, without a slot for a job that would miss every slot.

    On a host such a job would always wait for its next slot, but in the model it starts at once.
    """
    slot_by_job_ms = {
        prediction.job: prediction.slot_ms
        if prediction.shifted_ms <= MAX_SLOT_USE * prediction.slot_ms
        else 0.0
        for prediction in cassini_schedule.predicted
    }
    return Schedule(cassini_schedule.starts_ms, slot_by_job_ms)


def make_schedule(
    policy: Policy, jobs: Sequence[SharedJob], shifted_schedule: Schedule, conditions: Conditions
) -> Schedule:
    """Return starts and slots under a policy. `shifted_schedule` is Cassini's schedule."""
    if policy == "shifts":
        period_factor = 1 + conditions.slack
        return Schedule(
            {job.name: shifted_schedule.starts_ms[job.name] * period_factor for job in jobs},
            {job.name: shifted_schedule.slots_ms[job.name] * period_factor for job in jobs},
        )
    stagger_ms = conditions.stagger_ms
    if stagger_ms < 0:
        stagger_ms = STAGGER_SHARE * min(job.period_ms for job in jobs) if policy == "mltcp" else 0.0
    return Schedule(
        {job.name: index * stagger_ms for index, job in enumerate(jobs)},
        dict.fromkeys(shifted_schedule.slots_ms, 0.0),
    )


def predict_jobs(
    policy: Policy,
    placed_jobs: Sequence[PlacedJob],
    rate_gbps: float,
    schedule: Schedule,
    conditions: Conditions,
) -> list[PolicyPrediction]:
    """Return the model's prediction for jobs under a policy, over as many iterations as the measurement."""
    jobs_by_link: dict[str, list[str]] = {}
    for placed_job in placed_jobs:
        for link in placed_job.links:
            jobs_by_link.setdefault(str(link), []).append(placed_job.job.name)
    jobs = place_jobs([placed_job.job for placed_job in placed_jobs], jobs_by_link)
    names = [job.name for job in jobs]
    weights = conditions.list_weights(names) if policy == "weights" else ()
    mltcp_parameters = (conditions.slope, conditions.intercept) if policy == "mltcp" else None
    starts_ms = [schedule.starts_ms[name] for name in names]
    slots_ms = [schedule.slots_ms[name] for name in names] if policy == "shifts" else ()
    return predict_policy(
        jobs,
        [rate_gbps] * len(jobs_by_link),
        conditions.iterations,
        weights,
        mltcp_parameters,
        starts_ms,
        slots_ms,
    )
