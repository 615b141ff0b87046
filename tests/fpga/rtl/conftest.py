"""Facts and generators that the tests of the RTL share, and the tools that they need."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from needs import needs

from fpga.hdl import explain_missing

HERE = Path(__file__).parent


def _load(name: str, folder: Path = HERE) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"fpga_rtl_{name}", folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def worked_tables():
    return _load("worked_tables")


@pytest.fixture(scope="session")
def planted_faults():
    return _load("planted_faults")


@pytest.fixture(scope="session")
def random_datapaths():
    return _load("random_datapaths", HERE.parent)


@pytest.fixture(scope="session")
def random_formulas():
    return _load("random_formulas", HERE.parent)


def _needs(*tools: str) -> None:
    if reason := explain_missing(*tools):
        pytest.skip(reason)


@pytest.fixture(scope="session")
@needs("hdl")
def icarus():
    _needs("iverilog", "vvp")
    from fpga.hdl import icarus

    return icarus


@pytest.fixture(scope="session")
@needs("hdl")
def verilator():
    _needs("verilator", "make", "g++")
    from fpga.hdl import verilator

    return verilator


@pytest.fixture(scope="session")
@needs("hdl")
def lint():
    _needs("iverilog", "verilator", "verible-verilog-lint")
    from witnesses import lint

    return lint


@pytest.fixture(scope="session")
def simulate():
    pytest.importorskip("numba", reason="needs numba: pip install 'lightbed[fpga]'")
    from fpga.count_action.simulate import simulate

    return simulate


@pytest.fixture(scope="session")
def simulator_of():
    pytest.importorskip("numba", reason="needs numba: pip install 'lightbed[fpga]'")
    from fpga.count_action.simulate import compile_datapath

    return compile_datapath


DAILY_TOPS, LARGE_TOPS = {101: 24}, {101: 102, 102: 102}
"""Modules of the tops for Verilator, by seed: few tops, as each takes a build; the large ones for the long lane."""


@pytest.fixture(scope="session")
def verilated_top(verilator, random_datapaths, worked_tables):
    """Return a random datapath of so many modules with the worked tables, and its RTL."""

    @cache
    def build(seed: int, modules: int):
        datapath = worked_tables.joined_with(random_datapaths.random_datapath(seed, modules, f"top_{seed}"))
        return datapath, verilator.build(datapath, optimise_flag="-O1")

    return build


@pytest.fixture(scope="session")
def daily_tops():
    return DAILY_TOPS


@pytest.fixture(scope="session")
def large_tops():
    return LARGE_TOPS
