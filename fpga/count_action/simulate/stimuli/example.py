"""An example stimulus for a datapath, to begin with: its own names, and expectations that are met."""

from __future__ import annotations

import csv
import io

from fpga.count_action.model import Datapath
from fpga.count_action.simulate.reference import Reference
from fpga.count_action.simulate.signals import Wire, input_wires
from fpga.count_action.simulate.stimuli.collector import EXPECT, Collector


def example_stimulus(datapath: Datapath, cycles: int = 16) -> str:
    """Return a stimulus in CSV for this datapath: all that counts comes in, and what then fires is expected."""
    wires = [
        wire for wire in input_wires(datapath) if not wire.name.startswith(("target_shadow", "clear_status"))
    ]
    rows = [_example_row(wires, cycle) for cycle in range(cycles)]
    collector = Collector(datapath, "<example>")
    for row in rows:
        collector.cycle(((wire, False, value, 1) for wire, value in zip(wires, row, strict=True)), 1)
    run = list(Reference(datapath).cycles(collector.stimulus().rows))
    fires = [f"{EXPECT}fire[{each.module}.{each.count}]" for each in run[0].counts]
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    table.writerow(["cycle", *(_short(wire.name) for wire in wires), *fires])
    for cycle, (row, seen) in enumerate(zip(rows, run, strict=True)):
        table.writerow([cycle, *row, *(int(count.fires) for count in seen.counts)])
    return written.getvalue()


def _short(name: str) -> str:
    port, bracket, rest = name.partition("[")
    return f"{port[:-2]}{bracket}{rest}"


def _example_row(wires: list[Wire], cycle: int) -> list[int]:
    """Return a row: every other stream begins a cycle later, and outputs are not ready now and then."""
    row = []
    for place, wire in enumerate(wires):
        late = wire.low % 2 and cycle % 8 == 0
        if "_data_i" in wire.name:
            row.append((10 * cycle + place) % (1 << wire.width - 1) if wire.width > 1 else cycle & 1)
        elif wire.name.endswith("_ready_i"):
            row.append(int(cycle % 6 != 5))
        else:
            row.append(int(wire.name != "commit_i" and not late))
    return row
