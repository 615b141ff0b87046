"""The driver of a datapath, on a simulated bus."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga import Beats, BeatsNotTaken, Datapath, DatapathError, Program, ProgramError, WrongHardware
from fpga.beats import pack, pack_beats, unpack
from fpga.bus import make_simulated_bus
from fpga.count_action import Count, CountKind, Module, Ref, Signal, SignalKind, Target
from fpga.count_action import Datapath as Representation
from fpga.registers import StreamAccess


class Recorder:
    """A bus that writes down every write."""

    def __init__(self, bus):
        self._bus = bus
        self.writes = []
        self.closed = False

    def read32(self, offset):
        return self._bus.read32(offset)

    def write32(self, offset, value):
        self.writes.append((offset, value))
        self._bus.write32(offset, value)

    def close(self):
        self.closed = True


class Constant:
    """Hardware that answers every read alike."""

    def __init__(self, *answers):
        self.answers = answers

    def read32(self, offset):
        return self.answers[offset // 4]

    def write32(self, offset, value):
        raise AssertionError("nothing may be written to the wrong hardware")

    def close(self):
        pass


@pytest.fixture
def bus(demo):
    return Recorder(make_simulated_bus(demo, "reference"))


@pytest.fixture
def driver(bus, demo, scenario):
    driver = Datapath(bus)
    driver.load(scenario.program_of(demo))
    return driver


def test_hardware_of_another_hash_is_refused_and_left_alone(demo):
    driver = Datapath(Constant(StreamAccess.REGISTERS.value, 0x0BADF00D))
    with pytest.raises(WrongHardware) as raised:
        driver.load(Program(demo))
    assert "0badf00d" in str(raised.value)
    assert f"{demo.digest:08x}" in str(raised.value)
    assert "Load the bitstream of this program" in str(raised.value)


@pytest.mark.parametrize("identity", [0, 0xFFFFFFFF])
def test_no_datapath_at_all(demo, identity):
    with pytest.raises(WrongHardware, match=f"ID register reads {identity:#010x}.*Check the base address"):
        Datapath(Constant(identity, demo.digest)).load(Program(demo))


def test_streams_on_axi_stream_cannot_be_run_through_registers(demo):
    class Board(Constant):
        def write32(self, offset, value):
            pass

    driver = Datapath(Board(StreamAccess.AXI_STREAM.value, demo.digest))
    driver.load(Program(demo))
    with pytest.raises(DatapathError, match="AXI-Stream ports"):
        driver.run({"w": [1]})


def test_load_comes_first(bus):
    with pytest.raises(DatapathError, match=r"Call load\(program\) first"):
        Datapath(bus).counts()


def test_all_targets_change_in_one_cycle(driver, bus):
    """Every target is written before the only COMMIT."""
    bus.writes.clear()
    driver.use(1)
    table = driver.registers
    *targets, commit = bus.writes
    assert commit == (table["CONTROL",].offset, 1)
    assert dict(targets) == {
        table["TARGET", module, name].offset: value
        for module, name, value in [
            ("join", "n", 3),
            ("adder", "per_sum", 3),
            ("wall", "n", 33),
            ("book", "many", 1),
            ("book", "far", 5),
            ("book", "never", 0),
        ]
    }


def test_words_that_stay_are_not_written_again(driver, bus):
    driver.set_input("gate", 1)
    driver.run({"w": [7, 7, 7, 7]})
    data = driver.registers["IN", "w", "DATA"].offset
    assert bus.writes.count((data, 7)) == 1


def test_close_closes_the_bus(demo, bus):
    with Datapath(bus) as driver:
        driver.load(Program(demo))
    assert bus.closed


def test_beats_that_are_not_taken(driver):
    """33 streams whose lamp is off: nothing moves, and the beats before are in the error."""
    driver.set_input("gate", 1)
    with pytest.raises(BeatsNotTaken, match="3 of wide") as raised:
        driver.run({"wide": np.zeros((3, 33), int), "w": [1, 2]})
    assert raised.value.outputs["adder.total"].tolist() == [[3]]
    driver.reset()
    driver.set_input("lamps", 1, 39)
    assert driver.run({"wide": np.zeros((1, 33), int)})["wall.bricks"].shape == (1, 33)


def test_patience_is_for_what_takes_time():
    """A count over time opens the gate after 50 cycles; the beat waits so long."""
    from fpga.count_action import Action, ActionKind, Condition

    clock = Module(
        "clock",
        (Count("time", CountKind.ACCUMULATE, "opens", constant=1),),
        (Target("opens", 200),),
        (Action(ActionKind.SET, "time", "open"),),
    )
    door = Module(
        "door",
        (Count("in", CountKind.LEVEL, "one", (Ref("x"),), gate=(Condition(Ref("open", "clock")),)),),
        (Target("one", 1),),
        (Action(ActionKind.STREAM, "in", "out", (Ref("x"),), width=8),),
    )
    datapath = Representation("late", (Signal("x", SignalKind.STREAM, width=8),), (clock, door))
    driver = Datapath(make_simulated_bus(datapath, "reference"))
    driver.load(Program(datapath))
    with pytest.raises(BeatsNotTaken, match="patience"):
        driver.run([5])
    driver.reset()
    assert driver.run([5], patience=500)["door.out"].tolist() == [[5]]


@pytest.mark.parametrize(
    ("beats", "message"),
    [
        ([1, 2], "Give them by name; the streams are: x, w, wide"),
        ({"y": [1]}, "no input stream 'y'; there are: x, w, wide"),
        ({"w": [[1, 2]]}, r"w: samples have shape \(1, 2\), not beats x 1 streams x 1 lanes \(axes"),
        ({"w": 3}, r"w: samples have shape \(\), not beats x 1 streams x 1 lanes \(axes of"),
        ({"w": [65536]}, "w: samples range from 65536 to 65536, but 16 bits hold only 0 to"),
        ({"w": [-1]}, r"w: samples range from -1 to -1, but 16 bits hold only 0 to 65535\."),
        (
            {"x": np.full((1, 3, 2), 2048)},
            "x: samples range from 2048 to 2048, but 12 bits hold only -2048 to",
        ),
        ({"w": [0.5]}, r"w: samples are float64, not integers\."),
        (
            {"x": Beats(np.zeros((2, 3, 2), int), [[True]])},
            r"x: valid has shape \(1, 1\), not 2 beats x 3 streams\.",
        ),
    ],
)
def test_beats_that_cannot_be(driver, bus, beats, message):
    bus.writes.clear()
    with pytest.raises(ValueError, match=message):
        driver.run(beats)
    assert not bus.writes


def test_one_wrong_input_keeps_the_others_out(driver):
    with pytest.raises(ValueError, match="no input stream"):
        driver.run({"w": [1], "y": [1]})
    assert driver.run({})["adder.total"].size == 0
    assert driver.counts()["adder.beats"] == 0


@pytest.mark.parametrize(
    ("name", "value", "index", "message"),
    [
        ("w", 1, 0, "no input flag or number 'w'; there are: gate, lamps, step"),
        ("gate", 2, 0, "1, of 1 bits each"),
        ("step", 256, 0, "2, of 8 bits each"),
        ("lamps", 1, 40, "40, of 1 bits each"),
    ],
)
def test_inputs_that_cannot_be(driver, name, value, index, message):
    with pytest.raises(ValueError, match=message):
        driver.set_input(name, value, index)


@given(data=st.data(), width=st.integers(1, 32), signed=st.booleans())
def test_packed_samples_come_back(data, width, signed):
    low = -(1 << width - 1) if signed else 0
    samples = data.draw(st.lists(st.integers(low, low + (1 << width) - 1), max_size=20))
    bits = pack(samples, width)
    assert bits < 1 << width * len(samples)
    assert unpack(bits, len(samples), width, signed=signed) == samples


def test_valid_bits_are_those_of_the_beat():
    signal = Signal("x", SignalKind.STREAM, size=3, width=4)
    assert pack_beats(signal, Beats([[1, 2, 3]], [[True, False, True]])) == [(0b101, 0x321)]
    assert pack_beats(signal, [[1, 2, 3], [4, 5, 6]]) == [(0b111, 0x321), (0b111, 0x654)]
    for nothing in ([], np.zeros((0, 3), int), np.zeros((0, 3, 1), int)):
        assert pack_beats(signal, nothing) == []


class Failing:
    """A bus of which one write fails."""

    def __init__(self, bus, fails_at):
        self._bus, self._left = bus, fails_at

    def read32(self, offset):
        return self._bus.read32(offset)

    def write32(self, offset, value):
        self._left -= 1
        if self._left == 0:
            raise OSError("the link is down")
        self._bus.write32(offset, value)

    def close(self):
        self._bus.close()


def test_what_was_loaded_half_way_is_not_loaded(demo, scenario, bus):
    program = scenario.program_of(demo)
    Datapath(bus).load(program)
    writes = len(bus.writes)
    assert writes > 3
    for fails_at in range(1, writes + 1):
        driver = Datapath(Failing(make_simulated_bus(demo, "reference"), fails_at))
        with pytest.raises(OSError, match="link is down"):
            driver.load(program)
        with pytest.raises(DatapathError, match="no program is loaded"):
            driver.counts()
        driver.load(program)  # the link is back
        assert driver.counts()


@pytest.mark.parametrize("layer", [-1, 99, 1.5, "0"])
def test_a_layer_that_is_not_there_is_refused_before_anything_is_written(demo, scenario, bus, layer):
    driver = Datapath(bus)
    with pytest.raises(ProgramError, match="has layers 0 to"):
        driver.load(scenario.program_of(demo), layer)
    assert bus.writes == []
