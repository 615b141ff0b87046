"""The objective that a chain walks over: points, and topologies that are made for points."""

from __future__ import annotations

from typing import Protocol

import numpy as np

Point = tuple[int, ...]
"""A strategy as numbers: for each operator the place of its sharding among the legal ones."""


class Objective(Protocol):
    """Points with a cost on topologies. Everything follows from the arguments, so that a chain can be repeated.

    A topology is named by its *origin*: the point for whose traffic it was made.
    """

    def start(self) -> Point:
        """Return where every chain begins; its cost on its own topology must be finite."""

    def neighbour(self, point: Point, chance: np.random.Generator) -> Point:
        """Return a point like this one in all but one number."""

    def cost_s(self, point: Point, origin: Point) -> float:
        """Return seconds of an iteration; infinite for a point that cannot be, as when memory does not suffice."""


class Recipe(Protocol):
    """Everything that an objective is made from, small enough to be sent to another process."""

    def objective(self) -> Objective:
        """Return the objective, with everything that is remembered still to be found out."""
