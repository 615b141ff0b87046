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
from dataclasses import dataclass, replace
from math import log
from statistics import median
from typing import TYPE_CHECKING, Literal, TypeAlias

from testbed.measure.model import FlowFigures, LinkFigures, RankFigures

if TYPE_CHECKING:
    from testbed.measure.results.records import StoredRun

Cause = Literal["compute", "link", "retransmission", "processor", "late", "disk"]
Row: TypeAlias = tuple[str, str, int]
"""Topology, configuration and size."""

MIN_SHARE: Mapping[Cause, float] = {"late": 0.05, "compute": 0.1, "processor": 0.15, "disk": 0.01}
"""Part of the time that a rank must lose against the others: a healthy rank is never late, but all queue a little."""
MIN_LOSS_S = 0.005
"""Seconds that a rank must lose in an iteration: schedulers and timers differ by some milliseconds."""
MIN_ROWS = 0.5
"""Part of the rows, by number or by time, in which the same rank must lose: a real cause persists."""
QUEUE_RATIO = 3.0
"""How much longer than the others a rank must queue for a processor: on a busy machine all ranks queue."""
DISK_RATIO, MIN_DISK_S = 4.0, 0.05
"""How much longer than the others, as a ratio and in seconds, a write must take: a shared disk delays all of them."""
OTHERS_SHARE, QUEUE_SHARE = 0.25, 0.008
"""Processors that other processes on a host must use, more than on other hosts, and the part of the time that its rank
must queue then. The SSH server and our guard use 0.01; where processors are free, others do no harm, and the wake-ups
of a rank that owns its processor take less than that part."""

FULL_BYTES_S = 0.04
"""Seconds at the link's rate that a connection must send in a row: bursts and latency hide the rate of less."""
MIN_LEFT = 0.1
"""Least part of the time that a cause is taken to leave: a run is said to be at most ten times as slow."""
SLOW_LINK = 0.8
"""Rate, relative to the limit of a link and to the other links, below which it is slow: healthy ones reach 0.95."""
BUSY_LINK = 0.5
"""Part of the time in which data waits on a slow link: one that waits less holds up nobody."""
WAITS_RATIO = 1.2
"""How many times longer data may wait on another link of a path: if longer, that link is the congested one."""
LOSS_SHARE, MIN_LOST_BYTES, LOSS_RATIO = 0.005, 50_000, 5.0
"""Retransmitted part and bytes of a lossy link, and how many times that of the lower quartile of links: false timeouts
repeat single packets, up to 0.002 of a row."""
LOSSY_PART = 0.5
"""Part of the bytes over a lossy link whose connections must lose: a full queue elsewhere hits some of them only."""
USUAL_LOSS = 0.0005
"""Part that a healthy link retransmits, in the comparison of links that could have lost the same packets."""


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


def find_causes(
    ranks: Sequence[RankFigures], flows: Sequence[FlowFigures], links: Sequence[LinkFigures]
) -> tuple[Finding, ...]:
    """Return what made a run slow, the worst first; nothing for a healthy run."""
    findings = [*_find_slow_ranks(ranks), *_find_slow_links(ranks, flows, links)]
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
        ranks = len({one.rank for one in stored.ranks})
        findings = find_causes(stored.ranks, stored.flows, stored.links)
        few = f"{ranks} ranks cannot tell which of them is slow, only links are judged: measure on three hosts or more"
        return Explanation(ranks, findings, few if ranks < 3 else "")
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
    """Losses of one rank against the others in a row: seconds in all its iterations, of `whole_s` of the row.

    `active` is the number of iterations in which it had a value, for example a write to its disk.
    """

    row: Row
    rank: int
    lost_s: float
    own_s: float
    typical_s: float
    whole_s: float
    active: int


def group_by_row(ranks: Iterable[RankFigures]) -> dict[Row, dict[int, list[RankFigures]]]:
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

    The iteration with the largest excess does not count, so that one hiccup accuses nobody, unless at most two have a
    value at all: the disk is measured once a row.
    """
    for row, of_rank in group_by_row(ranks).items():
        if len(of_rank) < 3:
            continue
        iterations = min(map(len, of_rank.values()))
        values = {rank: [quantity(one) for one in ones] for rank, ones in of_rank.items()}
        whole_s = sum(median(ones[place].seconds for ones in of_rank.values()) for place in range(iterations))
        for rank, every in values.items():
            own = every[:iterations]
            others = [
                median(values[other][place] for other in values if other != rank)
                for place in range(iterations)
            ]
            excess = sorted(mine - usual for mine, usual in zip(own, others, strict=True))
            active = sum(one > 0 for one in own)
            kept = excess[:-1] if active > 2 else excess
            scale = len(excess) / len(kept)
            yield Loss(row, rank, max(0.0, sum(kept)) * scale, sum(own), sum(others), whole_s, active)


@dataclass(frozen=True, slots=True)
class Lag:
    """The part of an iteration that a rank lost against the others, and the cause of most of it ("" for none)."""

    share: float
    cause: Cause | Literal[""]


def find_lags(ranks: Iterable[RankFigures]) -> dict[Row, list[list[Lag]]]:
    """Return for each row what each rank lost in each iteration, by rank, then iteration."""
    return {
        row: [_measure_lags(rank, of_rank) for rank in sorted(of_rank)]
        for row, of_rank in group_by_row(ranks).items()
    }


def _measure_lags(rank: int, of_rank: Mapping[int, Sequence[RankFigures]]) -> list[Lag]:
    lags = []
    for place, mine in enumerate(of_rank[rank]):
        others = [ones[place] for other, ones in of_rank.items() if other != rank and place < len(ones)]
        whole_s = median(one.seconds for one in (mine, *others)) or 1.0
        lost: dict[Cause, float] = {
            cause: max(0.0, quantity(mine) - median(map(quantity, others))) if others else 0.0
            for cause, (quantity, _) in _QUANTITIES.items()
        }
        cause = max(lost, key=lambda one: lost[one])
        lags.append(Lag(min(1.0, lost[cause] / whole_s), cause if lost[cause] else ""))
    return lags


def _find_slow_ranks(ranks: Sequence[RankFigures]) -> Iterator[Finding]:
    own: dict[int, list[RankFigures]] = defaultdict(list)
    for one in ranks:
        own[one.rank].append(one)
    busy_hosts = {finding.rank: finding for finding in _find_busy_hosts(own)}
    yield from busy_hosts.values()
    for cause, (quantity, words) in _QUANTITIES.items():
        by_rank: dict[int, list[Loss]] = defaultdict(list)
        for loss in find_losses(ranks, quantity):
            by_rank[loss.rank].append(loss)
        for rank, losses in by_rank.items():
            if cause == "processor" and rank in busy_hosts:
                continue
            if finding := _judge_rank(cause, words, losses, own[rank]):
                yield finding


def _find_busy_hosts(own: Mapping[int, Sequence[RankFigures]]) -> Iterator[Finding]:
    """Yield the ranks that queue for a processor while other processes of their host use it."""
    whole_s = {rank: sum(one.seconds for one in ones) for rank, ones in own.items()}
    used = {rank: sum(one.others_s for one in ones) / whole_s[rank] for rank, ones in own.items()}
    queued = {rank: sum(one.queued_s for one in ones) / whole_s[rank] for rank, ones in own.items()}
    for rank, ones in own.items() if len(own) > 2 else ():
        usual = median(used[other] for other in own if other != rank)
        if used[rank] - usual >= OTHERS_SHARE and queued[rank] >= QUEUE_SHARE:
            evidence = (
                f"other processes on {ones[0].host} used {used[rank]:.2f} processors ({usual:.2f} on the median "
                f"host), and the rank waited for one {queued[rank] * 100:.0f} % of the time"
            )
            slower = 1 / (1 - min(queued[rank], 0.9))
            yield Finding("processor", rank, ones[0].host, "", evidence, slower)


def _judge_rank(
    cause: Cause, words: str, losses: Sequence[Loss], own: Sequence[RankFigures]
) -> Finding | None:
    """Return the finding of one cause on one rank, if it persists over the rows."""
    hits = [
        one
        for one in losses
        if one.lost_s >= max(MIN_SHARE[cause] * one.whole_s, MIN_LOSS_S * one.active)
        and _is_clear(cause, one)
    ]
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
        return loss.own_s >= DISK_RATIO * loss.typical_s and loss.lost_s >= MIN_DISK_S * loss.active
    return True


@dataclass(frozen=True, slots=True)
class LinkUse:
    """A link in the rows whose connections fill links; all rates are relative to what the link can carry.

    `rate` is that of its connections together while one of them had data in flight, `peak` the largest that its NIC
    reached. `busy` is the part of the time of its busiest connection, `waits` the sum of these parts over connections,
    and `waits_elsewhere` the largest such sum of another link on the path of that connection. `lossy_bytes` are those
    of connections that lose packets.
    """

    link: str
    rank: int
    host: str
    limit_mbps: float
    rate: float
    peak: float
    windows: int
    busy: float
    waits: float
    waits_elsewhere: float
    sent_bytes: int
    lost_bytes: int
    lossy_bytes: int

    @property
    def loss(self) -> float:
        """Part of the bytes of its connections that TCP sent again."""
        return self.lost_bytes / max(1, self.sent_bytes)

    @property
    def likelihood_of_loss(self) -> float:
        """Logarithm of how much more likely the losses of its connections are if this link causes all of them.

        Losses are a Poisson process, of rate `loss` on a lossy link and `USUAL_LOSS` on others. A link that misses some
        of the connections that lose, or has others that lose nothing, is less likely.
        """
        return self.lost_bytes * (log(max(self.loss, USUAL_LOSS) / USUAL_LOSS) - 1)


def _find_slow_links(
    ranks: Sequence[RankFigures], flows: Sequence[FlowFigures], links: Sequence[LinkFigures]
) -> Iterator[Finding]:
    """Yield the link that loses packets, and the one that is slow for another reason, if there are such.

    Several links look slow if one is: connections over it take other links, too, and acknowledgements for the opposite
    direction wait on it. It is the one for which the most data waited.
    """
    uses = measure_links(ranks, flows, links)
    usual_loss = sorted(one.loss for one in uses)[len(uses) // 4] if uses else 0.0
    lossy = max(
        (
            one
            for one in uses
            if one.loss >= max(LOSS_SHARE, LOSS_RATIO * usual_loss)
            and one.lost_bytes >= MIN_LOST_BYTES
            and one.lossy_bytes >= LOSSY_PART * one.sent_bytes
        ),
        key=lambda one: one.likelihood_of_loss,
        default=None,
    )
    if lossy:
        evidence = f"TCP sent {lossy.loss * 100:.1f} % of the bytes again ({lossy.lost_bytes} bytes)"
        slower = 1 / max(MIN_LEFT, 1 - lossy.busy * max(0.0, 1 - lossy.rate))
        yield Finding("retransmission", lossy.rank, lossy.host, lossy.link, evidence, slower)
    usual_rate, usual_peak = (
        min(1.0, median(values)) if values else 1.0
        for values in ([one.rate for one in uses], [one.peak for one in uses])
    )
    slow = max(
        (
            one
            for one in uses
            if max(one.rate, one.peak) < SLOW_LINK
            and one.busy >= BUSY_LINK
            and one.waits_elsewhere <= WAITS_RATIO * one.waits
            and (one.rate < SLOW_LINK * usual_rate or one.peak < SLOW_LINK * usual_peak)
        ),
        key=lambda one: one.waits,
        default=None,
    )
    if slow and slow != lossy:
        rate = min(slow.rate, slow.peak)
        evidence = (
            f"data waited on it {slow.busy * 100:.0f} % of the time, although it carried only "
            f"{rate * slow.limit_mbps:.1f} of its {slow.limit_mbps:g} Mbit/s"
        )
        slower = 1 / max(MIN_LEFT, 1 - slow.busy * (1 - rate))
        yield Finding("link", slow.rank, slow.host, slow.link, evidence, slower)


def measure_links(
    ranks: Iterable[RankFigures], flows: Iterable[FlowFigures], links: Iterable[LinkFigures]
) -> tuple[LinkUse, ...]:
    """Return how each link was used in the rows whose connections send enough over it to fill it."""
    whole_s = {
        row: median(sum(one.seconds for one in ones) for ones in of_rank.values())
        for row, of_rank in group_by_row(ranks).items()
    }
    hosts = {one.rank: one.host for one in ranks}
    over: dict[tuple[str, Row], list[FlowFigures]] = defaultdict(list)
    for flow in flows:
        if flow.acked_bytes * 8e-6 >= FULL_BYTES_S * flow.limit_mbps:
            for name in flow.path.split(", "):
                over[name, (flow.topology, flow.configuration, flow.size_bytes)].append(flow)
    waits = {
        place: sum(one.busy_s - one.limited_s for one in ones) / whole_s[place[1]]
        for place, ones in over.items()
        if place[1] in whole_s
    }
    uses: dict[str, list[LinkUse]] = defaultdict(list)
    for link in links:
        row = (link.topology, link.configuration, link.size_bytes)
        if waits.get((link.link, row), 0.0) <= 0 or not link.windows or link.rank not in hosts:
            continue
        carried = over[link.link, row]
        busiest = max(carried, key=lambda one: one.busy_s - one.limited_s)
        waits_s = waits[link.link, row] * whole_s[row]
        uses[link.link].append(
            LinkUse(
                link=link.link,
                rank=link.rank,
                host=hosts[link.rank],
                limit_mbps=link.limit_mbps,
                rate=sum(one.acked_bytes for one in carried)
                * 8e-6
                / min(whole_s[row], waits_s)
                / link.limit_mbps,
                peak=link.peak_mbps / link.limit_mbps,
                windows=link.windows,
                busy=min(1.0, (busiest.busy_s - busiest.limited_s) / whole_s[row]),
                waits=waits[link.link, row],
                waits_elsewhere=max(
                    waits[name, row] if name != link.link else 0.0 for name in busiest.path.split(", ")
                ),
                sent_bytes=sum(one.sent_bytes for one in carried),
                lost_bytes=sum(one.retransmitted_bytes for one in carried),
                lossy_bytes=sum(
                    one.sent_bytes
                    for one in carried
                    if one.retransmitted_bytes >= LOSS_SHARE / 2 * one.sent_bytes
                ),
            )
        )
    return tuple(_pool(of_link) for of_link in uses.values())


def _pool(uses: Sequence[LinkUse]) -> LinkUse:
    """Return the use of a link over its rows: medians, sums of bytes, and the peak of the longest."""
    return replace(
        uses[0],
        rate=median(one.rate for one in uses),
        peak=max(uses, key=lambda one: one.windows).peak,
        busy=median(one.busy for one in uses),
        waits=median(one.waits for one in uses),
        waits_elsewhere=median(one.waits_elsewhere for one in uses),
        sent_bytes=sum(one.sent_bytes for one in uses),
        lost_bytes=sum(one.lost_bytes for one in uses),
        lossy_bytes=sum(one.lossy_bytes for one in uses),
    )
