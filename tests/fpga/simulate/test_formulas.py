"""Random datapaths with formulas and extreme samples: a plain interpreter, both simulators, and the hardware."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from needs import needs

from fpga.count_action import check, parse_text
from fpga.count_action.language.unparse import unparse
from fpga.count_action.ports import make_ports
from fpga.count_action.simulate.port_values import pack_row, unpack_row
from fpga.hdl import explain_missing
from fpga.hdl.cosimulation import find_first_mismatch, measure_coverage, unpack_bits

MODULES, CYCLES, TOPS = 6, 100, 32
RUN = 9
"""Of these datapaths, with more than fifty modules together. `make test-long` runs hundreds."""
MANY, MANY_TOPS = 56, 9
ENOUGH_OF_A_CONSTRUCT, ENOUGH_FIRES, ENOUGH_FIRES_OF_MANY = 20, 150, 4000
CONSTRUCTS = (
    "+", "-", "max", "min", "==", "!=", "<", "<=", ">", ">=", "and", "or", "not", "if", "valid", "count", "target",
    "table", "<<", ">>", "slice", "concat",
)  # fmt: skip
REDUCTIONS = (
    "emit max",
    "emit min",
    "with index",
    "taken",
    "bound",
    "store",
    "ranked store",
    "store of a number",
    "memory",
    "read",
    "store word",
)
CHOICES = (
    "buffered", "wide stream", "wide", "turns", "priority", "until last", "merge", "ends", "always", "never", "split"
)  # fmt: skip


def beside(name):
    path = Path(__file__).resolve().parents[1] / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"lightbed_tests_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def formulas():
    return beside("random_formulas")


@pytest.fixture(scope="module")
def datapaths(generated, formulas):
    return [
        formulas.with_formulas(generated.random_datapath(seed, MODULES, f"formulas_{seed}"), seed)
        for seed in range(TOPS)
    ]


@pytest.fixture(scope="module")
def runs(generated, datapaths):
    """Return the datapaths with a stimulus each, and what the fast simulator makes of it."""
    pytest.importorskip("numba", reason="needs numba: pip install 'lightbed[fpga]'")
    from fpga.count_action.simulate import simulate

    stimuli = [
        generated.constructive_stimulus(each, CYCLES, seed) for seed, each in enumerate(datapaths[:RUN])
    ]
    return [(d, rows, simulate(d, rows)) for d, rows in zip(datapaths[:RUN], stimuli, strict=True)]


def test_every_construct_occurs_often(datapaths, formulas):
    found = sum((formulas.constructs(each) for each in datapaths), Counter())
    assert {name: found[name] for name in CONSTRUCTS if found[name] < ENOUGH_OF_A_CONSTRUCT} == {}
    assert {name: found[name] for name in REDUCTIONS if found[name] < 5} == {}
    assert {name: found[name] for name in CHOICES if found[name] < 3} == {}
    assert sum(map(formulas.uses_values, datapaths)) >= 5 * TOPS


@pytest.mark.slow
def test_they_are_valid_and_can_be_written_and_read(datapaths):
    pytest.importorskip("lark", reason="needs lark: pip install 'lightbed[fpga]'")
    for datapath in datapaths:
        assert check(datapath) == ()
        assert parse_text(unparse(datapath), f"{datapath.name}.ca").datapath == datapath


@pytest.mark.slow
def test_hexadecimal_constants_mean_the_same(datapaths):
    pytest.importorskip("lark", reason="needs lark: pip install 'lightbed[fpga]'")
    rewritten = 0
    for datapath in datapaths[:RUN]:
        text, changed = re.subn(
            r"(?<![A-Za-z0-9_])[0-9]+(?![A-Za-z0-9_])", lambda each: hex(int(each[0])), unparse(datapath)
        )
        assert parse_text(text, f"{datapath.name}.ca").datapath == datapath
        rewritten += changed
    assert rewritten >= 500


def interpreted(datapath, rows):
    """Return what the plain interpreter makes of a stimulus."""
    interpreter, ports = beside("plain_interpreter").Plain(datapath), make_ports(datapath)
    shown = [interpreter.step(unpack_row(ports.inputs, row)) for row in rows.tolist()]
    return np.array([pack_row(ports.outputs, each) for each in shown], np.uint64)


def test_the_plain_interpreter_agrees(runs):
    fires = sum(measure_coverage(datapath, rows, expected).fires for datapath, rows, expected in runs)
    found = [(d.name, find_first_mismatch(d, interpreted(d, rows), expected)) for d, rows, expected in runs]
    assert found == [(d.name, None) for d, _, _ in runs]
    assert sum(len(datapath.modules) for datapath, _, _ in runs) >= 50
    assert fires >= ENOUGH_FIRES


@pytest.mark.long
def test_properties_are_broken_in_the_same_cycles(datapaths, generated):
    from fpga.count_action.simulate import ReferenceSimulator

    held = broken = 0
    for seed, datapath in enumerate(datapaths[:12]):
        rows = generated.constructive_stimulus(datapath, 40, seed)
        interpreter, ports = beside("plain_interpreter").Plain(datapath), make_ports(datapath)
        for row in rows.tolist():
            interpreter.step(unpack_row(ports.inputs, row))
        expected = [(cycle, *each) for cycle, every in enumerate(interpreter.violated) for each in every]
        assert sorted(ReferenceSimulator(datapath).find_violations(rows)) == sorted(expected)
        held += 40 * sum(len(module.claims) for module in datapath.modules) - len(expected)
        broken += len(expected)
    assert min(held, broken) >= 200


@pytest.mark.hdl
@pytest.mark.long
@pytest.mark.timeout(3600)
@needs("hdl")
def test_five_hundred_modules_agree(generated, formulas):
    """In the plain interpreter, the fast simulator and Icarus, and every third top in Verilator, too.

    Both run the same SystemVerilog, and g++ takes a minute or more for the model of one top.
    """
    if reason := explain_missing("iverilog", "vvp", "verilator", "make", "g++"):
        pytest.skip(reason)
    pytest.importorskip("numba", reason="needs numba: pip install 'lightbed[fpga]'")
    from fpga.count_action.simulate import simulate
    from fpga.hdl import icarus, verilator

    modules, in_verilator, found, fires, chosen = 0, 0, Counter(), 0, 0
    for seed in range(1000, 1000 + MANY_TOPS):
        made = generated.random_datapath(seed, MANY, f"many_{seed}")
        datapath = formulas.with_formulas(made, seed)
        rows = generated.constructive_stimulus(datapath, CYCLES, seed)
        expected = simulate(datapath, rows)
        assert find_first_mismatch(datapath, interpreted(datapath, rows), expected) is None
        assert find_first_mismatch(datapath, icarus.run(datapath, rows), expected) is None
        if seed % 3 == 0:
            with closing(verilator.build(datapath, optimise_flag="-O0")) as rtl:
                rtl.reset()
                assert find_first_mismatch(datapath, rtl.run(rows), expected) is None
            in_verilator += len(datapath.modules)
        modules += len(datapath.modules)
        found += formulas.constructs(datapath)
        fires += measure_coverage(datapath, rows, expected).fires
        chosen += choices(datapath, expected)
    assert modules >= 500
    assert in_verilator >= 150
    assert {name: found[name] for name in CONSTRUCTS if found[name] < 75} == {}
    assert {name: found[name] for name in ("wins", *REDUCTIONS, *CHOICES) if found[name] < 10} == {}
    assert fires >= ENOUGH_FIRES_OF_MANY
    assert chosen >= 500


def choices(datapath, rows):
    """Return how often a stream was chosen (R19)."""
    fired = unpack_bits(rows, make_ports(datapath).find_output("fire_o"))
    places = [place for place, (_, count) in enumerate(datapath.list_counts()) if count.order]
    return int(fired[:, places].sum())


@pytest.mark.long
def test_the_reference_agrees(runs):
    from fpga.count_action.simulate import ReferenceSimulator

    assert [
        (d.name, find_first_mismatch(d, ReferenceSimulator(d).run(rows), expected))
        for d, rows, expected in runs
    ] == [(d.name, None) for d, _, _ in runs]


@pytest.mark.translates
@pytest.mark.hdl
@needs("hdl")
def test_the_hardware_agrees(runs):
    if reason := explain_missing("iverilog", "vvp"):
        pytest.skip(reason)
    from fpga.hdl import icarus

    assert [
        (d.name, find_first_mismatch(d, expected, icarus.run(d, rows))) for d, rows, expected in runs
    ] == [(d.name, None) for d, _, _ in runs]
