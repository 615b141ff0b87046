"""The generator of random datapaths, which is a module next to the tests, and a small datapath to look at."""

import importlib.util
import sys
from pathlib import Path

import pytest

from fpga.count_action import (
    Action,
    ActionKind,
    Condition,
    Count,
    CountKind,
    Datapath,
    Module,
    Ref,
    Signal,
    SignalKind,
    Target,
)


@pytest.fixture(scope="session")
def generated():
    path = Path(__file__).resolve().parents[1] / "random_datapaths.py"
    spec = importlib.util.spec_from_file_location("lightbed_tests_random_datapaths", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def small():
    """Return two streams of signed samples that leave together; every third beat is marked while `go` is 1."""
    pair = (Ref("x", index=0), Ref("x", index=1))
    join = Module(
        "join",
        (Count("both", CountKind.LEVEL, "n", pair, width=2),),
        (Target("n", 2, 2),),
        (Action(ActionKind.STREAM, "both", "out", pair, width=8, signed=True),),
    )
    third = Module(
        "third",
        (Count("beats", CountKind.ACCUMULATE, "n", (Ref("out", "join"),), gate=(Condition(Ref("go")),)),),
        (Target("n", 3),),
        (Action(ActionKind.PULSE, "beats", "mark"),),
    )
    inputs = (Signal("x", SignalKind.STREAM, 2, 1, 8, signed=True), Signal("go", SignalKind.FLAG))
    return Datapath("small", inputs, (join, third))
