"""`countaction sim FILE`: run a datapath on a stimulus; write waveforms, check expectations, explain cycles."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fpga.cli.options import AsJson, Parameters, SourceFile, parse_parameters
from lightbed.output_file import write_output

if TYPE_CHECKING:
    from fpga.count_action.model import Datapath
    from fpga.count_action.ports import Rows
    from fpga.count_action.simulate.stimuli.collector import Stimulus
    from fpga.count_action.simulate.stimuli.files import UnmetExpectation

MAX_EXPLAINED_VALUES = 20_000
"""Largest product of cycles and counts for which the reference simulator runs instead of the fast one.

For short runs, compiling the fast simulator would take longer.
"""
MAX_SHOWN_FAILURES = 20
"""Largest number of failed expectations that are printed."""

StimulusFile = Annotated[
    Path | None,
    typer.Option("--stimulus", "-s", metavar="FILE", help="Inputs as .csv, .npz or .py; see --init."),
]
VcdFile = Annotated[Path | None, typer.Option("--vcd", metavar="FILE", help="Write the waveforms.")]
PngFile = Annotated[Path | None, typer.Option("--png", metavar="FILE", help="Draw the waveforms.")]
InitFile = Annotated[
    Path | None, typer.Option("--init", metavar="FILE", help="Write an example stimulus (CSV) and stop.")
]
Cycles = Annotated[
    int | None,
    typer.Option(
        min=1, max=10_000_000, help="Number of cycles: the stimulus is cut, or extended by idle cycles."
    ),
]
Explain = Annotated[bool, typer.Option("--explain", help="Print the trace of every cycle.")]


@dataclass(frozen=True)
class _Run:
    datapath: Datapath
    stimulus: Stimulus
    outputs: Rows
    failures: tuple[UnmetExpectation, ...]
    broken_properties: tuple[tuple[int, str, str, str], ...] = ()
    """Properties that did not hold: cycle, module, kind (`always`, `never` or `assume`) and name."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("sim")(sim)


def sim(
    file: SourceFile,
    parameters: Parameters = None,
    stimulus: StimulusFile = None,
    vcd: VcdFile = None,
    png: PngFile = None,
    init: InitFile = None,
    cycles: Cycles = None,
    *,
    explain: Explain = False,
    as_json: AsJson = False,
) -> int:
    """Simulate a datapath. Exit code 1 if an expectation or a property is not met."""
    from fpga.count_action import load
    from fpga.count_action.simulate.stimuli.files import load_stimulus
    from fpga.count_action.simulate.trace import explain_run

    datapath = load(file, parse_parameters(parameters)).datapath
    if init is not None:
        return _write_example_stimulus(datapath, init, as_json=as_json)
    if stimulus is None:
        raise typer.BadParameter("nothing to simulate: give --stimulus FILE (--init FILE writes an example)")
    run = _simulate(datapath, load_stimulus(datapath, stimulus, cycles), cycles)
    paths = _write_waveforms(run, vcd, png)
    lines = list(explain_run(datapath, run.stimulus.rows)) if explain else []
    if as_json:
        print(json.dumps(_make_document(run, paths) | ({"explanation": lines} if explain else {})))
    else:
        fires_text = ", ".join(f"{name} {times}" for name, times in _count_fires(run).items())
        lines += [f"{stimulus}: {len(run.outputs)} cycles; fires: {fires_text}"]
        if run.stimulus.expectations:
            met_count = len(run.stimulus.expectations) - len(run.failures)
            lines.append(f"{met_count} of {len(run.stimulus.expectations)} expectations met")
        print("\n".join([*lines, *(f"written: {path}" for path in paths)]))
        _print_failures(run, stimulus)
    return 1 if run.failures or run.broken_properties else 0


def _write_example_stimulus(datapath: Datapath, path: Path, *, as_json: bool) -> int:
    from fpga.count_action.simulate.stimuli.files import make_example_stimulus

    with path.open("x", encoding="utf-8") as file:  # never replace a stimulus that a user has written
        file.write(make_example_stimulus(datapath))
    if as_json:
        print(json.dumps({"ok": True, "written": [str(path)]}))
    else:
        print(
            f"{path}: example stimulus for {datapath.name}; the columns `expect:...` hold the expected "
            "outputs"
        )
    return 0


def _simulate(datapath: Datapath, stimulus: Stimulus, cycles: int | None) -> _Run:
    from fpga.count_action.simulate.compiled.simulator import compile_datapath
    from fpga.count_action.simulate.reference import ReferenceSimulator
    from fpga.count_action.simulate.stimuli.files import find_failures

    if cycles is not None:
        stimulus = _extend_stimulus(datapath, stimulus, cycles)
    number_of_counts = sum(1 for _ in datapath.list_counts())
    is_short = len(stimulus.rows) * number_of_counts <= MAX_EXPLAINED_VALUES
    outputs = (ReferenceSimulator(datapath) if is_short else compile_datapath(datapath)).run(stimulus.rows)
    has_claims = any(module.claims for module in datapath.modules)
    broken_properties = (
        tuple(ReferenceSimulator(datapath).find_violations(stimulus.rows)) if has_claims else ()
    )
    return _Run(datapath, stimulus, outputs, find_failures(stimulus, outputs), broken_properties)


def _extend_stimulus(datapath: Datapath, stimulus: Stimulus, cycles: int) -> Stimulus:
    """Return the stimulus, extended by idle cycles to at least `cycles`."""
    import numpy as np

    from fpga.count_action.simulate.stimuli.collector import Stimulus, make_idle_rows

    idle_rows = make_idle_rows(datapath, max(0, cycles - len(stimulus.rows)))
    return Stimulus(np.concatenate([stimulus.rows, idle_rows]), stimulus.expectations)


def _write_waveforms(run: _Run, vcd: Path | None, png: Path | None) -> list[str]:
    """Write the requested waveforms, and return the paths."""
    if vcd is not None:
        from fpga.count_action.simulate.waveforms.vcd import format_vcd

        write_output(vcd, format_vcd(run.datapath, run.stimulus.rows, run.outputs))
    if png is not None:
        from fpga.count_action.simulate.waveforms.plot import draw_waveforms

        draw_waveforms(run.datapath, run.stimulus.rows, run.outputs, png)
    return [str(path) for path in (vcd, png) if path is not None]


def _count_fires(run: _Run) -> dict[str, int]:
    from fpga.count_action.simulate.signals import list_output_wires

    wires = [wire for wire in list_output_wires(run.datapath) if wire.name.startswith("fire_o")]
    names = [f"{module.name}.{count.name}" for module, count in run.datapath.list_counts()]
    return {name: sum(wire.read_series(run.outputs)) for name, wire in zip(names, wires, strict=True)}


def _make_document(run: _Run, paths: list[str]) -> dict[str, Any]:
    failures = [
        {
            "cycle": failure.expectation.cycle,
            "line": failure.expectation.line,
            "name": failure.expectation.wire.name,
            "expected": failure.expectation.value,
            "actual": failure.actual_value,
        }
        for failure in run.failures
    ]
    return {
        "ok": not failures and not run.broken_properties,
        "datapath": run.datapath.name,
        "cycles": len(run.outputs),
        "fires": _count_fires(run),
        "expectations": len(run.stimulus.expectations),
        "failed": failures,
        "violated": [
            {"cycle": cycle, "module": module, "kind": kind, "property": name}
            for cycle, module, kind, name in run.broken_properties
        ],
        "written": paths,
    }


def _print_failures(run: _Run, stimulus_path: Path) -> None:
    from fpga.count_action.simulate.stimuli.files import tabulate_window

    for failure in run.failures[:MAX_SHOWN_FAILURES]:
        print(f"error: {stimulus_path}:{failure.expectation.line}:1: {failure}", file=sys.stderr)
    if len(run.failures) > MAX_SHOWN_FAILURES:
        print(f"error: {len(run.failures) - MAX_SHOWN_FAILURES} more failures", file=sys.stderr)
    for cycle, module, kind, name in run.broken_properties[:MAX_SHOWN_FAILURES]:
        print(
            f"error: property {name} of {module} (`{kind}`) does not hold in cycle {cycle} (R21)",
            file=sys.stderr,
        )
    if len(run.broken_properties) > MAX_SHOWN_FAILURES:
        print(
            f"error: {len(run.broken_properties) - MAX_SHOWN_FAILURES} more violated properties",
            file=sys.stderr,
        )
    if run.failures:
        print(
            "",
            *tabulate_window(run.datapath, run.stimulus.rows, run.outputs, run.failures[0]),
            sep="\n",
            file=sys.stderr,
        )
