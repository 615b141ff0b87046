"""Run inside a simulator by test_burst_reader: the reader on the memory of cocotbext-axi. Writes JSON."""

import json
import os
from pathlib import Path
from random import Random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge
from cocotbext.axi import AxiRamRead, AxiReadBus

BASE, WORDS, CYCLES = 0x1000, 4096, 12_000


def pauses(random, share):
    while True:
        yield random.random() < share


@cocotb.test()
async def story(dut):
    random = Random(5)
    Clock(dut.clk_i, 4, unit="ns").start()
    for name in ("job_valid_i", "job_word_i", "job_words_i", "word_ready_i", "flush_i"):
        getattr(dut, name).value = 0
    dut.rst_i.value = 1
    memory = AxiRamRead(AxiReadBus.from_prefix(dut, "m_axi"), dut.clk_i, dut.rst_i, size=BASE + 32 * WORDS)
    for word in range(WORDS):
        memory.write(BASE + 32 * word, (word * 0x10001).to_bytes(32, "little"))
    memory.ar_channel.set_pause_generator(pauses(random, 0.3))
    memory.r_channel.set_pause_generator(pauses(random, 0.2))
    await ClockCycles(dut.clk_i, 4)
    dut.rst_i.value = 0
    await RisingEdge(dut.clk_i)
    expected, seen = [], {"words": 0, "jobs": 0, "flushes": 0, "wrong": []}
    for _ in range(CYCLES):
        first, words = random.randrange(WORDS - 100), random.randrange(100)
        dut.job_valid_i.value = random.random() < 0.5
        dut.job_word_i.value, dut.job_words_i.value = first, words
        dut.word_ready_i.value = random.random() < 0.9
        dut.flush_i.value = random.random() < 0.003
        await FallingEdge(dut.clk_i)
        if int(dut.word_valid_o.value):
            if int(dut.word_o.value) != expected[0] * 0x10001:
                seen["wrong"].append([int(dut.word_o.value), expected[0]])
            if int(dut.word_ready_i.value):
                del expected[0]
                seen["words"] += 1
        if int(dut.error_o.value):
            seen["wrong"].append("error")
        if int(dut.flush_i.value):
            seen["flushes"] += 1
            expected.clear()
        if int(dut.job_valid_i.value) and int(dut.job_ready_o.value):
            seen["jobs"] += 1
            expected += range(first, first + words)
        await RisingEdge(dut.clk_i)
    Path(os.environ["STORY_FILE"]).write_text(json.dumps(seen))
