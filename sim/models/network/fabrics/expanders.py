"""An expander: a random regular graph of duplex links, the same for the same seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.models.network.fabrics.direct import direct_connect
from sim.models.network.fabrics.model import Fabric, check_sizes

Integers = NDArray[np.int64]

_TRIES = 1000


def expander(nodes: int, degree: int, rate_gbps: float, *, seed: int = 0) -> Fabric:
    """Return the fabric in which each host has `degree` duplex links to random others; flows take shortest paths.

    `ValueError` unless n * d is even and 1 <= d < n (and 2 <= d, or two nodes, for it to be connected).
    """
    check_sizes(nodes, rate_gbps)
    if not 1 <= degree < nodes or nodes * degree % 2 or (degree == 1 and nodes > 2):
        raise ValueError(
            f"no connected {degree}-regular graph of {nodes} nodes: n * d must be even and d from 2 to n - 1"
        )
    pairs = random_regular(nodes, degree, np.random.default_rng(seed))
    both = np.concatenate([pairs, pairs[:, ::-1]])
    edges = [(int(source), int(target)) for source, target in both]
    return direct_connect(nodes, edges, rate_gbps, name="expander", seed=seed)


def random_regular(nodes: int, degree: int, random: np.random.Generator) -> Integers:
    """Return pairs (n * d / 2, 2) of a simple connected d-regular graph.

    Stubs are paired at random; pairs that are loops or double are exchanged with random others until none is left
    (switchings of the configuration model: McKay and Wormald, 1990).
    """
    for _ in range(_TRIES):
        pairs = random.permutation(np.repeat(np.arange(nodes), degree)).reshape(-1, 2)
        if _mend(pairs, random) and _is_connected(nodes, pairs):
            return pairs
    raise ValueError(f"no connected {degree}-regular graph of {nodes} nodes was found in {_TRIES} attempts")


def _bad(pairs: Integers) -> Integers:
    """Return places of pairs that are loops, or that are there already."""
    ordered = np.sort(pairs, axis=1)
    _, first = np.unique(ordered, axis=0, return_index=True)
    again = np.ones(len(pairs), dtype=bool)
    again[first] = False
    return np.flatnonzero(again | (pairs[:, 0] == pairs[:, 1]))


def _mend(pairs: Integers, random: np.random.Generator) -> bool:
    """Exchange ends of bad pairs in place; whether all are good now."""
    for _ in range(_TRIES):
        bad = _bad(pairs)
        if not bad.size:
            return True
        for place in bad:
            other = int(random.integers(len(pairs)))
            pairs[place, 1], pairs[other, 1] = pairs[other, 1], pairs[place, 1]
    return False


def _is_connected(nodes: int, pairs: Integers) -> bool:
    label = np.arange(nodes)
    for _ in range(nodes):
        before = label.copy()
        np.minimum.at(label, pairs[:, 0], label[pairs[:, 1]])
        np.minimum.at(label, pairs[:, 1], label[pairs[:, 0]])
        if (label == before).all():
            break
    return not label.any()
