"""An expander: a random regular graph of duplex links, reproducible by its seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.models.network.fabrics.direct import make_direct_fabric
from sim.models.network.fabrics.model import Fabric, check_sizes

Integers = NDArray[np.int64]

_MAX_ATTEMPTS = 1000


def make_expander(node_count: int, degree: int, rate_gbps: float, *, seed: int = 0) -> Fabric:
    """Return the fabric in which each host has `degree` duplex links to random others; flows use shortest paths.

    Raise `ValueError` unless n * d is even and 2 <= d < n, or n is 2 and d is 1.
    """
    check_sizes(node_count, rate_gbps)
    if not 1 <= degree < node_count or node_count * degree % 2 or (degree == 1 and node_count > 2):
        raise ValueError(
            f"no connected {degree}-regular graph of {node_count} nodes: n * d must be even and d from 2 to n - 1"
        )
    pairs = draw_random_regular(node_count, degree, np.random.default_rng(seed))
    directed_pairs = np.concatenate([pairs, pairs[:, ::-1]])
    edges = [(int(source), int(target)) for source, target in directed_pairs]
    return make_direct_fabric(node_count, edges, rate_gbps, name="expander", seed=seed)


def draw_random_regular(node_count: int, degree: int, random: np.random.Generator) -> Integers:
    """Return the pairs (n * d / 2, 2) of a simple connected d-regular graph.

    Stubs are paired at random; loops and duplicates then exchange an end with random other pairs until there are none
    (switchings of the configuration model: McKay and Wormald, 1990). Raise `ValueError` after 1,000 attempts.
    """
    for _ in range(_MAX_ATTEMPTS):
        pairs = random.permutation(np.repeat(np.arange(node_count), degree)).reshape(-1, 2)
        if _exchange_bad_pairs(pairs, random) and _is_connected(node_count, pairs):
            return pairs
    raise ValueError(
        f"no connected {degree}-regular graph of {node_count} nodes was found in {_MAX_ATTEMPTS} attempts"
    )


def _find_bad_pairs(pairs: Integers) -> Integers:
    """Return the indices of pairs that are loops or duplicates."""
    ordered_pairs = np.sort(pairs, axis=1)
    _, first_rows = np.unique(ordered_pairs, axis=0, return_index=True)
    is_duplicate = np.ones(len(pairs), dtype=bool)
    is_duplicate[first_rows] = False
    return np.flatnonzero(is_duplicate | (pairs[:, 0] == pairs[:, 1]))


def _exchange_bad_pairs(pairs: Integers, random: np.random.Generator) -> bool:
    """Exchange ends of bad pairs in place; return False if some are still bad after `_MAX_ATTEMPTS` rounds."""
    for _ in range(_MAX_ATTEMPTS):
        bad_indices = _find_bad_pairs(pairs)
        if not bad_indices.size:
            return True
        for index in bad_indices:
            other_index = int(random.integers(len(pairs)))
            pairs[index, 1], pairs[other_index, 1] = pairs[other_index, 1], pairs[index, 1]
    return False


def _is_connected(node_count: int, pairs: Integers) -> bool:
    labels = np.arange(node_count)
    for _ in range(node_count):
        previous_labels = labels.copy()
        np.minimum.at(labels, pairs[:, 0], labels[pairs[:, 1]])
        np.minimum.at(labels, pairs[:, 1], labels[pairs[:, 0]])
        if (labels == previous_labels).all():
            break
    return not labels.any()
