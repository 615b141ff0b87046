"""Pairs of hosts that do not reach one another, told only where nothing else explains it. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from lightbed.wording import list_some
from testbed.design.model import Link, Routes
from testbed.lab.hosts.reachability import Reachability
from testbed.lab.model import Lab
from testbed.operate.model import LinkFinding

Pair = tuple[int, int]
Links = tuple[Link, ...]
"""One link, or several that the same pings cross."""
LEAST_LOST = 3
"""Pings that must be lost on one link: one or two may be a burst of a job, or a machine that stood still."""
LEAST_RATE = 0.01
"""Share of the pings over a link that must be lost, where there are many."""
ENOUGH = 8.41
"""Mean of the Poisson distribution that gives `LEAST_LOST` or more with a probability of 99 %."""
LOSS_SOUGHT = 0.04
FEWEST_PINGS, MOST_PINGS = 25, 106
"""Pings of each pair: they take five milliseconds each, and all of them pass all NICs of small machines."""


@dataclass(frozen=True, slots=True)
class Blame:
    """Routes of a plan, and what other findings blame: links and nodes that carry nothing."""

    routes: Routes
    links: frozenset[Link]
    nodes: frozenset[int]

    def explains(self, pair: Pair) -> bool:
        """Return whether packets of a pair, there and back, pass something that is blamed."""
        way = _round_trip(self.routes, pair)
        passed = {nic.node for link in way for nic in link}
        return not self.nodes.isdisjoint(passed) or not self.links.isdisjoint(way)


def judge_reachability(
    lab: Lab, reached: Reachability, blame: Blame, narrow: frozenset[int] = frozenset()
) -> Iterator[LinkFinding]:
    """Yield what pings and exchanges tell beyond other findings. Pairs that one host has in common are one finding.

    Of `narrow` nodes a finding tells already that large packets do not pass.
    """
    nodes = {host.name: node for node, host in enumerate(lab.hosts)}

    def unexplained(named: Iterable[tuple[str, str]]) -> list[Pair]:
        pairs = [(nodes[a], nodes[b]) for a, b in named if a in nodes and b in nodes]
        return [pair for pair in pairs if pair in blame.routes.first_link and not blame.explains(pair)]

    yield from _stopped(lab, blame.routes, unexplained(reached.missing), "unreachable")
    counts = {(nodes[a], nodes[b]): count for (a, b), count in reached.lost.items()}
    lossy = _find_lossy(blame.routes, {pair: counts[pair] for pair in unexplained(reached.lost)})
    yield from _lossy(lab, lossy)
    crossed = {link for links in lossy for link in links}
    blame = replace(blame, links=blame.links | crossed, nodes=blame.nodes | narrow)
    yield from _stopped(lab, blame.routes, unexplained(sorted(reached.small_only)), "no_large_packets")
    without_tcp = sorted(reached.without_tcp - reached.small_only)  # its segments are of the full size
    yield from _stopped(lab, blame.routes, unexplained(without_tcp), "no_tcp")
    hops = {
        (nodes[a], nodes[b]): found for (a, b), found in reached.hops.items() if a in nodes and b in nodes
    }
    yield from _detoured(lab, hops, blame)


def _round_trip(routes: Routes, pair: Pair) -> tuple[Link, ...]:
    return routes.path(*pair) + routes.path(*reversed(pair))


def _stopped(lab: Lab, routes: Routes, pairs: list[Pair], kind: str) -> Iterator[LinkFinding]:
    """Yield the fewest hosts that all these pairs have in common; a pair on its own is named as such."""
    left = list(pairs)
    while left:
        seen = Counter(node for pair in left for node in _nodes_of(routes, pair))
        ends = Counter(node for pair in left for node in pair)
        node = max(seen, key=lambda one: (seen[one], ends[one], -one))
        here = [pair for pair in left if node in _nodes_of(routes, pair)]
        left = [pair for pair in left if pair not in here]
        yield _common(lab, node, here, kind)


def _nodes_of(routes: Routes, pair: Pair) -> frozenset[int]:
    return frozenset(nic.node for link in _round_trip(routes, pair) for nic in link)


_WORDS = {
    "unreachable": ("{b} does not answer {a}", "get no answer"),
    "no_large_packets": (
        "pings of the full size from {a} do not come back from {b}",
        "get no answer to pings of the full size",
    ),
    "no_tcp": ("an exchange over TCP from {a} with {b} does not end", "cannot exchange data over TCP"),
}
"""By kind, what is said of one pair, and of several."""


def _common(lab: Lab, node: int, pairs: list[Pair], kind: str) -> LinkFinding:
    names = [f"{lab.hosts[a].name} -> {lab.hosts[b].name}" for a, b in pairs]
    of_one, of_several = _WORDS[kind]
    if len({frozenset(pair) for pair in pairs}) == 1:
        a, b = (lab.hosts[end].name for end in pairs[0])
        return LinkFinding(kind, names[0], of_one.format(a=a, b=b))
    host = lab.hosts[node].name
    detail = f"{len(pairs)} pairs {of_several}, all by way of {host} or with it: {list_some(names)}"
    return LinkFinding(kind, host, detail, parts=tuple(names))


def count_pings(routes: Routes) -> int:
    """Return how many pings of each pair find a loss of 4 % on any link that routes use, within the limits."""
    fewest = min(_crossings(routes, dict.fromkeys(routes.first_link, 1)).values(), default=1)
    return min(MOST_PINGS, max(FEWEST_PINGS, math.ceil(ENOUGH / LOSS_SOUGHT / fewest)))


def find_loss_floor(routes: Routes, pings: Mapping[Pair, int]) -> float | None:
    """Return the smallest loss rate that so many pings between hosts find on any link, with 99 % confidence.

    It is None where routes use a link that no ping crosses, or hardly any.
    """
    used = {link for pair in routes.first_link for link in routes.path(*pair)}
    crossings = _crossings(routes, pings)
    fewest = min((crossings[link] for link in used), default=0)
    return ENOUGH / fewest if fewest > ENOUGH else None


def _crossings(routes: Routes, pings: Mapping[Pair, int]) -> Counter[Link]:
    """Count the pings that cross each link, there or back."""
    crossings: Counter[Link] = Counter()
    for pair, count in pings.items():
        for link in _round_trip(routes, pair):
            crossings[link] += count
    return crossings


def _find_lossy(routes: Routes, counts: Mapping[Pair, tuple[int, int]]) -> dict[Links, tuple[int, int]]:
    """Return the fewest links that explain the lost pings, with how many of how many were lost over each."""
    left, lossy = dict(counts), dict[Links, tuple[int, int]]()
    while True:
        lost = _crossings(routes, {pair: gone for pair, (gone, _) in left.items()})
        sent = _crossings(routes, {pair: count for pair, (_, count) in left.items()})
        worst = max(sent, key=lambda link: (lost[link], lost[link] / max(sent[link], 1), link), default=None)
        if worst is None or lost[worst] < max(LEAST_LOST, LEAST_RATE * sent[worst]):
            return lossy
        through = {pair for pair in left if worst in _round_trip(routes, pair)}
        alike = [
            link for link in sent if {pair for pair in left if link in _round_trip(routes, pair)} == through
        ]
        lossy[tuple(sorted(alike))] = (lost[worst], sent[worst])
        left = {pair: count for pair, count in left.items() if pair not in through}


def _lossy(lab: Lab, lossy: Mapping[Links, tuple[int, int]]) -> Iterator[LinkFinding]:
    """Yield links over which pings were lost; several that one host has in common as that host."""
    labels = {links: " or ".join(map(lab.link_label, links)) for links in lossy}
    words = {links: f"{gone} of {count} over {labels[links]}" for links, (gone, count) in lossy.items()}
    ends = [{nic.node for nic in link} for links in lossy for link in links]
    shared = set.intersection(*ends) if ends else set()
    if len(lossy) > 1 and shared:
        detail = f"pings were lost: {list_some(words.values(), '; ')}"
        yield LinkFinding("lossy_path", lab.hosts[min(shared)].name, detail, parts=tuple(words.values()))
        return
    for links, counted in words.items():
        yield LinkFinding("lossy_path", labels[links], f"pings were lost: {counted}")


def _detoured(lab: Lab, hops: Mapping[Pair, int], blame: Blame) -> Iterator[LinkFinding]:
    """Yield pairs whose packets take another number of links than planned, as one finding."""
    planned = {pair: blame.routes.hops(*pair) for pair in sorted(hops) if pair in blame.routes.first_link}
    other = [pair for pair, number in planned.items() if hops[pair] != number and not blame.explains(pair)]
    if other:
        labels = {pair: f"{lab.hosts[pair[0]].name} -> {lab.hosts[pair[1]].name}" for pair in other}
        words = tuple(f"{labels[pair]} takes {hops[pair]} hops, not {planned[pair]}" for pair in other)
        yield LinkFinding("wrong_path", labels[other[0]], list_some(words, "; "), parts=words)
