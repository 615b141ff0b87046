"""`countaction test FILE`: compare the generated SystemVerilog with the simulator, cycle by cycle."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from fpga.cli.errors import print_message
from fpga.cli.options import AsJson, Parameters, SourceFile, parse_parameters

if TYPE_CHECKING:
    from fpga.count_action.model import Datapath
    from fpga.count_action.ports import Rows
    from fpga.hdl.cosimulation import Comparison

EPISODE_CYCLES = 500
"""Cycles between resets. Resets are frequent, because a count that has passed its target cannot fire before a reset."""


class Simulator(Protocol):
    """A simulator with its state."""

    def run(self, rows: Rows) -> Rows:
        """Return the outputs of the next cycles."""
        ...

    def reset(self) -> None:
        """Return to the state after power-on."""
        ...


Cycles = Annotated[int, typer.Option(min=1, max=10_000_000, help="Cycles of generated stimulus.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the generated stimulus.")]
WithVerilator = Annotated[
    bool,
    typer.Option("--verilator", help="Run Verilator, too. Its build takes half a minute."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("test")(cosimulate)


def cosimulate(
    file: SourceFile,
    parameters: Parameters = None,
    cycles: Cycles = 5000,
    seed: Seed = 0,
    *,
    verilator: WithVerilator = False,
    as_json: AsJson = False,
) -> int:
    """Run the RTL of FILE and the simulator on the same stimulus, and compare every port in every cycle."""
    from fpga.count_action import load
    from fpga.hdl.tools import HdlError

    datapath = load(file, parse_parameters(parameters)).datapath
    try:
        comparisons = [
            _compare_simulators(datapath, name, cycles, seed)
            for name in ("icarus", *(["verilator"] if verilator else []))
        ]
    except (HdlError, ValueError) as error:
        return print_message(str(error), as_json=as_json)
    is_equal = all(comparison.mismatch is None for comparison in comparisons)
    if as_json:
        print(
            json.dumps(
                {
                    "ok": is_equal,
                    "datapath": datapath.name,
                    "runs": [_make_document(comparison) for comparison in comparisons],
                }
            )
        )
    else:
        for comparison in comparisons:
            print("\n".join(_format_lines(comparison)))
    return 0 if is_equal else 1


def _compare_simulators(datapath: Datapath, simulator_name: str, cycles: int, seed: int) -> Comparison:
    from fpga.count_action.simulate import compile_datapath
    from fpga.hdl import icarus
    from fpga.hdl import verilator as verilator_runner
    from fpga.hdl.cosimulation import compare

    inputs = generate_inputs(datapath, cycles, seed)
    if simulator_name == "icarus":
        actual_outputs = icarus.run(datapath, inputs, episode_cycles=EPISODE_CYCLES)
    else:
        actual_outputs = _run_in_episodes(verilator_runner.build(datapath, optimise_flag="-O1"), inputs)
    return compare(
        datapath, simulator_name, inputs, _run_in_episodes(compile_datapath(datapath), inputs), actual_outputs
    )


def generate_inputs(datapath: Datapath, cycles: int, seed: int) -> Rows:
    """Return generated inputs, with another seed for every episode."""
    import numpy as np

    from fpga.hdl.stimulus import generate_stimulus

    starts = range(0, cycles, EPISODE_CYCLES)
    episode_inputs = [
        generate_stimulus(datapath, min(EPISODE_CYCLES, cycles - start), seed + start) for start in starts
    ]
    return np.concatenate(episode_inputs)


def _run_in_episodes(simulator: Simulator, inputs: Rows) -> Rows:
    """Return the outputs of a run with a reset before every episode."""
    import numpy as np

    outputs = []
    for start in range(0, len(inputs), EPISODE_CYCLES):
        simulator.reset()
        outputs.append(simulator.run(inputs[start : start + EPISODE_CYCLES]))
    return np.concatenate(outputs)


def _make_document(comparison: Comparison) -> dict[str, Any]:
    return {**asdict(comparison), "ok": comparison.mismatch is None}


def _format_lines(comparison: Comparison) -> list[str]:
    coverage = comparison.coverage
    mismatch_text = f"{comparison.mismatch.cycles if comparison.mismatch else 0} cycles with mismatches"
    event_counts = {
        "fires whose beat had to wait": coverage.stalls_at_fire,
        "commits while counting": coverage.commits_while_counting,
        "overshoots": coverage.overshoots,
        "saturations": coverage.saturations,
    }
    lines = [f"{comparison.simulator}: {coverage.cycles} cycles, {coverage.fires} fires, {mismatch_text}"]
    lines.append("  " + "; ".join(f"{name}: {count}" for name, count in event_counts.items()))
    if coverage.silent:
        lines.append(
            f"  never fired: {', '.join(coverage.silent)}. Another --seed or more --cycles may reach them."
        )
    if comparison.mismatch:
        lines.append(
            f"  first mismatch in cycle {comparison.mismatch.cycle} at {', '.join(comparison.mismatch.ports)}:"
        )
        lines += [f"    {line}" for line in comparison.window]
    return lines
