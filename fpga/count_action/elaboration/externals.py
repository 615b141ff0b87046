"""External inputs of a datapath: declared ones, and ones inferred from their use.

All modules of a datapath share them by name. Call `declare` and `use` for every declaration and use, then
`infer_signals`, and only then `signals`, `signal` and `bit_of`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fpga.count_action.defaults import SAMPLE_WIDTH
from fpga.count_action.diagnostics import Refused, Report, find_similar, note, quote
from fpga.count_action.elaboration.arithmetic import check_span
from fpga.count_action.elaboration.flat import FlatInput, FlatReference
from fpga.count_action.model import MAX_LANES, Location, Signal, SignalKind

_COMPARED = 40_000
"""Largest number of pairs of names that are compared to find misspellings."""


@dataclass
class _Known:
    declared: FlatInput | None = None
    open_ended: bool = False
    indices: set[int | None] = field(default_factory=set)
    lanes: set[int] = field(default_factory=set)
    suffixes: set[str] = field(default_factory=set)
    first: Location | None = None
    base: int = 0
    signal: Signal | None = None


class Externals:
    """The external inputs of one datapath, in the order of their first appearance."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def names(self) -> list[str]:
        """Return the names of the inputs."""
        return list(self._known)

    def declare(self, declared: FlatInput, *, element: int | None = None) -> None:
        """Record a declaration, with `element` of one element. Raise `Refused` if it differs from an earlier one."""
        known = self._known.setdefault(declared.name, _Known())
        if element is not None:
            known.indices.add(element)
            known.open_ended = True
        if known.declared is None:
            known.declared = declared
            return
        known.declared = _unify(known.declared, declared)

    def use(self, reference: FlatReference) -> None:
        """Record a use of an input."""
        known = self._known.setdefault(reference.name, _Known())
        known.indices.add(reference.index)
        known.suffixes.add(reference.suffix)
        known.first = known.first or reference.at
        if reference.lane is not None:
            known.lanes.add(reference.lane)

    def infer_signals(self, report: Report, others: Iterable[str]) -> None:
        """Determine the signal of every input. `others` are further names that an undeclared one may misspell."""
        declared = [name for name, known in self._known.items() if known.declared]
        candidates = list(dict.fromkeys([*declared, *others]))
        # A generated text is not misspelt, and comparing all its names would take long.
        compared = len(self._known) * (len(candidates) + len(self._known)) <= _COMPARED
        for name, known in self._known.items():
            with report.part():
                if known.declared is None and compared:
                    _warn_if_misspelt(name, known, candidates, report)
                candidates.append(name)
                _infer(name, known, report)

    def signals(self) -> tuple[Signal, ...]:
        """Return the inputs. Call `infer_signals` first."""
        return tuple(known.signal for known in self._known.values() if known.signal)

    def signal(self, name: str) -> Signal | None:
        """Return the input of that name, or None if `infer_signals` found an error in it."""
        return self._known[name].signal

    def bit_of(self, reference: FlatReference) -> int:
        """Return the index, from 0, of an element of an input. Raise `Refused` if there is no such element."""
        known = self._known[reference.name]
        signal = known.signal
        assert signal is not None
        first, last = known.base, known.base + signal.size - 1
        if reference.index is None:
            if signal.size > 1:
                message = (
                    f"{quote(reference.name)} has elements {first} to {last}, and no index says which one"
                )
                raise Refused(reference.at, message, f"Write {reference.name}[{first}], or a range.")
            return 0
        if not first <= reference.index <= last:
            message = f"{quote(reference.name)} has elements {first} to {last}, not {reference.index}"
            raise Refused(reference.at, message, "Change the range here or where it is declared.")
        return reference.index - known.base

    def lane_base(self, name: str) -> int:
        """Return the number of the first lane of an input: 0 or 1."""
        return lane_base(self._known[name].lanes)


def lane_base(lanes: set[int]) -> int:
    """Return the number of the first lane: 0 if lane 0 is used anywhere, otherwise 1."""
    return 0 if 0 in lanes else 1


def _unify(one: FlatInput, other: FlatInput) -> FlatInput:
    mine = (one.kind, one.lanes, one.width, one.signed, one.buffered)
    if mine != (other.kind, other.lanes, other.width, other.signed, other.buffered):
        message = f"input {quote(one.name)} is declared differently at {one.at}"
        raise Refused(
            other.at, message, "Inputs with the same name are one input: declare them alike, or rename one."
        )
    if one.span is None or other.span is None:
        return one if other.span is None else replace(one, span=other.span)
    if one.span.start != other.span.start:
        message = f"elements of {quote(one.name)} begin at {other.span.start} here and at {one.span.start} at {one.at}"
        raise Refused(other.at, message, "Start both ranges at the same number.")
    return replace(one, span=max(one.span, other.span, key=len))


def _infer(name: str, known: _Known, report: Report) -> None:
    signal = _declare_signal(known) if known.declared else _infer_signal(name, known)
    if signal.size * signal.lanes > MAX_LANES:
        message = (
            f"{quote(name)} has {signal.size} elements of {signal.lanes} lanes; at most {MAX_LANES} together"
        )
        raise Refused(signal.at or _somewhere(known), message, "Split it.")
    known.signal = signal
    if known.declared is None:
        what = f"{signal.size} streams" if signal.size > 1 else "a stream"
        if signal.kind is SignalKind.FLAG:
            what = f"{signal.size} flags" if signal.size > 1 else "a flag"
        else:
            what += f" of {signal.width} bits"
        report.inferences.append(
            note(known.first, f"{quote(name)} is assumed to be an external input: {what}")
        )


def _somewhere(known: _Known) -> Location:
    at = known.declared.at if known.declared else known.first
    assert at is not None
    return at


def _declare_signal(known: _Known) -> Signal:
    text = known.declared
    assert text is not None
    if text.span is not None:
        known.base, size = text.span.start, len(text.span)
    elif known.open_ended:
        known.base, size = _extent(known)
    else:
        given = {index for index in known.indices if index is not None}
        known.base, size = (1, 1) if given == {1} else (0, 1)
    return Signal(
        text.name, text.kind, size, text.lanes, text.width, text.signed, text.at, text.part_of, text.buffered
    )


def _infer_signal(name: str, known: _Known) -> Signal:
    known.base, size = _extent(known)
    if known.suffixes & {"valid", "data"}:
        return Signal(name, SignalKind.STREAM, size, 1, SAMPLE_WIDTH, at=known.first)
    return Signal(name, SignalKind.FLAG, size, at=known.first)


def _extent(known: _Known) -> tuple[int, int]:
    """Return the index of the first element and the number of elements, from the indices that are used."""
    used = [index for index in known.indices if index is not None]
    if not used:
        return 0, 1
    base = 0 if 0 in used else 1
    return base, len(check_span(base, max(used), _somewhere(known)))


def _warn_if_misspelt(name: str, known: _Known, candidates: list[str], report: Report) -> None:
    close = find_similar(name, candidates)
    if close and is_misspelling(name, close):
        message = f"{quote(name)} is not declared, and is similar to {quote(close)}"
        hint = f"Write {quote(close)} if that is intended; otherwise declare {quote(name)} in `inputs`."
        report.warnings.append(note(known.first, message, hint))


def is_misspelling(one: str, other: str) -> bool:
    """Return whether one name may be a misspelling of the other: similar, and not different in digits alone."""
    letters = ["".join(char for char in name.casefold() if not char.isdigit()) for name in (one, other)]
    if letters[0] == letters[1] or min(map(len, letters)) < 3:
        return one.casefold() == other.casefold()
    if sorted(letters[0]) == sorted(letters[1]):
        return True
    return (
        min(map(len, letters)) >= 5 and abs(len(one) - len(other)) <= 1 and bool(find_similar(one, [other]))
    )
