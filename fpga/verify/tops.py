"""Verification of a delivered top, with AXI4-Lite and stream ports, against the register map, by simulation."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fpga.count_action.model import Datapath
from fpga.hdl.tools import BadOutput, find_tool
from fpga.registers.model import Access, RegisterMap
from fpga.registers.register_list import StreamAccess
from fpga.registers.top import Top
from fpga.verify.accesses import SEED_COUNT, ReadAccess, WriteAccess, draw_accesses
from fpga.verify.bus_bench import (
    list_datapath_log_ports,
    list_top_log_pins,
    write_bench,
    write_memory_files,
    write_random_datapath,
)
from fpga.verify.bus_record import (
    Breach,
    Columns,
    Transaction,
    find_answer_count_breach,
    find_answered_reads,
    find_answered_writes,
    find_errors,
    find_handshakes,
    find_late_answers,
    find_unstable_pins,
)
from fpga.verify.register_model import RegisterWords
from fpga.verify.register_rules import (
    BenchRecord,
    ReadRules,
    find_control_breaches,
    find_level_breaches,
    find_memory_breaches,
    find_push_breaches,
)
from fpga.verify.stream_rules import Stream, find_stream_breaches, find_stream_waits, list_stream_ports

TOP_PROPERTIES = ("protocol", "writes", "control", "reads", "streams")
"""Properties of a top: rules of the bus, effects of writes, effects of CONTROL, answers of reads, and beats."""
_ACCESS_CYCLES = 16
_ALL_BYTES = 15


@dataclass(frozen=True, slots=True)
class TopResult:
    """Result for a top: the first breach of each property that has one, and the numbers of accesses and beats."""

    top: str
    breaches: dict[str, Breach]
    access_count: int
    beat_count: int
    partial_write_counts: dict[str, int]
    """For each writable register, the number of partial writes to its least tested word."""


def run_top(
    datapath: Datapath, stream_access: StreamAccess, sources: dict[str, str], seed: int = 0
) -> TopResult:
    """Simulate a top made of `sources`, which lack the file of the datapath. Raise HdlError."""
    register_map = Top(datapath, stream_access).register_map
    streams = list_stream_ports(datapath) if stream_access is StreamAccess.AXI_STREAM else ()
    writes, reads = draw_accesses(register_map, seed)
    wait_cycles = sum(write.address_wait_cycles for write in writes)
    cycle_count = 200 + wait_cycles + _ACCESS_CYCLES * max(len(writes), len(reads))
    files = {
        **sources,
        "random_datapath.sv": write_random_datapath(datapath, seed),
        "bench.sv": write_bench(
            register_map, [port.pins for port in streams], writes, reads, cycle_count, seed
        ),
    }
    with tempfile.TemporaryDirectory(prefix="top-") as folder_name:
        folder = Path(folder_name)
        for file, text in {**files, **write_memory_files(writes, reads)}.items():
            (folder / Path(file).name).write_text(text, encoding="utf-8")
        compile_arguments = ["-g2012", "-s", "bench", "-o", "bench.vvp", *(Path(file).name for file in files)]
        find_tool("iverilog").run(compile_arguments, folder=folder)
        find_tool("vvp").run(["-n", "bench.vvp"], folder=folder)
        top_log = _read_columns(
            folder / "top.log", list_top_log_pins(register_map, [port.pins for port in streams])
        )
        datapath_columns = ["rst_i", *(port.name for port in list_datapath_log_ports(datapath))]
        core_log = _read_columns(folder / "datapath.log", datapath_columns)
    answered_writes = find_answered_writes(top_log, writes)
    record = BenchRecord(
        register_map, top_log, core_log, RegisterWords.from_writes(register_map, answered_writes)
    )
    breaches: dict[str, Breach] = {}
    for property_name, breach in _find_breaches(
        record, streams, len(writes), len(reads), find_answered_reads(top_log, reads)
    ):
        breaches.setdefault(property_name, breach)
    beat_count = sum(
        len(find_handshakes(top_log, f"{stream.pins.prefix}_tvalid", f"{stream.pins.prefix}_tready"))
        for stream in streams
    )
    return TopResult(
        register_map.name,
        breaches,
        len(answered_writes) + len(reads),
        beat_count,
        _count_partial_writes(register_map, answered_writes),
    )


def run_seeds(
    datapath: Datapath,
    stream_access: StreamAccess,
    sources: dict[str, str],
    seeds: Iterable[int] = range(SEED_COUNT),
) -> TopResult:
    """Simulate a top with several seeds, up to the first that finds a breach. Raise HdlError."""
    runs = []
    for seed in seeds:
        runs.append(run_top(datapath, stream_access, sources, seed))
        if runs[-1].breaches:
            break
    partial_write_counts = {
        name: min(run.partial_write_counts[name] for run in runs) for name in runs[0].partial_write_counts
    }
    return TopResult(
        runs[0].top,
        runs[-1].breaches,
        sum(run.access_count for run in runs),
        sum(run.beat_count for run in runs),
        partial_write_counts,
    )


def _count_partial_writes(
    register_map: RegisterMap, answered_writes: list[tuple[WriteAccess, Transaction]]
) -> dict[str, int]:
    counts_by_address = Counter(write.address for write, _ in answered_writes if write.strobes != _ALL_BYTES)
    return {
        register.name: min(
            counts_by_address[register.get_offset(word)] for word in range(register.word_count)
        )
        for register in register_map
        if register.access not in {Access.CONSTANT, Access.READ}
    }


def _find_breaches(
    record: BenchRecord,
    streams: tuple[Stream, ...],
    write_count: int,
    read_count: int,
    answered_reads: list[tuple[ReadAccess, Transaction, int]],
) -> Iterator[tuple[str, Breach]]:
    top_log = record.top_log
    rules = ReadRules(record)
    protocol_breaches = [
        *find_late_answers(top_log),
        *find_answer_count_breach(top_log, write_count, "b"),
        *find_answer_count_breach(top_log, read_count, "r"),
        *find_unstable_pins(top_log, "s_axi_bvalid", "s_axi_bready", ["s_axi_bresp"]),
        *find_unstable_pins(top_log, "s_axi_rvalid", "s_axi_rready", ["s_axi_rdata", "s_axi_rresp"]),
        *find_errors(top_log, "b"),
        *find_errors(top_log, "r"),
    ]
    for stream in streams:
        prefix = stream.pins.prefix
        payload = [pin.name for pin in stream.pins.payload]
        protocol_breaches += find_stream_waits(stream, top_log, record.core_log)
        protocol_breaches += find_unstable_pins(top_log, f"{prefix}_tvalid", f"{prefix}_tready", payload)
        yield from (("streams", breach) for breach in find_stream_breaches(stream, top_log, record.core_log))
    yield from (("protocol", breach) for breach in protocol_breaches)
    yield from (
        ("writes", breach) for breach in (*find_level_breaches(record), *find_memory_breaches(record))
    )
    yield from (("control", breach) for breach in find_control_breaches(record))
    yield from (("reads", breach) for breach in rules.find_breaches(answered_reads))
    yield from (("streams", breach) for breach in (*find_push_breaches(record), *rules.find_sink_breaches()))


def _read_columns(path: Path, names: list[str]) -> Columns:
    """Return the columns of a log. Raise BadOutput for an X or Z after the reset."""
    lines = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
    columns: dict[str, list[int]] = {name: [] for name in names}
    for cycle, line in enumerate(lines):
        values = [_UNKNOWN_DIGITS.sub("0", value) for value in line] if cycle <= _RESET_CYCLES else line
        for name, value in zip(names, values, strict=True):
            try:
                columns[name].append(int(value, 16))
            except ValueError:
                message = f"X or Z in cycle {cycle} at {name}. Reset must set every register."
                raise BadOutput(message, name, cycle) from None
    return columns


_RESET_CYCLES = 6
"""Last cycle in which X and Z are allowed: the end of the bus reset, and a margin."""
_UNKNOWN_DIGITS = re.compile("[xzXZ]")
