"""Datapaths: that of `tests/fpga/demo_datapath.py`, and random ones."""

import importlib.util
import sys
from pathlib import Path

import pytest


def _load(name):
    path = Path(__file__).resolve().parent.parent / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"lightbed_tests_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def demo():
    return _load("demo_datapath").demo()


@pytest.fixture(scope="session")
def random_datapath():
    return _load("random_datapaths").random_datapath
