"""The model of a datapath of count-action modules, from which everything else is generated.

The parser and Python code produce it; the simulators, SystemVerilog, the register map and the driver use it.
`docs/reference/count-action.md` defines its meaning; its rules are cited as R1, R2, ... Names are resolved, ranges
are expanded and parameters are bound.

All classes are frozen. `Datapath.to_json` and `datapath_from_json` are inverses, and `Datapath.digest` is the 32-bit
number by which a driver recognises its hardware. Neither contains source locations.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self, TypeAlias, TypeVar

__all__ = [
    "ADDED_FIELD",
    "FORMULA_PREFIX",
    "MAX_INPUT_WIDTH",
    "MAX_LANES",
    "MAX_WIDTH",
    "MAX_WORDS",
    "Action",
    "ActionKind",
    "Claim",
    "Condition",
    "Count",
    "CountKind",
    "Datapath",
    "Location",
    "Module",
    "Operand",
    "Operation",
    "Ref",
    "Signal",
    "SignalKind",
    "Target",
    "is_formula_ref",
]  # fmt: skip


class SignalKind(enum.Enum):
    """Kind of a signal."""

    STREAM = "stream"
    """Beats with valid, data and ready: a beat moves in a cycle with valid and ready."""
    FLAG = "flag"
    """One bit, read in every cycle."""
    NUMBER = "number"
    """An unsigned number, read in every cycle."""


class CountKind(enum.Enum):
    """State that a count keeps from one cycle to the next (R1)."""

    LEVEL = "level"
    """Nothing: the sum covers only the current cycle."""
    ACCUMULATE = "accumulate"
    """The sum of all increments since the count last fired or was cleared."""


class ActionKind(enum.Enum):
    """Effect of a count that reaches its target, visible in the next cycle (R6).

    A module of `actions` implements each kind for every backend.
    """

    drives: SignalKind | None
    is_transient: bool
    """True if its output lasts one cycle."""

    def __new__(cls, name: str, drives: SignalKind | None = None, *transient: str) -> Self:
        """Return a member with the value `name`, which is its name in the canonical JSON."""
        kind = object.__new__(cls)
        kind._value_ = name
        kind.drives = drives
        kind.is_transient = bool(transient)
        return kind

    STREAM = "stream", SignalKind.STREAM
    """A beat of the samples `refs`, with their values in the cycle of the fire."""
    EMIT = "emit", SignalKind.STREAM
    """A beat of one sample: the sum of `refs` over all beats counted since the last fire, including the current one.

    With `reduction` it is the largest or smallest of them instead, optionally with its index as second sample (R14).
    """
    PULSE = "pulse", SignalKind.FLAG, "transient"
    """One bit, for one cycle."""
    SET = "set", SignalKind.FLAG
    """A flag becomes 1."""
    CLEAR_FLAG = "clear flag", SignalKind.FLAG
    """A flag becomes 0."""
    CLEAR_COUNT = "clear count"
    """A count (`clears`) restarts at 0 (R5)."""
    ADVANCE = "advance", SignalKind.NUMBER
    """A number is incremented, and wraps from `modulo` - 1 to 0."""
    STORE = "store", SignalKind.NUMBER
    """A number stores the only sample of `refs` (R18)."""
    STORE_WORD = "store word"
    """A word of a memory becomes the first sample of `refs`; the second is its address (R25)."""
    READ = "read", SignalKind.NUMBER
    """A number becomes the word of a memory at the address in `refs` (R25)."""
    MEMORY = "memory", SignalKind.NUMBER
    """The declaration of a memory, which belongs to no count (R25).

    Its `refs` are the external inputs through which a driver loads words. Its number is the word that a driver sees.
    """


MAX_WIDTH = 48
"""Largest width of a count, a target, a sample, or a number that an action drives."""
MAX_INPUT_WIDTH = 32
"""Largest width of an external number: one register of the bus."""
MAX_WORDS = 65_536
"""Largest number of words of a memory."""
MAX_LANES = 1024
"""Largest number of streams, flags or samples under one name."""
ADDED_FIELD = {"added": True}
"""Metadata of fields added after the first release: canonical JSON omits them if they have their default."""


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a source file; lines and columns begin at 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Signal:
    """An external input of the datapath: `size` streams, flags or numbers under one name.

    A stream carries `lanes` samples of `width` bits a beat; flags have width 1. Index 0 is bit 0.
    """

    name: str
    kind: SignalKind
    size: int = 1
    lanes: int = 1
    width: int = 1
    signed: bool = False
    location: Location | None = field(default=None, compare=False)
    part_of: str = field(default="", metadata=ADDED_FIELD)
    """The stream of a `last` or `keep` flag (R18), or `MODULE.NAME` of the memory that the input loads."""
    buffered: bool = field(default=False, metadata=ADDED_FIELD)
    """Of a stream: its beats pass through a buffer of two beats, and ready depends on registers alone (R20)."""

    @property
    def loads_memory(self) -> bool:
        """True if a driver loads a memory through this input (R25)."""
        return "." in self.part_of


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to one bit, number or sample of an external input (`module` is None) or of an output.

    `index` selects the stream, flag or number under the name, `lane` the sample of a beat. A reference to a stream
    means its valid bit in counts and conditions, and its data in samples.
    """

    name: str
    module: str | None = None
    index: int = 0
    lane: int = 0
    location: Location | None = field(default=None, compare=False)

    def __str__(self) -> str:
        prefix = f"{self.module}." if self.module else ""
        return f"{prefix}{self.name}[{self.index}]"


@dataclass(frozen=True, slots=True)
class Operation:
    """A formula: an operator and its operands, computed exactly in every cycle (R13).

    Operators are `+ - max min`, the comparisons `== != < <= > >=`, `and or not`, `if` (condition, value, other
    value), `table` (index, first entry, further entries; 0 outside the table), `<<` and `>>` (value, constant), `slice`
    (value, highest and lowest bit), `concat` (slices, the highest first), and of a single reference: `valid` (of
    a stream), `count` (the register of a count) and `target` (a target in force).
    """

    operator: str
    operands: tuple[Operand, ...]


Operand: TypeAlias = Ref | Operation | int

FORMULA_PREFIX = "#"
"""Prefix of the names of formulas in references: `Ref("#0", "m")` is the first of the `values` of module m."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A flag or a pulse that must be 1 (or 0, when `negated`) for a count to be enabled."""

    ref: Ref
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """A sum of terms, of `width` bits, compared in every cycle with its target.

    `terms` are valid bits of streams, flags, pulses and numbers; `constant` is added to them in every enabled
    cycle. `target` names the target in the same module; several counts may share one.
    """

    name: str
    kind: CountKind
    target: str
    terms: tuple[Ref, ...] = ()
    constant: int = 0
    gate: tuple[Condition, ...] = ()
    width: int = 16
    location: Location | None = field(default=None, compare=False)
    aim: Ref | None = field(default=None, metadata=ADDED_FIELD)
    """A formula for the value to reach. `target` is then the first target in the formula."""
    taken: tuple[Ref, ...] = field(default=(), metadata=ADDED_FIELD)
    """Terms that are subtracted: the count goes up and down, but not below 0 (R17)."""
    bound: Ref | None = field(default=None, metadata=ADDED_FIELD)
    """A formula for the value that the count never exceeds (R17)."""
    order: str = field(default="", metadata=ADDED_FIELD)
    """`priority` or `turns`: how a level count selects the stream whose beat it takes (R19). If empty, the count takes
    the beats of all streams."""
    whole: bool = field(default=False, metadata=ADDED_FIELD)
    """With `order`: packets are not interleaved; a started packet is taken to its end first."""
    picks: tuple[Ref, ...] = field(default=(), metadata=ADDED_FIELD)
    """With `order`: for each term, the formula that is 1 if the term is selected (`arbitration`)."""

    @property
    def accumulates(self) -> bool:
        """True if the count keeps its value between cycles."""
        return self.kind is CountKind.ACCUMULATE

    @property
    def counted(self) -> tuple[Ref, ...]:
        """All terms, added and subtracted."""
        return self.terms + self.taken

    @property
    def goes_down(self) -> bool:
        """True if R17 applies: the count subtracts something, or has a bound."""
        return bool(self.taken) or self.constant < 0 or self.bound is not None


@dataclass(frozen=True, slots=True)
class Target:
    """A number to reach; `reset` is its value until a driver writes another. 0 means never (R3).

    With `at_least`, a count above the target fires, too; with `carry`, the excess stays in the count (R16).
    """

    name: str
    reset: int
    width: int = 16
    location: Location | None = field(default=None, compare=False)
    at_least: bool = field(default=False, metadata=ADDED_FIELD)
    carry: bool = field(default=False, metadata=ADDED_FIELD)


@dataclass(frozen=True, slots=True)
class Action:
    """One effect of the count `on`. `output` is the name it drives in its module (none for CLEAR_COUNT).

    A MEMORY is a declaration rather than an effect, and its `on` is empty.

    `width` is the width of a sample (STREAM, EMIT) or of the number (ADVANCE). EMIT adds in `width` bits, two's
    complement, wrapping, then shifts right by `shift` (arithmetic if `signed`).
    """

    kind: ActionKind
    on: str
    output: str = ""
    refs: tuple[Ref, ...] = ()
    width: int = 1
    signed: bool = False
    shift: int = 0
    modulo: int = 0
    clears: tuple[str, str] | None = None
    """Of CLEAR_COUNT: the module and the name of the count that restarts."""
    reduction: str = field(default="sum", metadata=ADDED_FIELD)
    """Of EMIT: `sum`, `max` or `min`."""
    with_index: bool = field(default=False, metadata=ADDED_FIELD)
    """Of EMIT: the beat also has the index of the largest or smallest sample."""
    wins: bool = field(default=False, metadata=ADDED_FIELD)
    """Of CLEAR_FLAG: the flag becomes 0 even if it is set in the same cycle (R9).

    Of SET: the flag becomes 1 then. It does so by default, too; the field only records the intention.
    """
    part_of: str = field(default="", metadata=ADDED_FIELD)
    """Of STORE: the stream whose `last` or kept lanes are stored (R18), or the arbitrating count (R19)."""
    ranked: bool = field(default=False, metadata=ADDED_FIELD)
    """Of STORE and STORE_WORD: others may store there, too; the first in the text that fires wins (R18, R25)."""
    merges: bool = field(default=False, metadata=ADDED_FIELD)
    """Of STREAM: it sends the samples of the stream that the count selects (R19)."""
    memory: str = field(default="", metadata=ADDED_FIELD)
    """Of STORE_WORD and READ: the memory, in the same module (R25)."""
    words: int = field(default=0, metadata=ADDED_FIELD)
    """Of MEMORY: the number of its words."""
    location: Location | None = field(default=None, compare=False)

    @property
    def lanes(self) -> int:
        """Samples in a beat of STREAM or EMIT; 1 for anything else."""
        return len(self.refs) if self.kind is ActionKind.STREAM else 1 + self.with_index


@dataclass(frozen=True, slots=True)
class Claim:
    """A property of every cycle (R21): the formula `holds` is non-zero, or with `never`, 0.

    With `assume` it constrains the external inputs: proofs consider only runs in which it holds.
    """

    kind: str
    """`always`, `never` or `assume`."""
    name: str
    holds: Operand
    location: Location | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Module:
    """Counts, their targets, and their actions."""

    name: str
    counts: tuple[Count, ...]
    targets: tuple[Target, ...]
    actions: tuple[Action, ...]
    location: Location | None = field(default=None, compare=False)
    values: tuple[Operand, ...] = field(default=(), metadata=ADDED_FIELD)
    """Formulas, to which counts and actions of this module refer by index."""
    claims: tuple[Claim, ...] = field(default=(), metadata=ADDED_FIELD)
    """Properties; they add no hardware."""

    def count(self, name: str) -> Count:
        """Return the count of that name. Raise KeyError if there is none."""
        return find_named(self.counts, name)

    def target(self, name: str) -> Target:
        """Return the target of that name. Raise KeyError if there is none."""
        return find_named(self.targets, name)

    def value(self, ref: Ref) -> Operand:
        """Return the formula that a reference names. Raise IndexError or ValueError if there is none."""
        return self.values[int(ref.name.removeprefix(FORMULA_PREFIX))]

    def list_actions(self, *kinds: ActionKind) -> tuple[Action, ...]:
        """Return the actions of these kinds, in the order of the text."""
        return tuple(action for action in self.actions if action.kind in kinds)

    def list_streams(self) -> tuple[Action, ...]:
        """Return the actions that send beats, in the order of the text."""
        return tuple(action for action in self.actions if action.kind.drives is SignalKind.STREAM)

    def list_drivers(self, output: str) -> tuple[Action, ...]:
        """Return the actions that drive an output, in the order of the text."""
        return tuple(action for action in self.actions if action.output == output and action.kind.drives)

    def map_outputs(self) -> dict[str, Action]:
        """Return the first action that drives each output, by the name of the output."""
        first_actions: dict[str, Action] = {}
        for action in self.actions:
            if action.kind.drives:
                first_actions.setdefault(action.output, action)
        return first_actions


@dataclass(frozen=True)
class Datapath:
    """Modules wired to each other by name, and the external inputs that they read."""

    name: str
    inputs: tuple[Signal, ...]
    modules: tuple[Module, ...]

    def module(self, name: str) -> Module:
        """Return the module of that name. Raise KeyError if there is none."""
        return find_named(self.modules, name)

    def input(self, name: str) -> Signal:
        """Return the external input of that name. Raise KeyError if there is none."""
        return find_named(self.inputs, name)

    def list_counts(self) -> Iterator[tuple[Module, Count]]:
        """Yield every count with its module, in the order of status bits and registers."""
        return ((module, count) for module in self.modules for count in module.counts)

    def list_targets(self) -> Iterator[tuple[Module, Target]]:
        """Yield every target with its module, in the order of registers."""
        return ((module, target) for module in self.modules for target in module.targets)

    @cached_property
    def consumed(self) -> frozenset[tuple[str, str]]:
        """Streams (module, output) that a module takes; the other streams are outputs of the datapath."""
        driven_outputs = {
            (module.name, action.output) for module in self.modules for action in module.list_streams()
        }
        terms = (term for _, count in self.list_counts() for term in count.counted)
        return frozenset(
            driven_outputs & {(term.module, term.name) for term in terms if term.module is not None}
        )

    def to_json(self) -> str:
        """Return the canonical JSON: sorted keys, no spaces, no locations."""
        return to_canonical_json(self)

    @cached_property
    def digest(self) -> int:
        """Identifier of this hardware: the first 32 bits of the SHA-256 of `to_json`.

        It ignores claims and the `wins` of a set (R9), which do not change the hardware.
        """
        built_datapath = replace(self, modules=tuple(map(_drop_proof_parts, self.modules)))
        return int.from_bytes(hashlib.sha256(built_datapath.to_json().encode()).digest()[:4], "big")


def _drop_proof_parts(module: Module) -> Module:
    actions = (
        replace(action, wins=action.wins and action.kind is not ActionKind.SET) for action in module.actions
    )
    return replace(module, claims=(), actions=tuple(actions))


def is_formula_ref(ref: Ref) -> bool:
    """Return whether a reference names a formula of its module."""
    return ref.name.startswith(FORMULA_PREFIX)


class _HasName(Protocol):
    @property
    def name(self) -> str: ...


_T = TypeVar("_T", bound=_HasName)


def find_named(items: tuple[_T, ...], name: str) -> _T:
    """Return the item of that name. Raise KeyError if there is none."""
    for item in items:
        if item.name == name:
            return item
    raise KeyError(f"{name!r} is not known; there are: {', '.join(item.name for item in items) or 'none'}")


def to_canonical_json(instance: Any) -> str:
    """Return the canonical JSON of an instance of a dataclass: sorted keys, no spaces, no locations."""
    return json.dumps(_to_plain(instance), sort_keys=True, separators=(",", ":"))


def _to_plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if is_dataclass(value):
        attributes = (
            attribute
            for attribute in fields(value)
            if attribute.compare and not _is_omitted(value, attribute)
        )
        return {attribute.name: _to_plain(getattr(value, attribute.name)) for attribute in attributes}
    if isinstance(value, tuple):
        return [_to_plain(item) for item in value]
    return value


def _is_omitted(instance: Any, attribute: Any) -> bool:
    """Return whether a field is newer than the first release and has its default. Omitting it keeps old digests."""
    if "added" not in attribute.metadata:
        return False
    assert attribute.default is not MISSING
    return bool(getattr(instance, attribute.name) == attribute.default)
