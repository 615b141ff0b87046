"""Register file and tops: every tool takes them, and the bench runs."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from needs import needs

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
from fpga.hdl import explain_missing, find_tool
from fpga.registers import StreamAccess, make_register_map
from fpga.registers.build import build_files, list_top_sources, read_board_files, write_files
from fpga.registers.register_file import emit_register_file
from fpga.registers.top import Top

TOPS = [pytest.param(each, id=each.name.lower()) for each in StreamAccess]


@pytest.fixture(scope="session")
@needs("process")
def built(demo, tmp_path_factory):
    """Return the folder that `countaction build` writes for the demonstration."""
    folder = tmp_path_factory.mktemp("built")
    write_files(build_files(demo), folder)
    return folder


def tool(name):
    if reason := explain_missing(name):
        pytest.skip(reason)
    return find_tool(name)


def sources(built, streams):
    return (built / f"demo_{'axi' if streams is StreamAccess.REGISTERS else 'axis'}.f").read_text().split()


@pytest.mark.long
@pytest.mark.hdl
@pytest.mark.parametrize("streams", TOPS)
def test_icarus_takes_it(built, demo, streams):
    printed = tool("iverilog").run(
        ["-g2012", "-Wall", "-t", "null", "-s", Top(demo, streams).name, *sources(built, streams)],
        folder=built,
    )
    assert printed == ""


@pytest.mark.hdl
@pytest.mark.parametrize("streams", TOPS)
def test_verilator_takes_it_without_a_warning(built, demo, streams):
    arguments = ["--lint-only", "-Wall", "--top-module", Top(demo, streams).name, *sources(built, streams)]
    assert "%Warning" not in tool("verilator").run(arguments, folder=built)


@pytest.mark.parametrize("streams", TOPS)
def test_yosys_takes_it(built, demo, streams):
    if find_spec("pyosys") is None:  # never imported here: matplotlib cannot be imported after it
        pytest.skip("needs pyosys: pip install 'lightbed[hdl]'")
    files = " ".join(sources(built, streams))
    commands = [
        f"read_verilog -sv {files}",
        f"hierarchy -check -top {Top(demo, streams).name}",
        "proc",
        "check -assert",
    ]
    script = "import sys; from pyosys import libyosys as y; d = y.Design(); [y.run_pass(c, d) for c in sys.argv[1:]]"
    done = subprocess.run(
        [sys.executable, "-c", script, *commands], cwd=built, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


@pytest.mark.long
@pytest.mark.hdl
@pytest.mark.parametrize(("seed", "modules"), [(1, 3), (3, 12)])
@pytest.mark.parametrize("streams", TOPS)
def test_tops_of_random_datapaths_are_taken(random_datapath, tmp_path, streams, seed, modules):
    datapath = random_datapath(seed, modules)
    sources = list_top_sources(Top(datapath, streams))
    for name, text in sources:
        (tmp_path / name).write_text(text)
    top, names = Top(datapath, streams).name, [name for name, _ in sources]
    assert tool("iverilog").run(["-g2012", "-Wall", "-t", "null", "-s", top, *names], folder=tmp_path) == ""
    arguments = ["--lint-only", "-Wall", "--top-module", top, *names]
    assert "%Warning" not in tool("verilator").run(arguments, folder=tmp_path)


def test_the_register_file_is_to_be_read(built, demo):
    """Every register has a section, with its offset, name, access and description, and no line is long."""
    text = (built / "demo_axi_registers.sv").read_text()
    assert max(map(len, text.splitlines())) <= 100
    joined = text.replace("\n  // ", " ")
    for register in make_register_map(demo):
        last = f" to 0x{register.get_offset(register.word_count - 1):X}" if register.word_count > 1 else ""
        assert f" 0x{register.offset:X}{last} {register.name}: " in joined
        assert f"{register.description}." in joined


def test_long_names_fold_the_lines_of_a_register_file():
    module, target = "m" * 40, "t" * 40
    count = Count("c", CountKind.ACCUMULATE, target, (Ref("x"),), width=40)
    long = Module(module, (count,), (Target(target, 1, 40),), (Action(ActionKind.PULSE, "c", "p"),))
    text = emit_register_file(make_register_map(Datapath("d", (Signal("x", SignalKind.FLAG),), (long,))))
    assert f"TARGET_{module}_{target}_HIGH_q" in text
    assert max(map(len, text.splitlines())) <= 160


def test_many_targets_fold_the_lines_of_a_top():
    count = Count("c", CountKind.ACCUMULATE, "t0", (Ref("x"),))
    targets = tuple(Target(f"t{place}", 1) for place in range(40))
    module = Module("m", (count,), targets, (Action(ActionKind.PULSE, "c", "p"),))
    top = Top(Datapath("many", (Signal("x", SignalKind.FLAG),), (module,)), StreamAccess.REGISTERS)
    assert "TARGET_m_t39_o" in top.text
    assert max(map(len, top.text.splitlines())) <= 110


@pytest.mark.long
def test_the_same_text_every_time(built, demo):
    again = build_files(demo)
    for name, text in again.items():
        assert (built / name).read_text() == text


@pytest.mark.long
def test_bench_runs(built):
    for name in ("iverilog", "vvp"):
        tool(name)
    pytest.importorskip("cocotbext.axi", reason="needs cocotbext-axi: pip install 'lightbed[hdl]'")
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_demo.py"],
        cwd=built,
        env={**os.environ, "PYTHONPATH": str(root), "SIM": "icarus"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_axi_stream_ports_carry_the_beats(built):
    text = (built / "demo_axis.sv").read_text()
    for prefix in ("s_axis_x_0", "s_axis_x_2", "s_axis_w", "s_axis_wide_32"):
        for signal in ("tvalid", "tready", "tdata"):
            assert f" {prefix}_{signal}" in text
    assert "output wire [71:0] m_axis_join_beat_tdata" in text
    assert "output wire [135:0] m_axis_wall_bricks_tdata" in text  # 132 bits, in whole bytes
    assert "portal_sink" not in text
    assert "portal_source" not in text


def test_it_needs_no_tool(demo, monkeypatch):
    for name in ("peakrdl_regblock", "pyosys", "systemrdl"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "module demo_axi_registers (" in build_files(demo)["demo_axi_registers.sv"]


def test_port_names_that_coincide_are_refused():
    def stream(name, size):
        return Signal(name, SignalKind.STREAM, size=size, width=8)

    count = Count("c", CountKind.ACCUMULATE, "t", (Ref("x"), Ref("x", index=1), Ref("x_0")))
    module = Module("m", (count,), (Target("t", 1),), (Action(ActionKind.PULSE, "c", "p"),))
    datapath = Datapath("d", (stream("x", 2), stream("x_0", 1)), (module,))
    with pytest.raises(ValueError, match=r"s_axis_x_0_tvalid.*Rename"):
        _ = Top(datapath, StreamAccess.AXI_STREAM).text


def test_unknown_board():
    with pytest.raises(ValueError, match="no board 'zcu999'; there are: zcu111"):
        read_board_files("zcu999")
