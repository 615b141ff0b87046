"""The cocotb test of `count_action.py`: Python applies one row of the stimulus in every cycle."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly
from count_action import chain16

from fpga.count_action.ports import make_ports
from fpga.count_action.simulate.port_values import unpack_row

CHECKED = 500


@cocotb.test()  # type: ignore[untyped-decorator, unused-ignore]
async def stimulus_from_python(dut: Any) -> None:
    folder = Path(os.environ["RUN_FOLDER"])
    ports = make_ports(chain16())
    with np.load(folder / "run.npz") as stored:
        steps = [list(unpack_row(ports.inputs, row).values()) for row in stored["rows"].tolist()]
        expected = [unpack_row(ports.outputs, row) for row in stored["expected"].tolist()]
    handles = [getattr(dut, port.name) for port in ports.inputs]
    dut.rst_i.value = 1
    for handle in handles:
        handle.value = 0
    Clock(dut.clk_i, 2, unit="ns").start()
    for _ in range(2):
        await FallingEdge(dut.clk_i)
    dut.rst_i.value = 0
    begin = 0.0
    for cycle, step in enumerate(steps):
        if cycle == CHECKED:
            begin = time.perf_counter()
        for handle, value in zip(handles, step, strict=True):
            handle.value = value
        if cycle < CHECKED:
            await ReadOnly()
            outputs = {port.name: int(getattr(dut, port.name).value) for port in ports.outputs}
            assert outputs == expected[cycle], cycle
        await FallingEdge(dut.clk_i)
    speed = (len(steps) - CHECKED) / (time.perf_counter() - begin)
    (folder / "cycles_per_s").write_text(str(speed))
