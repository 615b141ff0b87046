"""Lint of hand-written blocks and of generated tops: Verilator and slang with all warnings, Verible, Icarus, yosys."""

from dataclasses import replace
from pathlib import Path

import pytest
from libraries import skip_without

from fpga.count_action import load, parse_text
from fpga.count_action.ports import Ports
from fpga.count_action.verilog import list_core_files, write_top_module
from fpga.hdl import Design, make_design
from fpga.registers.build import list_top_sources
from fpga.registers.register_file import emit_register_file
from fpga.registers.register_list import StreamAccess
from fpga.registers.top import Top
from fpga.smartnic.registers import make_smartnic_registers

BITS = """module m { inputs: { stream x of 2 lanes of 8 bits signed; number n of 4 bits }
  counts: { c: sum x.valid over cycles while x.data[1][7:4] == 0xF or (c + 1)[1:0] << 1 != n[3:2] }
  targets: { 0x10 } actions: { stream concat(x.data, n, (0)[2:0]), x.data[2] >> 2, x.data[1] << 3 } }"""
BLOCKS = {path.stem: path for path in list_core_files()}
FPGA = list_core_files()[0].parents[1]
CONTROLS = ("preamble_control", "photonic_mac_control", "smartnic_control", "packet_outcomes")
"""Modules of the library that hand-written blocks instantiate."""


def library(name: str = "*") -> list[Path]:
    return sorted((FPGA / "library").glob(f"{name}.ca"))


def tops(datapath):
    """Yield the name and sources of each top of a datapath."""
    for streams in StreamAccess:
        top = Top(datapath, streams)
        yield top.name, list_top_sources(top)


def block(name: str) -> Design:
    path = BLOCKS[name]
    return Design(name, ((path.name, path.read_text(encoding="ascii")),), Ports((), ()))


@pytest.mark.hdl
@pytest.mark.parametrize("name", BLOCKS)
def test_a_hand_written_block_is_clean(lint, yosys_accepts, name):
    assert lint.lint(block(name)) == ()
    assert yosys_accepts(block(name)) == ()


@pytest.mark.hdl
def test_the_worked_tables_top_is_clean(lint, yosys_accepts, worked_tables):
    design = make_design(worked_tables.datapath())
    assert lint.lint(design) == ()
    assert yosys_accepts(design) == ()


@pytest.fixture
def slang(lint):
    skip_without("lark", "pyslang")
    return lint.lint_with_slang


@pytest.mark.hdl
def test_every_top_of_the_library_is_clean_for_slang_and_verible(slang):
    sources = dict(top for path in library() for top in tops(load(path).datapath))
    assert len(sources) == 2 * len(library()) >= 42
    assert slang(sources) == ()


@pytest.mark.hdl
def test_every_hand_written_module_is_clean_for_slang_and_verible(slang):
    blocks = [(path.name, path.read_text(encoding="ascii")) for path in sorted((FPGA / "rtl").glob("*.sv"))]
    controls = [load(path).datapath for name in CONTROLS for path in library(name)]
    registers = ("smartnic_registers.sv", emit_register_file(make_smartnic_registers()))
    assert (
        slang({"": (*blocks, *((f"{each.name}.sv", write_top_module(each)) for each in controls), registers)})
        == ()
    )


@pytest.mark.hdl
def test_slang_finds_a_net_that_nothing_reads(slang):
    sound = block("count_action_flag")
    name, text = sound.sources[0]
    faulty = text.replace("  logic flag_q;", "  logic flag_q, spare;\n  assign spare = set_i;")
    found = slang({sound.top: ((name, faulty),)})
    assert [line for line in found if f"{name}:13:" in line and "spare" in line]


@pytest.mark.hdl
def test_bits_of_values_are_clean(lint, yosys_accepts):
    pytest.importorskip("lark")
    design = make_design(parse_text(BITS, "bits.ca").datapath)
    assert lint.lint(design) == ()
    assert yosys_accepts(design) == ()


@pytest.mark.long
@pytest.mark.hdl
@pytest.mark.parametrize("seed", [1, 2])
def test_tops_of_random_datapaths_are_clean(lint, yosys_accepts, random_datapaths, seed):
    design = make_design(random_datapaths.random_datapath(seed, 30))
    assert lint.lint(design) == ()
    assert yosys_accepts(design) == ()


@pytest.mark.long
@pytest.mark.hdl
@pytest.mark.parametrize("seed", [1])
def test_tops_with_formulas_are_clean(lint, yosys_accepts, random_datapaths, random_formulas, seed):
    datapath = random_formulas.with_formulas(random_datapaths.random_datapath(seed, 8), seed)
    design = make_design(datapath)
    assert lint.lint(design) == ()
    assert yosys_accepts(design) == ()


@pytest.mark.hdl
def test_a_finding_names_file_and_line(lint):
    sound = block("count_action_flag")
    name, text = sound.sources[0]
    faulty = replace(sound, sources=((name, text.replace(" && !clear_i", "")),))
    assert any(f"{name}:9:" in line and "clear_i" in line for line in lint.lint(faulty))


@pytest.mark.process
def test_yosys_refuses_what_is_driven_twice(yosys_accepts):
    sound = block("count_action_flag")
    name, text = sound.sources[0]
    doubled = text.replace("assign flag_o = flag_q;", "assign flag_o = flag_q;\n  assign flag_o = set_i;")
    assert yosys_accepts(replace(sound, sources=((name, doubled),))) != ()
