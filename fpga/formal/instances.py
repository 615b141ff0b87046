"""Instances of checks in the proof of a datapath."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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


def hidden(name: str, width: int) -> str:
    """Return a wire of the top that no port shows."""
    return f"(* hierconn *) logic [{width - 1}:0] \\dut.{name} ;"


HIDDEN = r"hierconn \*\) logic \[(\d+):0\] \\dut\.(\S+) ;"
"""Pattern of such a wire in the text of a proof: its highest bit, and its name."""


def bit(value: bool) -> str:
    """Return a constant of one bit."""
    return f"1'b{int(value)}"
