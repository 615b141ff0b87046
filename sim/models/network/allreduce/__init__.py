"""AllReduce as rounds of messages between members."""

from __future__ import annotations

from sim.models.network.allreduce.algorithms import (
    TREE_CHUNK_BYTES,
    Algorithm,
    Chain,
    Phase,
    double_binary_tree,
    exchange,
    halving_doubling,
    parts,
    ring,
    tree_parents,
)

__all__ = [
    "TREE_CHUNK_BYTES",
    "Algorithm",
    "Chain",
    "Phase",
    "double_binary_tree",
    "exchange",
    "halving_doubling",
    "parts",
    "ring",
    "tree_parents",
]
