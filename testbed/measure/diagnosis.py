"""Why a run on hosts was slow: the rank, host or link that held up the others, and the evidence.

In a collective every rank waits for the slowest, so that the durations of iterations accuse nobody. What tells ranks
apart is what each of them did meanwhile. A slow rank ran, queued for a processor, wrote to its disk or stood still
longer than the others. A slow link had data in flight all the time, at a low rate, while the others were idle in
between. Ranks are compared with each other in the same iteration, and links with the other links: load that
slows all of them alike accuses none. No clock is compared between hosts.

The idea is that of MegaScale (Jiang and others, NSDI 2024, section 5), which finds stragglers from such timers of
each rank; the causes are those that kernels count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Literal, TypeAlias

from testbed.measure.model import FlowFigures, RankFigures

if TYPE_CHECKING:
    from testbed.measure.results.records import StoredRun

Cause = Literal["compute", "link", "retransmission", "processor", "late", "disk"]
Row: TypeAlias = tuple[str, str, int]
"""Topology, configuration and size."""

MIN_SHARE = 0.15
"""Part of the time that a rank must lose against the others: below, nobody would notice the run to be slow."""
MIN_LOSS_S = 0.005
"""Seconds that a rank must lose in an iteration: schedulers and timers differ by some milliseconds."""
MIN_ROWS = 0.5
"""Part of the rows, by number or by time, in which the same rank must lose: a real cause persists."""
QUEUE_RATIO = 3.0
"""How much longer than the others a rank must queue for a processor: on a busy machine all ranks queue."""
DISK_RATIO, MIN_DISK_S = 4.0, 0.05
"""How much longer than the others, in both senses, a write must take: a shared disk delays all by several times."""
OTHERS_SHARE = 0.3
"""Processors that other processes on a host must use to be a cause; the SSH server and our guard use 0.01."""

FULL_BYTES_S = 0.04
"""Seconds at the link's rate that a connection must send in a row: bursts and latency hide the rate of less."""
SLOW_LINK = 0.8
"""Rate, relative to the limit of a link and to the other links, below which it is slow: healthy ones reach 0.95."""
BUSY_LINK = 0.5
"""Part of the time in which data waits on a slow link: one that waits less holds up nobody."""
LOSS_SHARE, MIN_LOST_BYTES = 0.005, 50_000
"""Retransmitted part and bytes of a lossy link: false timeouts repeat single packets, up to 0.003 of a short row."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause of slowness: its rank and host, or its link (`a/nic1 -> b/nic1`) with the sending rank and host.

    `slower` is the estimated factor by which it lengthens the iterations that it affects.
    """

    cause: Cause
    rank: int
    host: str
    link: str
    evidence: str
    slower: float

    def describe(self) -> str:
        """Return the finding as one sentence for people."""
        subject = f"link {self.link}" if self.link else f"rank {self.rank} ({self.host})"
        return f"{self.cause}: {subject}: {self.evidence}; iterations take {self.slower:.2f} times as long"


def find_causes(ranks: Sequence[RankFigures], flows: Sequence[FlowFigures]) -> tuple[Finding, ...]:
    """Return what made a run slow, the worst first; nothing for a healthy run."""
    hosts = {one.rank: one.host for one in ranks}
    findings = [*_find_slow_ranks(ranks), *_find_slow_links(ranks, flows, hosts)]
    return tuple(sorted(findings, key=lambda one: -one.slower))


@dataclass(frozen=True, slots=True)
class Explanation:
    """The number of ranks of a run, what held it up, and why it cannot be explained ("" if it can)."""

    ranks: int
    findings: tuple[Finding, ...]
    note: str = ""


def explain_run(stored: StoredRun) -> Explanation:
    """Return what held up a stored run."""
    if stored.ranks:
        return Explanation(len({one.rank for one in stored.ranks}), find_causes(stored.ranks, stored.flows))
    if stored.summary.hosts == "model":
        note = "the hosts of this run are modelled: no rank ran, so none was slow"
    else:
        note = (
            "this run keeps no figures of ranks (ranks.parquet): only runs of `testbed nccl`, `job` and `demo` on "
            "hosts, with this version or a later one, do. Measure again to explain it"
        )
    return Explanation(0, (), note)


@dataclass(frozen=True, slots=True)
class Loss:
    """What one rank lost against the others in a row: seconds in all its iterations, of `whole_s` of the row."""

    row: Row
    rank: int
    lost_s: float
    own_s: float
    typical_s: float
    whole_s: float
    iterations: int

    @property
    def counts(self) -> bool:
        """True if the loss is a notable part of the row."""
        return self.lost_s >= max(MIN_SHARE * self.whole_s, MIN_LOSS_S * self.iterations)


def _by_row(ranks: Iterable[RankFigures]) -> dict[Row, dict[int, list[RankFigures]]]:
    """Return the iterations of each rank by row, in order."""
    rows: dict[Row, dict[int, list[RankFigures]]] = defaultdict(lambda: defaultdict(list))
    for one in ranks:
        rows[one.topology, one.configuration, one.size_bytes][one.rank].append(one)
    return rows


def idle_s(one: RankFigures) -> float:
    """Return the seconds in which a rank neither ran nor waited for anything known: it was late by itself.

    A rank that is stopped from outside cannot time itself; its watch does.
    """
    known_s = one.waiting_s + one.processor_s + one.queued_s + one.writes_s
    return max(one.stopped_s, one.seconds - known_s, 0.0)


def computed_s(one: RankFigures) -> float:
    """Return the seconds of computing: processor time, and what the computing of a job took beyond its plan."""
    late_s = one.stopped_s + one.queued_s
    return one.processor_s + max(0.0, one.computing_s - one.planned_s - late_s)


_QUANTITIES: Mapping[Cause, tuple[Callable[[RankFigures], float], str]] = {
    "late": (idle_s, "stood still or started late for"),
    "compute": (computed_s, "computed for"),
    "processor": (lambda one: one.queued_s, "waited for a processor for"),
    "disk": (lambda one: one.disk_s, "wrote to its disk for"),
}
"""For each cause of a slow rank, its seconds in an iteration, and words."""


def find_losses(ranks: Iterable[RankFigures], quantity: Callable[[RankFigures], float]) -> Iterator[Loss]:
    """Yield what each rank lost in each row: the excess over the median of the other ranks, iteration by iteration.

    The iteration with the largest excess does not count, so that one hiccup accuses nobody.
    """
    for row, of_rank in _by_row(ranks).items():
        if len(of_rank) < 3:
            continue
        iterations = min(map(len, of_rank.values()))
        values = {rank: [quantity(one) for one in ones] for rank, ones in of_rank.items()}
        whole_s = sum(median(ones[place].seconds for ones in of_rank.values()) for place in range(iterations))
        for rank, own in values.items():
            others = [
                median(values[other][place] for other in values if other != rank)
                for place in range(iterations)
            ]
            excess = sorted(mine - usual for mine, usual in zip(own, others, strict=False))
            kept = excess[:-1] if len(excess) > 2 else excess
            scale = len(excess) / len(kept)
            yield Loss(row, rank, max(0.0, sum(kept)) * scale, sum(own), sum(others), whole_s, iterations)


def _find_slow_ranks(ranks: Sequence[RankFigures]) -> Iterator[Finding]:
    for cause, (quantity, words) in _QUANTITIES.items():
        by_rank: dict[int, list[Loss]] = defaultdict(list)
        for loss in find_losses(ranks, quantity):
            by_rank[loss.rank].append(loss)
        for rank, losses in by_rank.items():
            if finding := _judge_rank(cause, words, losses, [one for one in ranks if one.rank == rank]):
                yield finding


def _judge_rank(
    cause: Cause, words: str, losses: Sequence[Loss], own: Sequence[RankFigures]
) -> Finding | None:
    """Return the finding of one cause on one rank, if it persists over the rows."""
    hits = [one for one in losses if one.counts and _is_clear(cause, one)]
    if len(hits) < MIN_ROWS * len(losses) and sum(one.whole_s for one in hits) < MIN_ROWS * sum(
        one.whole_s for one in losses
    ):
        return None
    lost_s, whole_s = sum(one.lost_s for one in hits), sum(one.whole_s for one in hits)
    if not hits:
        return None
    mine_s, usual_s = sum(one.own_s for one in hits), sum(one.typical_s for one in hits)
    evidence = f"it {words} {mine_s:.2f} s of {whole_s:.2f} s, the others for {usual_s:.2f} s (median)"
    # A disk that is measured between iterations lengthens the run by its time; all else is part of iterations.
    inside_s = min(lost_s, 0.9 * whole_s)
    is_inside = cause != "disk" or any(one.writes_s for one in own)
    slower = whole_s / (whole_s - inside_s) if is_inside else 1 + lost_s / whole_s
    return Finding(cause, own[0].rank, own[0].host, "", evidence, slower)


def _is_clear(cause: Cause, loss: Loss) -> bool:
    """Return True if a rank stands out by more than a busy machine explains."""
    if cause == "processor":
        return loss.own_s >= QUEUE_RATIO * loss.typical_s
    if cause == "disk":
        usual_s = loss.typical_s / loss.iterations
        return loss.own_s >= DISK_RATIO * loss.typical_s and loss.lost_s / loss.iterations >= max(
            MIN_DISK_S / loss.iterations, usual_s
        )
    return True


@dataclass(frozen=True, slots=True)
class LinkUse:
    """A link in the rows that filled it: its rate while data waited, relative to its limit, and that part of the time."""

    link: str
    rank: int
    rate: float
    limit_mbps: float
    busy: float
    loss: float
    lost_bytes: int
    peak: float


def _find_slow_links(
    ranks: Sequence[RankFigures], flows: Sequence[FlowFigures], hosts: Mapping[int, str]
) -> Iterator[Finding]:
    uses = measure_links(ranks, flows)
    lossy = _choose(
        [one for one in uses if one.loss >= LOSS_SHARE and one.lost_bytes >= MIN_LOST_BYTES],
        lambda one: -one.loss,
    )
    if lossy:
        evidence = f"TCP sent {lossy.loss * 100:.1f} % of the bytes again ({lossy.lost_bytes} bytes)"
        yield Finding(
            "retransmission",
            lossy.rank,
            hosts[lossy.rank],
            lossy.link,
            evidence,
            max(1.0, lossy.busy / min(1.0, lossy.rate)),
        )
        return
    usual = min(1.0, median(one.rate for one in uses)) if uses else 1.0
    slow = _choose(
        [one for one in uses if one.rate < SLOW_LINK * usual and one.busy >= BUSY_LINK],
        lambda one: one.rate / one.busy,
    )
    if slow:
        evidence = (
            f"data waited on it {slow.busy * 100:.0f} % of the time and passed at "
            f"{slow.rate * slow.limit_mbps:.1f} Mbit/s of {slow.limit_mbps:g}; the median link passes "
            f"{usual * slow.limit_mbps:.1f}"
        )
        slower = 1 / (1 - slow.busy * (1 - slow.rate / usual))
        yield Finding("link", slow.rank, hosts[slow.rank], slow.link, evidence, slower)


def _choose(suspects: Sequence[LinkUse], order: Callable[[LinkUse], float]) -> LinkUse | None:
    """Return the first of the links in an order; a slow link slows connections over other links, too."""
    return min(suspects, key=order, default=None)


def measure_links(ranks: Iterable[RankFigures], flows: Iterable[FlowFigures]) -> tuple[LinkUse, ...]:
    """Return how each link was used in the row in which it was slowest, of those that send enough over it."""
    whole_s = {
        row: median(sum(one.seconds for one in ones) for ones in of_rank.values())
        for row, of_rank in _by_row(ranks).items()
    }
    by_link: dict[tuple[str, Row], list[FlowFigures]] = defaultdict(list)
    for flow in flows:
        if flow.acked_bytes * 8e-6 >= FULL_BYTES_S * flow.limit_mbps:
            for link in flow.path.split(", "):
                by_link[link, (flow.topology, flow.configuration, flow.size_bytes)].append(flow)
    uses: dict[str, list[LinkUse]] = defaultdict(list)
    for (link, row), over in by_link.items():
        busiest_s = max(one.busy_s - one.limited_s for one in over)
        if busiest_s <= 0 or row not in whole_s:
            continue
        limit = over[0].limit_mbps
        uses[link].append(
            LinkUse(
                link=link,
                rank=over[0].source,
                rate=sum(one.acked_bytes for one in over) * 8e-6 / busiest_s / limit,
                limit_mbps=limit,
                busy=min(1.0, busiest_s / whole_s[row]),
                loss=min(one.retransmitted_bytes / max(1, one.sent_bytes) for one in over),
                lost_bytes=sum(one.retransmitted_bytes for one in over),
                peak=max(one.peak_mbps for one in over) / limit,
            )
        )
    return tuple(_pool(of_link) for of_link in uses.values())


def _pool(uses: Sequence[LinkUse]) -> LinkUse:
    """Return the median use of a link over rows."""
    return LinkUse(
        link=uses[0].link,
        rank=uses[0].rank,
        rate=median(one.rate for one in uses),
        limit_mbps=uses[0].limit_mbps,
        busy=median(one.busy for one in uses),
        loss=median(one.loss for one in uses),
        lost_bytes=sum(one.lost_bytes for one in uses),
        peak=max(one.peak for one in uses),
    )
