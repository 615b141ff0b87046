"""Findings about pairs of hosts that do not reach each other, if no other finding explains it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from lightbed.wording import list_some
from testbed.design.model import Link, Routes
from testbed.lab.hosts.reachability import Reachability
from testbed.lab.model import Lab
from testbed.operate.model import FindingKind, LinkFinding

UNREACHABLE = FindingKind(
    "unreachable",
    "hosts do not answer one another, and no other finding explains this",
    "look for packet filters and policy rules (`nft list ruleset`, `ip rule`) on the hosts of the path",
)
NO_LARGE_PACKETS = FindingKind(
    "no_large_packets",
    "full-size packets do not pass, but small ones do",
    (
        "compare the MTUs on the path (`ip link`, `ip route`), and look for filters by size (`nft "
        "list ruleset`)"
    ),
    stops_packets=False,
)
NO_TCP = FindingKind(
    "no_tcp",
    "a TCP exchange does not pass, but pings do",
    "look for packet filters on the hosts of the path (`nft list ruleset`)",
    stops_packets=False,
)
LOSSY_PATH = FindingKind(
    "lossy_path",
    "packets are lost on the way",
    "look for dirty connectors, for errors of the NICs (`ip -s link`), and for queues and filters at both ends",
    stops_packets=False,
)
WRONG_PATH = FindingKind(
    "wrong_path",
    "replies take more or fewer hops than planned, and no other finding explains this",
    "run `testbed path A B` to see the path that the kernels choose",
    stops_packets=False,
)

KINDS = (UNREACHABLE, NO_LARGE_PACKETS, NO_TCP, LOSSY_PATH, WRONG_PATH)

LinkPath = tuple[Link, ...]
MIN_LOST_PINGS = 3
"""Smallest number of lost pings on one link that counts. A burst of a job or a stall may lose one or two."""
MIN_LOSS_RATE = 0.01
"""Smallest share of the pings over a link that must be lost, if there are many."""
CONFIDENCE = 0.99
DETECTABLE_LOSS = 0.04
MIN_PINGS, MAX_PINGS = 25, 106
"""Fewest pings of each pair over all sets, and most pings of each way: a ping takes 5 ms and loads the hosts."""


class RoundTrip(NamedTuple):
    """The path from one node to another and back, in one set of routes."""

    set: int
    source: int
    target: int


def trace_round_trips(sets: Sequence[Routes]) -> dict[RoundTrip, LinkPath]:
    """Return the links that a packet and its answer pass, for every way of these sets of routes.

    A pair with a path in only one direction is left out. A set has such a path if a longer path contains it.
    """
    return {
        RoundTrip(number, a, b): routes.path(a, b) + routes.path(b, a)
        for number, routes in enumerate(sets)
        for a, b in routes.first_link
        if (b, a) in routes.first_link
    }


@dataclass(frozen=True, slots=True)
class BlamedParts:
    """Links and nodes that other findings blame for lost packets."""

    links: frozenset[Link]
    nodes: frozenset[int]

    def explains(self, links: LinkPath) -> bool:
        """Return whether any of these links, or a node on them, is blamed."""
        return not (self.nodes.isdisjoint(_find_nodes_on(links)) and self.links.isdisjoint(links))


def judge_reachability(
    lab: Lab,
    sets: Sequence[Routes],
    reachabilities: Sequence[Reachability],
    blame: BlamedParts,
    narrow: frozenset[int] = frozenset(),
) -> Iterator[LinkFinding]:
    """Yield findings from pings and TCP exchanges that `blame` does not explain.

    Pairs that have a host in common are one finding. `reachabilities` holds the results for each of `sets`.
    `narrow` holds nodes with a wrong MTU, which has its own finding and explains why large packets do not pass.
    """
    traces = trace_round_trips(sets)
    nodes = {host.name: node for node, host in enumerate(lab.hosts)}

    def find_unexplained(pairs_by_set: Iterable[Iterable[tuple[str, str]]]) -> dict[RoundTrip, LinkPath]:
        round_trips = [
            RoundTrip(number, nodes[a], nodes[b])
            for number, pairs in enumerate(pairs_by_set)
            for a, b in pairs
            if a in nodes and b in nodes
        ]
        return {
            round_trip: traces[round_trip]
            for round_trip in round_trips
            if round_trip in traces and not blame.explains(traces[round_trip])
        }

    yield from _report_stopped(
        lab, find_unexplained(reachability.missing for reachability in reachabilities), UNREACHABLE
    )
    counts = {
        RoundTrip(number, nodes[a], nodes[b]): count
        for number, reachability in enumerate(reachabilities)
        for (a, b), count in reachability.lost.items()
    }
    traces_with_counts = find_unexplained(reachability.lost for reachability in reachabilities)
    lossy = _find_lossy(
        traces_with_counts, {round_trip: counts[round_trip] for round_trip in traces_with_counts}
    )
    yield from _report_lossy(lab, lossy)
    blame = replace(blame, links=blame.links.union(*lossy), nodes=blame.nodes | narrow)
    yield from _report_stopped(
        lab,
        find_unexplained(sorted(reachability.small_only) for reachability in reachabilities),
        NO_LARGE_PACKETS,
    )
    without_tcp = [
        reachability.without_tcp - reachability.small_only for reachability in reachabilities
    ]  # TCP segments are full-size packets
    yield from _report_stopped(lab, find_unexplained(map(sorted, without_tcp)), NO_TCP)
    hops = {
        RoundTrip(number, nodes[a], nodes[b]): count
        for number, reachability in enumerate(reachabilities)
        for (a, b), count in reachability.hops.items()
        if a in nodes and b in nodes
    }
    unexplained = find_unexplained(sorted(reachability.hops) for reachability in reachabilities)
    planned_hops = {
        round_trip: sets[round_trip.set].hops(round_trip.source, round_trip.target)
        for round_trip in unexplained
    }
    yield from _report_detours(lab, planned_hops, hops)


def _find_nodes_on(links: LinkPath) -> frozenset[int]:
    return frozenset(nic.node for link in links for nic in link)


def _label_round_trip(lab: Lab, round_trip: RoundTrip) -> str:
    label = f"{lab.hosts[round_trip.source].name} -> {lab.hosts[round_trip.target].name}"
    return f"{label} (set {round_trip.set} of routes)" if round_trip.set else label


def _report_stopped(
    lab: Lab, traces: Mapping[RoundTrip, LinkPath], kind: FindingKind
) -> Iterator[LinkFinding]:
    """Yield a finding for each of a few hosts that together lie on all these ways. A single pair is named as a pair.

    Greedy: the host on most of the remaining ways comes first, and its ways are removed.
    """
    nodes_by_trip = {round_trip: _find_nodes_on(links) for round_trip, links in traces.items()}
    while nodes_by_trip:
        counts = Counter(node for nodes in nodes_by_trip.values() for node in nodes)
        endpoint_counts = Counter(
            node for round_trip in nodes_by_trip for node in (round_trip.source, round_trip.target)
        )
        node = max(counts, key=lambda candidate: (counts[candidate], endpoint_counts[candidate], -candidate))
        host_ways = [round_trip for round_trip, nodes in nodes_by_trip.items() if node in nodes]
        nodes_by_trip = {
            round_trip: nodes for round_trip, nodes in nodes_by_trip.items() if node not in nodes
        }
        yield _report_common(lab, node, host_ways, kind)


_FINDING_WORDS = {
    UNREACHABLE: ("{b} does not answer {a}", "get no answer"),
    NO_LARGE_PACKETS: (
        "pings of the full size from {a} do not come back from {b}",
        "get no answer to pings of the full size",
    ),
    NO_TCP: ("an exchange over TCP from {a} with {b} does not end", "cannot exchange data over TCP"),
}
"""Text about one pair, and about several, by kind of finding."""


def _report_common(lab: Lab, node: int, round_trips: list[RoundTrip], kind: FindingKind) -> LinkFinding:
    names = tuple(_label_round_trip(lab, round_trip) for round_trip in round_trips)
    single_text, plural_text = _FINDING_WORDS[kind]
    if len({(round_trip.set, *sorted(round_trip[1:])) for round_trip in round_trips}) == 1:
        a, b = (lab.hosts[node].name for node in round_trips[0][1:])
        return kind.report(names[0], single_text.format(a=a, b=b))
    host = lab.hosts[node].name
    detail = f"{len(round_trips)} pairs {plural_text}, all through {host} or with it: {list_some(names)}"
    return kind.report(host, detail, parts=names)


def count_pings(sets: Sequence[Routes]) -> dict[RoundTrip, int]:
    """Return the number of pings of each way that detect a loss of 4 % on any link that routes use.

    Ways over links that few ways cross get more. Limits are `MIN_PINGS` of a pair and `MAX_PINGS` of a way.
    """
    traces = trace_round_trips(sets)
    crossings = _count_crossings(traces, dict.fromkeys(traces, 1))
    pings_by_link = {
        link: math.ceil(find_mean(MIN_LOST_PINGS) / DETECTABLE_LOSS / count)
        for link, count in crossings.items()
    }
    min_pings = math.ceil(MIN_PINGS / max(len(sets), 1))
    return {
        round_trip: min(MAX_PINGS, max(min_pings, *(pings_by_link[link] for link in links)))
        for round_trip, links in traces.items()
    }


def find_loss_floor(sets: Sequence[Routes], pings: Mapping[RoundTrip, int]) -> float | None:
    """Return the smallest loss rate that these pings detect on every link, with 99 % confidence.

    Return None if routes use a link that too few pings cross.
    """
    traces = trace_round_trips(sets)
    crossings = _count_crossings(traces, pings)
    counts = {crossings[link] for links in traces.values() for link in links}
    floor = max((find_mean(_compute_min_lost(count)) / max(count, 1) for count in counts), default=1.0)
    return floor if floor < 1 else None


def _compute_min_lost(count: int) -> int:
    """Return how many of `count` pings must be lost for a finding."""
    return max(MIN_LOST_PINGS, math.ceil(MIN_LOSS_RATE * count))


@cache
def find_mean(min_events: int) -> float:
    """Return the mean of the Poisson distribution that yields `min_events` or more with a probability of 99 %.

    >>> round(find_mean(3), 2)
    8.41
    """
    lower, upper = 0.0, 10.0 + 4.0 * min_events
    while upper - lower > 1e-6:
        mean = (lower + upper) / 2
        probability = sum(
            math.exp(number * math.log(mean) - mean - math.lgamma(number + 1)) for number in range(min_events)
        )
        lower, upper = (mean, upper) if probability > 1 - CONFIDENCE else (lower, mean)
    return upper


def _count_crossings(traces: Mapping[RoundTrip, LinkPath], pings: Mapping[RoundTrip, int]) -> Counter[Link]:
    """Count the pings that cross each link, there or back."""
    crossings: Counter[Link] = Counter()
    for round_trip, count in pings.items():
        for link in traces[round_trip]:
            crossings[link] += count
    return crossings


def _find_lossy(
    traces: Mapping[RoundTrip, LinkPath], counts: Mapping[RoundTrip, tuple[int, int]]
) -> dict[LinkPath, tuple[int, int]]:
    """Return a few links that explain the lost pings, each with the number of pings lost and sent over it.

    `counts` holds the lost and sent pings of each way. Greedy: the link with most losses comes first, and its ways are
    removed. Links that the same pings cross cannot be distinguished, and form one key.
    """
    remaining_counts, lossy = dict(counts), dict[LinkPath, tuple[int, int]]()
    while True:
        lost_counts = _count_crossings(
            traces, {round_trip: count for round_trip, (count, _) in remaining_counts.items()}
        )
        sent_counts = _count_crossings(
            traces, {round_trip: count for round_trip, (_, count) in remaining_counts.items()}
        )
        lossy_links = [
            link for link, count in sent_counts.items() if lost_counts[link] >= _compute_min_lost(count)
        ]
        worst_link = max(
            lossy_links,
            key=lambda link: (lost_counts[link], lost_counts[link] / sent_counts[link], link),
            default=None,
        )
        if worst_link is None:
            return lossy
        affected = {round_trip for round_trip in remaining_counts if worst_link in traces[round_trip]}
        common_links = [
            link
            for link in sent_counts
            if {round_trip for round_trip in remaining_counts if link in traces[round_trip]} == affected
        ]
        lossy[tuple(sorted(common_links))] = (lost_counts[worst_link], sent_counts[worst_link])
        remaining_counts = {
            round_trip: count for round_trip, count in remaining_counts.items() if round_trip not in affected
        }


def _report_lossy(lab: Lab, lossy: Mapping[LinkPath, tuple[int, int]]) -> Iterator[LinkFinding]:
    """Yield findings about lossy links, or one finding about a host that all of them have in common."""
    labels = {links: " or ".join(map(lab.link_label, links)) for links in lossy}
    descriptions = {
        links: f"{lost_counts} of {sent_counts} over {labels[links]}"
        for links, (lost_counts, sent_counts) in lossy.items()
    }
    shared_nodes = frozenset.intersection(*map(_find_nodes_on, lossy)) if lossy else frozenset()
    if len(lossy) > 1 and shared_nodes:
        detail = f"pings were lost: {list_some(descriptions.values(), '; ')}"
        yield LOSSY_PATH.report(lab.hosts[min(shared_nodes)].name, detail, parts=tuple(descriptions.values()))
        return
    for links, text in descriptions.items():
        yield LOSSY_PATH.report(labels[links], f"pings were lost: {text}")


def _report_detours(
    lab: Lab, planned: Mapping[RoundTrip, int], hops: Mapping[RoundTrip, int]
) -> Iterator[LinkFinding]:
    """Yield one finding about all pairs whose packets take another number of hops than planned."""
    round_trips = [round_trip for round_trip, number in planned.items() if hops[round_trip] != number]
    if round_trips:
        labels = {round_trip: _label_round_trip(lab, round_trip) for round_trip in round_trips}
        descriptions = tuple(
            f"{labels[round_trip]} takes {hops[round_trip]} hops, not {planned[round_trip]}"
            for round_trip in round_trips
        )
        yield WRONG_PATH.report(labels[round_trips[0]], list_some(descriptions, "; "), parts=descriptions)
