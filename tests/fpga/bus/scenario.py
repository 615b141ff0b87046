"""One story, run through the driver, on whatever bus: what a user would see, without anything of time."""

from dataclasses import asdict

import numpy as np

from fpga import Beats, BeatsNotTaken, Datapath, Program


def program_of(demo):
    return Program(demo, ({}, {"adder.per_sum": 3, "book.many": 1}, {"adder.per_sum": 0}))


def _plain(outputs):
    return {name: beats.tolist() for name, beats in outputs.items()}


def tell(bus, demo):
    """Return the observations by their names, as JSON can hold them."""
    datapath = Datapath(bus)
    seen = {}

    def look(when):
        seen[when] = [datapath.counts(), datapath.outputs(), _status(datapath)]

    datapath.load(program_of(demo))
    look("loaded")
    x = np.arange(-30, 30).reshape(10, 3, 2)
    w = np.arange(1, 41)
    datapath.set_input("gate", 1)
    seen["sums of two"] = _plain(datapath.run({"x": x, "w": w}))  # more beats than a FIFO holds
    look("after sums of two")

    datapath.use(1)
    datapath.set_input("step", 7, 1)
    seen["sums of three"] = _plain(datapath.run({"w": w[:9]}))
    look("overshoot")
    datapath.clear_status()
    look("cleared")

    datapath.use(2)
    seen["never"] = _plain(datapath.run({"w": [5, 6]}))
    look("after never")

    seen["some first"] = _first_some_then_the_rest(datapath)
    seen["wide"] = _wide(datapath)
    datapath.reset()
    look("reset")
    seen["full"] = _until_full(datapath)
    return seen


def _status(datapath):
    return {name: sorted(counts) for name, counts in asdict(datapath.status()).items()}


def _first_some_then_the_rest(datapath):
    """Hold beats of some streams until those of the others have come; what waits keeps its samples."""
    some = np.full((2, 3, 2), 99)
    some[0, 0] = (1, -1)
    some[1, 1:] = (2, -2)
    valid = [[True, False, False], [False, True, True]]
    return _plain(datapath.run({"x": Beats(some, valid)}))


def _wide(datapath):
    """Send 33 streams: nothing moves until lamp 39 is on."""
    bricks = np.arange(66).reshape(2, 33) % 16
    try:
        datapath.run({"wide": bricks[:1]})
    except BeatsNotTaken as error:
        waited = str(error)
    datapath.set_input("lamps", 1, 3)
    datapath.set_input("lamps", 1, 39)
    datapath.set_input("lamps", 0, 3)
    return [waited, _plain(datapath.run({"wide": bricks[1:]}))]


def _until_full(datapath):
    """Send without a reader: the FIFO fills, the datapath stalls, and a beat waits; nothing is lost."""
    datapath.use(1)
    datapath.set_input("gate", 1)
    registers, bus = datapath.registers, datapath.bus
    data, push, waiting = (registers["IN", "w", each].offset for each in ("DATA", "PUSH", "WAITING"))
    pushed = 0
    while not any([bus.read32(waiting) for _ in range(8)][-1:]):
        pushed += 1
        bus.write32(data, pushed)
        bus.write32(push, 1)
    level = bus.read32(registers["OUT", "adder", "total", "LEVEL"].offset)
    return [pushed, level, _plain(datapath.run({}))]
