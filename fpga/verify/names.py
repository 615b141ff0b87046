"""Wires that the proof looks at inside a datapath, found in a delivered one that calls them otherwise.

Such a wire is a hint for the induction, no assumption: a wrong one can make a proof fail, never succeed. It is known
by what it does: it has the values of the wire that it stands for, in every cycle of a run.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from fpga.formal.specification import Specification
from fpga.formal.subjects import hidden_wires
from fpga.hdl import icarus
from fpga.hdl.design import Design, design_of
from fpga.hdl.stimulus import generated_stimulus
from fpga.hdl.tools import HdlError

_CYCLES = 200
_VARIABLE = re.compile(r"\$var \w+ +(\d+) +(\S+) +(\S+)")
_Series = tuple[tuple[int, str], ...]


def names_in(core: Design, specification: Specification) -> dict[str, str]:
    """Return the wires of the proof that a delivered datapath calls otherwise, with the names that they have there."""
    wanted = hidden_wires(specification)
    rows = generated_stimulus(specification.datapath, _CYCLES, seed=99)
    try:
        there = _wires(icarus.dump(core, rows))
    except HdlError:
        return {}  # whatever it is, the proof says it
    missing = {name: width for name, width in wanted.items() if there.get(name, (0, ()))[0] != width}
    if not missing:
        return {}
    made = _wires(icarus.dump(design_of(specification.datapath), rows))
    found = {name: _alike(name, made.get(name), there) for name in missing}
    return {name: other for name, other in found.items() if other}


def _alike(name: str, wire: tuple[int, _Series] | None, there: Mapping[str, tuple[int, _Series]]) -> str:
    """Return the wire that does the same, the one with the most similar name if there are several."""
    same = [other for other, each in there.items() if each == wire]
    return max(same, key=lambda each: difflib.SequenceMatcher(None, name, each).ratio(), default="")


def _wires(dump: str) -> dict[str, tuple[int, _Series]]:
    """Return the wires below `bench.dut` with their widths and their changes."""
    scopes: list[str] = []
    codes: dict[str, list[tuple[str, int]]] = {}
    changes: dict[str, list[tuple[int, str]]] = {}
    now = 0
    for line in dump.splitlines():
        if line.startswith("$scope"):
            scopes.append(line.split()[2])
        elif line.startswith("$upscope"):
            scopes.pop()
        elif found := _VARIABLE.match(line):
            codes.setdefault(found[2], []).append((".".join([*scopes[2:], found[3]]), int(found[1])))
        elif line.startswith("#"):
            now = int(line[1:])
        elif change := re.match(r"b?([01xz]+) ?(\S+)$", line):
            changes.setdefault(change[2], []).append((now, change[1]))
    return {
        name: (width, tuple(changes.get(code, ()))) for code, names in codes.items() for name, width in names
    }
