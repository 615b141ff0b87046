"""Collectives as rounds of messages between members."""

from __future__ import annotations

from sim.models.network.collectives.algorithms import (
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
from sim.models.network.collectives.collective import COLLECTIVES, Collective, ring_share

__all__ = [
    "COLLECTIVES",
    "TREE_CHUNK_BYTES",
    "Algorithm",
    "Chain",
    "Collective",
    "Phase",
    "double_binary_tree",
    "exchange",
    "halving_doubling",
    "parts",
    "ring",
    "ring_share",
    "tree_parents",
]
