"""A published number beside ours, and what the paper's own text says where there is no number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Source = Literal["S", "C", "A", "mem"]
"""Where a published number is from: the authors' slides, their released code or data, the paper's abstract, or memory
of the paper."""


@dataclass(frozen=True, slots=True)
class Published:
    """A published figure. `value` is None where only a direction or nothing is known; `told` says it in words."""

    told: str
    source: Source | None = None
    value: float | None = None


NOTHING = Published("—")
"""No number of this is known to us."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One line: the quantity, what was published, ours, and what one should know about the difference."""

    quantity: str
    published: Published
    ours: float
    note: str = ""
    unit: str = ""
    comparable: bool = True

    @property
    def difference(self) -> str:
        """Ours beside the published value, in per cent of it.

        >>> Comparison("tax", Published("1.11", "S", 1.11), 1.0989).difference
        '-1.0 %'
        """
        value = self.published.value
        if not self.comparable:
            return "not comparable"
        return f"{100 * (self.ours / value - 1):+.1f} %" if value else "—"

    @property
    def cells(self) -> tuple[str, ...]:
        """Quantity, published, ours, difference, note, as words."""
        source = f" [{self.published.source}]" if self.published.source else ""
        ours = f"{self.ours:.4g}{self.unit}"
        return self.quantity, self.published.told + source, ours, self.difference, self.note


def of_small_sizes(comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Return the lines with a mark: sizes are not the paper's, so that numbers are not to be compared with its."""
    return tuple(replace(line, comparable=False, note=_marked(line.note)) for line in comparisons)


def _marked(note: str) -> str:
    return "small sizes" + (f"; {note}" if note else "")


HEADER = ("quantity", "published", "ours", "difference", "note")


def markdown(comparisons: Sequence[Comparison]) -> str:
    """Return the lines as a table in Markdown."""
    rows = [HEADER, ("---",) * len(HEADER), *(line.cells for line in comparisons)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
