"""One kind of action, as every back-end sees it.

A kind of action is a class derived from `Kind`, in a file of its own, and a line in the table of `__init__`. Its
methods say how the kind is read and written, what shape its output has, what may be wrong with it, what it does at a
clock edge in both simulators, which hardware it is, and what is proven of that hardware. A back-end gives a method
what it needs as its first argument; the protocols below say what may be asked of it.

What proves the hardware of a kind shares no code with what builds it, and the reference simulator none with the fast
one: each holds the other to the rules because it was written by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from fpga.count_action.actions.proof import Check, Proof
from fpga.count_action.diagnostics import Diagnostics
from fpga.count_action.graph import Graph
from fpga.count_action.model import Action, ActionKind, Datapath, Module, Ref

Lines: TypeAlias = Iterator[str]


def when(condition: str, lines: Iterable[str]) -> str:
    """Return the statements of the fast simulator that happen when a bit is 1."""
    return "\n".join([f"if {condition}:", *(f"    {line}" for line in lines)])


@dataclass(frozen=True, slots=True)
class Shape:
    """Samples of one beat, or a flag or a number, which is one sample."""

    lanes: int
    width: int
    signed: bool


class ActionSyntax(Protocol):
    """An action as the text has it: numbers are evaluated, names are still words. None where nothing is written."""

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


class Texts(Protocol):
    """Parts of a text that is written from a datapath."""

    graph: Graph

    def sample(self, ref: Ref) -> str:
        """Return a sample, a flag, a number or a formula."""

    def runs(self, refs: Sequence[Ref], suffix: str) -> Iterator[str]:
        """Return terms or samples, neighbouring elements or lanes as one range."""

    def value(self, ref: Ref) -> str:
        """Return a formula, in brackets."""


class Edge(Protocol):
    """The cycle before a clock edge, in the reference simulator."""

    def fires(self, module: Module, count: str) -> bool:
        """Return whether a count fires (R1)."""

    def restarts(self, module: Module, count: str) -> bool:
        """Return whether a count keeps nothing of this cycle: it fires, is cleared, or is a level count."""

    def adds(self, module: Module, count: str) -> bool:
        """Return whether a count is enabled and its module not stalled."""

    def moves(self, ref: Ref) -> bool:
        """Return whether the beats that hold a sample move (R7)."""

    def sample(self, ref: Ref) -> int:
        """Return the value of a sample, a flag, a number or a formula."""

    def output(self, module: Module, name: str) -> int:
        """Return what drives an output now: the bits of a beat, or a flag or a number."""

    def memory(self, module: Module, name: str) -> Any:
        """Return what the action keeps from cycle to cycle beside its output."""


class Statements(Protocol):
    """Pieces of the statements of the fast simulator. Every piece is an expression over 64-bit integers."""

    def fire(self, module: Module, action: Action) -> str:
        """Return 1 when the count of an action fires."""

    def on(self, module: Module, action: Action) -> str:
        """Return 1 while the count of an action is enabled and its module not stalled."""

    def moves(self, ref: Ref) -> str:
        """Return 1 when the beats that hold a sample move."""

    def register(self, module: Module, action: Action, letter: str = "r") -> str:
        """Return a register or a variable of an action; `r` holds a flag or a number."""

    def sample(self, ref: Ref, width: int | None = None, *, signed: bool | None = None) -> str:
        """Return a sample as a number, in `width` bits of the action or its own, with its own sign or as said."""

    def number(self, name: str, width: int, *, signed: bool) -> str:
        """Return the number that the lowest bits of a variable stand for."""

    def send(self, module: Module, action: Action, samples: Iterable[Ref | str]) -> Lines:
        """Return the statements that put samples, or variables of the action's width, side by side into its beat."""


class Hardware(Protocol):
    """Wires of the generated top."""

    def fire(self, module: Module, action: Action) -> str:
        """Return the wire that is 1 when the count of an action fires."""

    def clear(self, module: Module, action: Action) -> str:
        """Return when what an action adds up begins again: its count fires or is cleared."""

    def take(self, module: Module, action: Action) -> str:
        """Return which samples are counted in this cycle, the first lowest."""

    def samples(self, action: Action, width: int | None = None) -> str:
        """Return the samples side by side, the first lowest, in `width` bits each, by default those of the action."""

    def sample_type(self, action: Action) -> tuple[int, bool]:
        """Return width and sign in which samples can be added: their own where alike, else those of the action."""

    def any_fire(self, module: Module, actions: Iterable[Action]) -> str:
        """Return when one of the actions happens."""

    def block(
        self, block: str, name: str, parameters: Mapping[str, object], ports: Mapping[str, str]
    ) -> Lines:
        """Return an instance of a block of `fpga/rtl` with clock and reset."""

    def wire(self, name: str, width: int) -> str:
        """Return the declaration of a wire."""

    def bit(self, value: object) -> str:
        """Return a constant of one bit."""

    def beat(self, module: Module, action: Action, data: str) -> Lines:
        """Return the register in which a beat leaves."""

    def beat_width(self, module: Module, action: Action) -> int:
        """Return the bits of a beat."""


class Kind:
    """A kind of action. What a kind does not say is as most kinds have it."""

    kind: ActionKind
    rules: tuple[str, ...] = ()
    """Rules of the grammar for its verbs."""
    noun: str = ""
    """Word of messages for its output."""
    register: str = ""
    """What a driver reads where a register shows its output."""
    collects = False
    """True when its samples are looked at in every cycle that counts them, not at the fire alone (R11)."""
    shared: str = ""
    """Group of kinds of which several actions may drive one output (R9)."""
    cleared_by: ActionKind | None = None
    """Kind that a `clear` of its output is; None where nothing clears it."""
    raises = True
    """True when it can make its output other than 0."""

    # Language

    def parse(self, rule: str, *parts: Any) -> dict[str, Any]:
        """Return the fields of `VerbText` for a verb, from the parts of a rule of the grammar.

        What is a field of the `Action` stands in `numbers` (expressions, None where left out) or in `words`.
        """
        raise NotImplementedError

    def write(self, texts: Texts, module: Module, action: Action) -> str:
        """Return the verb with its operands, as `parse` reads it."""
        raise NotImplementedError

    def shape(self, action: ActionSyntax, samples: Callable[[], Sequence[Shape]]) -> Shape:
        """Return what an action drives. `samples` may refuse a circle: ask for it only where it matters."""
        return Shape(1, 1, signed=False)

    # Checks

    def find_problems(self, datapath: Datapath, action: Action) -> Diagnostics:
        """Return what is wrong with an action by itself."""
        return iter(())

    def find_broken_rules(self, graph: Graph) -> Diagnostics:
        """Return what is wrong between actions of this kind and others."""
        return iter(())

    def find_mistakes(self, graph: Graph) -> Diagnostics:
        """Return what may be a mistake."""
        return iter(())

    def largest(self, action: Action) -> int:
        """Return the largest number that it drives."""
        return (1 << action.width) - 1

    def describe(self, action: Action, name: str) -> str:
        """Return what a fire does, in a few words; `name` is that of the output."""
        raise NotImplementedError

    # Reference simulator

    def reset(self, action: Action) -> Any:
        """Return what it keeps beside its output, as it is after reset; None for nothing."""
        return None

    def keep(self, edge: Edge, module: Module, action: Action) -> Any:
        """Return what it keeps after the clock edge."""
        return None

    def drive(self, edge: Edge, module: Module, action: Action) -> int | None:
        """Return its output after the clock edge; None where it leaves it as it is."""
        raise NotImplementedError

    # Fast simulator

    def letters(self, module: Module, action: Action) -> str:
        """Return the letters of the registers that it keeps beside its output: they are 0 after reset and clear."""
        return ""

    def collect(self, statements: Statements, module: Module, action: Action) -> Lines:
        """Return the statements for the samples of this cycle, before any output changes."""
        return iter(())

    def update(self, statements: Statements, module: Module, action: Action) -> Lines:
        """Return the statements that change its output; of a stream, those of the fire."""
        raise NotImplementedError

    # Hardware and proof

    def build(self, hardware: Hardware, module: Module, action: Action) -> Lines:
        """Return the SystemVerilog of what drives an output; `action` is the first that does."""
        raise NotImplementedError

    def prove(self, proof: Proof, module: Module, action: Action) -> Iterator[Check]:
        """Return the checks of what drives an output; `action` is the first that does."""
        raise NotImplementedError
