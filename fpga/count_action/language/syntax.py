"""The syntax tree of a text, before elaboration.

Every node has its source location. Numbers are expressions, ranges are not expanded, names are not resolved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from fpga.count_action.model import Location, SignalKind


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer literal."""

    value: int
    location: Location
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """`name` or `name[index]`."""

    name: str
    index: Number | None
    location: Location


@dataclass(frozen=True, slots=True)
class Reference:
    """Parts separated by points: a parameter or an index name (in numbers), or a signal."""

    parts: tuple[Part, ...]
    location: Location
    depth: int = 0

    @property
    def plain_name(self) -> str | None:
        """The name, if the reference is a name alone; otherwise None."""
        return self.parts[0].name if len(self.parts) == 1 and self.parts[0].index is None else None

    def __str__(self) -> str:
        return ".".join(part.name + ("[...]" if part.index else "") for part in self.parts)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on two numbers; `depth` is the depth of nested operations."""

    operator: Literal["+", "-", "*", "/"]
    left: Number
    right: Number
    location: Location
    depth: int


Number: TypeAlias = Integer | Reference | Operation


@dataclass(frozen=True, slots=True)
class Range:
    """`[low to high]`."""

    low: Number
    high: Number
    location: Location


@dataclass(frozen=True, slots=True)
class Index:
    """`name = low to high`."""

    name: str
    low: Number
    high: Number
    location: Location


Operator: TypeAlias = Literal[
    "+", "-", "max", "min", "==", "!=", "<", "<=", ">", ">=", "and", "or", "not", "if", "table",
    "<<", ">>", "slice", "concat",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Formula:
    """An operator and its operands, computed in hardware in every cycle.

    The operands of `if` are the condition, the value if it holds, and the value if not. `numbers` are the bits of a
    shift, or the highest and the lowest bit of a slice.
    """

    operator: Operator
    operands: tuple[Operand, ...]
    location: Location
    depth: int
    numbers: tuple[Number, ...] = ()


@dataclass(frozen=True, slots=True)
class RangedOperand:
    """A signal or a formula for every value of an index."""

    value: Operand
    index: Index
    location: Location

    @property
    def depth(self) -> int:
        """The depth of nested formulas."""
        return self.value.depth


Operand: TypeAlias = Integer | Reference | Formula | RangedOperand


@dataclass(frozen=True, slots=True)
class Term:
    """A signal or a number, once or for every value of an index; `sign` is -1 if it is subtracted."""

    value: Number
    index: Index | None
    location: Location
    sign: int = 1


@dataclass(frozen=True, slots=True)
class Label:
    """A name that may have an index: `hits[k]`."""

    name: str
    index: Number | None
    location: Location


@dataclass(frozen=True, slots=True)
class InputText:
    """A declared input."""

    kind: SignalKind
    name: str
    index_range: Range | None
    lanes: Number | None
    width: Number | None
    signed: bool
    location: Location
    end_signals: tuple[str, ...] = ()
    """`last`, or `last` and `keep`: fields of the beats of packets besides their samples."""
    is_buffered: bool = False


@dataclass(frozen=True, slots=True)
class ConditionText:
    """`reference`, `not reference`, or a formula that must not be 0."""

    operand: Operand
    is_negated: bool


@dataclass(frozen=True, slots=True)
class ArbitrationText:
    """`by turns` or `by priority`; `takes_whole_frames` is true with `until last`, which takes whole packets."""

    order: Literal["turns", "priority"]
    takes_whole_frames: bool
    location: Location


@dataclass(frozen=True, slots=True)
class CountText:
    """A count, or one for every value of `index`."""

    index: Index | None
    label: Label | None
    terms: tuple[Term, ...]
    accumulates: bool
    bound: Operand | None
    target: Operand | None
    conditions: tuple[ConditionText, ...]
    width: Number | None
    location: Location
    arbitration: ArbitrationText | None = None


@dataclass(frozen=True, slots=True)
class TargetText:
    """A target; no value means `never`."""

    name: str | None
    value: Number | None
    at_least: bool
    carry: bool
    width: Number | None
    location: Location


@dataclass(frozen=True, slots=True)
class TableText:
    """Targets under one name, for every value of an index; no value means `never`."""

    name: str
    index_range: Range
    entries: tuple[Number | None, ...]
    width: Number | None
    location: Location


@dataclass(frozen=True, slots=True)
class Sign:
    """`signed` or `unsigned`."""

    location: Location
    signed: bool


@dataclass(frozen=True, slots=True)
class VerbText:
    """The verb of an action with its operands.

    `name` is its output, `cleared` the operand of `clear`. If `sign` is None, the sign follows from the samples.
    """

    verb: str
    location: Location
    name: Label | None = None
    samples: tuple[Operand, ...] = ()
    width: Number | None = None
    sign: bool | None = None
    cleared: Reference | None = None
    numbers: Mapping[str, Number | None] = field(default_factory=dict)
    """Other numbers of the verb, by the fields of `model.Action`; None for a number that the text omits."""
    words: Mapping[str, Any] = field(default_factory=dict)
    """Values of keywords of the verb, by the fields of `model.Action`."""
    ends: tuple[Operand, ...] = ()
    """Of a stream of packets: the formulas for `last` and `keep`."""
    merged_ends: tuple[str, ...] = ()
    """Of a merged stream: `last` and `keep`, if its beats have them."""


@dataclass(frozen=True, slots=True)
class ActionText:
    """An action, or one for every value of `index`."""

    index: Index | None
    count_label: Label | None
    verb_text: VerbText
    location: Location


@dataclass(frozen=True, slots=True)
class ClaimText:
    """A property of every cycle."""

    kind: Literal["always", "never", "assume"]
    name: str | None
    operand: Operand
    location: Location


@dataclass(frozen=True, slots=True)
class ParameterText:
    """A parameter and its default."""

    name: str
    default: Number | None
    location: Location


@dataclass(frozen=True, slots=True)
class Section:
    """One of the sections of a module, or the inputs of a file."""

    kind: str
    items: tuple[InputText | CountText | TargetText | TableText | ActionText | ClaimText, ...]
    location: Location


@dataclass(frozen=True, slots=True)
class ModuleText:
    """A module in the text."""

    name: str
    parameters: tuple[ParameterText, ...]
    inputs: tuple[InputText, ...]
    counts: tuple[CountText, ...]
    targets: tuple[TargetText, ...]
    tables: tuple[TableText, ...]
    actions: tuple[ActionText, ...]
    claims: tuple[ClaimText, ...]
    memories: tuple[VerbText, ...]
    location: Location


@dataclass(frozen=True, slots=True)
class Argument:
    """`name = number`."""

    name: str
    value: Number
    location: Location


@dataclass(frozen=True, slots=True)
class WireText:
    """`input = reference`."""

    name: str
    reference: Reference
    location: Location


@dataclass(frozen=True, slots=True)
class UseText:
    """An instance of a module, or one for every value of an index."""

    module: str
    arguments: tuple[Argument, ...]
    instance: Label
    index: Index | None
    wires: tuple[WireText, ...]
    location: Location


@dataclass(frozen=True, slots=True)
class ImportText:
    """An imported file."""

    path: str
    location: Location


@dataclass(frozen=True, slots=True)
class FileText:
    """A file: its statements in their order."""

    statements: tuple[ImportText | UseText | Section | ModuleText, ...]

    def modules(self) -> Iterator[ModuleText]:
        """Yield the modules that the file defines."""
        return (statement for statement in self.statements if isinstance(statement, ModuleText))

    def imports(self) -> Iterator[ImportText]:
        """Yield the imports of the file."""
        return (statement for statement in self.statements if isinstance(statement, ImportText))


MAX_NAME_LENGTH = 64
"""Largest number of characters of a name; names of ports combine two names."""
RESERVED_WORDS = frozenset({"sum", "for", "never", "not", "valid", "data"})
"""Keywords that cannot be names, because they would be ambiguous wherever the grammar accepts a name."""
