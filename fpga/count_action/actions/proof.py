"""Instances of checks in the proof of a datapath, and the expressions for their connections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from fpga.count_action.model import Action, Count, Module, Ref

TRUE = "1'b1"
FALSE = "1'b0"

CLOCK_CONNECTIONS = {"clk_i": "clk_i", "rst_i": "rst_i"}
"""Clock and reset connections, which all checks have."""


@dataclass(frozen=True, slots=True)
class Check:
    """An instance of the checks of a block, for one part of one module.

    `declarations` precede the instance.
    """

    block: str
    module: str
    part_name: str
    parameters: Mapping[str, object]
    ports: Mapping[str, object]
    declarations: tuple[str, ...] = ()

    def write_lines(self, name: str) -> Iterator[str]:
        """Yield the SystemVerilog of the instance."""
        yield from self.declarations
        parameters = ", ".join(f".{key}({value})" for key, value in self.parameters.items())
        yield f"{self.block}_checks {f'#({parameters}) ' if parameters else ''}{name} ("
        yield ",\n".join(f"    .{port}({wire})" for port, wire in self.ports.items())
        yield ");"


def declare_hidden_wire(name: str, width: int) -> str:
    """Return the declaration that connects an internal wire of the top."""
    return f"(* hierconn *) logic [{width - 1}:0] \\dut.{name} ;"


HIDDEN_WIRE = r"hierconn \*\) logic \[(\d+):0\] \\dut\.(\S+) ;"
"""Pattern of a `declare_hidden_wire` declaration: the groups are its highest bit and its name."""


def write_bit(value: bool) -> str:
    """Return a constant of one bit."""
    return f"1'b{int(value)}"


def concatenate(expressions: Iterable[str]) -> str:
    """Return the concatenation of the expressions; the first becomes the lowest bits."""
    return f"{{{', '.join(reversed(list(expressions)))}}}"


class ProofExpressions(Protocol):
    """Expressions over the ports of a top, independent of the code that generates the top."""

    def write_fire(self, module: Module, count_name: str) -> str:
        """Return the condition that a count fires."""

    def write_any_fire(self, module: Module, actions: Iterable[Action]) -> str:
        """Return the condition that the count of any of the actions fires."""

    def write_clear(self, module: Module, count: Count) -> str:
        """Return the condition that an action clears the count (R5)."""

    def write_counted_condition(self, module: Module, count: Count, ref: Ref) -> str:
        """Return the condition that a sample is counted in this cycle (R11)."""

    def resize_sample(self, ref: Ref, width: int) -> str:
        """Return a sample in `width` bits: extended by its own sign, or truncated (R10)."""

    def find_beat_width(self, module: Module, action: Action) -> int:
        """Return the number of bits of a beat."""
