"""External inputs of a datapath, declared or inferred from their use.

All modules of a datapath share the inputs by name. Call `declare` for every declaration and `record_use` for every use.
Then call `infer_signals`. The methods `list_signals`, `find_signal` and `get_element_index` give results only after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fpga.count_action.defaults import SAMPLE_WIDTH
from fpga.count_action.diagnostics import Report, SourceError, find_similar, make_diagnostic, quote
from fpga.count_action.elaboration.arithmetic import check_span
from fpga.count_action.elaboration.flat import FlatInput, FlatReference
from fpga.count_action.model import MAX_LANES, Location, Signal, SignalKind

_MAX_COMPARISONS = 40_000
"""Largest number of pairs of names that are compared to find misspellings."""


@dataclass
class _InputRecord:
    declaration: FlatInput | None = None
    is_declared_by_element: bool = False
    indices: set[int | None] = field(default_factory=set)
    lanes: set[int] = field(default_factory=set)
    suffixes: set[str] = field(default_factory=set)
    first_location: Location | None = None
    first_index: int = 0
    signal: Signal | None = None


class ExternalInputs:
    """The external inputs of one datapath, in the order of their first appearance."""

    def __init__(self) -> None:
        self._records: dict[str, _InputRecord] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._records

    def list_names(self) -> list[str]:
        """Return the names of the inputs."""
        return list(self._records)

    def declare(self, declaration: FlatInput, *, element_index: int | None = None) -> None:
        """Record a declaration, of one element if given. Raise `SourceError` if it contradicts an earlier one."""
        record = self._records.setdefault(declaration.name, _InputRecord())
        if element_index is not None:
            record.indices.add(element_index)
            record.is_declared_by_element = True
        if record.declaration is None:
            record.declaration = declaration
            return
        record.declaration = _merge_declarations(record.declaration, declaration)

    def record_use(self, reference: FlatReference) -> None:
        """Record a use of an input."""
        record = self._records.setdefault(reference.name, _InputRecord())
        record.indices.add(reference.index)
        record.suffixes.add(reference.suffix)
        record.first_location = record.first_location or reference.location
        if reference.lane is not None:
            record.lanes.add(reference.lane)

    def infer_signals(self, report: Report, other_names: Iterable[str]) -> None:
        """Determine the signal of every input. Warn of an undeclared input whose name may be a misspelling."""
        declared_names = [name for name, record in self._records.items() if record.declaration]
        known_names = list(dict.fromkeys([*declared_names, *other_names]))
        # Only a generated text has very many names. It has no misspellings, and comparing its names would take long.
        can_check_spelling = len(self._records) * (len(known_names) + len(self._records)) <= _MAX_COMPARISONS
        for name, record in self._records.items():
            with report.catch_errors():
                if record.declaration is None and can_check_spelling:
                    _warn_if_misspelt(name, record, known_names, report)
                known_names.append(name)
                _resolve_input(name, record, report)

    def list_signals(self) -> tuple[Signal, ...]:
        """Return the inputs; inputs that load memories come last. Call `infer_signals` first."""
        signals = (record.signal for record in self._records.values() if record.signal)
        return tuple(sorted(signals, key=lambda input_signal: input_signal.loads_memory))

    def find_signal(self, name: str) -> Signal | None:
        """Return the input of that name, or None if `infer_signals` found an error in it."""
        return self._records[name].signal

    def get_element_index(self, reference: FlatReference) -> int:
        """Return the index, from 0, of an element of an input. Raise `SourceError` if there is no such element."""
        record = self._records[reference.name]
        signal = record.signal
        assert signal is not None
        begin, end = record.first_index, record.first_index + signal.size - 1
        is_declared_as_vector = (
            record.declaration is not None
            and record.declaration.index_range is None
            and not record.is_declared_by_element
        )
        if signal.kind is SignalKind.NUMBER and is_declared_as_vector and reference.index is not None:
            name, bits_text = reference.name, f"{signal.width} bits"
            message = f"{quote(name)} is one number of {bits_text} and has no element {reference.index}"
            bit = f"{name}[{reference.index}:{reference.index}]"
            hint = f"For a bit write {bit} in a formula; for several numbers declare {name}[1 to 4] of {bits_text}."
            raise SourceError(reference.location, message, hint)
        if reference.index is None:
            if signal.size > 1:
                message = (
                    f"{quote(reference.name)} has elements {begin} to {end}, and no index says which one"
                )
                suffix = f".{reference.suffix}" if reference.suffix else ""
                range_text = f"{reference.name}[i]{suffix} (i = {begin} to {end})"
                raise SourceError(
                    reference.location, message, f"Write {reference.name}[{begin}]{suffix}, or {range_text}."
                )
            return 0
        if not begin <= reference.index <= end:
            message = f"{quote(reference.name)} has elements {begin} to {end}, not {reference.index}"
            raise SourceError(reference.location, message, "Change the range here or where it is declared.")
        return reference.index - record.first_index

    def find_first_lane(self, name: str) -> int:
        """Return the number of the first lane of an input: 0 or 1."""
        return find_first_lane(self._records[name].lanes)


def find_first_lane(lanes: set[int]) -> int:
    """Return the number of the first lane: 0 if lane 0 is used anywhere, otherwise 1."""
    return 0 if 0 in lanes else 1


def _merge_declarations(earlier_declaration: FlatInput, later_declaration: FlatInput) -> FlatInput:
    shape = (
        earlier_declaration.kind,
        earlier_declaration.lanes,
        earlier_declaration.width,
        earlier_declaration.signed,
        earlier_declaration.is_buffered,
    )
    if shape != (
        later_declaration.kind,
        later_declaration.lanes,
        later_declaration.width,
        later_declaration.signed,
        later_declaration.is_buffered,
    ):
        message = f"input {quote(earlier_declaration.name)} is declared differently at {earlier_declaration.location}"
        raise SourceError(
            later_declaration.location,
            message,
            "Inputs with the same name are one input: declare them alike, or rename one.",
        )
    if earlier_declaration.index_range is None or later_declaration.index_range is None:
        return (
            earlier_declaration
            if later_declaration.index_range is None
            else replace(earlier_declaration, index_range=later_declaration.index_range)
        )
    if earlier_declaration.index_range.start != later_declaration.index_range.start:
        message = (
            f"elements of {quote(earlier_declaration.name)} begin with {later_declaration.index_range.start} here,"
            " but with"
            f" {earlier_declaration.index_range.start} in the declaration at {earlier_declaration.location}"
        )
        raise SourceError(later_declaration.location, message, "Start both ranges at the same number.")
    return replace(
        earlier_declaration,
        index_range=max(earlier_declaration.index_range, later_declaration.index_range, key=len),
    )


def _resolve_input(name: str, record: _InputRecord, report: Report) -> None:
    signal = (
        _resolve_declared_input(record) if record.declaration else _resolve_undeclared_input(name, record)
    )
    if signal.size * signal.lanes > MAX_LANES:
        message = (
            f"{quote(name)} has {signal.size} elements of {signal.lanes} lanes; at most {MAX_LANES} together"
        )
        raise SourceError(signal.location or _find_location(record), message, "Split it.")
    record.signal = signal
    if record.declaration is None:
        description = f"{signal.size} streams" if signal.size > 1 else "a stream"
        if signal.kind is SignalKind.FLAG:
            description = f"{signal.size} flags" if signal.size > 1 else "a flag"
        else:
            description += f" of {signal.width} bits"
        report.inferences.append(
            make_diagnostic(
                record.first_location, f"{quote(name)} is assumed to be an external input: {description}"
            )
        )


def _find_location(record: _InputRecord) -> Location:
    location = record.declaration.location if record.declaration else record.first_location
    assert location is not None
    return location


def _resolve_declared_input(record: _InputRecord) -> Signal:
    declaration = record.declaration
    assert declaration is not None
    if declaration.index_range is not None:
        record.first_index, size = declaration.index_range.start, len(declaration.index_range)
    elif record.is_declared_by_element:
        record.first_index, size = _infer_extent(record)
    else:
        indices = {index for index in record.indices if index is not None}
        record.first_index, size = (1, 1) if indices == {1} else (0, 1)
    return Signal(
        declaration.name,
        declaration.kind,
        size,
        declaration.lanes,
        declaration.width,
        declaration.signed,
        declaration.location,
        declaration.part_of,
        declaration.is_buffered,
    )


def _resolve_undeclared_input(name: str, record: _InputRecord) -> Signal:
    record.first_index, size = _infer_extent(record)
    if record.suffixes & {"valid", "data"}:
        return Signal(name, SignalKind.STREAM, size, 1, SAMPLE_WIDTH, location=record.first_location)
    return Signal(name, SignalKind.FLAG, size, location=record.first_location)


def _infer_extent(record: _InputRecord) -> tuple[int, int]:
    """Return the index of the first element and the number of elements, from the indices that are used."""
    indices = [index for index in record.indices if index is not None]
    if not indices:
        return 0, 1
    first_index = 0 if 0 in indices else 1
    return first_index, len(check_span(first_index, max(indices), _find_location(record)))


def _warn_if_misspelt(name: str, record: _InputRecord, known_names: list[str], report: Report) -> None:
    similar_name = find_similar(name, known_names)
    if similar_name and is_misspelling(name, similar_name):
        message = f"{quote(name)} is not declared, and is similar to {quote(similar_name)}"
        hint = (
            f"Write {quote(similar_name)} if that is intended; otherwise declare {quote(name)} in `inputs`."
        )
        report.warnings.append(make_diagnostic(record.first_location, message, hint))


def is_misspelling(name: str, candidate: str) -> bool:
    """Return whether `name` may be a misspelling of `candidate`: similar, and not different in digits alone."""
    letters = ["".join(char for char in word.casefold() if not char.isdigit()) for word in (name, candidate)]
    if letters[0] == letters[1] or min(map(len, letters)) < 3:
        return name.casefold() == candidate.casefold()
    if sorted(letters[0]) == sorted(letters[1]):
        return True
    return (
        min(map(len, letters)) >= 5
        and abs(len(name) - len(candidate)) <= 1
        and bool(find_similar(name, [candidate]))
    )
