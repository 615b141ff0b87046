"""Putting operators together: each is added after those it reads."""

from __future__ import annotations

from collections.abc import Iterable

from testbed.design.workloads.model import Operator, Workload


class Assembly:
    """Operators and edges so far. `add` answers with the operator's place, for those that read it."""

    def __init__(self) -> None:
        self._operators: list[Operator] = []
        self._edges: list[tuple[int, int]] = []

    def add(self, operator: Operator, *inputs: int) -> int:
        """Add one more operator, which reads the outputs of `inputs`."""
        place = len(self._operators)
        self._operators.append(operator)
        self._edges += [(source, place) for source in inputs]
        return place

    def chain(self, operators: Iterable[Operator], *inputs: int) -> tuple[int, ...]:
        """Return operators one after the other, the first of which reads `inputs`; what to read after them."""
        for operator in operators:
            inputs = (self.add(operator, *inputs),)
        return inputs

    def workload(self, name: str, batch: int, *, origin: str, training: bool = True) -> Workload:
        """Return all of it."""
        return Workload(name, tuple(self._operators), tuple(self._edges), batch, training, origin)
