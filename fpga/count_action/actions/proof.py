"""Instances of checks in the proof of a datapath, and the expressions of which their connections are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from fpga.count_action.model import Action, Count, Module, Ref

ALWAYS = "1'b1"
NEVER = "1'b0"

CLOCKED = {"clk_i": "clk_i", "rst_i": "rst_i"}
"""Connections of all checks."""


@dataclass(frozen=True, slots=True)
class Check:
    """One instance of checks: of which block they are, and of which part of which module.

    `before` are lines that stand in front of it.
    """

    block: str
    module: str
    part: str
    parameters: Mapping[str, object]
    ports: Mapping[str, object]
    before: tuple[str, ...] = ()

    def lines(self, name: str) -> Iterator[str]:
        """Return the instance, as text."""
        yield from self.before
        parameters = ", ".join(f".{key}({value})" for key, value in self.parameters.items())
        yield f"{self.block}_checks {f'#({parameters}) ' if parameters else ''}{name} ("
        yield ",\n".join(f"    .{port}({wire})" for port, wire in self.ports.items())
        yield ");"


def find_hidden_wire(name: str, width: int) -> str:
    """Return a wire of the top that no port shows."""
    return f"(* hierconn *) logic [{width - 1}:0] \\dut.{name} ;"


HIDDEN = r"hierconn \*\) logic \[(\d+):0\] \\dut\.(\S+) ;"
"""Pattern of such a wire in the text of a proof: its highest bit, and its name."""


def bit(value: bool) -> str:
    """Return a constant of one bit."""
    return f"1'b{int(value)}"


def concatenate(first_lowest: Iterable[str]) -> str:
    """Return the expressions side by side."""
    return f"{{{', '.join(reversed(list(first_lowest)))}}}"


class Proof(Protocol):
    """Expressions over the ports of a top, written without its emitter."""

    def fire(self, module: Module, count: str) -> str:
        """Return whether a count fires."""

    def any_fire(self, module: Module, actions: Iterable[Action]) -> str:
        """Return whether one of the actions happens."""

    def clear(self, module: Module, count: Count) -> str:
        """Return whether somebody clears the count (R5)."""

    def take(self, module: Module, count: Count, ref: Ref) -> str:
        """Return whether a sample is added in this cycle (R11)."""

    def fit(self, ref: Ref, width: int) -> str:
        """Return a sample in `width` bits: extended by its own sign, or without its upper bits (R10)."""

    def beat_width(self, module: Module, action: Action) -> int:
        """Return the bits of a beat."""
