"""Comparison of two simulations of one datapath, and the coverage of a run.

Equal runs prove little if few interesting events happened, so `measure_coverage` counts these events.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fpga.count_action.model import Datapath, Module
from fpga.count_action.ports import WORD_BITS, Port, Rows, make_ports

_HALF_WINDOW_CYCLES = 4
"""Half the length of the table. The second half begins with the first mismatch."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first cycle in which two runs differ, and the ports that differ in it."""

    cycle: int
    ports: tuple[str, ...]
    cycles: int
    """Number of cycles in which the runs differ."""


def read_values(rows: Rows, port: Port) -> list[int]:
    """Return the value of a port in every cycle."""
    words = rows[:, port.column : port.column + port.word_count].tolist()
    return [sum(word << (WORD_BITS * index) for index, word in enumerate(row)) for row in words]


def unpack_bits(rows: Rows, port: Port) -> NDArray[np.bool_]:
    """Return the bits of a port: cycles × width."""
    words = np.ascontiguousarray(rows[:, port.column : port.column + port.word_count]).astype("<u8")
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
    return bits[:, : port.width].astype(np.bool_)


def find_first_mismatch(datapath: Datapath, expected_rows: Rows, actual_rows: Rows) -> Mismatch | None:
    """Return the first mismatch of two runs, or None if they are equal.

    Raise ValueError for runs of unequal shape.
    """
    if expected_rows.shape != actual_rows.shape:
        raise ValueError(f"runs of shapes {expected_rows.shape} and {actual_rows.shape} cannot be compared")
    is_different = expected_rows != actual_rows
    cycles = np.flatnonzero(is_different.any(axis=1))
    if not cycles.size:
        return None
    columns = set(np.flatnonzero(is_different[cycles[0]]).tolist())
    ports = tuple(
        port.name
        for port in make_ports(datapath).outputs
        if columns & set(range(port.column, port.column + port.word_count))
    )
    return Mismatch(int(cycles[0]), ports, len(cycles))


def tabulate_window(
    datapath: Datapath, mismatch: Mismatch, inputs: Rows, expected_rows: Rows, actual_rows: Rows
) -> Iterator[str]:
    """Yield a table of eight cycles around a mismatch: inputs that are not 0 (except data), and differing ports."""
    first_cycle = max(0, mismatch.cycle - _HALF_WINDOW_CYCLES)
    end_cycle = min(len(inputs), first_cycle + 2 * _HALF_WINDOW_CYCLES)
    ports = make_ports(datapath)
    table = [("cycle", [str(cycle) for cycle in range(first_cycle, end_cycle)])]
    for port in ports.inputs:
        values = read_values(inputs[first_cycle:end_cycle], port)
        if any(values) and not port.name.endswith(("_data_i", "target_shadow_i")):
            table.append((port.name, [f"{value:x}" for value in values]))
    for name in mismatch.ports:
        for label, rows in (("expected", expected_rows), ("RTL", actual_rows)):
            values = read_values(rows[first_cycle:end_cycle], ports.find_output(name))
            table.append((f"{name} ({label})", [f"{value:x}" for value in values]))
    name_width = max(len(name) for name, _ in table)
    cell_width = max(len(cell) for _, row in table for cell in row)
    for name, row in table:
        yield f"{name:<{name_width}}  {'  '.join(f'{cell:>{cell_width}}' for cell in row)}"


@dataclass(frozen=True, slots=True)
class Coverage:
    """Numbers of events in a run."""

    cycles: int
    fires: int
    silent: tuple[str, ...]
    """Modules without any fire."""
    stalls_at_fire: int
    """Fires whose beat waited: it was still valid two cycles later, and no other fire came in between."""
    commits_while_counting: int
    """Number of counts above 0 whose target changed, added up over all commits."""
    overshoots: int
    saturations: int
    several: int
    """Cycles in which several counts of a module fired."""
    chained: int
    """Fires at the end of a chain of three modules, each one cycle after the module that it counts."""


def measure_coverage(datapath: Datapath, inputs: Rows, outputs: Rows) -> Coverage:
    """Return the coverage of a run of a datapath."""
    ports = make_ports(datapath)
    fires = unpack_bits(outputs, ports.find_output("fire_o"))
    owners = [module.name for module, _ in datapath.list_counts()]
    fires_by_module = {
        module.name: fires[:, [index for index, owner in enumerate(owners) if owner == module.name]]
        for module in datapath.modules
    }
    return Coverage(
        cycles=len(inputs),
        fires=int(fires.sum()),
        silent=tuple(name for name, module_fires in fires_by_module.items() if not module_fires.any()),
        stalls_at_fire=_count_stalls_at_fire(datapath, outputs, fires),
        commits_while_counting=_count_commits_while_counting(datapath, inputs, outputs),
        overshoots=_count_rises(unpack_bits(outputs, ports.find_output("overshoot_o"))),
        saturations=_count_rises(unpack_bits(outputs, ports.find_output("saturated_o"))),
        several=int(sum((module_fires.sum(axis=1) > 1).sum() for module_fires in fires_by_module.values())),
        chained=_count_chains(datapath, fires_by_module),
    )


def _count_rises(bits: NDArray[np.bool_]) -> int:
    return int((bits[1:] & ~bits[:-1]).sum())


def _count_stalls_at_fire(datapath: Datapath, outputs: Rows, fires: NDArray[np.bool_]) -> int:
    """Return the number of fires whose beat waited: it was still valid two cycles later, without a fire in between."""
    ports = make_ports(datapath)
    count_indices = {
        (module.name, count.name): index for index, (module, count) in enumerate(datapath.list_counts())
    }
    stalls = 0
    for module in datapath.modules:
        for action in module.list_streams():
            valid_bits = unpack_bits(outputs, ports.find_output(f"{module.name}_{action.output}_valid_o"))[
                :, 0
            ]
            count_fires = fires[:, count_indices[module.name, action.on]]
            stalls += int((count_fires[:-2] & ~count_fires[1:-1] & valid_bits[2:]).sum())
    return stalls


def _count_commits_while_counting(datapath: Datapath, inputs: Rows, outputs: Rows) -> int:
    """Return the number of counts above 0 whose target changes, added up over all commits of a run from reset."""
    ports = make_ports(datapath)
    commits = np.flatnonzero(unpack_bits(inputs, ports.find_input("commit_i"))[:, 0])
    shadow = unpack_bits(inputs, ports.find_input("target_shadow_i"))[commits]
    counts = unpack_bits(outputs, ports.find_output("count_o"))[commits]
    new_targets, low_bit = {}, 0
    for module, target in datapath.list_targets():
        new_targets[module.name, target.name] = (shadow[:, low_bit : low_bit + target.width], target.reset)
        low_bit += target.width
    total, low_bit = 0, 0
    for module, count in datapath.list_counts():
        is_above_zero = counts[:, low_bit : low_bit + count.width].any(axis=1)
        low_bit += count.width
        total += int((is_above_zero & _find_changes(*new_targets[module.name, count.target])).sum())
    return total


def _find_changes(committed_targets: NDArray[np.bool_], reset: int) -> NDArray[np.bool_]:
    """Return, for each commit, whether it changes the target; the first is compared with `reset`."""
    reset_target = np.array([[reset >> bit & 1 for bit in range(committed_targets.shape[1])]], dtype=np.bool_)
    is_different: NDArray[np.bool_] = committed_targets != np.concatenate(
        [reset_target, committed_targets[:-1]]
    )
    is_changed: NDArray[np.bool_] = np.logical_or.reduce(is_different, axis=1)
    return is_changed


def _count_chains(datapath: Datapath, fires_by_module: dict[str, NDArray[np.bool_]]) -> int:
    """Return the number of fires at the end of a chain of three modules."""
    sources = {module.name: _find_sources(module) for module in datapath.modules}
    has_fire_by_module = {name: np.logical_or.reduce(bits, axis=1) for name, bits in fires_by_module.items()}
    return sum(
        int(
            np.count_nonzero(
                has_fire_by_module[first_module][:-2]
                & has_fire_by_module[second_module][1:-1]
                & has_fire_by_module[third_module][2:]
            )
        )
        for third_module, second_modules in sources.items()
        for second_module in second_modules
        for first_module in sources[second_module] - {third_module}
    )


def _find_sources(module: Module) -> set[str]:
    """Return the other modules whose outputs a module counts."""
    refs = (ref.module for count in module.counts for ref in count.counted)
    return {name for name in refs if name is not None} - {module.name}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of the comparison of two runs of one stimulus."""

    simulator: str
    coverage: Coverage
    mismatch: Mismatch | None
    window: tuple[str, ...]
    """Lines of a table of the eight cycles around the first mismatch; empty if there is none."""


def compare(
    datapath: Datapath, simulator: str, inputs: Rows, expected_rows: Rows, actual_rows: Rows
) -> Comparison:
    """Return the comparison of a simulator's run with the expected run."""
    mismatch = find_first_mismatch(datapath, expected_rows, actual_rows)
    lines = tuple(tabulate_window(datapath, mismatch, inputs, expected_rows, actual_rows)) if mismatch else ()
    return Comparison(simulator, measure_coverage(datapath, inputs, expected_rows), mismatch, lines)
