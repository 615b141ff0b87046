"""Elaborated modules: every number is evaluated and every range is expanded; names are not resolved yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from fpga.count_action.language.syntax import Operator, WireText
from fpga.count_action.model import CountKind, Location, SignalKind

Suffix = Literal["", "valid", "data"]


@dataclass(frozen=True, slots=True)
class FlatReference:
    """A reference with its numbers evaluated: `module.name[index].suffix[lane]`."""

    name: str
    module: str | None
    index: int | None
    suffix: Suffix
    lane: int | None
    location: Location

    @property
    def label(self) -> str:
        """The name of a labelled count or output: `hits[3]` is `hits_3`."""
        return self.name if self.index is None else f"{self.name}_{self.index}"

    def __str__(self) -> str:
        prefix = f"{self.module}." if self.module else ""
        return f"{prefix}{self.name}" + (f"[{self.index}]" if self.index is not None else "")


@dataclass(frozen=True, slots=True)
class FlatFormula:
    """A formula with its numbers evaluated and its ranges expanded."""

    operator: Operator
    operands: tuple[FlatOperand, ...]
    location: Location


FlatOperand: TypeAlias = FlatReference | FlatFormula | int


def list_references(operand: FlatOperand) -> Iterator[FlatReference]:
    """Yield the references in a formula."""
    if isinstance(operand, FlatReference):
        yield operand
    elif isinstance(operand, FlatFormula):
        for part in operand.operands:
            yield from list_references(part)


@dataclass(frozen=True, slots=True)
class FlatInput:
    """A declared input; `index_range` is its range, or None."""

    name: str
    kind: SignalKind
    index_range: range | None
    lanes: int
    width: int
    signed: bool
    location: Location
    part_of: str = ""
    is_buffered: bool = False


@dataclass(frozen=True, slots=True)
class FlatCount:
    """A count.

    `target` names its target (None: the target at the same position). The formula `target_formula` can replace the
    target.
    """

    name: str
    kind: CountKind
    terms: tuple[FlatReference, ...]
    subtracted_terms: tuple[FlatReference, ...]
    constant: int
    conditions: tuple[tuple[FlatOperand, bool], ...]
    width: int
    bound: FlatFormula | None
    target: str | None
    target_formula: FlatFormula | None
    target_location: Location
    location: Location
    arbitration_order: str = ""
    takes_whole_frames: bool = False


@dataclass(frozen=True, slots=True)
class FlatTarget:
    """A target; if `width` is None, it is as wide as its widest count."""

    name: str
    reset_value: int
    width: int | None
    location: Location
    at_least: bool = False
    carry: bool = False
    is_in_table: bool = False


@dataclass(frozen=True, slots=True)
class FlatAction:
    """An action; `count_name` is the count that it names (None: by position)."""

    verb: str
    name: str
    count_name: str | None
    count_location: Location
    samples: tuple[FlatOperand, ...]
    width: int | None
    sign: bool | None
    cleared_reference: FlatReference | None
    location: Location
    numbers: Mapping[str, Any] = field(default_factory=dict)
    words: Mapping[str, Any] = field(default_factory=dict)
    part_of: str = ""


@dataclass(frozen=True, slots=True)
class FlatClaim:
    """A property of every cycle; `kind` is `always`, `never` or `assume`."""

    kind: str
    name: str
    formula: FlatFormula
    location: Location


@dataclass(slots=True)
class FlatModule:
    """An elaborated module of the datapath."""

    name: str
    location: Location
    parameters: frozenset[str]
    wires: dict[str, tuple[FlatReference, WireText]]
    inputs: list[FlatInput] = field(default_factory=list)
    counts: list[FlatCount] = field(default_factory=list)
    targets: list[FlatTarget] = field(default_factory=list)
    actions: list[FlatAction] = field(default_factory=list)
    claims: list[FlatClaim] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Output:
    """An output of a module, which its actions drive."""

    module: str
    name: str


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A register that formulas may read: the value of a count, or a target in force."""

    operator: Literal["count", "target"]
    module: str
    name: str
