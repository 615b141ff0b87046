"""Counterexamples element by element: what a datapath should show in them, and what it shows.

The stimulus of a counterexample goes through the plain simulator of the language. The first cycle in which an
element of a port differs says what is wrong, and what would be right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fpga.count_action.model import Datapath, Module, Ref
from fpga.count_action.ports import Rows, ports_of
from fpga.count_action.simulate import Reference
from fpga.count_action.simulate.port_values import put_series
from fpga.count_action.simulate.signals import Wire, output_wires

_READY = "_ready_o"
_LOOKED_AT = 200
"""Cycles that differ, of which the elements are looked at."""
_REGISTERED = {"count_o": "counts", "overshoot_o": "sticky", "saturated_o": "sticky"}


@dataclass(frozen=True, slots=True)
class Difference:
    """An element that is not what it should be: of which module, which property it is about, and when."""

    module: str
    property: str
    element: str
    cycle: int
    expected: int
    seen: int


def differences(datapath: Datapath, expected: Rows, seen: Rows) -> tuple[Difference, ...]:
    """Return the first difference of every element, those with which two runs begin to differ first.

    A fire follows from registers, and a ready from a fire: what follows in the same cycle is left out of the first.
    """
    found: dict[str, Difference] = {}
    for cycle in np.flatnonzero((expected != seen).any(axis=1))[:_LOOKED_AT].tolist():
        rows = slice(cycle, cycle + 1)
        at_once = [replace(each, cycle=cycle) for each in _at(datapath, expected[rows], seen[rows])]
        for each in at_once if found else _causes(at_once):
            found.setdefault(each.element, each)
    return tuple(found.values())


def causes(found: tuple[Difference, ...]) -> tuple[Difference, ...]:
    """Return those with which two runs begin to differ."""
    return tuple(each for each in found if each.cycle == found[0].cycle)


def _causes(found: list[Difference]) -> list[Difference]:
    for stage in ({"counts", "sticky", "data", "flags"}, {"beats"}, {"fires"}):
        chosen = [each for each in found if each.property in stage and _READY not in each.element]
        if chosen:
            return chosen
    return found


def _at(datapath: Datapath, expected: Rows, seen: Rows) -> Iterator[Difference]:
    """Return what differs in one cycle."""
    for wire in output_wires(datapath):
        (right,), (wrong,) = wire.series(expected), wire.series(seen)
        if right != wrong:
            module = wire.owner or _taker(datapath, wire)
            yield Difference(module, _property(wire), wire.name, 0, right, wrong)


def _property(wire: Wire) -> str:
    """Return the property that an element of an output is about."""
    name = wire.port.name
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name == "fire_o":
        return "fires"
    if name.endswith((_READY, "_valid_o")):
        return "beats"
    return "data" if name.endswith("_data_o") else "flags"


def _taker(datapath: Datapath, wire: Wire) -> str:
    """Return the first module that takes the stream of a ready bit."""
    stream = wire.port.name.removesuffix(_READY)
    takers = (module for module in datapath.modules if _takes(module, stream))
    return next(takers, datapath.modules[0]).name


def _takes(module: Module, stream: str) -> bool:
    refs: Iterable[Ref] = (ref for count in module.counts for ref in count.counted)
    return any(ref.module is None and ref.name == stream for ref in refs)


def replay(datapath: Datapath, series: Mapping[str, tuple[int, ...]]) -> tuple[Difference, ...]:
    """Return the first difference of every element in a counterexample, the earliest first.

    `series` are the values of all ports and of `rst_i`, cycle by cycle; the first cycle is one of reset.
    """
    ports = ports_of(datapath)
    resets = series.get("rst_i", ())
    inputs = np.zeros((len(resets), ports.input_columns), np.uint64)
    seen = np.zeros((len(resets), ports.output_columns), np.uint64)
    for rows, side in ((inputs, ports.inputs), (seen, ports.outputs)):
        for port in side:
            put_series(rows, port, series.get(port.name, (0,) * len(resets)))
    reference = Reference(datapath)
    found: dict[str, Difference] = {}
    for cycle, reset in enumerate(resets):
        expected = reference.run(inputs[cycle : cycle + 1])
        if cycle:
            for each in _at(datapath, expected, seen[cycle : cycle + 1]):
                found.setdefault(each.element, replace(each, cycle=cycle))
        if reset:
            commits = series.get("commit_i", ())[cycle : cycle + 1]
            reference.reset(series["target_shadow_i"][cycle] if any(commits) else None)
    return tuple(found.values())


def target_differences(
    datapath: Datapath, series: Mapping[str, tuple[int, ...]], in_force: tuple[int, ...]
) -> Iterator[Difference]:
    """Return the first difference of each target in force in a counterexample (R8, R12)."""
    shadow, commits, resets = (series.get(name, ()) for name in ("target_shadow_i", "commit_i", "rst_i"))
    low = 0
    for module, target in datapath.targets():
        mask, expected = (1 << target.width) - 1, target.reset
        for cycle, seen in enumerate(value >> low & mask for value in in_force):
            if cycle and seen != expected:
                name = f"target[{module.name}.{target.name}]"
                yield Difference(module.name, "commit", name, cycle, expected, seen)
                break
            if cycle < len(resets) and resets[cycle]:
                expected = target.reset
            if cycle < len(commits) and commits[cycle]:
                expected = shadow[cycle] >> low & mask
        low += target.width


def part_of(element: str) -> str:
    """Return the count, the target or the output that an element belongs to: `count` of `fire_o[m.count]`."""
    name = element[element.index("[") + 1 : -1] if "[" in element else element
    return name.rpartition(".")[2] if "." in name else element.partition("[")[0]
