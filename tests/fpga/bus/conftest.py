"""The datapath of `tests/fpga/demo_datapath.py`, the story that runs on every bus, and the tops in simulators."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from needs import needs

HERE = Path(__file__).resolve().parent


def _load(path):
    spec = importlib.util.spec_from_file_location(f"lightbed_tests_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def demo():
    return _load(HERE.parent / "demo_datapath.py").demo()


@pytest.fixture(scope="session")
def scenario():
    return _load(HERE / "scenario.py")


@pytest.fixture(scope="session")
def register_blocks():
    return _load(HERE / "register_blocks.py")


@pytest.fixture(scope="session")
def expected(demo, scenario):
    """Return the story on the plain simulator, which needs numpy alone, as JSON would give it back."""
    from fpga.bus import make_simulated_bus

    return scenario.tell(make_simulated_bus(demo, "reference"), demo)


@pytest.fixture(scope="session")
@needs("hdl")
def axi_simulator(demo):
    """Return the AXI4-Lite top under Verilator, built once."""
    from fpga.hdl import explain_missing, verilator
    from fpga.registers.build import make_axi_design

    reason = explain_missing("verilator", "make", "g++")
    if reason:
        pytest.skip(reason)
    return verilator.build(make_axi_design(demo), optimise_flag="-O1")


@pytest.fixture
@needs("hdl")
def told_in_icarus(demo, tmp_path, monkeypatch):
    """Return a function: the JSON that a test of `cocotb_story.py` writes about a top."""
    from fpga.hdl import explain_missing
    from fpga.registers.build import list_top_sources
    from fpga.registers.top import Top

    reason = explain_missing("iverilog", "vvp")
    if reason:
        pytest.skip(reason)
    pytest.importorskip("cocotbext.axi", reason="needs cocotbext-axi: pip install 'lightbed[hdl]'")
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    def tell(streams, test):
        sources = []
        for name, text in list_top_sources(Top(demo, streams)):
            sources.append(tmp_path / name)
            sources[-1].write_text(text)
        monkeypatch.setenv("STORY_FILE", str(tmp_path / "story.json"))
        monkeypatch.syspath_prepend(HERE)
        top = Top(demo, streams).name
        runner = get_runner("icarus")
        runner.build(sources=sources, hdl_toplevel=top, build_dir=tmp_path, timescale=("1ns", "1ps"))
        results = runner.test(
            hdl_toplevel=top, test_module="cocotb_story", testcase=test, build_dir=tmp_path, test_dir=tmp_path
        )
        assert get_results(results) == (1, 0)
        return json.loads((tmp_path / "story.json").read_text())

    return tell
