"""AllReduce as rounds of messages between members."""

from __future__ import annotations

from sim.models.network.allreduce.algorithms import (
    TREE_CHUNK_BYTES,
    Algorithm,
    Chain,
    Phase,
    double_binary_tree,
    exchange,
    find_tree_parents,
    halving_doubling,
    parts,
    ring,
)

__all__ = [
    "TREE_CHUNK_BYTES",
    "Algorithm",
    "Chain",
    "Phase",
    "double_binary_tree",
    "exchange",
    "find_tree_parents",
    "halving_doubling",
    "parts",
    "ring",
]
