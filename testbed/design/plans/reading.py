"""Values out of a plan file, each checked; whatever is wrong is told with file and key."""

from __future__ import annotations

import math
from typing import Any

from testbed.errors import PlanFileError

TEXTS = ("bound_by",)
"""Figures that are words."""


class PlanReader:
    """One object of the document: `where` it stands in the file, and its `value`, keys to values."""

    def __init__(self, source: str, where: str, value: Any) -> None:
        self.source = source
        self.where = where
        if not isinstance(value, dict):
            raise PlanFileError(f"{source}: {where or 'the document'} is not a JSON object")
        self.value: dict[str, Any] = value

    def error(self, key: str, what: str) -> PlanFileError:
        """Return what is wrong with a key, to be raised."""
        return PlanFileError(f"{self.source}: {f'{self.where}.' if self.where else ''}{key}: {what}")

    def inner(self, key: str) -> PlanReader:
        """Return an object inside this one."""
        return PlanReader(self.source, f"{self.where}.{key}".lstrip("."), self._get(key))

    def text(self, key: str) -> str:
        """Return a string."""
        value = self._get(key)
        if not isinstance(value, str):
            raise self.error(key, f"{value!r} is no text")
        return value

    def texts(self, key: str) -> list[str]:
        """Return a list of strings."""
        values = self.items(key)
        if not all(isinstance(value, str) for value in values):
            raise self.error(key, "must be a list of texts")
        return values

    def items(self, key: str) -> list[Any]:
        """Return a list."""
        value = self._get(key)
        if not isinstance(value, list):
            raise self.error(key, f"{value!r} is no list")
        return value

    def flag(self, key: str) -> bool:
        """Return True or false."""
        value = self._get(key)
        if not isinstance(value, bool):
            raise self.error(key, f"{value!r} is neither true nor false")
        return value

    def between(self, key: str, least: float, most: float) -> float:
        """Return a number from `least` to `most`."""
        value = self._get(key)
        if not _is_number(value) or not least <= value <= most:
            raise self.error(key, f"{value!r} is no number from {least:g} to {most:g}")
        return float(value)

    def figures(self, key: str, needed: str) -> dict[str, Any]:
        """Return numbers of 0 or more by name, or objects of such numbers; one of the names is `needed`."""
        figures = self.inner(key)
        for name, value in figures.value.items():
            if name in TEXTS:
                figures.text(name)
                continue
            numbers = value.values() if isinstance(value, dict) else (value,)
            if not all(_is_number(number) and 0 <= number < math.inf for number in numbers):
                raise figures.error(name, f"{value!r} is no finite number of 0 or more")
        if needed not in figures.value:
            raise figures.error(needed, "is missing")
        return figures.value

    def count(self, key: str, most: float = math.inf) -> int:
        """Return a whole number of 1 or more."""
        value = self.whole(self._get(key), key)
        if value < 1:
            raise self.error(key, f"{value} is less than 1")
        if value > most:
            raise self.error(key, f"{value} is more than {most}")
        return value

    def whole(self, value: Any, key: str) -> int:
        """Return a whole number, which stands somewhere under `key`."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"{value!r} is no whole number")
        return value

    def node(self, value: Any, key: str, nodes: int) -> int:
        """Return the number of a node, 0 to `nodes` - 1."""
        number = self.whole(value, key)
        if not 0 <= number < nodes:
            raise self.error(key, f"there is no node {number}: nodes are 0 to {nodes - 1}")
        return number

    def _get(self, key: str) -> Any:
        if key not in self.value:
            raise self.error(key, "is missing")
        return self.value[key]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
