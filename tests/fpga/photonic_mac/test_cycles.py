"""The cycles of an inference: the formula, the control modules in the simulator, and the printed table.

`preamble_control` and `photonic_mac_control` of the library run as they are. What is hand-written between them is
here a handful of delays: memories and converters, light, means, signs and additions. No number is computed.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fpga.photonic_mac import LayerCycles, Timing, cycles_of, total_cycles
from fpga.photonic_mac.__main__ import main
from fpga.photonic_mac.cycles import (
    DETECTION,
    MEMORY,
    MULTIPLIER,
    SIGNS_AND_TREE,
    Trace,
    measured,
)
from fpga.photonic_mac.network import LENET_SHAPES, beats_of

LENET = (
    LayerCycles(beats=14700, preamble=10, detection=5, fill=16, turnaround=2),
    LayerCycles(beats=1900, preamble=10, detection=5, fill=16, turnaround=2),
    LayerCycles(beats=70, preamble=10, detection=5, fill=16, turnaround=2),
)


def simulated_trace(shapes: Sequence[tuple[int, int]], timing: Timing | None = None) -> Trace:
    """Return the signals of one inference. Raises ImportError when the fast simulator cannot run."""
    timing = timing or Timing()
    loop = _Loop(shapes, timing)
    cycles = total_cycles(cycles_of(shapes, timing)) + 2
    rows = [loop.step() for _ in range(cycles)]
    return Trace(*np.array(rows, np.bool_).T)


class _Delay:
    """A bit that comes out so many cycles after it went in."""

    def __init__(self, cycles: int) -> None:
        self._bits = deque([False] * cycles)

    @property
    def out(self) -> bool:
        """Bit that comes out in this cycle."""
        return self._bits[0]

    def push(self, bit: bool) -> None:
        """Put in what goes in in this cycle, and end the cycle."""
        self._bits.append(bit)
        self._bits.popleft()


class _Running:
    """A datapath in the simulator, by names of ports, one cycle at a time."""

    def __init__(self, name: str) -> None:
        from fpga.count_action.ports import WORD_BITS, ports_of
        from fpga.count_action.simulate import compile_datapath
        from fpga.photonic_mac.control import library_datapath

        datapath = library_datapath(name)
        self._simulator = compile_datapath(datapath)
        self._ports = ports_of(datapath)
        self._word_bits = WORD_BITS
        self._row = np.zeros((1, self._ports.input_columns), np.uint64)

    def step(self, inputs: Mapping[str, int]) -> dict[str, bool]:
        """Run one cycle; inputs that are not named stay as they were. Return the outputs of one bit."""
        for name, value in inputs.items():
            port = self._ports.input(name)
            for word in range(port.words):
                self._row[0, port.column + word] = (
                    value >> (self._word_bits * word) & (1 << self._word_bits) - 1
                )
        row = self._simulator.run(self._row)[0].tolist()
        return {port.name: bool(row[port.column]) for port in self._ports.outputs if port.width == 1}


class _Loop:
    """Both control datapaths, and the delays between them."""

    def __init__(self, shapes: Sequence[tuple[int, int]], timing: Timing) -> None:
        self._control, self._detector = _Running("photonic_mac_control"), _Running("preamble_control")
        self._targets = deque(_control_targets(shape, len(shapes), timing.preamble) for shape in shapes)
        self._length = timing.preamble
        there = MEMORY + MULTIPLIER + timing.delay
        self._light, self._match = _Delay(there), _Delay(there + DETECTION)
        self._sent, self._partial = _Delay(MEMORY), _Delay(SIGNS_AND_TREE)
        self._waiting = 0
        self._layer_ended = True

    def step(self) -> tuple[bool, ...]:
        """Run one cycle: start, heading, sending, light, open, partial, result, finished."""
        start = self._layer_ended and bool(self._targets)
        partial, light = self._partial.out, self._light.out
        seen = self._control.step({**self._started(start), "partial_valid_i": partial})
        heading, sending = seen["sequencer_heading_o"], seen["sequencer_sending_o"]
        is_open = self._detect(start)
        self._light.push(heading or sending)
        self._match.push(heading)
        self._queue(is_open, start)
        self._sent.push(sending)
        self._layer_ended = seen["sequencer_layer_done_o"]
        result, finished = seen["accumulator_result_valid_o"], seen["layers_finished_o"]
        return start, heading, sending, light, is_open, partial, result, finished

    def _started(self, start: bool) -> dict[str, int]:
        """Return the inputs of a cycle in which a layer starts: its targets come in force in the next one."""
        shadow = {"target_shadow_i": self._targets.popleft()} if start else {}
        return {"start_i": start, "commit_i": start, **shadow}

    def _detect(self, start: bool) -> bool:
        """Return whether the detector is open: the preamble stands at place 0."""
        targets = self._length << 24 | self._length << 16 | 1
        inputs = {
            "match_i": self._match.out,
            "restart_i": start,
            "commit_i": start,
            "target_shadow_i": targets,
        }
        return self._detector.step(inputs)["preamble_control_locked_o"]

    def _queue(self, is_open: bool, start: bool) -> None:
        """Let beats that were sent wait until the detector is open; one leaves in a cycle."""
        leaves = is_open and self._waiting > 0
        self._partial.push(leaves)
        self._waiting = 0 if start else self._waiting + self._sent.out - leaves


def _control_targets(shape: tuple[int, int], layers: int, preamble: int) -> int:
    """Return all targets of `photonic_mac_control` for one layer, as `photonic_inference.sv` commits them."""
    outputs, beats = shape[0], beats_of(shape[1])
    fields = (
        *((1, 16), (preamble, 16), (beats, 16), (outputs * beats, 24), (outputs, 16)),
        *((beats, 16), (1, 16), (layers, 16), (1, 16), (0, 32)),
    )
    packed, place = 0, 0
    for value, width in fields:
        packed |= value << place
        place += width
    return packed


def test_the_formula_for_lenet():
    assert cycles_of(LENET_SHAPES) == LENET
    assert total_cycles(LENET) == 16_670 + 3 * (10 + 5 + 16 + 2) == 16_769


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
    assert measured(simulated_trace(shapes, timing)) == cycles_of(shapes, timing)


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
    with pytest.raises(ValueError, match="0 layers began"):
        measured(silent)
    begun = replace(silent, start=np.arange(9) == 0, finished=np.arange(9) == 8)
    with pytest.raises(ValueError, match="never 1"):
        measured(begun)
