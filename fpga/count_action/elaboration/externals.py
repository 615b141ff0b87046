"""External inputs of a datapath, declared or inferred from their use.

All modules of a datapath share them by name. Call `declare` and `use` for every declaration and use, then
`infer_signals`, and only then `signals`, `signal` and `get_element_index`.
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
class _Entry:
    declared: FlatInput | None = None
    has_single_elements: bool = False
    indices: set[int | None] = field(default_factory=set)
    lanes: set[int] = field(default_factory=set)
    suffixes: set[str] = field(default_factory=set)
    first_location: Location | None = None
    base: int = 0
    signal: Signal | None = None


class ExternalInputs:
    """The external inputs of one datapath, in the order of their first appearance."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def names(self) -> list[str]:
        """Return the names of the inputs."""
        return list(self._entries)

    def declare(self, declaration: FlatInput, *, element: int | None = None) -> None:
        """Record a declaration, of one element if given. Raise `SourceError` if it contradicts an earlier one."""
        entry = self._entries.setdefault(declaration.name, _Entry())
        if element is not None:
            entry.indices.add(element)
            entry.has_single_elements = True
        if entry.declared is None:
            entry.declared = declaration
            return
        entry.declared = _unify(entry.declared, declaration)

    def use(self, reference: FlatReference) -> None:
        """Record a use of an input."""
        entry = self._entries.setdefault(reference.name, _Entry())
        entry.indices.add(reference.index)
        entry.suffixes.add(reference.suffix)
        entry.first_location = entry.first_location or reference.location
        if reference.lane is not None:
            entry.lanes.add(reference.lane)

    def infer_signals(self, report: Report, other_names: Iterable[str]) -> None:
        """Determine the signal of every input. Warn of an undeclared input whose name may be a misspelling."""
        declared_names = [name for name, entry in self._entries.items() if entry.declared]
        candidates = list(dict.fromkeys([*declared_names, *other_names]))
        # Texts with very many names are generated: they have no misspellings, and a comparison would take long.
        must_check_spelling = len(self._entries) * (len(candidates) + len(self._entries)) <= _MAX_COMPARISONS
        for name, entry in self._entries.items():
            with report.part():
                if entry.declared is None and must_check_spelling:
                    _warn_if_misspelt(name, entry, candidates, report)
                candidates.append(name)
                _set_signal(name, entry, report)

    def signals(self) -> tuple[Signal, ...]:
        """Return the inputs; inputs that load memories come last. Call `infer_signals` first."""
        signals = (entry.signal for entry in self._entries.values() if entry.signal)
        return tuple(sorted(signals, key=lambda input_signal: input_signal.loads_memory))

    def signal(self, name: str) -> Signal | None:
        """Return the input of that name, or None if `infer_signals` found an error in it."""
        return self._entries[name].signal

    def get_element_index(self, reference: FlatReference) -> int:
        """Return the index, from 0, of an element of an input. Raise `SourceError` if there is no such element."""
        entry = self._entries[reference.name]
        signal = entry.signal
        assert signal is not None
        begin, end = entry.base, entry.base + signal.size - 1
        is_single = (
            entry.declared is not None and entry.declared.span is None and not entry.has_single_elements
        )
        if signal.kind is SignalKind.NUMBER and is_single and reference.index is not None:
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
        return reference.index - entry.base

    def find_first_lane(self, name: str) -> int:
        """Return the number of the first lane of an input: 0 or 1."""
        return find_first_lane(self._entries[name].lanes)


def find_first_lane(lanes: set[int]) -> int:
    """Return the number of the first lane: 0 if lane 0 is used anywhere, otherwise 1."""
    return 0 if 0 in lanes else 1


def _unify(earlier_declaration: FlatInput, later_declaration: FlatInput) -> FlatInput:
    shape = (
        earlier_declaration.kind,
        earlier_declaration.lanes,
        earlier_declaration.width,
        earlier_declaration.signed,
        earlier_declaration.buffered,
    )
    if shape != (
        later_declaration.kind,
        later_declaration.lanes,
        later_declaration.width,
        later_declaration.signed,
        later_declaration.buffered,
    ):
        message = f"input {quote(earlier_declaration.name)} is declared differently at {earlier_declaration.location}"
        raise SourceError(
            later_declaration.location,
            message,
            "Inputs with the same name are one input: declare them alike, or rename one.",
        )
    if earlier_declaration.span is None or later_declaration.span is None:
        return (
            earlier_declaration
            if later_declaration.span is None
            else replace(earlier_declaration, span=later_declaration.span)
        )
    if earlier_declaration.span.start != later_declaration.span.start:
        message = (
            f"elements of {quote(earlier_declaration.name)} begin at {later_declaration.span.start} here"
            f" and at {earlier_declaration.span.start}"
            f" at {earlier_declaration.location}"
        )
        raise SourceError(later_declaration.location, message, "Start both ranges at the same number.")
    return replace(earlier_declaration, span=max(earlier_declaration.span, later_declaration.span, key=len))


def _set_signal(name: str, entry: _Entry, report: Report) -> None:
    signal = _make_declared_signal(entry) if entry.declared else _infer_signal(name, entry)
    if signal.size * signal.lanes > MAX_LANES:
        message = (
            f"{quote(name)} has {signal.size} elements of {signal.lanes} lanes; at most {MAX_LANES} together"
        )
        raise SourceError(signal.location or _find_location(entry), message, "Split it.")
    entry.signal = signal
    if entry.declared is None:
        description = f"{signal.size} streams" if signal.size > 1 else "a stream"
        if signal.kind is SignalKind.FLAG:
            description = f"{signal.size} flags" if signal.size > 1 else "a flag"
        else:
            description += f" of {signal.width} bits"
        report.inferences.append(
            make_diagnostic(
                entry.first_location, f"{quote(name)} is assumed to be an external input: {description}"
            )
        )


def _find_location(entry: _Entry) -> Location:
    location = entry.declared.location if entry.declared else entry.first_location
    assert location is not None
    return location


def _make_declared_signal(entry: _Entry) -> Signal:
    declaration = entry.declared
    assert declaration is not None
    if declaration.span is not None:
        entry.base, size = declaration.span.start, len(declaration.span)
    elif entry.has_single_elements:
        entry.base, size = _infer_extent(entry)
    else:
        indices = {index for index in entry.indices if index is not None}
        entry.base, size = (1, 1) if indices == {1} else (0, 1)
    return Signal(
        declaration.name,
        declaration.kind,
        size,
        declaration.lanes,
        declaration.width,
        declaration.signed,
        declaration.location,
        declaration.part_of,
        declaration.buffered,
    )


def _infer_signal(name: str, entry: _Entry) -> Signal:
    entry.base, size = _infer_extent(entry)
    if entry.suffixes & {"valid", "data"}:
        return Signal(name, SignalKind.STREAM, size, 1, SAMPLE_WIDTH, location=entry.first_location)
    return Signal(name, SignalKind.FLAG, size, location=entry.first_location)


def _infer_extent(entry: _Entry) -> tuple[int, int]:
    """Return the index of the first element and the number of elements, from the indices that are used."""
    indices = [index for index in entry.indices if index is not None]
    if not indices:
        return 0, 1
    base = 0 if 0 in indices else 1
    return base, len(check_span(base, max(indices), _find_location(entry)))


def _warn_if_misspelt(name: str, entry: _Entry, candidates: list[str], report: Report) -> None:
    similar_name = find_similar(name, candidates)
    if similar_name and is_misspelling(name, similar_name):
        message = f"{quote(name)} is not declared, and is similar to {quote(similar_name)}"
        hint = (
            f"Write {quote(similar_name)} if that is intended; otherwise declare {quote(name)} in `inputs`."
        )
        report.warnings.append(make_diagnostic(entry.first_location, message, hint))


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
