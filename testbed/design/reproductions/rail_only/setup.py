"""Sizes of the simulated parts of the reproduction."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Numbers of domains in the simulated all-to-all, of 8 GPUs each."""

    domain_counts: tuple[int, ...]


PAPER = Scale((2, 4, 8, 16))
QUICK = Scale((2, 4))
"""Small scale that only tests that everything runs."""
