"""Lint of the checks, which are written by hand like the blocks."""

import pytest
from witnesses.lint import VERIBLE_RULES

from fpga.formal.blocks import CHECKS_FOLDER
from fpga.hdl import explain_missing, find_tool
from fpga.hdl.tools import ToolFailed

WAIVED = ("PROCASSINIT", "WIDTHEXPAND", "UNUSEDSIGNAL", "UNUSEDPARAM", "CMPCONST")
"""Checks have registers that are known before the first edge, extend signed samples by assignment, keep what only
some parameters need, and take all parameters of their block."""


@pytest.mark.long
@pytest.mark.hdl
@pytest.mark.parametrize("path", sorted(CHECKS_FOLDER.glob("*.sv")), ids=lambda path: path.stem)
def test_checks_are_clean(path):
    if reason := explain_missing("verilator", "verible-verilog-lint"):
        pytest.skip(reason)
    waived = [f"-Wno-{each}" for each in WAIVED]
    try:
        find_tool("verilator").run(["--lint-only", "-Wall", "--no-timing", *waived, path], timeout_s=60)
        printed = find_tool("verible-verilog-lint").run([f"--rules={','.join(VERIBLE_RULES)}", path])
    except ToolFailed as error:
        printed = str(error)
    assert printed == ""
