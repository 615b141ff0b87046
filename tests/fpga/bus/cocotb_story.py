"""Run inside a simulator, by `test_contract` and `test_axi_stream`: what is seen is written down as JSON."""

import itertools
import json
import os
import sys
from pathlib import Path
from random import Random

import cocotb
from cocotb.clock import Clock
from cocotb.task import bridge
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiStreamBus, AxiStreamSink, AxiStreamSource

from fpga import Datapath
from fpga.bus.cocotb_axi import CocotbBus

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from demo_datapath import demo  # the path is set in the line before
from scenario import program_of, tell


async def master_of(dut, pauses):
    """Clock, reset, and a master whose channels pause as `pauses(n)` says of the n-th."""
    Clock(dut.aclk, 4, unit="ns").start()
    dut.aresetn.value = 0
    await ClockCycles(dut.aclk, 4)
    dut.aresetn.value = 1
    master = AxiLiteMaster(
        AxiLiteBus.from_prefix(dut, "s_axi"), dut.aclk, dut.aresetn, reset_active_level=False
    )
    write, read = master.write_if, master.read_if
    channels = (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel)
    for number, channel in enumerate(channels):
        channel.set_pause_generator(pauses(number))
    return master


async def registers_of(dut):
    """Return a bus whose channels hesitate, each in a rhythm of its own."""
    return CocotbBus(await master_of(dut, lambda number: itertools.cycle([1] + [0] * (number + 2))))


def end_of(kind, dut, prefix):
    return kind(AxiStreamBus.from_prefix(dut, prefix), dut.aclk, dut.aresetn, reset_active_level=False)


def write_down(seen):
    Path(os.environ["STORY_FILE"]).write_text(json.dumps(seen))


@cocotb.test()
async def story(dut):
    write_down(await bridge(tell)(await registers_of(dut), demo()))


@cocotb.test()
async def streams(dut):
    """Send beats through AXI-Stream ports, with pauses on both sides; everything else through registers."""
    datapath = Datapath(await registers_of(dut))
    w = end_of(AxiStreamSource, dut, "s_axis_w")
    x = [end_of(AxiStreamSource, dut, f"s_axis_x_{index}") for index in range(3)]
    total = end_of(AxiStreamSink, dut, "m_axis_adder_total")
    beat = end_of(AxiStreamSink, dut, "m_axis_join_beat")
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


PORTS = {
    "s_axi_b": ("s_axi_bvalid", "s_axi_bready", ("s_axi_bresp",)),
    "s_axi_r": ("s_axi_rvalid", "s_axi_rready", ("s_axi_rdata", "s_axi_rresp")),
    "total": ("m_axis_adder_total_tvalid", "m_axis_adder_total_tready", ("m_axis_adder_total_tdata",)),
    "beat": ("m_axis_join_beat_tvalid", "m_axis_join_beat_tready", ("m_axis_join_beat_tdata",)),
}
"""What the top drives: valid, ready, and what has to stay as it is while a beat waits."""


async def watch(dut, seen):
    """Count the beats that move and those that wait at each port, and write down what AXI forbids."""
    waiting = {}
    while True:
        await RisingEdge(dut.aclk)
        running = str(dut.aresetn.value) == "1"
        for name, (valid, ready, payload) in PORTS.items():
            is_valid, is_ready = (str(getattr(dut, each).value) == "1" for each in (valid, ready))
            shown = [str(getattr(dut, each).value) for each in payload]
            if running and waiting.get(name, shown if is_valid else None) != (shown if is_valid else None):
                seen["violations"].append([name, waiting[name], shown, is_valid])
            seen["moved"][name] += running and is_valid and is_ready
            seen["waited"][name] += running and is_valid and not is_ready
            waiting.pop(name, None)
            if running and is_valid and not is_ready:
                waiting[name] = shown


async def reset(dut, random):
    dut.aresetn.value = 0
    await ClockCycles(dut.aclk, random.randint(2, 6))
    dut.aresetn.value = 1


async def wander(master, words, random):
    """Read and write anywhere but at CONTROL, several accesses at once."""
    while True:
        for _ in range(random.randint(1, 4)):
            cocotb.start_soon(master.read(random.choice(words), 4))
        await master.write(random.choice(words), random.randbytes(4))


@cocotb.test()
async def restless(dut):
    """Pause at random on all channels, and reset in the middle of beats and accesses; then all is as after power-on."""
    random = Random(21)

    def pauses(_):
        return iter(lambda: random.random() < 0.4, None)

    master = await master_of(dut, pauses)
    w = end_of(AxiStreamSource, dut, "s_axis_w")
    x = [end_of(AxiStreamSource, dut, f"s_axis_x_{index}") for index in range(3)]
    total = end_of(AxiStreamSink, dut, "m_axis_adder_total")
    beat = end_of(AxiStreamSink, dut, "m_axis_join_beat")
    for each in (w, *x, total, beat):
        each.set_pause_generator(pauses(0))
    seen = {
        "violations": [],
        "moved": dict.fromkeys(PORTS, 0),
        "waited": dict.fromkeys(PORTS, 0),
        "resets": 0,
    }
    cocotb.start_soon(watch(dut, seen))
    datapath = Datapath(CocotbBus(master))
    for _ in range(12):
        await bridge(datapath.load)(program_of(demo()))
        await bridge(datapath.set_input)("gate", 1)
        for source in (w, *x):
            await source.send(random.randbytes(240))
        words = range(0xC, 1 << len(dut.s_axi_awaddr), 4)
        walk = cocotb.start_soon(wander(master, words, random))
        await ClockCycles(dut.aclk, random.randint(50, 200))
        walk.cancel()
        await reset(dut, random)
        seen["resets"] += 1
        for each in (w, *x, total, beat):
            each.clear()
        await ClockCycles(dut.aclk, 4)
    await bridge(datapath.load)(program_of(demo()))
    await bridge(datapath.set_input)("gate", 1)
    await w.send(b"".join(value.to_bytes(2, "little") for value in range(1, 41)))
    totals = [await with_timeout(total.read(4), 8, "us") for _ in range(20)]
    write_down(seen | {"total": [int.from_bytes(each, "little") for each in totals]})
