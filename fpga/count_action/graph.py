"""Drivers and readers of signals: the connections between the modules of a datapath."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from fpga.count_action.expressions import (
    STORED_OPERATORS,
    Interval,
    combine_intervals,
    count_bits,
    get_bit_interval,
    list_leaves,
)
from fpga.count_action.model import (
    Action,
    Count,
    CountKind,
    Datapath,
    Module,
    Operand,
    Operation,
    Ref,
    SignalKind,
    is_formula_ref,
)


@dataclass(frozen=True, slots=True)
class SignalShape:
    """The shape of a signal: the numbers of elements under its name, of lanes and of bits of a sample, and the sign."""

    kind: SignalKind
    size: int
    lanes: int
    width: int
    signed: bool


@dataclass(frozen=True, slots=True)
class Link:
    """An action that affects a count of a module one cycle later (R6)."""

    driver: Module
    action: Action
    reader: Module
    count: Count
    relation: str
    """`counts`, `waits for`, `sends` or `clears`."""


@dataclass(frozen=True)
class Graph:
    """The connections of a datapath whose references all resolve (see `check`)."""

    datapath: Datapath

    @cached_property
    def drivers(self) -> dict[tuple[str, str], list[tuple[Module, Action]]]:
        """Actions that drive an output, by module and output."""
        drivers: dict[tuple[str, str], list[tuple[Module, Action]]] = {}
        for module in self.datapath.modules:
            for action in module.actions:
                if action.kind.drives:
                    drivers.setdefault((module.name, action.output), []).append((module, action))
        return drivers

    @cached_property
    def _inputs(self) -> dict[str, SignalShape]:
        return {
            signal.name: SignalShape(signal.kind, signal.size, signal.lanes, signal.width, signal.signed)
            for signal in self.datapath.inputs
        }

    def find_source(self, ref: Ref) -> SignalShape:
        """Return the shape of the signal or formula that `ref` names. Raise KeyError if there is no such signal."""
        if ref.module is None:
            return self._inputs[ref.name]
        if is_formula_ref(ref):
            width, signed = count_bits(*self.compute_interval(self.find_formula(ref)))
            return SignalShape(SignalKind.NUMBER, 1, 1, width, signed)
        _, action = self.drivers[ref.module, ref.name][0]
        assert action.kind.drives is not None
        return SignalShape(action.kind.drives, 1, action.lanes, action.width, action.signed)

    def find_formula(self, ref: Ref) -> Operand:
        """Return the formula that a reference names."""
        return self.datapath.module(ref.module or "").value(ref)

    def compute_interval(self, operand: Operand) -> Interval:
        """Return the interval of a formula, or of a part of one."""
        if isinstance(operand, int):
            return operand, operand
        if isinstance(operand, Ref):
            shape = self.find_source(operand)
            return get_bit_interval(shape.width, signed=shape.signed)
        if operand.operator in STORED_OPERATORS:
            return get_bit_interval(self._find_stored_width(operand), signed=False)
        if operand.operator == "valid":
            return 0, 1
        return combine_intervals(operand.operator, [self.compute_interval(part) for part in operand.operands])

    def compute_merged_interval(self, action: Action) -> Interval:
        """Return the interval that covers the samples of a merged stream."""
        intervals = [self.compute_interval(self.find_formula(ref)) for ref in action.refs]
        return min(low for low, _ in intervals), max(high for _, high in intervals)

    def _find_stored_width(self, operand: Operation) -> int:
        (ref,) = operand.operands
        assert isinstance(ref, Ref)
        owner = self.datapath.module(ref.module or "")
        if operand.operator == "count":
            return owner.count(ref.name).width
        return owner.target(ref.name).width

    def find_signals(self, ref: Ref) -> tuple[Ref, ...]:
        """Return the signals that a reference reads: the reference itself, or the signals in its formula."""
        return tuple(
            list_signals(self.datapath.module(ref.module or "") if is_formula_ref(ref) else None, ref)
        )

    def find_streams(self, ref: Ref) -> tuple[Ref, ...]:
        """Return the streams whose samples a reference reads."""
        if not is_formula_ref(ref):
            return (ref,) if self.is_stream(ref) else ()
        streams = (
            leaf
            for operator, leaf in list_leaves(self.find_formula(ref))
            if not operator and self.is_stream(leaf)
        )
        return tuple(dict.fromkeys(Ref(ref.name, ref.module, ref.index) for ref in streams))

    def is_stream(self, ref: Ref) -> bool:
        """Return whether `ref` is a stream."""
        return self.find_source(ref).kind is SignalKind.STREAM

    def is_pulse(self, ref: Ref) -> bool:
        """Return whether `ref` is an output that lasts one cycle."""
        if is_formula_ref(ref):
            return False
        return ref.module is not None and self.drivers[ref.module, ref.name][0][1].kind.is_transient

    @cached_property
    def consumers(self) -> dict[tuple[str | None, str, int], list[tuple[Module, Count]]]:
        """Counts that take beats of each stream, by the stream's module (None: external), name and index."""
        takers: dict[tuple[str | None, str, int], list[tuple[Module, Count]]] = {}
        for module, count in self.datapath.list_counts():
            for stream_key in dict.fromkeys(
                get_stream_key(term) for term in count.counted if self.is_stream(term)
            ):
                takers.setdefault(stream_key, []).append((module, count))
        return takers

    def find_rivals(self, module: Module, count: Count) -> tuple[Count, ...]:
        """Return the level counts that precede `count` in its module and take one of its streams (R26)."""
        if count.kind is not CountKind.LEVEL:
            return ()
        streams = {get_stream_key(term) for term in count.counted if self.is_stream(term)}
        return tuple(
            rival
            for rival in module.counts[: module.counts.index(count)]
            if rival.kind is CountKind.LEVEL and streams & set(map(get_stream_key, rival.counted))
        )

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """Every connection from an action to a count, without duplicates."""
        return tuple(dict.fromkeys(self._find_all_links()))

    def _find_all_links(self) -> Iterator[Link]:
        for module in self.datapath.modules:
            for count in module.counts:
                yield from self._find_links(count.counted, module, count, "counts")
                condition_signals = (
                    ref for condition in count.gate for ref in list_signals(module, condition.ref)
                )
                yield from self._find_links(condition_signals, module, count, "waits for")
            for action in module.actions:
                if not action.on:  # a memory reads external inputs alone
                    continue
                samples = (ref for sample in action.refs for ref in list_signals(module, sample))
                yield from self._find_links(samples, module, module.count(action.on), "sends")
                if action.clears is not None:
                    owner = self.datapath.module(action.clears[0])
                    yield Link(module, action, owner, owner.count(action.clears[1]), "clears")

    def _find_links(
        self, refs: Iterator[Ref] | tuple[Ref, ...], module: Module, count: Count, relation: str
    ) -> Iterator[Link]:
        for ref in refs:
            if ref.module is not None:
                for driver, action in self.drivers[ref.module, ref.name]:
                    yield Link(driver, action, module, count, relation)


def get_stream_key(ref: Ref) -> tuple[str | None, str, int]:
    """Return the module, name and index of the stream of a reference, without its lane."""
    return ref.module, ref.name, ref.index


def list_read_signals(module: Module) -> Iterator[Ref]:
    """Yield the signals that the counts and actions of a module read."""
    for count in module.counts:
        yield from count.counted
        for formula in (count.aim, count.bound):
            if formula is not None:
                yield from list_signals(module, formula)
        for condition in count.gate:
            yield from list_signals(module, condition.ref)
    for action in module.actions:
        for ref in action.refs:
            yield from list_signals(module, ref)


def list_signals(module: Module | None, ref: Ref) -> Iterator[Ref]:
    """Yield the signals that a reference of a module reads, except counts and targets."""
    if module is None or not is_formula_ref(ref):
        yield ref
        return
    yield from (
        signal for operator, signal in list_leaves(module.value(ref)) if operator not in STORED_OPERATORS
    )


def can_stall(module: Module) -> bool:
    """Return whether a module can stall: it sends a stream, and the reader may not be ready (R7)."""
    return bool(module.list_streams())


def find_cycle(edges: dict[str, list[str]]) -> list[str]:
    """Return the nodes along one cycle of a graph, with the first repeated at the end; empty if it has none."""
    finished_names: set[str] = set()
    for start in edges:
        path: list[str] = []
        pending_visits: list[tuple[str, bool]] = [(start, False)]
        while pending_visits:
            name, is_leaving = pending_visits.pop()
            if is_leaving:
                path.pop()
                finished_names.add(name)
            elif name in path:
                return [*path[path.index(name) :], name]
            elif name not in finished_names:
                path.append(name)
                pending_visits.append((name, True))
                pending_visits.extend((successor, False) for successor in edges.get(name, ()))
    return []
