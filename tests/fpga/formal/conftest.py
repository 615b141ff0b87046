"""Proofs that the tests share: each takes seconds, so each is made once."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from needs import needs

from fpga.formal.sby import TOOLS
from fpga.hdl import explain_missing

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
@needs("hdl")
def prover(warm_yosys):
    """Return the tools of a proof."""
    if reason := explain_missing(*TOOLS):
        pytest.skip(reason)
    from fpga.formal import sby

    return sby


@pytest.fixture(scope="session")
def mutants():
    spec = importlib.util.spec_from_file_location("fpga_formal_mutants", HERE / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
