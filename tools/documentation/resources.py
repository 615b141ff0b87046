"""Table of the FPGA resources of all library modules, from the baseline that a test in `make test-long` checks."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fpga.hdl.synthesis import BASELINE_PATH


def write_resources_table() -> Iterator[str]:
    """Yield the lines of the table in `docs/reference/resources.md`."""
    cells = json.loads(BASELINE_PATH.read_text(encoding="ascii"))
    yield "| module | look-up tables | flip-flops |"
    yield "|---|---|---|"
    for name in sorted(cells, key=lambda cell: (cell.startswith("count_action"), cell)):
        yield f"| `{name}` | {cells[name]['lut']} | {cells[name]['ff']} |"
