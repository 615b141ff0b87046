"""Conversion between values of ports (Python integers) and rows of a run (64-bit words)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fpga.count_action.ports import WORD_BITS, Port, Ports, Rows

_WORD_MASK = (1 << WORD_BITS) - 1


def check_inputs(ports: Ports, rows: Rows) -> Rows:
    """Return the rows as a contiguous array. Raise ValueError unless they are `uint64[cycles, input_columns]`."""
    if rows.ndim != 2 or rows.shape[1] != ports.input_column_count or rows.dtype != np.uint64:
        raise ValueError(
            f"inputs are {rows.dtype}{list(rows.shape)}, not uint64[cycles, {ports.input_column_count}] in the"
            " order of make_ports(datapath).inputs."
        )
    return np.ascontiguousarray(rows)


def unpack_row(ports: Iterable[Port], row: Sequence[int]) -> dict[str, int]:
    """Return the values of the ports in one row, by name."""
    return {port.name: _read_value(port, row) for port in ports}


def _read_value(port: Port, row: Sequence[int]) -> int:
    """Return the value of a port in one row; bits above its width are masked."""
    value = row[port.column]
    for word_index in range(1, port.word_count):
        value |= row[port.column + word_index] << WORD_BITS * word_index
    return value & (1 << port.width) - 1


def pack_row(ports: Sequence[Port], values: Mapping[str, int]) -> list[int]:
    """Return the row with these values of the ports; other ports are 0."""
    row = []
    for port in ports:
        value = values.get(port.name, 0)
        row += [value >> WORD_BITS * word_index & _WORD_MASK for word_index in range(port.word_count)]
    return row


def read_series(port: Port, rows: Rows) -> list[int]:
    """Return the value of a port in every cycle."""
    columns = rows[:, port.column : port.column + port.word_count].tolist()
    mask = (1 << port.width) - 1
    return [sum(word << WORD_BITS * index for index, word in enumerate(row)) & mask for row in columns]


def write_series(rows: Rows, port: Port, values: Sequence[int]) -> None:
    """Set a port to `values` from the first cycle on. Raise ValueError if there are more values than cycles."""
    if len(values) > len(rows):
        raise ValueError(f"{port.name}: {len(values)} values for {len(rows)} cycles.")
    for word_index in range(port.word_count):
        words = [value >> WORD_BITS * word_index & _WORD_MASK for value in values]
        rows[: len(values), port.column + word_index] = np.array(words, np.uint64)
