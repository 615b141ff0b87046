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
"""Smallest share of the pings over a link that must be lost for a finding, if there are many pings."""
CONFIDENCE = 0.99
DETECTABLE_LOSS_RATE = 0.04
MIN_PINGS, MAX_PINGS = 25, 106
"""Minimum pings of a pair over all sets, and maximum pings of a round trip: a ping takes 5 ms and loads the hosts."""


class RoundTrip(NamedTuple):
    """The path from one node to another and back, in one set of routes."""

    set_number: int
    source: int
    target: int


def trace_round_trips(route_sets: Sequence[Routes]) -> dict[RoundTrip, LinkPath]:
    """Return the links that a packet and its answer pass, for every round trip of these sets of routes.

    A pair with a path in only one direction is left out. A set has such a path if a longer path contains it.
    """
    return {
        RoundTrip(set_number, source, target): routes.path(source, target) + routes.path(target, source)
        for set_number, routes in enumerate(route_sets)
        for source, target in routes.first_link
        if (target, source) in routes.first_link
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
    route_sets: Sequence[Routes],
    reachabilities: Sequence[Reachability],
    blamed_parts: BlamedParts,
    wrong_mtu_nodes: frozenset[int] = frozenset(),
) -> Iterator[LinkFinding]:
    """Yield findings from pings and TCP exchanges that `blamed_parts` does not explain.

    Pairs that have a host in common are one finding. `reachabilities` holds the results for each of `route_sets`.
    `wrong_mtu_nodes` holds nodes with a wrong MTU, which has its own finding and explains why large packets do not
    pass.
    """
    links_by_trip = trace_round_trips(route_sets)
    node_by_host = {host.name: node for node, host in enumerate(lab.hosts)}

    def find_unexplained(pairs_by_set: Iterable[Iterable[tuple[str, str]]]) -> dict[RoundTrip, LinkPath]:
        round_trips = [
            RoundTrip(set_number, node_by_host[source], node_by_host[target])
            for set_number, pairs in enumerate(pairs_by_set)
            for source, target in pairs
            if source in node_by_host and target in node_by_host
        ]
        return {
            round_trip: links_by_trip[round_trip]
            for round_trip in round_trips
            if round_trip in links_by_trip and not blamed_parts.explains(links_by_trip[round_trip])
        }

    yield from _report_stopped_trips(
        lab, find_unexplained(reachability.missing_pairs for reachability in reachabilities), UNREACHABLE
    )
    counts_by_trip = {
        RoundTrip(set_number, node_by_host[source], node_by_host[target]): count
        for set_number, reachability in enumerate(reachabilities)
        for (source, target), count in reachability.loss_by_pair.items()
    }
    links_by_counted_trip = find_unexplained(reachability.loss_by_pair for reachability in reachabilities)
    lossy_paths = _find_lossy_paths(
        links_by_counted_trip,
        {round_trip: counts_by_trip[round_trip] for round_trip in links_by_counted_trip},
    )
    yield from _report_lossy_paths(lab, lossy_paths)
    blamed_parts = replace(
        blamed_parts, links=blamed_parts.links.union(*lossy_paths), nodes=blamed_parts.nodes | wrong_mtu_nodes
    )
    yield from _report_stopped_trips(
        lab,
        find_unexplained(sorted(reachability.small_only_pairs) for reachability in reachabilities),
        NO_LARGE_PACKETS,
    )
    # TCP segments are full-size packets, so pairs that pass only small packets are left out.
    pairs_without_tcp = [
        reachability.pairs_without_tcp - reachability.small_only_pairs for reachability in reachabilities
    ]
    yield from _report_stopped_trips(lab, find_unexplained(map(sorted, pairs_without_tcp)), NO_TCP)
    hops_by_trip = {
        RoundTrip(set_number, node_by_host[source], node_by_host[target]): count
        for set_number, reachability in enumerate(reachabilities)
        for (source, target), count in reachability.hop_count_by_pair.items()
        if source in node_by_host and target in node_by_host
    }
    unexplained_trips = find_unexplained(
        sorted(reachability.hop_count_by_pair) for reachability in reachabilities
    )
    planned_hops = {
        round_trip: route_sets[round_trip.set_number].count_hops(round_trip.source, round_trip.target)
        for round_trip in unexplained_trips
    }
    yield from _report_detours(lab, planned_hops, hops_by_trip)


def _find_nodes_on(links: LinkPath) -> frozenset[int]:
    return frozenset(nic.node for link in links for nic in link)


def _label_round_trip(lab: Lab, round_trip: RoundTrip) -> str:
    label = f"{lab.hosts[round_trip.source].name} -> {lab.hosts[round_trip.target].name}"
    return f"{label} (set {round_trip.set_number} of routes)" if round_trip.set_number else label


def _report_stopped_trips(
    lab: Lab, links_by_trip: Mapping[RoundTrip, LinkPath], kind: FindingKind
) -> Iterator[LinkFinding]:
    """Yield a finding for each of a few hosts that together lie on all round trips. A single pair is named as a pair.

    Greedy: the host on most of the remaining round trips comes first, and its round trips are removed.
    """
    nodes_by_trip = {round_trip: _find_nodes_on(links) for round_trip, links in links_by_trip.items()}
    while nodes_by_trip:
        count_by_node = Counter(node for nodes in nodes_by_trip.values() for node in nodes)
        endpoint_count_by_node = Counter(
            node for round_trip in nodes_by_trip for node in (round_trip.source, round_trip.target)
        )
        node = max(
            count_by_node,
            key=lambda candidate: (count_by_node[candidate], endpoint_count_by_node[candidate], -candidate),
        )
        host_round_trips = [round_trip for round_trip, nodes in nodes_by_trip.items() if node in nodes]
        nodes_by_trip = {
            round_trip: nodes for round_trip, nodes in nodes_by_trip.items() if node not in nodes
        }
        yield _report_common(lab, node, host_round_trips, kind)


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
    labels = tuple(_label_round_trip(lab, round_trip) for round_trip in round_trips)
    single_text, plural_text = _FINDING_WORDS[kind]
    if len({(round_trip.set_number, *sorted(round_trip[1:])) for round_trip in round_trips}) == 1:
        source_name, target_name = (lab.hosts[node].name for node in round_trips[0][1:])
        return kind.report(labels[0], single_text.format(a=source_name, b=target_name))
    host = lab.hosts[node].name
    detail = f"{len(round_trips)} pairs {plural_text}, all through {host} or with it: {list_some(labels)}"
    return kind.report(host, detail, parts=labels)


def count_pings(route_sets: Sequence[Routes]) -> dict[RoundTrip, int]:
    """Return the number of pings of each round trip that detect a loss of 4 % on any link that routes use.

    Round trips get more pings if few others cross their links. Each pair gets at least `MIN_PINGS`, each round trip at
    most `MAX_PINGS`.
    """
    links_by_trip = trace_round_trips(route_sets)
    ping_count_by_link = _count_pings_by_link(links_by_trip, dict.fromkeys(links_by_trip, 1))
    needed_pings_by_link = {
        link: math.ceil(compute_poisson_mean(MIN_LOST_PINGS) / DETECTABLE_LOSS_RATE / count)
        for link, count in ping_count_by_link.items()
    }
    min_pings = math.ceil(MIN_PINGS / max(len(route_sets), 1))
    return {
        round_trip: min(MAX_PINGS, max(min_pings, *(needed_pings_by_link[link] for link in links)))
        for round_trip, links in links_by_trip.items()
    }


def find_loss_floor(
    route_sets: Sequence[Routes], ping_count_by_trip: Mapping[RoundTrip, int]
) -> float | None:
    """Return the smallest loss rate that these pings detect on every link, with 99 % confidence.

    Return None if routes use a link that too few pings cross.
    """
    links_by_trip = trace_round_trips(route_sets)
    ping_count_by_link = _count_pings_by_link(links_by_trip, ping_count_by_trip)
    ping_counts = {ping_count_by_link[link] for links in links_by_trip.values() for link in links}
    floor = max(
        (compute_poisson_mean(_compute_min_lost_pings(count)) / max(count, 1) for count in ping_counts),
        default=1.0,
    )
    return floor if floor < 1 else None


def _compute_min_lost_pings(ping_count: int) -> int:
    """Return how many of `ping_count` pings must be lost for a finding."""
    return max(MIN_LOST_PINGS, math.ceil(MIN_LOSS_RATE * ping_count))


@cache
def compute_poisson_mean(min_events: int) -> float:
    """Return the mean of the Poisson distribution that yields `min_events` or more with a probability of 99 %.

    >>> round(compute_poisson_mean(3), 2)
    8.41
    """
    lower_mean, upper_mean = 0.0, 10.0 + 4.0 * min_events
    while upper_mean - lower_mean > 1e-6:
        mean = (lower_mean + upper_mean) / 2
        probability = sum(
            math.exp(event_count * math.log(mean) - mean - math.lgamma(event_count + 1))
            for event_count in range(min_events)
        )
        lower_mean, upper_mean = (mean, upper_mean) if probability > 1 - CONFIDENCE else (lower_mean, mean)
    return upper_mean


def _count_pings_by_link(
    links_by_trip: Mapping[RoundTrip, LinkPath], ping_count_by_trip: Mapping[RoundTrip, int]
) -> Counter[Link]:
    """Count the pings that cross each link, there or back."""
    ping_count_by_link: Counter[Link] = Counter()
    for round_trip, count in ping_count_by_trip.items():
        for link in links_by_trip[round_trip]:
            ping_count_by_link[link] += count
    return ping_count_by_link


def _find_lossy_paths(
    links_by_trip: Mapping[RoundTrip, LinkPath], counts_by_trip: Mapping[RoundTrip, tuple[int, int]]
) -> dict[LinkPath, tuple[int, int]]:
    """Return a few links that explain the lost pings, each with the number of pings lost and sent over it.

    `counts_by_trip` holds the lost and sent pings of each round trip. Greedy: the link with most losses comes first,
    and its round trips are removed. Links that the same pings cross cannot be distinguished, and form one key.
    """
    remaining_counts, counts_by_lossy_path = dict(counts_by_trip), dict[LinkPath, tuple[int, int]]()
    while True:
        lost_counts = _count_pings_by_link(
            links_by_trip, {round_trip: count for round_trip, (count, _) in remaining_counts.items()}
        )
        sent_counts = _count_pings_by_link(
            links_by_trip, {round_trip: count for round_trip, (_, count) in remaining_counts.items()}
        )
        lossy_links = [
            link for link, count in sent_counts.items() if lost_counts[link] >= _compute_min_lost_pings(count)
        ]
        worst_link = max(
            lossy_links,
            key=lambda link: (lost_counts[link], lost_counts[link] / sent_counts[link], link),
            default=None,
        )
        if worst_link is None:
            return counts_by_lossy_path
        affected_trips = {
            round_trip for round_trip in remaining_counts if worst_link in links_by_trip[round_trip]
        }
        common_links = [
            link
            for link in sent_counts
            if {round_trip for round_trip in remaining_counts if link in links_by_trip[round_trip]}
            == affected_trips
        ]
        counts_by_lossy_path[tuple(sorted(common_links))] = (lost_counts[worst_link], sent_counts[worst_link])
        remaining_counts = {
            round_trip: count
            for round_trip, count in remaining_counts.items()
            if round_trip not in affected_trips
        }


def _report_lossy_paths(
    lab: Lab, counts_by_lossy_path: Mapping[LinkPath, tuple[int, int]]
) -> Iterator[LinkFinding]:
    """Yield findings about lossy links, or one finding about a host that all of them have in common."""
    label_by_path = {links: " or ".join(map(lab.link_label, links)) for links in counts_by_lossy_path}
    description_by_path = {
        links: f"{lost_count} of {sent_count} over {label_by_path[links]}"
        for links, (lost_count, sent_count) in counts_by_lossy_path.items()
    }
    shared_nodes = (
        frozenset.intersection(*map(_find_nodes_on, counts_by_lossy_path))
        if counts_by_lossy_path
        else frozenset()
    )
    if len(counts_by_lossy_path) > 1 and shared_nodes:
        detail = f"pings were lost: {list_some(description_by_path.values(), '; ')}"
        yield LOSSY_PATH.report(
            lab.hosts[min(shared_nodes)].name, detail, parts=tuple(description_by_path.values())
        )
        return
    for links, text in description_by_path.items():
        yield LOSSY_PATH.report(label_by_path[links], f"pings were lost: {text}")


def _report_detours(
    lab: Lab, planned_hops_by_trip: Mapping[RoundTrip, int], hops_by_trip: Mapping[RoundTrip, int]
) -> Iterator[LinkFinding]:
    """Yield one finding about all pairs whose packets take another number of hops than planned."""
    round_trips = [
        round_trip
        for round_trip, planned_hops in planned_hops_by_trip.items()
        if hops_by_trip[round_trip] != planned_hops
    ]
    if round_trips:
        label_by_trip = {round_trip: _label_round_trip(lab, round_trip) for round_trip in round_trips}
        descriptions = tuple(
            f"{label_by_trip[round_trip]} takes {hops_by_trip[round_trip]} hops, not {planned_hops_by_trip[round_trip]}"
            for round_trip in round_trips
        )
        yield WRONG_PATH.report(
            label_by_trip[round_trips[0]], list_some(descriptions, "; "), parts=descriptions
        )
