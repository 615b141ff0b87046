"""Pairs of hosts that do not reach one another, told only where nothing else explains it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from testbed.design.model import Link, Routes
from testbed.lab.hosts.reachability import Reachability
from testbed.lab.model import Lab
from testbed.operate.model import LinkFinding

Pair = tuple[int, int]
SHOWN = 4


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


def judge_reachability(lab: Lab, reached: Reachability, blame: Blame) -> Iterator[LinkFinding]:
    """Yield what pings tell beyond other findings. Pairs that one host has in common are one finding."""
    nodes = {host.name: node for node, host in enumerate(lab.hosts)}
    missing = [(nodes[a], nodes[b]) for a, b in reached.missing if a in nodes and b in nodes]
    planned = [pair for pair in missing if pair in blame.routes.first_link]
    yield from _unreachable(lab, blame.routes, [pair for pair in planned if not blame.explains(pair)])
    hops = {
        (nodes[a], nodes[b]): found for (a, b), found in reached.hops.items() if a in nodes and b in nodes
    }
    yield from _detoured(lab, hops, blame)


def _round_trip(routes: Routes, pair: Pair) -> tuple[Link, ...]:
    return routes.path(*pair) + routes.path(*reversed(pair))


def _unreachable(lab: Lab, routes: Routes, missing: list[Pair]) -> Iterator[LinkFinding]:
    """Yield the fewest hosts that all missing pairs have in common; a pair on its own is named as such."""
    left = list(missing)
    while left:
        seen = Counter(node for pair in left for node in _nodes_of(routes, pair))
        ends = Counter(node for pair in left for node in pair)
        node = max(seen, key=lambda one: (seen[one], ends[one], -one))
        here = [pair for pair in left if node in _nodes_of(routes, pair)]
        left = [pair for pair in left if pair not in here]
        yield _common(lab, node, here)


def _nodes_of(routes: Routes, pair: Pair) -> frozenset[int]:
    return frozenset(nic.node for link in _round_trip(routes, pair) for nic in link)


def _common(lab: Lab, node: int, pairs: list[Pair]) -> LinkFinding:
    names = [f"{lab.hosts[a].name} -> {lab.hosts[b].name}" for a, b in pairs]
    if len({frozenset(pair) for pair in pairs}) == 1:
        detail = f"{lab.hosts[pairs[0][1]].name} does not answer {lab.hosts[pairs[0][0]].name}"
        return LinkFinding("unreachable", names[0], detail)
    host = lab.hosts[node].name
    shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    return LinkFinding(
        "unreachable", host, f"{len(pairs)} pairs get no answer, all by way of {host} or with it: {shown}"
    )


def _detoured(lab: Lab, hops: Mapping[Pair, int], blame: Blame) -> Iterator[LinkFinding]:
    """Yield pairs whose packets take another number of links than planned, as one finding."""
    planned = {pair: blame.routes.hops(*pair) for pair in sorted(hops) if pair in blame.routes.first_link}
    other = [pair for pair, number in planned.items() if hops[pair] != number and not blame.explains(pair)]
    if other:
        labels = {pair: f"{lab.hosts[pair[0]].name} -> {lab.hosts[pair[1]].name}" for pair in other}
        words = [f"{labels[pair]} takes {hops[pair]} hops, not {planned[pair]}" for pair in other[:SHOWN]]
        more = f"; and {len(other) - SHOWN} more" if len(other) > SHOWN else ""
        yield LinkFinding("wrong_path", labels[other[0]], f"{'; '.join(words)}{more}")
