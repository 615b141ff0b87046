"""Run inside a simulator, by `test_contract` and `test_axi_stream`: what is seen is written down as JSON."""

import itertools
import json
import os
import sys
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.task import bridge
from cocotb.triggers import ClockCycles, with_timeout
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiStreamBus, AxiStreamSink, AxiStreamSource

from fpga import Datapath
from fpga.bus.cocotb_axi import CocotbBus

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from demo_datapath import demo  # the path is set in the line before
from scenario import program_of, tell


async def registers_of(dut):
    """Clock, reset, and a bus whose channels hesitate, each in a rhythm of its own."""
    Clock(dut.aclk, 4, unit="ns").start()
    dut.aresetn.value = 0
    await ClockCycles(dut.aclk, 4)
    dut.aresetn.value = 1
    master = AxiLiteMaster(
        AxiLiteBus.from_prefix(dut, "s_axi"), dut.aclk, dut.aresetn, reset_active_level=False
    )
    write, read = master.write_if, master.read_if
    channels = (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel)
    for period, channel in enumerate(channels, 2):
        channel.set_pause_generator(itertools.cycle([1] + [0] * period))
    return CocotbBus(master)


def write_down(seen):
    Path(os.environ["STORY_FILE"]).write_text(json.dumps(seen))


@cocotb.test()
async def story(dut):
    write_down(await bridge(tell)(await registers_of(dut), demo()))


@cocotb.test()
async def streams(dut):
    """Send beats through AXI-Stream ports, with pauses on both sides; everything else through registers."""

    def end(kind, prefix):
        return kind(AxiStreamBus.from_prefix(dut, prefix), dut.aclk, dut.aresetn, reset_active_level=False)

    datapath = Datapath(await registers_of(dut))
    w = end(AxiStreamSource, "s_axis_w")
    x = [end(AxiStreamSource, f"s_axis_x_{index}") for index in range(3)]
    total, beat = end(AxiStreamSink, "m_axis_adder_total"), end(AxiStreamSink, "m_axis_join_beat")
    w.set_pause_generator(itertools.cycle([0, 0, 1]))
    total.set_pause_generator(itertools.cycle([1, 1, 0]))
    await bridge(datapath.load)(program_of(demo()))
    await bridge(datapath.set_input)("gate", 1)
    await w.send(b"".join(value.to_bytes(2, "little") for value in range(1, 41)))
    for index, source in enumerate(x):
        # Two lanes of 12 bits in three bytes; the second stream comes late.
        if index == 1:
            await ClockCycles(dut.aclk, 20)
        await source.send(b"".join((4096 * n + index).to_bytes(3, "little") for n in range(5)))
    totals = [await with_timeout(total.read(4), 4, "us") for _ in range(20)]
    beats = [await with_timeout(beat.read(9), 4, "us") for _ in range(5)]
    write_down(
        {
            "total": [int.from_bytes(each, "little") for each in totals],
            "beat": [int.from_bytes(each, "little") for each in beats],
            "went": (await bridge(datapath.outputs)())["adder.went"],
        }
    )
