"""Diagnosis of slow runs on hosts: the rank, host or link that held up the others, and the evidence.

In a collective every rank waits for the slowest, so the durations of iterations do not show which rank is slow. The
activity of each rank does: a slow rank ran, queued for a processor, wrote to its disk or stood still longer than the
others. A slow link had data in flight all the time, at a low rate, while other links were idle in between. Ranks are
compared with each other in the same iteration, and links with other links, so load that slows all alike yields no
finding. Clocks of different hosts are never compared.

MegaScale (Jiang and others, NSDI 2024, section 5) also finds stragglers by timers of each rank. Our causes are
quantities that kernels count.
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
RowKey: TypeAlias = tuple[str, str, int]
"""Topology, configuration and size of a row of results."""

MIN_LOST_SHARE: Mapping[Cause, float] = {"late": 0.05, "compute": 0.1, "processor": 0.15, "disk": 0.01}
"""Share of the time that a slow rank must lose against others. Healthy ranks are never late, but queue a little."""
MIN_LOSS_S = 0.005
"""Seconds that a slow rank must lose in an iteration: schedulers and timers differ by some milliseconds."""
MIN_ROW_SHARE = 0.5
"""Share of the rows, by number or by time, in which the same rank must lose time: a real cause persists."""
QUEUE_RATIO = 3.0
"""Minimum ratio of a slow rank's queueing time to that of the others: on a busy machine all ranks queue."""
DISK_RATIO, MIN_DISK_S = 4.0, 0.05
"""Minimum ratio and excess (s) of a slow rank's writes over those of others: a shared disk delays all ranks."""
MIN_OTHER_PROCESSORS, MIN_QUEUE_SHARE = 0.25, 0.008
"""Processors that other processes must use on a host in excess of the median host, and the share of the time that its
rank must queue. The SSH server and our guard use 0.01 processors. Other processes do no harm while processors are free;
a rank with its own processor queues for less than this share."""

MIN_FLOW_S = 0.04
"""Minimum data of a connection in a row, in seconds at the link's rate. With less data, latency hides the rate."""
MIN_REMAINING_SHARE = 0.1
"""Smallest estimate of the share of the time that a run would take without the cause. It limits the factor to 10."""
MAX_SLOW_LINK_SHARE = 0.8
"""Rate relative to the link's limit and to other links below which a link is slow. Healthy links reach 0.95."""
MIN_BUSY_LINK_SHARE = 0.5
"""Minimum share of the time in which data waits on a slow link. A link on which it waits less holds up nobody."""
MAX_WAIT_RATIO = 1.2
"""Ratio by which data may wait longer on another link of a path. Above it, the other link is the congested one."""
MIN_LOSS_SHARE, MIN_LOST_BYTES, LOSS_RATIO = 0.005, 50_000, 5.0
"""A link is lossy if its retransmitted bytes reach this share, this number, and this ratio to the lower quartile of all
links' shares. False timeouts repeat single packets, up to 0.002 of a row."""
MIN_LOSSY_SHARE = 0.5
"""Minimum share of a lossy link's bytes that lossy connections carry: a full queue elsewhere hits only some of them."""
HEALTHY_LOSS_SHARE = 0.0005
"""Retransmitted share assumed for a healthy link, to compare links that could have lost the same packets."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause of slowness in a rank, or in a link (`a/nic1 -> b/nic1`) with its sending rank.

    `slower` is the estimated factor by which the cause lengthens the iterations that it affects.
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
    """Return the causes that made a run slow, the worst first. A healthy run has none."""
    findings = [*_find_slow_ranks(ranks), *_find_slow_links(ranks, flows, links)]
    return tuple(sorted(findings, key=lambda finding: -finding.slower))


@dataclass(frozen=True, slots=True)
class Explanation:
    """The number of ranks of a run, what held the run up, and why this cannot be explained ("" if it can be)."""

    rank_count: int
    findings: tuple[Finding, ...]
    unexplained_reason: str = ""


def explain_run(stored_run: StoredRun) -> Explanation:
    """Return what held up a stored run."""
    if stored_run.ranks:
        rank_count = len({figures.rank for figures in stored_run.ranks})
        findings = find_causes(stored_run.ranks, stored_run.flows, stored_run.links)
        few_ranks_note = (
            f"with {rank_count} ranks, nothing shows which of them is slow, so only links are judged: "
            "measure on three hosts or more"
        )
        return Explanation(rank_count, findings, few_ranks_note if rank_count < 3 else "")
    if stored_run.summary.hosts == "model":
        note = "the hosts of this run are modelled: no rank ran, so none was slow"
    else:
        note = (
            "this run keeps no figures of ranks (ranks.parquet): only runs of `testbed nccl`, `job` and `demo` on "
            "hosts, with this version or a later one, do. Measure again to explain it"
        )
    return Explanation(0, (), note)


@dataclass(frozen=True, slots=True)
class LostTime:
    """Seconds that one rank lost against the others in the iterations of a row, which lasts `row_s`.

    `own_s` is the rank's sum of a quantity, `typical_s` the sum of the others' medians. `active_count` counts the
    iterations in which the rank's quantity was not 0, for example because it wrote to its disk.
    """

    row: RowKey
    rank: int
    lost_s: float
    own_s: float
    typical_s: float
    row_s: float
    active_count: int


def group_by_row(ranks: Iterable[RankFigures]) -> dict[RowKey, dict[int, list[RankFigures]]]:
    """Return the iterations of each row, by rank and in order."""
    figures_by_row: dict[RowKey, dict[int, list[RankFigures]]] = defaultdict(lambda: defaultdict(list))
    for figures in ranks:
        figures_by_row[figures.topology, figures.configuration, figures.size_bytes][figures.rank].append(
            figures
        )
    return figures_by_row


def measure_idle_s(figures: RankFigures) -> float:
    """Return the seconds in which a rank neither ran nor waited for anything known.

    A rank that is stopped from outside cannot time itself, so its watch thread does (`stopped_s`).
    """
    known_s = figures.waiting_s + figures.processor_s + figures.queued_s + figures.writes_s
    return max(figures.stopped_s, figures.seconds - known_s, 0.0)


def measure_computing_s(figures: RankFigures) -> float:
    """Return the seconds of computing: processor time, plus what the computing of a job took beyond its plan."""
    late_s = figures.stopped_s + figures.queued_s
    return figures.processor_s + max(0.0, figures.computing_s - figures.planned_s - late_s)


_QUANTITY_BY_CAUSE: Mapping[Cause, tuple[Callable[[RankFigures], float], str]] = {
    "late": (measure_idle_s, "stood still or started late for"),
    "compute": (measure_computing_s, "computed for"),
    "processor": (lambda figures: figures.queued_s, "waited for a processor for"),
    "disk": (lambda figures: figures.disk_s, "wrote to its disk for"),
}
"""For each cause of a slow rank: a function that returns its seconds in an iteration, and words for the evidence."""


def find_losses(
    ranks: Iterable[RankFigures], get_quantity: Callable[[RankFigures], float]
) -> Iterator[LostTime]:
    """Yield what each rank lost in each row: its excess over the median of the other ranks, summed over iterations.

    The iteration with the largest excess does not count, so that one hiccup yields no finding. It does count if at most
    two iterations have a value, because the disk is measured once per row.
    """
    for row_key, figures_by_rank in group_by_row(ranks).items():
        if len(figures_by_rank) < 3:
            continue
        iteration_count = min(map(len, figures_by_rank.values()))
        values_by_rank = {
            rank: [get_quantity(figures) for figures in rank_figures]
            for rank, rank_figures in figures_by_rank.items()
        }
        row_s = sum(
            median(rank_figures[iteration].seconds for rank_figures in figures_by_rank.values())
            for iteration in range(iteration_count)
        )
        for rank, all_values in values_by_rank.items():
            own_values = all_values[:iteration_count]
            typical_values = [
                median(
                    values_by_rank[other_rank][iteration]
                    for other_rank in values_by_rank
                    if other_rank != rank
                )
                for iteration in range(iteration_count)
            ]
            sorted_excess_s = sorted(
                own_value - typical_value
                for own_value, typical_value in zip(own_values, typical_values, strict=True)
            )
            active_count = sum(value > 0 for value in own_values)
            kept_excess_s = sorted_excess_s[:-1] if active_count > 2 else sorted_excess_s
            sample_scale = len(sorted_excess_s) / len(kept_excess_s)
            yield LostTime(
                row_key,
                rank,
                max(0.0, sum(kept_excess_s)) * sample_scale,
                sum(own_values),
                sum(typical_values),
                row_s,
                active_count,
            )


@dataclass(frozen=True, slots=True)
class RankLag:
    """The share of an iteration that a rank lost against the others, and its main cause ("" if it lost nothing)."""

    share: float
    cause: Cause | Literal[""]


def find_lags(ranks: Iterable[RankFigures]) -> dict[RowKey, list[list[RankLag]]]:
    """Return the lags of each row, indexed by rank and iteration."""
    return {
        row: [_measure_lags(rank, figures_by_rank) for rank in sorted(figures_by_rank)]
        for row, figures_by_rank in group_by_row(ranks).items()
    }


def _measure_lags(rank: int, figures_by_rank: Mapping[int, Sequence[RankFigures]]) -> list[RankLag]:
    lags = []
    for iteration, own_figures in enumerate(figures_by_rank[rank]):
        other_figures = [
            rank_figures[iteration]
            for other_rank, rank_figures in figures_by_rank.items()
            if other_rank != rank and iteration < len(rank_figures)
        ]
        typical_s = median(figures.seconds for figures in (own_figures, *other_figures)) or 1.0
        lost_s_by_cause: dict[Cause, float] = {
            cause: max(0.0, get_quantity(own_figures) - median(map(get_quantity, other_figures)))
            if other_figures
            else 0.0
            for cause, (get_quantity, _) in _QUANTITY_BY_CAUSE.items()
        }
        cause = max(lost_s_by_cause, key=lambda candidate: lost_s_by_cause[candidate])
        lags.append(
            RankLag(min(1.0, lost_s_by_cause[cause] / typical_s), cause if lost_s_by_cause[cause] else "")
        )
    return lags


def _find_slow_ranks(ranks: Sequence[RankFigures]) -> Iterator[Finding]:
    figures_by_rank: dict[int, list[RankFigures]] = defaultdict(list)
    for figures in ranks:
        figures_by_rank[figures.rank].append(figures)
    busy_finding_by_rank = {finding.rank: finding for finding in _find_busy_hosts(figures_by_rank)}
    yield from busy_finding_by_rank.values()
    for cause, (get_quantity, verb_phrase) in _QUANTITY_BY_CAUSE.items():
        lost_times_by_rank: dict[int, list[LostTime]] = defaultdict(list)
        for lost_time in find_losses(ranks, get_quantity):
            lost_times_by_rank[lost_time.rank].append(lost_time)
        for rank, lost_times in lost_times_by_rank.items():
            if cause == "processor" and rank in busy_finding_by_rank:
                continue
            if finding := _judge_rank(cause, verb_phrase, lost_times, figures_by_rank[rank]):
                yield finding


def _find_busy_hosts(figures_by_rank: Mapping[int, Sequence[RankFigures]]) -> Iterator[Finding]:
    """Yield a finding for each rank that queues for a processor while other processes of its host use it."""
    total_s_by_rank = {
        rank: sum(figures.seconds for figures in rank_figures)
        for rank, rank_figures in figures_by_rank.items()
    }
    other_use_by_rank = {
        rank: sum(figures.others_s for figures in rank_figures) / total_s_by_rank[rank]
        for rank, rank_figures in figures_by_rank.items()
    }
    queued_share_by_rank = {
        rank: sum(figures.queued_s for figures in rank_figures) / total_s_by_rank[rank]
        for rank, rank_figures in figures_by_rank.items()
    }
    for rank, rank_figures in figures_by_rank.items() if len(figures_by_rank) > 2 else ():
        typical_use = median(
            other_use_by_rank[other_rank] for other_rank in figures_by_rank if other_rank != rank
        )
        if (
            other_use_by_rank[rank] - typical_use >= MIN_OTHER_PROCESSORS
            and queued_share_by_rank[rank] >= MIN_QUEUE_SHARE
        ):
            evidence = (
                f"other processes on {rank_figures[0].host} used {other_use_by_rank[rank]:.2f} processors "
                f"({typical_use:.2f} on the median "
                f"host), and the rank waited for one {queued_share_by_rank[rank] * 100:.0f} % of the time"
            )
            slower = 1 / (1 - min(queued_share_by_rank[rank], 0.9))
            yield Finding("processor", rank, rank_figures[0].host, "", evidence, slower)


def _judge_rank(
    cause: Cause, verb_phrase: str, lost_times: Sequence[LostTime], rank_figures: Sequence[RankFigures]
) -> Finding | None:
    """Return the finding of a cause on a rank, or None if it does not persist over the rows."""
    clear_lost_times = [
        lost_time
        for lost_time in lost_times
        if lost_time.lost_s
        >= max(MIN_LOST_SHARE[cause] * lost_time.row_s, MIN_LOSS_S * lost_time.active_count)
        and _is_clear(cause, lost_time)
    ]
    if len(clear_lost_times) < MIN_ROW_SHARE * len(lost_times) and sum(
        lost_time.row_s for lost_time in clear_lost_times
    ) < MIN_ROW_SHARE * sum(lost_time.row_s for lost_time in lost_times):
        return None
    lost_s, total_s = (
        sum(lost_time.lost_s for lost_time in clear_lost_times),
        sum(lost_time.row_s for lost_time in clear_lost_times),
    )
    if not clear_lost_times:
        return None
    own_s, typical_s = (
        sum(lost_time.own_s for lost_time in clear_lost_times),
        sum(lost_time.typical_s for lost_time in clear_lost_times),
    )
    evidence = f"it {verb_phrase} {own_s:.2f} s of {total_s:.2f} s, the others for {typical_s:.2f} s (median)"
    # Writes between iterations add their time to the run. Every other loss is part of an iteration.
    lost_in_iterations_s = min(lost_s, 0.9 * total_s)
    is_in_iterations = cause != "disk" or any(figures.writes_s for figures in rank_figures)
    slower = total_s / (total_s - lost_in_iterations_s) if is_in_iterations else 1 + lost_s / total_s
    return Finding(cause, rank_figures[0].rank, rank_figures[0].host, "", evidence, slower)


def _is_clear(cause: Cause, lost_time: LostTime) -> bool:
    """Return True if a rank stands out by more than a busy machine explains."""
    if cause == "processor":
        return lost_time.own_s >= QUEUE_RATIO * lost_time.typical_s
    if cause == "disk":
        return (
            lost_time.own_s >= DISK_RATIO * lost_time.typical_s
            and lost_time.lost_s >= MIN_DISK_S * lost_time.active_count
        )
    return True


@dataclass(frozen=True, slots=True)
class LinkUse:
    """Use of a link in the rows whose connections send enough to fill it. Rates are relative to the link's limit.

    `rate` divides the bytes of its connections by the sum of their waiting times, at most by the duration of the row.
    `peak` is the largest rate of its NIC. `busy` is the share of the time in which its busiest connection had data
    waiting, and `wait_share` the sum of these shares over all connections. `wait_share_elsewhere` is the largest
    `wait_share` of another link on the busiest connection's path. Connections that lose packets sent `lossy_bytes`.
    """

    link: str
    rank: int
    host: str
    limit_mbps: float
    rate: float
    peak: float
    window_count: int
    busy: float
    wait_share: float
    wait_share_elsewhere: float
    sent_bytes: int
    lost_bytes: int
    lossy_bytes: int

    @property
    def loss_share(self) -> float:
        """Share of the bytes of its connections that TCP retransmitted."""
        return self.lost_bytes / max(1, self.sent_bytes)

    @property
    def loss_log_likelihood(self) -> float:
        """Logarithm of the ratio of two likelihoods: that this link causes all losses, and that no link causes any.

        Losses are a Poisson process, of rate `loss_share` on a lossy link and `HEALTHY_LOSS_SHARE` on others. A link
        scores lower if lossy connections avoid it, or if connections over it lose nothing.
        """
        return self.lost_bytes * (log(max(self.loss_share, HEALTHY_LOSS_SHARE) / HEALTHY_LOSS_SHARE) - 1)


def _find_slow_links(
    ranks: Sequence[RankFigures], flows: Sequence[FlowFigures], links: Sequence[LinkFigures]
) -> Iterator[Finding]:
    """Yield at most two findings: the link that loses packets, and the link that is slow for another reason.

    One slow link makes others look slow: its connections use other links too, and acknowledgements for the opposite
    direction wait on it. The slow link is the one on which data waited longest.
    """
    uses = measure_links(ranks, flows, links)
    typical_loss_share = sorted(use.loss_share for use in uses)[len(uses) // 4] if uses else 0.0
    lossy_link = max(
        (
            use
            for use in uses
            if use.loss_share >= max(MIN_LOSS_SHARE, LOSS_RATIO * typical_loss_share)
            and use.lost_bytes >= MIN_LOST_BYTES
            and use.lossy_bytes >= MIN_LOSSY_SHARE * use.sent_bytes
        ),
        key=lambda use: use.loss_log_likelihood,
        default=None,
    )
    if lossy_link:
        evidence = (
            f"TCP sent {lossy_link.loss_share * 100:.1f} % of the bytes again ({lossy_link.lost_bytes} bytes)"
        )
        slower = 1 / max(MIN_REMAINING_SHARE, 1 - lossy_link.busy * max(0.0, 1 - lossy_link.rate))
        yield Finding("retransmission", lossy_link.rank, lossy_link.host, lossy_link.link, evidence, slower)
    typical_rate, typical_peak = (
        min(1.0, median(values)) if values else 1.0
        for values in ([use.rate for use in uses], [use.peak for use in uses])
    )
    slow_link = max(
        (
            use
            for use in uses
            if max(use.rate, use.peak) < MAX_SLOW_LINK_SHARE
            and use.busy >= MIN_BUSY_LINK_SHARE
            and use.wait_share_elsewhere <= MAX_WAIT_RATIO * use.wait_share
            and (
                use.rate < MAX_SLOW_LINK_SHARE * typical_rate or use.peak < MAX_SLOW_LINK_SHARE * typical_peak
            )
        ),
        key=lambda use: use.wait_share,
        default=None,
    )
    if slow_link and slow_link != lossy_link:
        rate = min(slow_link.rate, slow_link.peak)
        evidence = (
            f"data waited on it {slow_link.busy * 100:.0f} % of the time, although it carried only "
            f"{rate * slow_link.limit_mbps:.1f} of its {slow_link.limit_mbps:g} Mbit/s"
        )
        slower = 1 / max(MIN_REMAINING_SHARE, 1 - slow_link.busy * (1 - rate))
        yield Finding("link", slow_link.rank, slow_link.host, slow_link.link, evidence, slower)


def measure_links(
    ranks: Iterable[RankFigures], flows: Iterable[FlowFigures], links: Iterable[LinkFigures]
) -> tuple[LinkUse, ...]:
    """Return the use of each link in the rows whose connections send enough over it to fill it."""
    duration_by_row_s = {
        row: median(
            sum(figures.seconds for figures in rank_figures) for rank_figures in figures_by_rank.values()
        )
        for row, figures_by_rank in group_by_row(ranks).items()
    }
    host_by_rank = {figures.rank: figures.host for figures in ranks}
    flows_by_link: dict[tuple[str, RowKey], list[FlowFigures]] = defaultdict(list)
    for flow in flows:
        if flow.acked_bytes * 8e-6 >= MIN_FLOW_S * flow.limit_mbps:
            for name in flow.path.split(", "):
                flows_by_link[name, (flow.topology, flow.configuration, flow.size_bytes)].append(flow)
    wait_share_by_link_row = {
        link_row: sum(flow.busy_s - flow.limited_s for flow in link_flows) / duration_by_row_s[link_row[1]]
        for link_row, link_flows in flows_by_link.items()
        if link_row[1] in duration_by_row_s
    }
    uses_by_link: dict[str, list[LinkUse]] = defaultdict(list)
    for link in links:
        row = (link.topology, link.configuration, link.size_bytes)
        if (
            wait_share_by_link_row.get((link.link, row), 0.0) <= 0
            or not link.windows
            or link.rank not in host_by_rank
        ):
            continue
        link_flows = flows_by_link[link.link, row]
        busiest_flow = max(link_flows, key=lambda candidate: candidate.busy_s - candidate.limited_s)
        waits_s = wait_share_by_link_row[link.link, row] * duration_by_row_s[row]
        uses_by_link[link.link].append(
            LinkUse(
                link=link.link,
                rank=link.rank,
                host=host_by_rank[link.rank],
                limit_mbps=link.limit_mbps,
                rate=sum(flow.acked_bytes for flow in link_flows)
                * 8e-6
                / min(duration_by_row_s[row], waits_s)
                / link.limit_mbps,
                peak=link.peak_mbps / link.limit_mbps,
                window_count=link.windows,
                busy=min(1.0, (busiest_flow.busy_s - busiest_flow.limited_s) / duration_by_row_s[row]),
                wait_share=wait_share_by_link_row[link.link, row],
                wait_share_elsewhere=max(
                    wait_share_by_link_row[name, row] if name != link.link else 0.0
                    for name in busiest_flow.path.split(", ")
                ),
                sent_bytes=sum(flow.sent_bytes for flow in link_flows),
                lost_bytes=sum(flow.retransmitted_bytes for flow in link_flows),
                lossy_bytes=sum(
                    flow.sent_bytes
                    for flow in link_flows
                    if flow.retransmitted_bytes >= MIN_LOSS_SHARE / 2 * flow.sent_bytes
                ),
            )
        )
    return tuple(_merge_rows(link_uses) for link_uses in uses_by_link.values())


def _merge_rows(uses: Sequence[LinkUse]) -> LinkUse:
    """Return the use of a link over all its rows: medians, sums of bytes, and the peak of the row with most windows."""
    return replace(
        uses[0],
        rate=median(use.rate for use in uses),
        peak=max(uses, key=lambda use: use.window_count).peak,
        busy=median(use.busy for use in uses),
        wait_share=median(use.wait_share for use in uses),
        wait_share_elsewhere=median(use.wait_share_elsewhere for use in uses),
        sent_bytes=sum(use.sent_bytes for use in uses),
        lost_bytes=sum(use.lost_bytes for use in uses),
        lossy_bytes=sum(use.lossy_bytes for use in uses),
    )
