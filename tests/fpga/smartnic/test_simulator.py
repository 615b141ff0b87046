"""The harness of the smartNIC, on a stand-in that sends frames back: what goes in comes out, in its order."""

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from needs import needs

from fpga.hdl import HdlError
from fpga.hdl.design import make_block_design
from fpga.photonic_mac.network import Optics
from fpga.smartnic.simulator import COUNTER_NAMES, Settings, SmartNic, SmartNicError

HERE = Path(__file__).resolve().parent
MAC = bytes.fromhex("02000a4d0002")
OTHER = bytes.fromhex("020000000009")


def echo_design(text=None):
    """Return the stand-in, or a changed text of it, as a design for the harness."""
    text = text or (HERE / "echo_nic.sv").read_text("ascii")
    return make_block_design("echo_nic", texts_by_name={"echo_nic": text})


@pytest.fixture(scope="module")
@needs("hdl")
def build():
    """Return a function that makes a NIC of the stand-in."""
    pytest.importorskip("lark", reason="needs lark: pip install 'lightbed[fpga]'")
    from fpga.hdl import explain_missing

    if reason := explain_missing("verilator", "make", "g++"):
        pytest.skip(reason)
    return lambda settings=None: SmartNic(settings, design=echo_design(), optimise_flag="-O1")


@pytest.fixture
def nic(build):
    nic = build()
    yield nic
    nic.close()


def frame_of(random, size, destination=MAC):
    return (destination + OTHER + b"\x88\xb5" + random.randbytes(size))[:size]


def echo_of(frame):
    return frame[6:12] + frame[:6] + frame[12:]


@pytest.mark.parametrize(("receive", "transmit"), [(0, 0), (0.5, 0), (0, 0.5), (0.9, 0.9)])
def test_frames_come_back_whole_and_in_order(nic, receive, transmit):
    random = Random(3)
    nic.insert_pauses(receive, transmit, seed=9)
    sizes = [12, 60, 63, 64, 65, 127, 128, 129, 1514, 9216, *(random.randrange(12, 1515) for _ in range(200))]
    frames = [frame_of(random, size, random.choice([MAC, MAC, OTHER])) for size in sizes]
    for frame in frames:
        nic.send(frame, gap=random.choice([0, 0, 1, 30]))
    assert nic.waiting_frame_count == len(frames)
    assert nic.run_until_idle(100_000)
    assert nic.waiting_frame_count == 0
    received = nic.receive()
    assert [frame for _, frame in received] == [echo_of(frame) for frame in frames if frame[:6] == MAC]
    cycles = [cycle for cycle, _ in received]
    assert cycles == sorted(set(cycles))
    assert nic.receive() == []
    assert len(nic.list_arrivals()) == len(frames)
    counters = nic.read_counters()
    assert counters["received"] == len(frames)
    assert counters["answered"] == len(received) >= 100
    assert counters["ignored"] == len(frames) - len(received) >= 30


@pytest.mark.translates
def test_gaps_are_exact(nic):
    for gap in (0, 0, 5, 100):
        nic.send(frame_of(Random(1), 64), gap=gap)
    nic.run_until_idle()
    arrivals = nic.list_arrivals()
    assert np.diff(arrivals).tolist() == [1, 6, 101]
    assert [cycle for cycle, _ in nic.receive()] == [cycle + 1 for cycle in arrivals]


def test_a_bad_frame_is_marked(nic):
    nic.send(frame_of(Random(1), 200), is_bad=True)
    nic.send(frame_of(Random(1), 200))
    nic.run_until_idle()
    assert nic.read_counters()["corrupt"] == 1


def test_a_nic_that_is_held_keeps_its_work(nic):
    nic.hold()
    nic.send(frame_of(Random(1), 100))
    assert not nic.run_until_idle(1000)
    assert nic.receive() == []
    nic.hold(False)
    assert nic.run_until_idle(100)
    assert len(nic.receive()) == 1


def test_a_reset_loses_frames_on_their_way(nic):
    nic.send(frame_of(Random(1), 9000))
    nic.send(frame_of(Random(1), 100))
    nic.run(50)
    nic.reset()
    assert nic.waiting_frame_count == 0
    assert nic.run_until_idle(100)
    assert nic.receive() == []
    nic.send(frame_of(Random(2), 100))
    assert nic.run_until_idle(100)
    assert [frame for _, frame in nic.receive()] == [echo_of(frame_of(Random(2), 100))]


def test_words_arrive_at_their_addresses(nic):
    words = np.zeros((1000, 4), np.uint64)
    words[:, 0] = np.arange(1000) + 200
    nic.write_memory(words, 200)
    for table in range(3):
        nic.write_table(table, np.arange(10, 16, dtype=np.uint8), 10)
    nic.abort()
    counters = nic.read_counters()
    assert tuple(counters) == COUNTER_NAMES
    assert (counters["late"], counters["failed"], counters["malformed"]) == (1000, 6 * (1 + 2 + 3), 1)


def test_frames_move_while_words_are_written(nic):
    nic.send(frame_of(Random(1), 100))
    nic.write_memory(np.zeros((50, 4), np.uint64))
    assert len(nic.receive()) == 1


def test_what_does_not_fit_is_refused(nic):
    with pytest.raises(SmartNicError, match="the memory has 262144 words of 32 bytes; 262145 do not fit"):
        nic.write_memory(np.zeros((1, 4), np.uint64), 1 << 18)
    with pytest.raises(SmartNicError, match="a table has 4096 words"):
        nic.write_table(0, np.zeros(4097, np.uint64))
    with pytest.raises(SmartNicError, match=r"words are uint64\[words, 4\], not uint64\[2, 5\]"):
        nic.write_memory(np.zeros((2, 5), np.uint64))
    for size in (0, 9217):
        with pytest.raises(SmartNicError, match=f"1 to 9216 bytes, not {size}"):
            nic.send(bytes(size))
    with pytest.raises(SmartNicError, match="'rx_valid' is not a setting"):
        nic.set_input("rx_valid", 1)
    with pytest.raises(ValueError, match="shares of pauses"):
        nic.insert_pauses(1.0)


def test_a_nic_that_is_closed_says_so(build):
    nic = build()
    nic.close()
    nic.close()
    with pytest.raises(SmartNicError, match="closed"):
        nic.run(1)


def test_settings_reach_the_nic(build):
    nic = build(Settings(mac="06:00:00:00:00:07", optics=Optics(noise=True, seed=9)))
    for destination in (MAC, bytes.fromhex("060000000007")):
        nic.send(frame_of(Random(1), 100, destination))
    nic.run_until_idle()
    assert nic.read_counters()["answered"] == 1


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"mac": "02:00"}, "is not a MAC address"),
        ({"mac": "03:00:00:00:00:00"}, "of a group"),
        ({"address": "10.0.0"}, "10.0.0"),
        ({"port": 0}, "port must be 1 to 65535"),
        ({"preamble": 256}, "preamble must be 1 to 255"),
        ({"memory_latency": 256}, "memory_latency must be 0 to 255"),
        ({"memory_refresh_every": 10, "memory_refresh_cycles": 10}, "less than memory_refresh_every"),
    ],
)
def test_settings_out_of_range_are_refused(settings, reason):
    with pytest.raises(ValueError, match=reason):
        replace(Settings(), **settings)


def test_a_top_that_is_not_there():
    with pytest.raises(HdlError, match="there is no module nowhere"):
        make_block_design("nowhere")


@pytest.mark.long
@pytest.mark.hdl
def test_a_beat_that_goes_away_is_an_error(build):
    """A fault of the NIC on its bus, planted into the stand-in."""
    text = (HERE / "echo_nic.sv").read_text("ascii")
    faulty = text.replace("if (tx_ready_i) tx_valid_o", "if (first_q) tx_valid_o")
    assert faulty != text
    nic = SmartNic(design=echo_design(faulty), optimise_flag="-O1")
    nic.insert_pauses(transmit_share=0.9)
    with pytest.raises(SmartNicError, match="a beat at tx went away before it was taken"):
        for _ in range(20):
            nic.send(frame_of(Random(1), 64))
            nic.run(100)
