"""The hand-written blocks of the portal, alone: random stimuli, and what they should answer."""

from collections import deque

import numpy as np

from fpga.count_action.ports import Port, Ports
from fpga.hdl.design import Design
from fpga.registers import StreamAccess
from fpga.registers.top import list_block_files

TEXTS = {path.name: path.read_text() for path in list_block_files(StreamAccess.REGISTERS)}

PORTS = {
    "portal_source.sv": (["push_i", "mask_i", "ready_i"], ["valid_o", "waiting_o"]),
    "portal_sink.sv": (["valid_i", "data_i", "pop_i"], ["ready_o", "data_o", "level_o"]),
    "register_pulses.sv": (["pulse_i"], ["pulses_o"]),
}
WIDTHS = {"data_i": 16, "data_o": 16, "level_o": 5, "pulses_o": 32}


def design(name, text):
    inputs, outputs = (
        [Port(each, WIDTHS.get(each, 1), n) for n, each in enumerate(side)] for side in PORTS[name]
    )
    return Design(name.removesuffix(".sv"), ((name, text),), Ports(tuple(inputs), tuple(outputs)))


def stimulus(name, cycles=3000):
    """Return random words; inputs and outputs are busier in turn, so that FIFOs fill and empty."""
    generator = np.random.default_rng(3)
    inputs, _ = PORTS[name]
    rows = generator.integers(0, 1 << 16, (cycles, len(inputs))).astype(np.uint64)
    often = np.arange(cycles) // 60 % 2
    for column, port in enumerate(inputs):
        if WIDTHS.get(port, 1) == 1:
            likely = 0.8 if column else 0.3
            chance = np.where(often, likely, 1.1 - likely)
            rows[:, column] = generator.random(cycles) < chance
    return rows


def answers(name, rows):
    return np.array(list(_MODELS[name](rows.tolist())), np.uint64)


def _source(rows):
    valid = 0
    for push, mask, ready in rows:
        pushed = push & mask
        yield valid, valid | pushed
        valid = valid & (1 - ready) | pushed


def _sink(rows):
    beats = deque()
    for valid, data, pop in rows:
        ready = len(beats) < 16
        yield int(ready), beats[0] if beats else 0, len(beats)
        if pop and beats:
            beats.popleft()
        if valid and ready:
            beats.append(data)


def _pulses(rows):
    pulses = 0
    for (pulse,) in rows:
        yield (pulses,)
        pulses += pulse


_MODELS = {"portal_source.sv": _source, "portal_sink.sv": _sink, "register_pulses.sv": _pulses}
