"""The hand-written blocks of the portal under Icarus, against a model of each."""

import numpy as np
import pytest

from fpga.hdl import explain_missing, icarus

pytestmark = pytest.mark.skipif(
    bool(explain_missing("iverilog", "vvp")), reason=explain_missing("iverilog", "vvp")
)


@pytest.mark.hdl
@pytest.mark.parametrize("name", ["portal_source.sv", "portal_sink.sv", "register_pulses.sv"])
def test_block_does_what_its_model_does(register_blocks, name):
    rows = register_blocks.stimulus(name)
    came = icarus.run(register_blocks.design(name, register_blocks.TEXTS[name]), rows)
    assert np.array_equal(came, register_blocks.answers(name, rows))


def test_stimulus_of_the_fifo_is_worth_it(register_blocks):
    rows = register_blocks.stimulus("portal_sink.sv")
    ready, _, level = register_blocks.answers("portal_sink.sv", rows).T
    valid, _, pop = rows.T
    assert np.count_nonzero(level == 16) > 100
    assert np.count_nonzero(level == 0) > 100
    assert np.count_nonzero((level == 0) & (pop == 1)) > 50
    assert np.count_nonzero((ready == 0) & (valid == 1)) > 50
    assert np.count_nonzero((level > 0) & (ready & valid & pop == 1)) > 200
