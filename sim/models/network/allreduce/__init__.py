"""AllReduce as rounds of messages between members."""

from __future__ import annotations

from sim.models.network.allreduce.algorithms import (
    TREE_CHUNK_BYTES,
    Algorithm,
    Chain,
    Phase,
    find_tree_parents,
    plan_double_binary_tree,
    plan_exchange,
    plan_halving_doubling,
    plan_rings,
    split_bytes,
)

__all__ = [
    "TREE_CHUNK_BYTES",
    "Algorithm",
    "Chain",
    "Phase",
    "find_tree_parents",
    "plan_double_binary_tree",
    "plan_exchange",
    "plan_halving_doubling",
    "plan_rings",
    "split_bytes",
]
