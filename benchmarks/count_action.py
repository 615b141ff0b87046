"""Speed of datapath simulations: the generated simulator, the generated RTL under Verilator, and cocotb.

The four designs of `examples/count_action` are the chain of 16 lanes (with stalls, occasional commits of its shadow
bank and occasional clears of its status), the streamer, the averager, and two channels. The first two simulators get
the same buffers in turns, and their outputs must be equal. Memory for outputs is allocated in advance, because that
takes longer than the simulation. cocotb drives Verilator (only the chain) with a stimulus from Python in every cycle.
Its outputs are read and compared only in the first cycles, so that reading does not slow it down. One thread; the
speeds of the first two are by processor time, which other load affects little.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fpga.count_action import load
from fpga.count_action.model import (
    Action,
    ActionKind,
    Count,
    CountKind,
    Datapath,
    Module,
    Ref,
    Signal,
    SignalKind,
    Target,
)
from fpga.count_action.ports import Rows, make_ports
from fpga.count_action.simulate import Simulator, compile_datapath
from fpga.hdl import find_tool, make_design, verilator
from fpga.hdl.stimulus import generate_stimulus

EXAMPLES = Path(__file__).parents[1] / "examples" / "count_action"
CHAIN = EXAMPLES / "chain16.ca"
OTHERS = ("streamer", "averager", "two_channels")
LANES = 16
PIECE = 20_000
PIECES = 50
COCOTB_CYCLES = 20_000
ASKED_OF_VERILATOR = 4.0
ASKED_OF_COCOTB = 200.0


def chain16() -> Datapath:
    """Return the chain, built in Python; it equals the one in `CHAIN`."""
    products = tuple(Ref("product", index=lane) for lane in range(LANES))
    lanes = tuple(Ref("out", "streamer", lane=lane) for lane in range(LANES))
    streamer = Module(
        "streamer",
        (Count("count", CountKind.LEVEL, "lanes", products, width=8),),
        (Target("lanes", LANES, 8),),
        (Action(ActionKind.STREAM, "count", "out", products, 16, signed=True),),
    )
    dot = Module(
        "dot",
        (Count("count", CountKind.ACCUMULATE, "beats", (Ref("out", "streamer"),)),),
        (Target("beats", 49),),
        (
            Action(ActionKind.EMIT, "count", "total", lanes, 32, signed=True),
            Action(ActionKind.PULSE, "count", "done"),
        ),
    )
    layer = Module(
        "layer",
        (Count("count", CountKind.ACCUMULATE, "outputs", (Ref("done", "dot"),)),),
        (Target("outputs", 10),),
        (
            Action(ActionKind.PULSE, "count", "done"),
            Action(ActionKind.ADVANCE, "count", "number", width=2, modulo=3),
        ),
    )
    product = Signal("product", SignalKind.STREAM, LANES, width=16, signed=True)
    return Datapath("chain16", (product,), (streamer, dot, layer))


def stimulus(datapath: Datapath, cycles: int, seed: int = 0) -> Rows:
    """Return a random stimulus: all lanes are valid in 90 % of the cycles, and results are accepted in 90 %."""
    generator = np.random.default_rng(seed)
    ports = make_ports(datapath)
    rows = generator.integers(0, 2**64, (cycles, ports.input_column_count), dtype=np.uint64)
    some = generator.integers(0, 2**LANES, cycles)
    rows[:, ports.find_input("product_valid_i").column] = np.where(
        generator.random(cycles) < 0.9, 2**LANES - 1, some
    )
    rows[:, ports.find_input("dot_total_ready_i").column] = generator.random(cycles) < 0.9
    beats = generator.choice([3, 8, 49], cycles)
    rows[:, ports.find_input("target_shadow_i").column] = LANES | beats << 8 | 10 << 24
    for name in ("commit_i", "clear_status_i"):
        rows[:, ports.find_input(name).column] = generator.random(cycles) < 0.001
    return rows


def timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def measure_others(folder: Path) -> dict[str, list[list[float]]]:
    """Measure the speeds of the designs other than the chain."""
    speeds = {}
    for name in OTHERS:
        datapath = load(EXAMPLES / f"{name}.ca").datapath
        library = verilator.build(datapath, folder)
        runs = runs_into_buffers(compile_datapath(datapath), library)
        speeds[name] = measure_in_turns(generate_stimulus(datapath, PIECE, 1), *runs)
    return speeds


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    datapath = load(CHAIN).datapath
    if datapath != chain16():
        raise SystemExit("the text and the builder differ")
    rows = stimulus(datapath, PIECE)
    compile_datapath(Datapath("warm", datapath.inputs, datapath.modules[:1]))  # warms up numba
    compile_s = timed(lambda: compile_datapath(datapath))
    simulator = compile_datapath(datapath)
    with tempfile.TemporaryDirectory() as folder:
        build_s = timed(lambda: verilator.build(datapath, Path(folder)))
        library = verilator.build(datapath, Path(folder))
        speeds = measure_in_turns(rows, *runs_into_buffers(simulator, library))
        simulator.reset()
        from_python = cocotb_speed(
            datapath, rows[:COCOTB_CYCLES], simulator.run(rows[:COCOTB_CYCLES]), Path(folder)
        )
        every = {"chain16": speeds} | measure_others(Path(folder))
    print(json.dumps(document(speeds, from_python, compile_s, build_s) | designs(every)))


def runs_into_buffers(
    simulator: Simulator, library: verilator.Simulator
) -> tuple[Callable[[Rows], Rows], ...]:
    """Return functions that run both simulators, each into its own preallocated buffer."""
    buffers = [np.zeros((PIECE, simulator.ports.output_column_count), np.uint64) for _ in range(2)]

    def by_library(rows: Rows) -> Rows:
        data = (rows.ctypes.data, buffers[1].ctypes.data)
        library._run_rows(library._pointer, 0, len(rows), *data)  # noqa: SLF001  # `run` allocates memory
        return buffers[1]

    return (lambda rows: simulator.run(rows, buffers[0])), by_library


def measure_in_turns(rows: Rows, *runs: Callable[[Rows], Rows]) -> list[list[float]]:
    """Return the cycles per second of every piece for each simulator. Exits if their outputs differ."""
    speeds: list[list[float]] = [[] for _ in runs]
    for _ in range(PIECES):
        outputs = []
        for run, run_speeds in zip(runs, speeds, strict=True):
            begin = time.process_time()
            outputs.append(run(rows))
            run_speeds.append(len(rows) / (time.process_time() - begin))
        if not all(np.array_equal(outputs[0], other) for other in outputs[1:]):
            raise SystemExit("the outputs differ")
    return speeds


def cocotb_speed(datapath: Datapath, rows: Rows, expected: Rows, folder: Path) -> float:
    """Return the cycles per second of Verilator with a stimulus from Python; outputs must be `expected`."""
    from cocotb_tools.runner import get_runner

    tool = find_tool("verilator")
    os.environ |= {**tool.environment, "PATH": f"{tool.path.parent}:{os.environ['PATH']}"}
    np.savez(folder / "run.npz", rows=rows, expected=expected)
    runner = get_runner("verilator")
    runner.build(
        sources=make_design(datapath).write(folder),
        hdl_toplevel=datapath.name,
        build_dir=folder / "cocotb",
        build_args=["-O3", "-Wno-fatal", "-MAKEFLAGS", "CFG_CXXFLAGS_PCH_I=-include"],
        timescale=("1ns", "1ps"),
        log_file=folder / "build.log",
    )
    runner.test(
        hdl_toplevel=datapath.name,
        test_module="count_action_cocotb",
        build_dir=folder / "cocotb",
        test_dir=Path(__file__).parent,
        results_xml=str(folder / "results.xml"),
        extra_env={"RUN_FOLDER": str(folder), "COCOTB_LOG_LEVEL": "WARNING"},
        log_file=folder / "test.log",
    )
    return float((folder / "cycles_per_s").read_text())


def document(
    speeds: list[list[float]], from_python: float, compile_s: float, build_s: float
) -> dict[str, object]:
    simulator, library = (statistics.median(each) for each in speeds)
    ratios = [ours / theirs for ours, theirs in zip(*speeds, strict=True)]
    return {
        "benchmark": "count_action",
        "datapath": "chain16: 3 modules, 16 lanes of 16 bits, stalls, shadow bank, status",
        "cycles": PIECE * PIECES,
        "outputs_equal": True,
        "fused_cycles_per_s": round(simulator),
        "verilator_cycles_per_s": round(library),
        "cocotb_cycles_per_s": round(from_python),
        "over_verilator": round(statistics.median(ratios), 2),
        "asked_over_verilator": ASKED_OF_VERILATOR,
        "over_cocotb": round(simulator / from_python),
        "asked_over_cocotb": ASKED_OF_COCOTB,
        "compile_s": round(compile_s, 3),
        "verilator_build_s": round(build_s, 2),
        "python": sys.version.split()[0],
        "load": round(os.getloadavg()[0], 1),
    }


def designs(speeds: dict[str, list[list[float]]]) -> dict[str, object]:
    """Return the speed of each design relative to Verilator, and the smallest of these ratios."""
    ratios = {
        name: round(statistics.median(ours / theirs for ours, theirs in zip(*each, strict=True)), 2)
        for name, each in speeds.items()
    }
    return {"designs": ratios, "over_verilator_least": min(ratios.values())}


if __name__ == "__main__":
    main()
