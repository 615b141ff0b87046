"""A figure of a paper: how to make its numbers, how to compare them, how to draw them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from testbed.design.reproductions.comparison import Comparison
from testbed.design.reproductions.plot import Plot
from testbed.design.reproductions.table import Table

Scale = TypeVar("Scale")
Progress = Callable[[int, int, str], None]
"""Steps done, steps in all, what was done."""


@dataclass(frozen=True, slots=True)
class Figure(Generic[Scale]):
    """`make` runs the models at a scale; `compare` and `draw` need nothing but its table."""

    number: int
    title: str
    make: Callable[[Scale, Progress], Table]
    compare: Callable[[Table], tuple[Comparison, ...]]
    draw: Callable[[Table], Plot]


def silent(_done: int, _total: int, _text: str) -> None:
    """Ignore progress."""
