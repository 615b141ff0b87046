"""The cycles of an inference: the formula, the control modules in the simulator, and the printed table."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fpga.photonic_mac import LayerCycles, Timing, calculate_cycles, sum_cycles
from fpga.photonic_mac.__main__ import main
from fpga.photonic_mac.cycles import Trace, measure_layers
from fpga.photonic_mac.network import LENET_SHAPES

LENET = (
    LayerCycles(beats=14700, preamble=10, detection=5, fill=16, turnaround=2),
    LayerCycles(beats=1900, preamble=10, detection=5, fill=16, turnaround=2),
    LayerCycles(beats=70, preamble=10, detection=5, fill=16, turnaround=2),
)


def test_the_formula_for_lenet():
    assert calculate_cycles(LENET_SHAPES) == LENET
    assert sum_cycles(LENET) == 16_670 + 3 * (10 + 5 + 16 + 2) == 16_769


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shapes", "timing"),
    [
        (LENET_SHAPES, Timing()),
        (((3, 40), (2, 3)), Timing(preamble=1, delay=0)),
        (((1, 1), (1, 1), (1, 1), (1, 1)), Timing(preamble=15, delay=15)),
    ],
)
def test_the_simulated_control_takes_the_cycles_of_the_formula(shapes, timing):
    pytest.importorskip("lark", reason="needs lark: pip install 'lightbed[fpga]'")
    pytest.importorskip("numba", reason="needs numba: pip install 'lightbed[fpga]'")
    from fpga.photonic_mac.control import simulate_trace

    assert measure_layers(simulate_trace(shapes, timing)) == calculate_cycles(shapes, timing)


def test_explain_prints_the_same_lines(capsys):
    assert main(["explain"]) == 0
    lines = {line[:30].strip(): line[30:].split() for line in capsys.readouterr().out.splitlines()}
    assert lines["MAC beats"] == ["14700", "1900", "70", "16670"]
    assert lines["preamble"] == ["10", "10", "10", "30"]
    assert lines["detection"] == ["5", "5", "5", "15"]
    assert lines["pipeline fill"] == ["16", "16", "16", "48"]
    assert lines["turnaround and normalisation"] == ["2", "2", "2", "6"]
    assert lines["total"] == ["14733", "1933", "103", "16769"]
    assert "16769 cycles, 66.2 us at 253.44 MHz"[:30] in lines


def test_the_page_shows_what_explain_prints(capsys):
    main(["explain"])
    page = Path(__file__).parents[3] / "docs" / "reference" / "photonic-mac.md"
    shown = [line.strip() for line in page.read_text(encoding="utf-8").splitlines()]
    for line in capsys.readouterr().out.splitlines():
        assert line.strip() in shown


def test_explain_as_json(capsys):
    assert main(["explain", "--json", "--layers", "33-2-1", "--preamble", "3", "--delay", "0"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["total"] == 6 + 1 + 2 * (3 + 5 + 9 + 2)
    assert [layer["beats"] for layer in document["layers"]] == [6, 1]


@pytest.mark.parametrize(
    "arguments",
    [["--layers", "784"], ["--layers", "a-b"], ["--layers", "3-0"], ["--preamble", "0"], ["--delay", "16"]],
)
def test_options_that_make_no_sense_are_refused(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["explain", *arguments])
    assert "error:" in capsys.readouterr().err


def test_a_layer_that_never_ended_is_reported():
    silent = Trace(*[np.zeros(9, np.bool_)] * 8)
    with pytest.raises(ValueError, match=r"0 layers started, but 0 ended\. Was the run long enough\?"):
        measure_layers(silent)
    begun = replace(silent, is_start=np.arange(9) == 0, is_finished=np.arange(9) == 8)
    with pytest.raises(ValueError, match="a signal of the run never rose"):
        measure_layers(begun)
