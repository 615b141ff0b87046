"""Replay of a counterexample: the elements of ports whose values differ from the reference simulator.

The reference simulator runs the stimulus of the counterexample. The first cycle in which an element of a port differs
shows the failure, with the expected value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fpga.count_action.actions.memory import list_memories
from fpga.count_action.model import Datapath, Module, Ref
from fpga.count_action.ports import Rows, make_ports
from fpga.count_action.simulate import ReferenceSimulator
from fpga.count_action.simulate.port_values import write_series
from fpga.count_action.simulate.signals import Wire, list_output_wires

_READY_SUFFIX = "_ready_o"
_MAX_EXAMINED_CYCLES = 200
"""Largest number of differing cycles that are examined."""
_REGISTERED_PORTS = {"count_o": "counts", "overshoot_o": "sticky", "saturated_o": "sticky"}


@dataclass(frozen=True, slots=True)
class Difference:
    """An element of a port with a wrong value: its module, the property that it violates, and the cycle."""

    module: str
    property: str
    element: str
    cycle: int
    expected: int
    actual: int


def find_differences(datapath: Datapath, expected_rows: Rows, actual_rows: Rows) -> tuple[Difference, ...]:
    """Return the first difference of every element, causes first.

    In the first cycle with a difference only causes count: a wrong register causes a wrong fire, which causes a wrong
    ready bit.
    """
    first_differences: dict[str, Difference] = {}
    for cycle in np.flatnonzero((expected_rows != actual_rows).any(axis=1))[:_MAX_EXAMINED_CYCLES].tolist():
        cycle_slice = slice(cycle, cycle + 1)
        cycle_differences = [
            replace(difference, cycle=cycle)
            for difference in _compare_cycle(datapath, expected_rows[cycle_slice], actual_rows[cycle_slice])
        ]
        for difference in cycle_differences if first_differences else _select_root_causes(cycle_differences):
            first_differences.setdefault(difference.element, difference)
    return tuple(first_differences.values())


def select_causes(differences: tuple[Difference, ...]) -> tuple[Difference, ...]:
    """Return the differences in the cycle of the first difference."""
    return tuple(difference for difference in differences if difference.cycle == differences[0].cycle)


def _select_root_causes(candidates: list[Difference]) -> list[Difference]:
    for properties in ({"counts", "sticky", "data", "flags"}, {"beats"}, {"fires"}):
        causes = [
            candidate
            for candidate in candidates
            if candidate.property in properties and _READY_SUFFIX not in candidate.element
        ]
        if causes:
            return causes
    return candidates


def _compare_cycle(datapath: Datapath, expected_rows: Rows, actual_rows: Rows) -> Iterator[Difference]:
    """Yield the differences in rows of one cycle; their `cycle` is 0."""
    for wire in list_output_wires(datapath):
        (expected_value,), (actual_value,) = wire.read_series(expected_rows), wire.read_series(actual_rows)
        if expected_value != actual_value:
            module = wire.module_name or _find_consumer(datapath, wire)
            yield Difference(module, _find_property(wire), wire.name, 0, expected_value, actual_value)


def _find_property(wire: Wire) -> str:
    """Return the name of the property that a wrong value of an output violates."""
    name = wire.port.name
    if name in _REGISTERED_PORTS:
        return _REGISTERED_PORTS[name]
    if name == "fire_o":
        return "fires"
    if name.endswith((_READY_SUFFIX, "_valid_o")):
        return "beats"
    return "data" if name.endswith("_data_o") else "flags"


def _find_consumer(datapath: Datapath, wire: Wire) -> str:
    """Return the first module that reads the stream of a ready bit, or the first module if none does."""
    stream = wire.port.name.removesuffix(_READY_SUFFIX)
    consumers = (module for module in datapath.modules if _consumes_stream(module, stream))
    return next(consumers, datapath.modules[0]).name


def _consumes_stream(module: Module, stream: str) -> bool:
    refs: Iterable[Ref] = (ref for count in module.counts for ref in count.counted)
    return any(ref.module is None and ref.name == stream for ref in refs)


def find_element_differences(
    datapath: Datapath, series: Mapping[str, tuple[int, ...]]
) -> tuple[Difference, ...]:
    """Return the first difference of every element in a counterexample, in the order of cycles.

    `series` are the values of all ports and of `rst_i` in every cycle; the first is a cycle of reset.
    """
    ports = make_ports(datapath)
    resets = series.get("rst_i", ())
    inputs = np.zeros((len(resets), ports.input_column_count), np.uint64)
    actual_rows = np.zeros((len(resets), ports.output_column_count), np.uint64)
    for rows, ports_of_side in ((inputs, ports.inputs), (actual_rows, ports.outputs)):
        for port in ports_of_side:
            write_series(rows, port, series.get(port.name, (0,) * len(resets)))
    reference = ReferenceSimulator(datapath)
    first_differences: dict[str, Difference] = {}
    for cycle, reset in enumerate(resets):
        previous_state = reference.state
        expected_rows = reference.run(inputs[cycle : cycle + 1])
        if cycle:
            for difference in _compare_cycle(datapath, expected_rows, actual_rows[cycle : cycle + 1]):
                first_differences.setdefault(difference.element, replace(difference, cycle=cycle))
        if reset:
            reference.state = previous_state  # a reset stores nothing, but a driver may load memories (R25)
            for module, memory in list_memories(datapath):
                load, address, word = (series.get(f"{ref.name}_i", (0,) * len(resets)) for ref in memory.refs)
                if load[cycle]:
                    reference.load_word(module.name, memory.output, address[cycle], word[cycle])
            commits = series.get("commit_i", ())[cycle : cycle + 1]
            reference.reset(series["target_shadow_i"][cycle] if any(commits) else None)
    return tuple(first_differences.values())


def find_target_differences(
    datapath: Datapath, series: Mapping[str, tuple[int, ...]], target_values: tuple[int, ...]
) -> Iterator[Difference]:
    """Yield, for each target, the first cycle in which its value in force is wrong in a counterexample (R8, R12)."""
    shadow, commits, resets = (series.get(name, ()) for name in ("target_shadow_i", "commit_i", "rst_i"))
    low_bit = 0
    for module, target in datapath.list_targets():
        mask, expected = (1 << target.width) - 1, target.reset
        for cycle, actual in enumerate(value >> low_bit & mask for value in target_values):
            if cycle and actual != expected:
                name = f"target[{module.name}.{target.name}]"
                yield Difference(module.name, "commit", name, cycle, expected, actual)
                break
            # A reset or a commit acts from the next cycle on.
            if cycle < len(resets) and resets[cycle]:
                expected = target.reset
            if cycle < len(commits) and commits[cycle]:
                expected = shadow[cycle] >> low_bit & mask
        low_bit += target.width


def get_part_name(element: str) -> str:
    """Return the count, the target or the output of an element, such as `count` for `fire_o[m.count]`."""
    name = element[element.index("[") + 1 : -1] if "[" in element else element
    return name.rpartition(".")[2] if "." in name else element.partition("[")[0]
