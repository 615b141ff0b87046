"""The same driver object, the same story, on every back-end: what is seen is the same."""

import pytest

from fpga.beats import unpack
from fpga.bus import RegisterBus, SimulatedBus, make_simulated_bus, open_bus
from fpga.bus.pynq import PynqBus
from fpga.registers import StreamAccess


@pytest.mark.slow
def test_story_is_one_worth_telling(expected):
    """An overshoot, a saturation, beats that wait, and a FIFO that fills."""
    assert expected["overshoot"][2] == {"overshoot": ["book.jumps"], "saturated": ["book.small"]}
    assert expected["cleared"][2] == {"overshoot": [], "saturated": []}
    assert expected["sums of three"]["adder.total"] == [[6], [15], [24]]
    assert expected["some first"]["join.beat"] == [[1, -1, 2, -2, 2, -2]]
    waited, came = expected["wide"]
    assert "1 of wide" in waited
    assert len(came["wall.bricks"]) == 2


def test_full_fifo_stalls_and_loses_nothing(expected):
    pushed, level, drained = expected["full"]
    assert level == 16
    # Sums of three beats: 16 in the FIFO and one in the output register, whose stall keeps the next beat out.
    assert pushed == 3 * 17 + 1
    assert [total for (total,) in drained["adder.total"]] == [9 * n + 6 for n in range(17)]


def test_fast_simulator(demo, scenario, expected):
    pytest.importorskip("numba", reason="needs numba: pip install 'lightbed[fpga]'")
    assert scenario.tell(make_simulated_bus(demo, "fast"), demo) == expected


@pytest.mark.translates
def test_verilator(demo, scenario, expected, axi_simulator, tmp_path):
    """By its address; the library is the one that was built for `axi_simulator`."""
    (tmp_path / "demo.json").write_text(demo.to_json())
    bus = open_bus(f"verilator://{tmp_path / 'demo.json'}")
    assert scenario.tell(bus, demo) == expected
    bus.close()


@pytest.mark.long
@pytest.mark.hdl
def test_cocotb_on_icarus(expected, told_in_icarus):
    assert told_in_icarus(StreamAccess.REGISTERS, "story") == expected


@pytest.mark.long
@pytest.mark.hdl
def test_axi_stream_on_icarus(told_in_icarus):
    seen = told_in_icarus(StreamAccess.AXI_STREAM, "streams")
    assert seen["total"] == [4 * n + 3 for n in range(20)]
    assert seen["went"] == 20
    assert [unpack(beat, 6, 12, signed=True) for beat in seen["beat"]] == [
        [0, n, 1, n, 2, n] for n in range(5)
    ]


@pytest.mark.long
@pytest.mark.hdl
def test_random_pauses_and_resets_break_no_rule_of_axi(told_in_icarus):
    seen = told_in_icarus(StreamAccess.AXI_STREAM, "restless")
    assert seen["violations"] == []
    assert seen["resets"] == 12
    assert min(seen["moved"].values()) >= 40, seen
    assert min(seen["waited"].values()) >= 20, seen
    assert seen["total"] == [4 * n + 3 for n in range(20)]


class Mmio:
    """A `pynq.MMIO` as a driver sees it, around another bus."""

    def __init__(self, bus):
        self._bus = bus

    def read(self, offset=0):
        return self._bus.read32(offset)

    def write(self, offset, value):
        self._bus.write32(offset, value)


@pytest.mark.slow
def test_mmio(demo, scenario, expected):
    assert scenario.tell(PynqBus(Mmio(make_simulated_bus(demo, "reference"))), demo) == expected


def test_all_are_buses(demo):
    simulated = make_simulated_bus(demo, "reference")
    assert isinstance(simulated, SimulatedBus)
    assert isinstance(simulated, RegisterBus)
    assert isinstance(PynqBus(Mmio(simulated)), RegisterBus)
