"""The parts of the simulated board that need no pynq: addresses, files, memory."""

from __future__ import annotations

import sys

import pytest

from fpga.bus import make_simulated_bus
from fpga.count_action import Count, CountKind, Datapath, Module, Ref, Signal, SignalKind, Target
from sim.twins.board.__main__ import main
from sim.twins.board.memory import (
    FIRMWARE_FOLDER,
    AddressSpace,
    BoardFiles,
    BufferRequestError,
    Buffers,
    NoRegisterError,
    Slot,
)

pytestmark = pytest.mark.board

MANAGER = "/sys/class/fpga_manager/fpga0/"


@pytest.fixture
def datapath():
    count = Count("ones", CountKind.ACCUMULATE, "enough", (Ref("x"),))
    module = Module("m", (count,), (Target("enough", 9),), ())
    return Datapath("ones", (Signal("x", SignalKind.FLAG),), (module,))


@pytest.fixture
def space(datapath):
    return AddressSpace(Slot(lambda: make_simulated_bus(datapath, "reference"), base=0x1000, span_bytes=256))


def test_datapath_answers_in_its_slot(space, datapath):
    assert space.read32(0x1004) == datapath.digest
    assert space.read32(0x10FC) == 0
    space.close()


@pytest.mark.parametrize("address", [0, 0xFFC, 0x1100])
def test_nothing_answers_beside_it(space, address):
    with pytest.raises(NoRegisterError, match="the datapath is at 0x1000 to 0x10ff"):
        space.read32(address)
    with pytest.raises(NoRegisterError):
        space.write32(address, 1)


def test_processor_keeps_words(space):
    assert space.read32(0xFF5E_0000) == 0
    space.write32(0xFF5E_0000, 7)
    assert space.read32(0xFF5E_0000) == 7


def test_reload_is_a_power_on(space):
    target = next(offset for offset in range(12, 256, 4) if space.read32(0x1000 + offset) == 9)
    space.write32(0x1000 + target, 5)
    assert space.read32(0x1000 + target) == 5
    space.reload()
    assert space.read32(0x1000 + target) == 9


def test_files_load_the_logic():
    loads = []
    files = BoardFiles("SOME BOARD", lambda: loads.append(1))
    assert files.read("/proc/device-tree/chosen/pynq_board") == b"SOME BOARD\0"
    assert (files.exists("/nowhere"), files.read("/nowhere")) == (False, b"")
    files.write(f"{MANAGER}firmware", b"absent.bin\n")
    assert (files.read(f"{MANAGER}state"), loads) == (b"firmware request error\n", [])
    files.write(f"{FIRMWARE_FOLDER}here.bin", b"bits")
    files.write(f"{MANAGER}firmware", b"here.bin\n")
    assert (files.read(f"{MANAGER}state"), loads) == (b"operating\n", [1])


def test_buffers():
    buffers = Buffers()
    first, second = buffers.allocate(10, cacheable=True), buffers.allocate(5000, cacheable=False)
    assert (buffers.is_cacheable(first), buffers.is_cacheable(second)) == (True, False)
    assert buffers.get_address(second) == buffers.get_address(first) + 4096
    buffers.write(first, 3, b"abc")
    assert buffers.read(first) == b"\0\0\0abc\0\0\0\0"
    with pytest.raises(BufferRequestError, match="has 10 bytes; a write of"):
        buffers.write(first, 8, b"abc")
    buffers.free(first)
    with pytest.raises(BufferRequestError, match="was freed"):
        buffers.read(first)
    third = buffers.allocate(0, cacheable=True)
    assert buffers.get_address(third) == buffers.get_address(second) + 2 * 4096


def test_memory_is_finite():
    buffers = Buffers()
    buffers.allocate(200 << 20, cacheable=True)
    with pytest.raises(BufferRequestError, match="cannot allocate"):
        buffers.allocate(100 << 20, cacheable=True)


def test_without_pynq_the_cure_is_said(datapath, tmp_path, capsys, monkeypatch):
    for name in ("grpc", "pynq"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "ones.json").write_text(datapath.to_json())
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "ones.json")])
    assert ended.value.code == 1
    assert "install the extra [pynq] of lightbed" in capsys.readouterr().err
