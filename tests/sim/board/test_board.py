"""The simulated board, asked by stock pynq: over the network as PYNQ.remote, and as a device in this process."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import warnings

import numpy as np
import pytest

import fpga
from fpga.bus import BusFault, BusUnavailable, make_simulated_bus, open_bus
from fpga.bus.pynq import PynqBus, open_local, open_remote
from fpga.count_action import (
    Action,
    ActionKind,
    Count,
    CountKind,
    Datapath,
    Module,
    Ref,
    Signal,
    SignalKind,
    Target,
)

pytestmark = pytest.mark.board

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # pynq's own, at its import
    pynq = pytest.importorskip("pynq", reason="needs pynq 4: environment of a board")

from pynq.pl_server.remote_device import RemoteDevice

from sim.twins.board.device import SimulatedDevice
from sim.twins.board.memory import DEFAULT_BASE, Slot
from sim.twins.board.server import BoardServer

FIRMWARE, MANAGER = "/lib/firmware/", "/sys/class/fpga_manager/fpga0/"


@pytest.fixture(scope="module")
def datapath():
    """Return sums of pairs, and how many there were."""
    module = Module(
        "adder",
        counts=(Count("beats", CountKind.ACCUMULATE, "per_sum", (Ref("w"),)),),
        targets=(Target("per_sum", 2),),
        actions=(
            Action(ActionKind.EMIT, "beats", "total", (Ref("w"),), width=32, signed=True),
            Action(ActionKind.PULSE, "beats", "went"),
        ),
    )
    return Datapath("pairs", (Signal("w", SignalKind.STREAM, width=16, signed=True),), (module,))


@pytest.fixture
def slot(datapath):
    return Slot(lambda: make_simulated_bus(datapath, "reference"))


@pytest.fixture
def server(slot):
    with BoardServer(slot) as server:
        yield server


@pytest.fixture
def board(server):
    return RemoteDevice(0, "127.0.0.1", server.port)


def story(bus, datapath):
    """Return what a user does, and what is seen."""
    driver = fpga.Datapath(bus)
    driver.load(fpga.Program(datapath, ({}, {"adder.per_sum": 3})))
    twos = driver.run([1, 2, 3, 4, -9, 5])
    driver.use(1)
    threes = driver.run([10, 20, 30, 40])
    return [twos["adder.total"].tolist(), threes["adder.total"].tolist(), driver.counts(), driver.outputs()]


def test_the_driver_tells_the_same_story_everywhere(datapath, slot, server):
    expected = story(make_simulated_bus(datapath, "reference"), datapath)
    assert expected == [[[3], [7], [-4]], [[60]], {"adder.beats": 1}, {"adder.went": 4}]
    assert story(open_remote("127.0.0.1", DEFAULT_BASE, port=server.port), datapath) == expected
    assert story(open_bus(f"pynq://127.0.0.1:{server.port}/{DEFAULT_BASE:#x}"), datapath) == expected
    device = SimulatedDevice(slot)
    assert story(PynqBus(pynq.MMIO(DEFAULT_BASE, 4096, device=device)), datapath) == expected
    assert story(PynqBus(pynq.DefaultIP(device.describe("pairs"))), datapath) == expected


def test_device_of_this_process_is_found_by_address(datapath, slot, monkeypatch):
    monkeypatch.setattr(pynq.Device, "_active_device", SimulatedDevice(slot), raising=False)
    driver = fpga.Datapath(open_bus(f"pynq://{DEFAULT_BASE:#x}"))
    driver.load(fpga.Program(datapath))
    assert driver.run([1, 2])["adder.total"].tolist() == [[3]]
    assert isinstance(open_local(DEFAULT_BASE), PynqBus)


def test_no_board_here():
    with warnings.catch_warnings(), pytest.raises(BusUnavailable, match="pynq cannot map 0xa0000000"):
        warnings.simplefilter("ignore")
        open_local(DEFAULT_BASE)


@pytest.mark.socket
def test_stock_selftest_passes(server):
    """pynq's own `python -m pynq.remote.selftest`, but for the steps that need a bitstream."""
    from pynq.remote.selftest.runner import main

    said = io.StringIO()
    with contextlib.redirect_stdout(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        status = main(["--ip", "127.0.0.1", "--port", str(server.port)])
    assert status == 0, said.getvalue()
    assert "file survived" in said.getvalue()
    assert "buffer intact" in said.getvalue()


def test_says_who_it_is(board):
    assert board.arch == "aarch64"
    assert board.name == "ZCU111 SIMULATED"
    assert b"SIMULATED" in board.read_file("/proc/version")


def test_buffers_keep_what_was_sent(board):
    buffer = board.allocate((300, 1000), "i4")  # 1.2 MB
    other = board.allocate((8,), "u1")
    buffer[:] = np.arange(300_000, dtype="i4").reshape(300, 1000)
    sent = np.array(buffer)
    buffer.sync_to_device()
    buffer[:] = 0
    buffer.sync_from_device()
    assert np.array_equal(buffer, sent)
    assert other.physical_address >= buffer.physical_address + sent.nbytes
    assert buffer.physical_address % 4096 == 0
    buffer.freebuffer()
    with pytest.raises(RuntimeError, match="no buffer"):
        buffer.sync_to_device()
    other.freebuffer()


def test_buffers_in_pieces(board):
    """pynq sends 2 MiB at a time."""
    buffer = board.allocate((5 << 20,), "u1")
    buffer[:] = np.arange(5 << 20) % 251
    buffer.sync_to_device()
    buffer[:] = 0
    buffer.sync_from_device()
    assert int(buffer[-1]) == ((5 << 20) - 1) % 251
    buffer.freebuffer()


def test_loading_the_logic_is_a_power_on(board, server, datapath):
    driver = fpga.Datapath(open_remote("127.0.0.1", DEFAULT_BASE, port=server.port))
    driver.load(fpga.Program(datapath))
    driver.run([1, 2, 3])
    before = driver.counts()
    board.write_file(f"{FIRMWARE}pairs.bin", b"\x00bits")
    board.write_file(f"{MANAGER}firmware", b"pairs.bin")
    assert board.read_file(f"{MANAGER}state") == b"operating\n"
    assert (before, driver.counts()) == ({"adder.beats": 1}, {"adder.beats": 0})


def test_loading_what_is_not_there_fails_as_the_manager_says(board):
    board.write_file(f"{MANAGER}firmware", b"absent.bin")
    assert board.read_file(f"{MANAGER}state") == b"firmware request error\n"


def test_registers_of_the_processor_are_memory(board):
    registers = pynq.MMIO(0xFD61_5000, 4, device=board)
    registers.write(0, 0xA00)
    assert registers.read(0) == 0xA00


def test_an_address_with_nothing_behind_it_is_an_error(server):
    bus = open_remote("127.0.0.1", 0xB000_0000, port=server.port)
    with pytest.raises(BusFault, match="no register at 0xb0000004: the datapath is at 0xa0000000"):
        bus.read32(4)
    with pytest.raises(BusFault, match="writing register 0x4 failed"):
        bus.write32(4, 1)


def test_two_words_do_not_fit_into_an_answer(board):
    with pytest.raises(RuntimeError, match="8 bytes at offset 0x0"):
        board.mmap(DEFAULT_BASE, 64).read(0, 8)


def test_a_write_beyond_the_mapping_writes_nothing(board):
    registers = board.mmap(DEFAULT_BASE, 64)
    with pytest.raises(RuntimeError, match="only whole words, and at most 4 bytes"):
        registers.write(60, b"\x01" * 8)


def test_hardware_of_another_hash_is_refused(datapath, server):
    other = Datapath("other", datapath.inputs, datapath.modules)
    driver = fpga.Datapath(open_remote("127.0.0.1", DEFAULT_BASE, port=server.port))
    with pytest.raises(fpga.WrongHardware, match=f"{datapath.digest:08x}.*{other.digest:08x}"):
        driver.load(fpga.Program(other))


def test_nobody_there(monkeypatch):
    class Refused:
        def __init__(self, *_):
            raise RuntimeError("Failed to connect to remote device")

    monkeypatch.setattr("pynq.pl_server.remote_device.GrpcChannel", Refused)  # which waits five seconds
    with pytest.raises(
        BusUnavailable, match=r"no PYNQ.remote server answers at 192.0.2.1:7967: Failed to connect"
    ):
        open_remote("192.0.2.1", DEFAULT_BASE)


@pytest.mark.process
def test_as_a_process(datapath, tmp_path):
    (tmp_path / "pairs.json").write_text(datapath.to_json())
    command = [sys.executable, "-W", "ignore", "-m", "sim.twins.board", str(tmp_path / "pairs.json")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        ready = json.loads(process.stdout.readline())
        assert ready["simulated"] is True
        assert ready["hash"] == f"{datapath.digest:08x}"
        host, _, port = ready["board"].rpartition(":")
        driver = fpga.Datapath(open_remote(host, int(ready["base"], 16), port=int(port)))
        driver.load(fpga.Program(datapath))
        assert driver.run([4, 5])["adder.total"].tolist() == [[9]]
        process.stdin.close()
        assert process.wait(timeout=60) == 0


@pytest.mark.process
def test_process_refuses_a_file_that_is_no_datapath(tmp_path):
    (tmp_path / "none.json").write_text("{}")
    command = [sys.executable, "-W", "ignore", "-m", "sim.twins.board", str(tmp_path / "none.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "not a datapath" in done.stderr
    assert "Traceback" not in done.stderr
