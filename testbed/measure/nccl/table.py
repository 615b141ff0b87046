"""Results of nccl-tests as one table, the same for text and for JSON.

`make_table_document` returns the format of nccl-tests' `-J` (keys `size`, `time`, `alg_bw`, `bus_bw`, `nwrong`; in
microseconds and 10^9 bytes per second), but with real booleans and additional keys such as `complete`, `failed` and
`problems`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

JSON_VERSION = 3


@dataclass(frozen=True, slots=True)
class IterationSpread:
    """Spread of single iterations (`-I 1`): minimum, maximum, 99th percentile, and coefficient of variation."""

    min_us: float | None
    max_us: float | None
    p99_us: float | None
    variation_percent: float | None


@dataclass(frozen=True, slots=True)
class NcclTiming:
    """One half of a row, out-of-place or in-place. Bandwidths are in GB/s (10^9 bytes per second).

    `wrong` is None if the test did not check the results. Versions before August 2022 print `largest_error` instead.
    `copy_gbytes_per_s` is the copy bandwidth, which versions of 2024 and 2025 may add.
    """

    time_us: float | None
    algbw_gbytes_per_s: float | None
    busbw_gbytes_per_s: float | None
    wrong: int | None = None
    largest_error: float | None = None
    copy_gbytes_per_s: float | None = None
    spread: IterationSpread | None = None


@dataclass(frozen=True, slots=True)
class NcclRow:
    """One row of the table: one size. `redop` and `root` are None if the output has none."""

    size_bytes: int
    count: int
    type: str
    redop: str | None
    root: int | None
    out_of_place: NcclTiming | None
    in_place: NcclTiming | None
    timestamp: str | None = None
    iterations: int | None = None


@dataclass(frozen=True, slots=True)
class NcclDevice:
    """One line of "Using devices": a rank with its process and device."""

    rank: int
    group: int | None
    pid: int
    host: str
    device: int
    bus_id: str
    name: str


@dataclass(frozen=True, slots=True)
class NcclTable:
    """Contents of one output.

    `time_kind` is `cpu` if the times were measured on the processor (`-C 1`). `complete` is True if the output has its
    footer, `failed` if the test or NCCL reported a failure. `problems` are sentences for people. `json_path` is the
    path of the JSON file that the output names, which may differ from the requested path.
    """

    source: Literal["text", "json"]
    rows: tuple[NcclRow, ...]
    version: str | None = None
    nccl_version: str | None = None
    collective: str | None = None
    devices: tuple[NcclDevice, ...] = ()
    time_kind: Literal["gpu", "cpu"] = "gpu"
    average_busbw_gbytes_per_s: float | None = None
    average_ok: bool | None = None
    out_of_bounds: int | None = None
    out_of_bounds_ok: bool | None = None
    complete: bool = True
    failed: bool = False
    problems: tuple[str, ...] = ()
    json_path: str | None = None

    @property
    def ranks(self) -> int | None:
        """Number of ranks, or None if the devices were not listed."""
        return len(self.devices) or None


def format_nccl_version(code: int) -> str:
    """Decode NCCL's version number. Versions before 2.9 use a code with fewer digits.

    >>> format_nccl_version(22907), format_nccl_version(2708)
    ('2.29.7', '2.7.8')
    """
    has_five_digits = code >= 10_000
    major, remainder = divmod(code, 10_000 if has_five_digits else 1_000)
    minor, patch = divmod(remainder, 100)
    return f"{major}.{minor}.{patch}"


def make_table_document(table: NcclTable) -> dict[str, Json]:
    """Return the table as a document in nccl-tests' format, with one entry per size in `results`."""
    return {
        "version": JSON_VERSION,
        "source": table.source,
        "nccl_tests_version": table.version,
        "nccl_version": table.nccl_version,
        "collective": table.collective,
        "ranks": table.ranks,
        "config": {"devices": [_describe_device(device) for device in table.devices]},
        "results": [_describe_row(row, table.time_kind) for row in table.rows],
        "out_of_bounds": {"count": table.out_of_bounds, "okay": table.out_of_bounds_ok},
        "average_bus_bandwidth": {
            "bandwidth": table.average_busbw_gbytes_per_s,
            "okay": "unchecked" if table.average_ok is None else table.average_ok,
        },
        "json_path": table.json_path,
        "complete": table.complete,
        "failed": table.failed,
        "problems": list(table.problems),
    }


def format_table(table: NcclTable) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return column names and rows of text, one row per size with both halves side by side. Unknown cells are ""."""
    columns = ("size (B)", "type", "redop", "root")
    figure_names = ("time (us)", "algbw (GB/s)", "busbw (GB/s)", "wrong")
    names = (*columns, *(f"{half} {name}" for half in ("out-of-place", "in-place") for name in figure_names))
    return names, tuple(_make_text_row(row) for row in table.rows)


def _make_text_row(row: NcclRow) -> tuple[str, ...]:
    leading_cells = (row.size_bytes, row.type, row.redop, row.root)
    cells: list[object] = list(leading_cells)
    for half in (row.out_of_place, row.in_place):
        figures = (
            (half.time_us, half.algbw_gbytes_per_s, half.busbw_gbytes_per_s, half.wrong)
            if half
            else (None,) * 4
        )
        cells.extend(figures)
    return tuple(
        "" if cell is None else f"{cell:g}" if isinstance(cell, float) else str(cell) for cell in cells
    )


def _describe_device(device: NcclDevice) -> dict[str, Json]:
    return {
        "rank": device.rank,
        "group": device.group,
        "pid": device.pid,
        "hostname": device.host,
        "device": device.device,
        "device_hex": device.bus_id,
        "device_info": device.name,
    }


def _describe_row(row: NcclRow, time_kind: Literal["gpu", "cpu"]) -> dict[str, Json]:
    document: dict[str, Json] = {
        "size": row.size_bytes,
        "count": row.count,
        "type": row.type,
        "redop": row.redop,
        "root": row.root,
    }
    for name, half in (("out_of_place", row.out_of_place), ("in_place", row.in_place)):
        document[name] = _describe_timing(half, time_kind) if half else None
        if half and half.spread:
            document[f"{name}_per_iter"] = {
                "min_us": half.spread.min_us,
                "max_us": half.spread.max_us,
                "p99_us": half.spread.p99_us,
                "cv_pct": half.spread.variation_percent,
            }
    document["timestamp"] = row.timestamp
    document["actual_iterations"] = row.iterations
    return document


def _describe_timing(half: NcclTiming, time_kind: Literal["gpu", "cpu"]) -> dict[str, Json]:
    optional_fields: Mapping[str, Json] = {"max_error": half.largest_error, "copy_bw": half.copy_gbytes_per_s}
    return {
        "cpu_time" if time_kind == "cpu" else "time": half.time_us,
        "alg_bw": half.algbw_gbytes_per_s,
        "bus_bw": half.busbw_gbytes_per_s,
        "nwrong": half.wrong,
        **{name: value for name, value in optional_fields.items() if value is not None},
    }
