"""Template of a cocotb bench, which controls the AXI4-Lite top with the same driver as a board."""

from __future__ import annotations

from collections.abc import Iterable

from fpga.count_action.model import Datapath, Signal, SignalKind
from fpga.registers.register_list import list_output_streams

_BENCH_TEMPLATE = '''\
"""Bench of {name}: its AXI4-Lite top under cocotb, driven by the driver of the board.

Run it with `pytest {file}`; SIM=verilator selects Verilator instead of Icarus. Add your own tests at the end.
"""

import os
from pathlib import Path

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.task import bridge
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiLiteBus, AxiLiteMaster

from fpga import BeatsNotTaken, Datapath, Program
from fpga.bus.cocotb_axi import CocotbBus
from fpga.count_action import datapath_from_json
from fpga.hdl import find_tool
from fpga.verify.watch import PortRecorder, draw_beats, draw_flags_and_numbers

HERE = Path(__file__).resolve().parent
PROGRAM = Program(datapath_from_json((HERE / "{name}.json").read_text()))


def test_{name}():
    """Build the top and run the tests below in a simulator."""
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    sources = [HERE / line for line in (HERE / "{name}_axi.f").read_text().split()]
    simulator = os.environ.get("SIM", "icarus")
    if simulator == "verilator":
        tool = find_tool("verilator")
        os.environ.update(tool.environment, PATH=f"{{tool.path.parent}}:{{os.environ['PATH']}}")
    runner = get_runner(simulator)
    folder = HERE / "sim_build"
    runner.build(sources=sources, hdl_toplevel="{name}_axi", build_dir=folder, timescale=("1ns", "1ps"))
    results = runner.test(hdl_toplevel="{name}_axi", test_module=Path(__file__).stem, build_dir=folder, test_dir=folder)
    ran, failed = get_results(results)
    assert ran and not failed, f"{{failed}} of {{ran}} tests failed"


async def driver(dut):
    """Start the clock, reset the top, and return the driver of the datapath."""
    Clock(dut.aclk, 4, unit="ns").start()
    dut.aresetn.value = 0
    await ClockCycles(dut.aclk, 4)
    dut.aresetn.value = 1
    master = AxiLiteMaster(
        AxiLiteBus.from_prefix(dut, "s_axi"), dut.aclk, dut.aresetn, reset_active_level=False
    )
    return Datapath(CocotbBus(master))


@cocotb.test()
async def targets_can_be_read_back(dut):
    datapath = await driver(dut)
    await bridge(datapath.load)(PROGRAM)
    for module, target, value in PROGRAM.targets(0):
        register = datapath.registers["TARGET", module, target]
        assert await bridge(datapath.bus.read32)(register.offset) == value % 2**32, register.name


@cocotb.test()
async def counts_begin_at_zero(dut):
    datapath = await driver(dut)
    await bridge(datapath.load)(PROGRAM)
    read = await bridge(datapath.counts)()
    assert sorted(read) == [{counts}]
    assert not (await bridge(datapath.status)()).saturated


@cocotb.test()
async def random_stimulus_does_what_the_text_says(dut):
    """Apply random beats, flags, numbers and targets, and compare every port of the datapath in every cycle."""
    recorder = PortRecorder(dut.datapath, dut.aclk, PROGRAM.datapath)
    datapath = await driver(dut)
    random = np.random.default_rng(1)
    for _ in range(2):
        layer = {{
            f"{{module}}.{{target}}": int(random.integers(1, 4)) if value else 0
            for module, target, value in PROGRAM.targets(0)
        }}
        await bridge(datapath.load)(Program(PROGRAM.datapath, (layer,)) if random.random() < 0.5 else PROGRAM)
        for (name, index), value in draw_flags_and_numbers(PROGRAM.datapath, random).items():
            await bridge(datapath.set_input)(name, value, index)
        try:
            await bridge(datapath.run)(draw_beats(PROGRAM.datapath, random, 4))
        except BeatsNotTaken as error:
            dut._log.info(str(error))
    dut._log.info(f"{{recorder.cycles}} cycles, {{recorder.fires}} fires")
    assert recorder.cycles > 100
    assert not recorder.find_differences()


@cocotb.test()
async def beats_go_through(dut):
    """Send two beats into every input. Add assertions about the outputs here."""
    datapath = await driver(dut)
    await bridge(datapath.load)(PROGRAM)
    beats = {{{beats}}}
    try:
        outputs = await bridge(datapath.run)(beats)
    except BeatsNotTaken as error:
        dut._log.warning(str(error))
        outputs = error.outputs
    for name, came in outputs.items():
        dut._log.info(f"{{name}}: {{came.tolist()}}")
    assert sorted(outputs) == [{outputs}]
'''


def emit_bench(datapath: Datapath) -> str:
    """Return the text of `test_NAME.py`, one of the files that `countaction build` writes."""
    streams = [signal for signal in datapath.inputs if signal.kind is SignalKind.STREAM]
    return _BENCH_TEMPLATE.format(
        name=datapath.name,
        file=f"test_{datapath.name}.py",
        counts=_quote_names(f"{module.name}.{count.name}" for module, count in datapath.list_counts()),
        beats=", ".join(
            f'"{stream.name}": np.full((2, {stream.size}, {stream.lanes}), {_choose_sample(stream)})'
            for stream in streams
        ),
        outputs=_quote_names(f"{module}.{name}" for module, name, *_ in list_output_streams(datapath)),
    )


def _choose_sample(signal: Signal) -> int:
    return 0 if signal.signed and signal.width == 1 else 1


def _quote_names(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names))
