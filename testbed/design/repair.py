"""Plans of repairs for lost fibres: immediate detours over other links, then a re-patch that restores the rings.

These functions only plan. The first step needs only new routes: data of a lost link takes the shortest path over the
remaining links. Between equally short paths, it prefers *bought* links, which serve single pairs, to links of rings.
The second step removes a bought link and uses its NICs to restore the ring link.

A dead NIC is no longer used. Its ring links move to NICs that are idle or have a removable link. Loose ends are then
joined to each other, because a NIC with a dark receiver does not send. The search is deterministic: depth first, with
the cheapest choice first. The number of trials is limited, since an operator waits for the result.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import groupby, product

import numpy as np
from numpy.typing import NDArray

from testbed.design.model import Link, Nic, Routes, Topology, Wiring
from testbed.design.topology.circulants import list_circulant_edges
from testbed.design.topology.strides import list_direct_strides
from testbed.errors import TopologyError

__all__ = ["Detour", "Repair", "plan_repair"]

#: Maximum number of links tried in total; lost links that remain then are not restored. Usually few fibres are lost.
_MAX_TRIALS = 2000

Pair = tuple[Nic, Nic]
NodePair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Detour:
    """A lost link, and the path that its data takes instead. It is empty if only the re-patch joins the nodes."""

    lost_link: Link
    path: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Repair:
    """Plan of a repair.

    `running` is the wiring that carries data now, `repatched` the wiring after the re-patch. The re-patch removes
    `removed_links` and makes `new_links`. `restores_ring` tells whether the re-patch restores a ring link. It is False
    if no ring link was lost, or if none can be restored before the fibre is replaced. `reason` explains it.
    """

    detours: tuple[Detour, ...]
    running: Wiring
    repatched: Wiring
    removed_links: tuple[Link, ...]
    new_links: tuple[Link, ...]
    restores_ring: bool
    reason: str


@dataclass(frozen=True, slots=True)
class CurrentLinks:
    """Links that are patched (`patched_links`), and links that carry data, perhaps after an earlier repair."""

    patched_links: frozenset[Link]
    carrying_links: frozenset[Link]


def plan_repair(
    wiring: Wiring,
    dead_nics: Collection[Nic],
    spare_pairs: Sequence[NodePair] = (),
    *,
    planes: int = 1,
    failed_links: Collection[Link] | None = None,
    current: CurrentLinks | None = None,
) -> Repair:
    """Return a repair for `dead_nics`, which are not used until their lost fibres are replaced.

    - `spare_pairs`: pairs of nodes whose links may be removed, see `find_non_ring_pairs`; the least useful pair first.
    - `planes`: above 1, interface i is connected to switch i only. The lost link is then restored in another plane, by
      swapping the ends of removable links.
    - `failed_links`: links that do not work, by default all links of the dead NICs. If only a transmit fibre is cut,
      the receiver at its other end is dark, so that NIC does not send; the dead NIC itself still receives.
    - `current`: links for detours, by default the wiring without the lost links.

    Raises `TopologyError` if a NIC has no link, or a node is cut off and no other NIC can join it again.
    """
    lost_links = frozenset(_find_links(wiring, dead_nics) if failed_links is None else failed_links)
    current = current or CurrentLinks(frozenset(wiring.links), frozenset(wiring.links) - lost_links)
    rank_by_edge = {
        edge: position
        for position, pair in enumerate(spare_pairs)
        for edge in ((pair,) if wiring.simplex else (pair, pair[::-1]))
    }
    losses = Losses(frozenset(dead_nics), lost_links, rank_by_edge, planes)
    running = _replace_links(wiring, current.carrying_links)
    repaired_links = swap_edges(wiring, losses)
    if repaired_links is not None and _drops_ring_links(wiring, losses, current, repaired_links):
        repaired_links = None
    repatched = running if repaired_links is None else _replace_links(wiring, repaired_links)
    detours = tuple(
        _make_detour(link, running, repatched, rank_by_edge)
        for link in wiring.links
        if link not in current.carrying_links
    )
    if repaired_links is None:
        return Repair(detours, running, running, (), (), False, _explain_not_restored(losses))
    removed_links = tuple(link for link in running.links if link not in repaired_links)
    new_links = tuple(link for link in repaired_links if link not in current.patched_links)
    reason = _explain_restored(
        losses.ring_links.total(), count_restored_links(wiring, losses, repaired_links).total()
    )
    return Repair(detours, running, repatched, removed_links, new_links, True, reason)


def find_non_ring_pairs(
    topology: Topology, traffic_bytes: NDArray[np.float64] | None = None
) -> tuple[NodePair, ...]:
    """Return the pairs with links outside the rings, which a repair may remove.

    They are in ascending order of `traffic_bytes[source, target]`, summed over both directions if duplex. Pairs with
    equal bytes, and all pairs without `traffic_bytes`, are in the order of their nodes.
    """
    direct_strides = list_direct_strides(topology.nodes, topology.strides, simplex=topology.simplex)
    ring_edges = set(list_circulant_edges(topology.nodes, direct_strides))
    pairs = dict.fromkeys(pair for pair in topology.links if pair not in ring_edges)
    if traffic_bytes is None:
        return tuple(pairs)
    bytes_by_pair = traffic_bytes if topology.simplex else traffic_bytes + traffic_bytes.T
    return tuple(sorted(pairs, key=lambda pair: (float(bytes_by_pair[pair]), pair)))


def apply_detours(routes: Routes, detours: Iterable[Detour]) -> Routes:
    """Return shortest routes in which the data of each lost link takes its detour.

    Each detour is a shortest path, so the first links towards its end still lead there.
    """
    first_links = dict(routes.first_link)
    for detour in detours:
        target = detour.lost_link.target.node
        first_links |= {(link.source.node, target): link for link in detour.path}
    return Routes(first_links)


def _find_links(wiring: Wiring, nics: Collection[Nic]) -> Iterator[Link]:
    for nic in nics:
        links = [link for link in wiring.links if nic in link]
        if not links:
            raise TopologyError(
                f"NIC {nic.index} of node {nic.node} has no link, so there is nothing to repair"
            )
        yield from links


def _drops_ring_links(wiring: Wiring, losses: Losses, current: CurrentLinks, links: Iterable[Link]) -> bool:
    """Return whether the new links lack ring links that carry data now. An earlier repair can cause this."""
    ring_edges = Counter(get_end_nodes(link) for link in wiring.links if not losses.is_removable(link))
    carrying_edges = ring_edges & Counter(map(get_end_nodes, current.carrying_links))
    return not carrying_edges <= Counter(map(get_end_nodes, links))


def _replace_links(wiring: Wiring, links: Iterable[Link]) -> Wiring:
    return Wiring(wiring.nodes, wiring.degree, wiring.simplex, tuple(sorted(links)))


def _explain_restored(lost_count: int, restored_count: int) -> str:
    if restored_count == lost_count:
        return "the ring is closed by a link of its own again"
    return f"{restored_count} of {lost_count} ring links are restored, the others stay on their detours"


def _explain_not_restored(losses: Losses) -> str:
    if all(map(losses.is_removable, losses.lost_links)):
        return "the lost link served one pair; its data takes the detour"
    nodes = ", ".join(str(nic.node) for nic in sorted(losses.dead_nics))
    return f"node {nodes} has no other NIC to give: the detour stays until the fibre or GPU is replaced"


def _make_detour(
    lost_link: Link, running_wiring: Wiring, repatched_wiring: Wiring, removable_edges: Collection[NodePair]
) -> Detour:
    """Return the detour over the running links, with an empty path if only the re-patch joins the nodes.

    Raises `TopologyError` if the re-patch does not join them either.
    """
    path = _find_shortest_path(running_wiring, lost_link, removable_edges)
    if path is None and _find_shortest_path(repatched_wiring, lost_link, removable_edges) is None:
        raise TopologyError(
            f"without the lost link, node {lost_link.source.node} has no path to node {lost_link.target.node}: "
            "replace the fibre or GPU, or give every node a second link"
        )
    return Detour(lost_link, path or ())


def _find_shortest_path(
    wiring: Wiring, lost_link: Link, removable_edges: Collection[NodePair]
) -> tuple[Link, ...] | None:
    """Return the path with the fewest hops, then the fewest ring links, then the smallest links, or None."""
    links_by_source: dict[int, list[Link]] = defaultdict(list)
    for link in sorted(wiring.links):
        links_by_source[link.source.node].append(link)
    queue: list[tuple[int, int, tuple[Link, ...]]] = [(0, 0, ())]
    visited: set[int] = set()
    while queue:
        hop_count, ring_hop_count, path = heappop(queue)
        node = path[-1].target.node if path else lost_link.source.node
        if node == lost_link.target.node:
            return path
        if node in visited:
            continue
        visited.add(node)
        for link in links_by_source[node]:
            heappush(
                queue,
                (hop_count + 1, ring_hop_count + (get_end_nodes(link) not in removable_edges), (*path, link)),
            )
    return None


@dataclass(frozen=True, slots=True)
class Losses:
    """Losses, and the links that a repair may remove.

    `dead_nics` must not be used, and `lost_links` carry no data. `rank_by_edge` holds the edges whose links may be
    removed, in both directions if duplex. The least useful edge has the lowest rank. With `plane_count` above 1,
    interface i is connected to switch i only.
    """

    dead_nics: frozenset[Nic]
    lost_links: frozenset[Link]
    rank_by_edge: Mapping[NodePair, int]
    plane_count: int

    def is_removable(self, link: Link) -> bool:
        """Return whether a repair may remove a link."""
        return get_end_nodes(link) in self.rank_by_edge

    @property
    def ring_links(self) -> Counter[NodePair]:
        """Edges of the lost ring links, which a repair should restore."""
        return Counter(get_end_nodes(link) for link in self.lost_links if not self.is_removable(link))


def get_end_nodes(link: Link) -> NodePair:
    """Return the two nodes of a link, sender first."""
    return link.source.node, link.target.node


def swap_edges(wiring: Wiring, losses: Losses) -> tuple[Link, ...] | None:
    """Return the links of a wiring that avoids the dead NICs and restores as many of their ring links as possible.

    Only removable links are removed, and no sending NIC loses its light. Return None if nothing can be restored.
    """
    dead_links = [
        link for link in wiring.links if link.source in losses.dead_nics or link.target in losses.dead_nics
    ]
    missing_links = [
        link
        for link in dead_links
        if not losses.is_removable(link) and (wiring.simplex or link.source < link.target)
    ]
    lit_nics = frozenset(wiring.link_by_receiver)
    for state in _restore_links(
        _PatchState.from_wiring(wiring, losses, dead_links), missing_links, losses, iter(range(_MAX_TRIALS))
    ):
        joined_state = state.join_loose_ends(losses.plane_count)
        if not joined_state.silences_any(lit_nics) and count_restored_links(
            wiring, losses, joined_state.links
        ):
            return joined_state.links
    return None


def count_restored_links(wiring: Wiring, losses: Losses, links: Iterable[Link]) -> Counter[NodePair]:
    """Return the lost ring links that `links` restore; links that still worked do not count."""
    working_edges = Counter(get_end_nodes(link) for link in wiring.links if link not in losses.lost_links)
    return losses.ring_links & (Counter(map(get_end_nodes, links)) - working_edges)


def _restore_links(
    state: _PatchState, links_to_restore: Sequence[Link], losses: Losses, trial_numbers: Iterator[int]
) -> Iterator[_PatchState]:
    """Yield states in which the links are restored, cheapest choice first; states that lack some links come last."""
    if not links_to_restore:
        yield state
        return
    link, *later_links = links_to_restore
    for (sender, receiver), _ in zip(state.list_nic_pairs(link, losses), trial_numbers, strict=False):
        yield from _restore_links(state.add_link(sender, receiver), later_links, losses, trial_numbers)
    if link in losses.lost_links:
        yield from _restore_links(state, later_links, losses, trial_numbers)


@dataclass(frozen=True, slots=True)
class _PatchState:
    """The ends of links, in both directions, and the loose transmitters and receivers.

    With duplex links, a loose NIC is in both sets.
    """

    is_duplex: bool
    degree: int
    receiver_by_sender: Mapping[Nic, Nic]
    sender_by_receiver: Mapping[Nic, Nic]
    loose_senders: frozenset[Nic]
    loose_receivers: frozenset[Nic]

    @classmethod
    def from_wiring(cls, wiring: Wiring, losses: Losses, cut_links: Collection[Link]) -> _PatchState:
        """Return the state of a wiring without the cut links. Their ends are loose, except at dead NICs."""
        remaining_links = [link for link in wiring.links if link not in cut_links]
        return cls(
            is_duplex=not wiring.simplex,
            degree=wiring.degree,
            receiver_by_sender={link.source: link.target for link in remaining_links},
            sender_by_receiver={link.target: link.source for link in remaining_links},
            loose_senders=frozenset(link.source for link in cut_links) - losses.dead_nics,
            loose_receivers=frozenset(link.target for link in cut_links) - losses.dead_nics,
        )

    @property
    def links(self) -> tuple[Link, ...]:
        return tuple(sorted(Link(*pair) for pair in self.receiver_by_sender.items()))

    def find_displaced_links(self, sender: Nic, receiver: Nic) -> list[Link]:
        """Return the links that a new link from `sender` to `receiver` would replace, one of each duplex pair."""
        displaced_links = (
            {Link(sender, self.receiver_by_sender[sender])} if sender in self.receiver_by_sender else set()
        )
        if receiver in self.sender_by_receiver:
            displaced_links.add(Link(self.sender_by_receiver[receiver], receiver))
        return sorted(displaced_links)

    def list_nic_pairs(self, link: Link, losses: Losses) -> list[tuple[Nic, Nic]]:
        """Return the pairs of NICs that can carry a lost link; pairs that displace the fewest links come first."""
        ranked_pairs: list[tuple[int, int, tuple[Nic, Nic]]] = []
        for sender, receiver in self._list_possible_pairs(link, losses):
            displaced_links = self.find_displaced_links(sender, receiver)
            if not losses.dead_nics & {sender, receiver} and all(map(losses.is_removable, displaced_links)):
                ranked_pairs.append(
                    (
                        len(displaced_links),
                        sum(
                            losses.rank_by_edge[get_end_nodes(displaced_link)]
                            for displaced_link in displaced_links
                        ),
                        (sender, receiver),
                    )
                )
        return [pair for _, _, pair in sorted(ranked_pairs)]

    def _list_possible_pairs(self, link: Link, losses: Losses) -> Iterator[tuple[Nic, Nic]]:
        """Return the pairs of NICs to consider for a link.

        On one switch, an end keeps its NIC unless it is dead. With one switch per interface, both ends must be in the
        same plane.
        """
        (source, _), (target, _) = link
        source_nics = [Nic(source, index) for index in range(self.degree)]
        target_nics = [Nic(target, index) for index in range(self.degree)]
        if losses.plane_count > 1:
            return zip(source_nics, target_nics, strict=True)
        return product(
            [link.source] if link.source in self.loose_senders else source_nics,
            [link.target] if link.target in self.loose_receivers else target_nics,
        )

    def add_link(self, new_sender: Nic, new_receiver: Nic) -> _PatchState:
        """Return the state with a link from `new_sender` to `new_receiver`.

        The other ends of replaced links become loose.
        """
        receiver_by_sender, sender_by_receiver = dict(self.receiver_by_sender), dict(self.sender_by_receiver)
        loose_senders, loose_receivers = set(self.loose_senders), set(self.loose_receivers)
        link_directions = (
            [(new_sender, new_receiver), (new_receiver, new_sender)]
            if self.is_duplex
            else [(new_sender, new_receiver)]
        )
        for sender, receiver in link_directions:
            if sender in receiver_by_sender:
                loose_receivers.add(receiver_by_sender[sender])
                del sender_by_receiver[receiver_by_sender.pop(sender)]
            if receiver in sender_by_receiver:
                loose_senders.add(sender_by_receiver[receiver])
                del receiver_by_sender[sender_by_receiver.pop(receiver)]
        for sender, receiver in link_directions:
            receiver_by_sender[sender], sender_by_receiver[receiver] = receiver, sender
        if new_sender not in sender_by_receiver:  # a NIC sends only if its receiver is lit
            loose_receivers.add(new_sender)
        loose_nics = (
            frozenset(loose_senders - receiver_by_sender.keys()),
            frozenset(loose_receivers - sender_by_receiver.keys()),
        )
        return _PatchState(self.is_duplex, self.degree, receiver_by_sender, sender_by_receiver, *loose_nics)

    def join_loose_ends(self, plane_count: int) -> _PatchState:
        """Return the state with as many loose ends joined as possible; NICs that send get light first."""
        if self.is_duplex:
            nic_pairs = pair_nics(self.loose_receivers, plane_count)
        else:
            sending_nics = self.receiver_by_sender.keys() | self.loose_senders
            nic_pairs = match_nics(
                self.loose_senders, self.loose_receivers, plane_count, preferred=sending_nics
            )
        state = self
        for sender, receiver in nic_pairs:
            state = state.add_link(sender, receiver)
        return state

    def silences_any(self, lit_nics: Collection[Nic]) -> bool:
        """Return whether a NIC that sends, and received light before (`lit_nics`), receives no light in this state."""
        return any(nic in lit_nics and nic not in self.sender_by_receiver for nic in self.receiver_by_sender)


def pair_nics(nics: Collection[Nic], plane_count: int = 1) -> list[Pair]:
    """Return duplex links among these NICs, each used at most once.

    Links stay within a plane if `plane_count` is above 1.

    Each link joins the two nodes with the most free NICs, so that at the end only NICs of one node are free.
    """

    def find_plane(nic: Nic) -> int:
        return nic.index if plane_count > 1 else 0

    sorted_nics = sorted(nics, key=lambda nic: (find_plane(nic), nic))
    return [
        pair
        for _, plane_nics in groupby(sorted_nics, find_plane)
        for pair in _pair_fullest_nodes(list(plane_nics))
    ]


def _pair_fullest_nodes(nics: list[Nic]) -> Iterator[Pair]:
    nics_by_node: dict[int, list[Nic]] = {}
    for nic in nics:
        nics_by_node.setdefault(nic.node, []).append(nic)
    while len(nics_by_node) > 1:
        fullest_node, second_node = sorted(nics_by_node, key=lambda node: -len(nics_by_node[node]))[:2]
        yield nics_by_node[fullest_node].pop(0), nics_by_node[second_node].pop(0)
        nics_by_node = {node: free_nics for node, free_nics in nics_by_node.items() if free_nics}


def match_nics(
    senders: Collection[Nic],
    receivers: Collection[Nic],
    plane_count: int = 1,
    preferred: Collection[Nic] = (),
) -> list[Pair]:
    """Return one-way links from senders to receivers, each used at most once: a maximum matching by augmenting paths.

    Receivers in `preferred` come first, since a receiver that once has a sender keeps one.
    """
    receiver_by_sender: dict[Nic, Nic] = {}

    def find_sender(receiver: Nic, visited: set[Nic]) -> bool:
        for sender in sorted(senders):
            can_link = sender.node != receiver.node and (plane_count == 1 or sender.index == receiver.index)
            if can_link and sender not in visited:
                visited.add(sender)
                if sender not in receiver_by_sender or find_sender(receiver_by_sender[sender], visited):
                    receiver_by_sender[sender] = receiver
                    return True
        return False

    for receiver in sorted(receivers, key=lambda nic: (nic not in preferred, nic)):
        find_sender(receiver, set())
    return sorted(receiver_by_sender.items())
