"""Wirings from patch lists, which are shorter to write than links."""

from __future__ import annotations

import re

from testbed.design.model import Link, Nic, Wiring

_PATCH = re.compile(r"([A-Z]+)([0-9]+)([->])([A-Z]+)([0-9]+)")


def wiring_of(lines: list[str], nodes: int, degree: int) -> Wiring:
    """Return the wiring that `patch_list` writes as these lines."""
    links = []
    for line in lines:
        source, source_nic, mark, target, target_nic = _PATCH.fullmatch(line).groups()
        link = Link(Nic(_node(source), int(source_nic) - 1), Nic(_node(target), int(target_nic) - 1))
        links += [link] if mark == ">" else [link, Link(link.target, link.source)]
    return Wiring(nodes, degree, any(">" in line for line in lines), tuple(sorted(links)))


def _node(letters: str) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1
