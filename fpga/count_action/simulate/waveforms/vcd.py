"""Value change dump (VCD) of a run (IEEE 1364-2005, clause 18), which every waveform viewer reads.

A cycle takes 10 ns and begins with a rising clock edge; the outputs of a cycle are the values after that edge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fpga.count_action.model import Datapath
from fpga.count_action.ports import Rows
from fpga.count_action.simulate.signals import Wire, find_changes, list_input_wires, list_output_wires

_PERIOD_NS = 10
_FIRST_CODE, _LAST_CODE = 33, 126
"""Codes of the first and last printable character for identifiers."""


def format_vcd(datapath: Datapath, inputs: Rows, outputs: Rows) -> str:
    """Return the text of a VCD file: a scope for every module, with the clock and external inputs in the top scope."""
    wires = [(wire, inputs) for wire in list_input_wires(datapath)]
    wires += [(wire, outputs) for wire in list_output_wires(datapath)]
    codes = [_make_code(index + 1) for index in range(len(wires))]
    header = _write_header(datapath, [wire for wire, _ in wires], codes)
    changes: dict[int, list[str]] = {}
    for cycle in range(len(inputs)):
        changes[2 * cycle] = [f"1{_make_code(0)}"]
        changes[2 * cycle + 1] = [f"0{_make_code(0)}"]
    for (wire, rows), code in zip(wires, codes, strict=True):
        for cycle, value in _list_changes(wire, rows):
            changes[2 * cycle].append(_format_change(wire, value, code))
    half_period_ns = _PERIOD_NS // 2
    body = (
        f"#{half_period_ns * half_period_index}\n" + "\n".join(lines)
        for half_period_index, lines in changes.items()
    )
    return "\n".join([*header, *body, f"#{_PERIOD_NS * len(inputs)}"]) + "\n"


def _write_header(datapath: Datapath, wires: list[Wire], codes: list[str]) -> Iterator[str]:
    yield "$timescale 1 ns $end"
    yield f"$scope module {datapath.name} $end"
    yield f"$var wire 1 {_make_code(0)} clk $end"
    module_names = dict.fromkeys(
        wire.module_name for wire in sorted(wires, key=lambda wire: wire.module_name != "")
    )
    for module_name in module_names:
        if module_name:
            yield f"$scope module {module_name} $end"
        for wire, code in zip(wires, codes, strict=True):
            if wire.module_name == module_name:
                yield f"$var wire {wire.width} {code} {_make_plain_name(wire)}{_format_range(wire)} $end"
        if module_name:
            yield "$upscope $end"
    yield "$upscope $end"
    yield "$enddefinitions $end"


def _make_plain_name(wire: Wire) -> str:
    """Return the name of a wire in its scope, with letters, digits and underscores only."""
    port, _, label = wire.name.partition("[")
    label = label.rstrip("]")
    if wire.module_name and label.startswith(f"{wire.module_name}."):
        return f"{label.removeprefix(wire.module_name + '.')}_{port[:-2]}"
    name = port.removeprefix(f"{wire.module_name}_") if wire.module_name else port
    return re.sub(r"\W", "_", f"{name}_{label}" if label else name)


def _format_range(wire: Wire) -> str:
    return f" [{wire.width - 1}:0]" if wire.width > 1 else ""


def _make_code(index: int) -> str:
    """Return the identifier of the wire at a position, as short as possible.

    >>> _make_code(0), _make_code(94)
    ('!', '!"')
    """
    base, code = _LAST_CODE - _FIRST_CODE + 1, ""
    while True:
        index, digit = divmod(index, base)
        code += chr(_FIRST_CODE + digit)
        if not index:
            return code


def _list_changes(wire: Wire, rows: Rows) -> Iterator[tuple[int, int]]:
    values = wire.read_series(rows)
    if values:
        yield 0, values[0]
    yield from ((cycle + 1, values[cycle + 1]) for cycle in find_changes(wire, rows).nonzero()[0].tolist())


def _format_change(wire: Wire, value: int, code: str) -> str:
    bits = value & (1 << wire.width) - 1
    return f"{bits}{code}" if wire.width == 1 else f"b{bits:b} {code}"
