"""A datapath as statements of Python, everything elaborated and with constants only: what the fast simulator compiles.

Printed, the statements are the shortest description of what the hardware does in a cycle.
"""

from __future__ import annotations

from dataclasses import dataclass

from fpga.count_action.model import Datapath
from fpga.count_action.simulate.compiled.decisions import Decisions
from fpga.count_action.simulate.compiled.names import Names
from fpga.count_action.simulate.compiled.updates import Updates


@dataclass(frozen=True)
class CycleProgram:
    """One cycle of a datapath over names that `Names` explains, all of them 64-bit signed integers."""

    statements: tuple[str, ...]
    """In order; one of several lines is an `if`. `ones(x)` is how many bits of x are 1."""
    registers: dict[str, int]
    """Names kept from cycle to cycle, with their values after reset."""
    inputs: int
    """Columns of the rows that come in."""
    outputs: int
    """Columns of the rows that go out."""


def program_of(datapath: Datapath) -> CycleProgram:
    """Return the statements of one cycle.

    Raises KeyError for references to nothing, ValueError for circles of streams.
    """
    names = Names(datapath)
    return CycleProgram(
        statements=(*Decisions(names).lines(), *Updates(names).lines()),
        registers=names.registers(),
        inputs=names.ports.input_columns,
        outputs=names.ports.output_columns,
    )
