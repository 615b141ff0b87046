"""The interface of a kind of action, and the protocols through which it uses each backend.

A kind of action is a class derived from `Kind` and an entry in the table of `__init__`. Its methods parse and write
the kind, give the shape of its output, find errors, simulate a clock edge in both simulators, build the hardware and
prove it. A backend passes itself as the first argument; the protocols below list the methods that a kind may call.

The proof of a kind shares no code with the hardware of the kind, and the methods for the reference simulator share no
code with those for the fast simulator. They can check each other only because they implement the same rules
independently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from fpga.count_action.actions.proof import Check, ProofExpressions
from fpga.count_action.diagnostics import Diagnostics
from fpga.count_action.graph import Graph
from fpga.count_action.model import Action, ActionKind, Datapath, Module, Ref

Lines: TypeAlias = Iterator[str]


def write_if(condition: str, lines: Iterable[str]) -> str:
    """Return an `if` statement of the fast simulator that executes `lines` when `condition` is 1."""
    return "\n".join([f"if {condition}:", *(f"    {line}" for line in lines)])


@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of a beat; a flag or a number has one lane."""

    lanes: int
    width: int
    signed: bool


class UnresolvedAction(Protocol):
    """An action before its names are resolved. Numbers are evaluated; None where the text omits a part."""

    @property
    def verb(self) -> str: ...
    @property
    def width(self) -> int | None: ...
    @property
    def sign(self) -> bool | None: ...
    @property
    def numbers(self) -> Mapping[str, Any]: ...
    @property
    def words(self) -> Mapping[str, Any]: ...
    @property
    def part_of(self) -> str: ...


class TextWriter(Protocol):
    """Writer of source text: its methods return parts of an action's text."""

    graph: Graph

    def write_sample(self, ref: Ref) -> str:
        """Return the text of a sample, a flag, a number or a formula."""

    def write_ref_ranges(self, refs: Sequence[Ref], suffix: str) -> Iterator[str]:
        """Yield the texts of references; consecutive elements, or consecutive lanes of a beat, become one range."""

    def write_value(self, ref: Ref) -> str:
        """Return the text of a formula, in brackets."""


class Edge(Protocol):
    """The cycle before a clock edge, in the reference simulator."""

    def fires(self, module: Module, count_name: str) -> bool:
        """Return whether a count fires (R1)."""

    def restarts(self, module: Module, count_name: str) -> bool:
        """Return whether a count discards its value: it fires, is cleared, or is a level count."""

    def is_counting(self, module: Module, count_name: str) -> bool:
        """Return whether a count is enabled and its module is not stalled."""

    def are_beats_moving(self, ref: Ref) -> bool:
        """Return whether every beat on which a sample depends moves (R7)."""

    def read_sample(self, ref: Ref) -> int:
        """Return the value of a sample, a flag, a number or a formula."""

    def read_output(self, module: Module, name: str) -> int:
        """Return the current value of an output: the bits of a beat, a flag or a number."""

    def read_action_state(self, module: Module, output: str) -> Any:
        """Return the state that an action keeps between cycles besides its output."""


class Statements(Protocol):
    """Expressions of the fast simulator, over 64-bit integers. A condition is 0 or 1."""

    def write_fire(self, module: Module, action: Action) -> str:
        """Return the condition that the count of an action fires."""

    def write_counting_condition(self, module: Module, action: Action) -> str:
        """Return the condition that the count of an action is enabled and its module is not stalled."""

    def write_move_condition(self, ref: Ref) -> str:
        """Return the condition that every beat on which a sample depends moves (R7)."""

    def find_register(self, module: Module, action: Action, letter: str = "r") -> str:
        """Return the name of a register or variable of an action; `r` holds a flag or a number."""

    def write_sample(self, ref: Ref, width: int | None = None, *, signed: bool | None = None) -> str:
        """Return the number in a sample. `width` and `signed` default to those of the sample."""

    def write_number(self, name: str, width: int, *, signed: bool) -> str:
        """Return the number in the lowest `width` bits of a variable."""

    def write_beat(self, module: Module, action: Action, samples: Iterable[Ref | str]) -> Lines:
        """Yield the statements that put samples into an action's beat; a `str` is a variable of the action's width."""


class Hardware(Protocol):
    """Wires of the generated top."""

    def write_fire(self, module: Module, action: Action) -> str:
        """Return the wire that is 1 when the count of an action fires."""

    def write_clear(self, module: Module, action: Action) -> str:
        """Return the condition that restarts the sum of an action: its count fires or is cleared."""

    def write_counted_mask(self, module: Module, action: Action) -> str:
        """Return a bit vector: bit i is 1 if sample i is counted in this cycle."""

    def write_samples(self, action: Action, width: int | None = None) -> str:
        """Return the concatenated samples, the first in the lowest bits. The action's width is the default."""

    def resize_sample(self, ref: Ref, width: int) -> str:
        """Return a sample in `width` bits: extended by its own sign, or truncated (R10)."""

    def write_range_check(self, ref: Ref, bound: int) -> str:
        """Return the condition that a sample is from 0 to `bound` - 1."""

    def find_sample_type(self, action: Action) -> tuple[int, bool]:
        """Return the width and the sign that all samples have.

        Return the action's width and False if the samples differ, or if they are wider than the action.
        """

    def write_any_fire(self, module: Module, actions: Iterable[Action]) -> str:
        """Return the condition that the count of any of the actions fires."""

    def write_block(
        self, block: str, name: str, parameters: Mapping[str, object], ports: Mapping[str, str]
    ) -> Lines:
        """Yield an instance of a block of `fpga/rtl`, connected to clock and reset."""

    def declare_wire(self, name: str, width: int) -> str:
        """Return the declaration of a wire."""

    def write_bit(self, value: object) -> str:
        """Return a constant of one bit: 1 if `value` is true."""

    def write_beat(self, module: Module, action: Action, data: str) -> Lines:
        """Yield the output register of a beat."""

    def find_beat_width(self, module: Module, action: Action) -> int:
        """Return the number of bits of a beat."""


class Kind:
    """Base class of kinds of actions, with defaults that most kinds share."""

    kind: ActionKind
    rules: tuple[str, ...] = ()
    """Grammar rules of its verbs."""
    noun: str = ""
    """Word for its output in messages."""
    register: str = ""
    """Description of the register that shows its output."""
    samples_every_cycle = False
    """True if an action reads its samples in every cycle in which they are counted, not only on a fire (R11)."""
    shared_output_group: str = ""
    """Group of kinds whose actions may drive one output together (R9). Empty if an output has a single driver."""
    cleared_by: ActionKind | None = None
    """Kind of the actions that clear its output (`clear`); None if its output cannot be cleared."""
    can_set_output = True
    """True if an action of this kind can make its output non-zero."""

    # Language

    def parse(self, rule: str, *parts: Any) -> dict[str, Any]:
        """Return the fields of `VerbText` for a verb, from the parts of a grammar rule.

        Fields of `Action` go into `numbers` (expressions, None if omitted) or into `words`.
        """
        raise NotImplementedError

    def write(self, text_writer: TextWriter, module: Module, action: Action) -> str:
        """Return the verb with its operands, in the syntax that `parse` reads."""
        raise NotImplementedError

    def compute_shape(
        self, action: UnresolvedAction, get_sample_shapes: Callable[[], Sequence[Shape]]
    ) -> Shape:
        """Return the output's shape.

        Call `get_sample_shapes` only if needed: it raises `SourceError` if streams form a cycle.
        """
        return Shape(1, 1, signed=False)

    # Checks

    def find_problems(self, datapath: Datapath, action: Action) -> Diagnostics:
        """Yield errors of one action, regardless of other actions."""
        return iter(())

    def find_broken_rules(self, graph: Graph) -> Diagnostics:
        """Yield errors between actions of this kind and others."""
        return iter(())

    def find_mistakes(self, graph: Graph) -> Diagnostics:
        """Yield warnings about possible mistakes."""
        return iter(())

    def compute_largest(self, action: Action) -> int:
        """Return the largest number that an action drives."""
        return (1 << action.width) - 1

    def describe(self, action: Action, name: str) -> str:
        """Return the effect of a fire in a few words; `name` is the name of the output."""
        raise NotImplementedError

    # Reference simulator

    def reset(self, action: Action) -> Any:
        """Return the state after reset, without the output; None if there is no other state."""
        return None

    def keep(self, edge: Edge, module: Module, action: Action) -> Any:
        """Return the state after the clock edge, without the output."""
        return None

    def drive(self, edge: Edge, module: Module, action: Action) -> int | None:
        """Return the output after the clock edge, or None if it does not change."""
        raise NotImplementedError

    # Fast simulator

    def list_register_suffixes(self, module: Module, action: Action) -> str:
        """Return the suffix letters of the registers besides the output; reset and clear set these registers to 0."""
        return ""

    def count_array_words(self, action: Action) -> int:
        """Return the number of words of its array (register `a`), or 0 if it has no array. A reset keeps the array."""
        return 0

    def collect(self, statements: Statements, module: Module, action: Action) -> Lines:
        """Yield the statements that add the samples of this cycle, before any output changes."""
        return iter(())

    def update(self, statements: Statements, module: Module, action: Action) -> Lines:
        """Yield the statements that change the output; the caller executes those of a stream only on a fire."""
        raise NotImplementedError

    # Hardware and proof

    def build(self, hardware: Hardware, module: Module, action: Action) -> Lines:
        """Yield the SystemVerilog that drives an output; `action` is the first of its drivers."""
        raise NotImplementedError

    def prove(self, expressions: ProofExpressions, module: Module, action: Action) -> Iterator[Check]:
        """Yield the checks of an output; `action` is the first of its drivers."""
        raise NotImplementedError
