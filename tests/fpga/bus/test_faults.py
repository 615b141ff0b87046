"""Faults planted into the registers and the portal, and which rung finds each.

`unit`: a block alone against its model. `replay`: the story as Verilator went through it, pin by pin, in Icarus.
"""

from dataclasses import replace

import numpy as np
import pytest

from fpga.hdl import explain_missing, icarus

pytestmark = pytest.mark.skipif(
    bool(explain_missing("iverilog", "vvp")), reason=explain_missing("iverilog", "vvp")
)

# What it is: the rung that finds it, the file, the text in it, and what stands there instead.
FAULTS = {
    "a taken beat is offered again": ("unit", "portal_source.sv", "(valid_q & ~ready_i)", "valid_q"),
    "a push forgets waiting beats": ("unit", "portal_source.sv", "(valid_q & ~ready_i) | pushed", "pushed"),
    "a push ignores the mask": ("unit", "portal_source.sv", "push_i ? mask_i : '0", "{Streams{push_i}}"),
    "a full FIFO takes beats": ("unit", "portal_sink.sv", "= !level_q[LevelWidth-1]", "= 1'b1"),
    "a FIFO is full one early": (
        "unit",
        "portal_sink.sv",
        "!level_q[LevelWidth-1]",
        "!(&level_q[LevelWidth-2:0])",
    ),
    "an empty FIFO pops": ("unit", "portal_sink.sv", "pop_i && (level_q != '0)", "pop_i"),
    "push with pop loses a level": ("unit", "portal_sink.sv", "else if (pop && !push)", "else if (pop)"),
    "pulses are latched": ("unit", "register_pulses.sv", "pulses_q + 1'b1", "32'd1"),
    "COMMIT is CLEAR_STATUS": (
        "replay",
        "demo_axi.sv",
        "dp_commit_i = CONTROL_o[0]",
        "dp_commit_i = CONTROL_o[1]",
    ),
    "RESET leaves the datapath": ("replay", "demo_axi.sv", "reset || CONTROL_o[2]", "reset"),
    "targets change places": (
        "replay",
        "demo_axi.sv",
        "TARGET_book_far_o, TARGET_book_many_o",
        "TARGET_book_many_o, TARGET_book_far_o",
    ),
    "a status bit is another's": (
        "replay",
        "demo_axi.sv",
        "OVERSHOOT_i = dp_overshoot_o",
        "OVERSHOOT_i = dp_saturated_o",
    ),
    "a stream is pushed with another": (
        "replay",
        "demo_axi.sv",
        ".push_i(IN_wide_PUSH_push_o)",
        ".push_i(IN_x_PUSH_push_o)",
    ),
}


class Tape:
    """A simulator that keeps what went in and what came out."""

    def __init__(self, simulator):
        self._simulator = simulator
        self.design = simulator.design
        self.rows, self.outputs = [], []

    def run(self, rows):
        outputs = self._simulator.run(rows)
        self.rows.append(rows)
        self.outputs.append(outputs)
        return outputs

    def close(self):
        pass


@pytest.fixture(scope="module")
def tape(demo, scenario, axi_simulator):
    from fpga.bus.axi_pins import AxiPinsBus

    axi_simulator.reset()
    tape = Tape(axi_simulator)
    scenario.tell(AxiPinsBus(tape), demo)
    return np.concatenate(tape.rows), np.concatenate(tape.outputs)


@pytest.mark.translates
def test_icarus_replays_what_verilator_did(tape, axi_simulator):
    rows, outputs = tape
    assert len(rows) > 2000
    assert np.array_equal(icarus.run(axi_simulator.design, rows), outputs)


@pytest.mark.long
@pytest.mark.hdl
@pytest.mark.parametrize("fault", [name for name, (rung, *_) in FAULTS.items() if rung == "unit"])
def test_found_by_the_block_alone(register_blocks, fault):
    _, file, right, wrong = FAULTS[fault]
    rows = register_blocks.stimulus(file)
    came = icarus.run(register_blocks.design(file, planted(register_blocks.TEXTS[file], right, wrong)), rows)
    assert not np.array_equal(came, register_blocks.answers(file, rows))


@pytest.mark.long
@pytest.mark.parametrize("fault", [name for name, (rung, *_) in FAULTS.items() if rung == "replay"])
def test_found_by_the_replay(tape, axi_simulator, fault):
    _, file, right, wrong = FAULTS[fault]
    sources = dict(axi_simulator.design.sources)
    sources[file] = planted(sources[file], right, wrong)
    rows, outputs = tape
    faulty = replace(axi_simulator.design, sources=tuple(sources.items()))
    assert not np.array_equal(icarus.run(faulty, rows), outputs)


def planted(text, right, wrong):
    assert text.count(right) == 1
    return text.replace(right, wrong)
