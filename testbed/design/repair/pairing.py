"""Join loose ends, as many as can be: no end meets its own node, and with planes interface i meets interface i only."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import groupby

from testbed.design.model import Nic

Pair = tuple[Nic, Nic]


def pair_up(nics: Collection[Nic], planes: int = 1) -> list[Pair]:
    """Return duplex links among these NICs, each at most once.

    Always one NIC each of the two nodes with the most left, so that what is left over is one NIC, or all of one node.
    """

    def plane(nic: Nic) -> int:
        return nic.index if planes > 1 else 0

    in_order = sorted(nics, key=lambda nic: (plane(nic), nic))
    return [pair for _, group in groupby(in_order, plane) for pair in _pairs_of_fullest(list(group))]


def _pairs_of_fullest(nics: list[Nic]) -> Iterator[Pair]:
    left: dict[int, list[Nic]] = {}
    for nic in nics:
        left.setdefault(nic.node, []).append(nic)
    while len(left) > 1:
        one, other = sorted(left, key=lambda node: -len(left[node]))[:2]
        yield left[one].pop(0), left[other].pop(0)
        left = {node: rest for node, rest in left.items() if rest}


def match(
    senders: Collection[Nic],
    receivers: Collection[Nic],
    planes: int = 1,
    first: Collection[Nic] = (),
) -> list[Pair]:
    """Return one-way links from senders to receivers, each at most once: a largest matching by augmenting paths.

    A receiver that has found a sender keeps one, so that those that come `first` are served before others.
    """
    receiver_of: dict[Nic, Nic] = {}

    def find_sender(receiver: Nic, tried: set[Nic]) -> bool:
        for sender in sorted(senders):
            fits = sender.node != receiver.node and (planes == 1 or sender.index == receiver.index)
            if fits and sender not in tried:
                tried.add(sender)
                if sender not in receiver_of or find_sender(receiver_of[sender], tried):
                    receiver_of[sender] = receiver
                    return True
        return False

    for receiver in sorted(receivers, key=lambda nic: (nic not in first, nic)):
        find_sender(receiver, set())
    return sorted(receiver_of.items())
