"""`testbed runs|report`: look at what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.options import DEFAULT_RUNS, AsJson, RunsDirectory
from testbed.cli.output import DONE, print_answer, print_csv, print_json, print_lines, print_table

if TYPE_CHECKING:
    from testbed.measure.results.records import RunSummary


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("runs")(runs)
    app.command("report")(report)


def runs(
    runs_dir: RunsDirectory = DEFAULT_RUNS,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="A header and one line a run, with the columns of --json.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """List the runs of a results directory, the newest first."""
    from testbed.measure.results.store import RunStore

    if as_csv and as_json:
        raise typer.BadParameter("give --csv or --json, not both")
    found = RunStore(runs_dir).list_runs()
    if as_csv:
        print_csv(list(RUN_COLUMNS), [[column(run) for column in RUN_COLUMNS.values()] for run in found])
    elif as_json:
        print_json({"runs": [_summary_json(run) for run in found]})
    elif not found:
        print_lines([f"no runs in {runs_dir}: `make run` makes one"])
    else:
        columns = ["run", "lab", "status", "started (UTC)", "hosts", "simulated"]
        rows = [
            [run.run_id, run.lab, run.status, f"{run.started:%Y-%m-%d %H:%M:%S}", run.hosts, mark]
            for run in found
            for mark in ["SIMULATED" if run.simulated else "real"]
        ]
        print_table("Runs", columns, rows)
    return DONE


def _summary_json(run: RunSummary) -> dict[str, Any]:
    return {name: column(run) for name, column in RUN_COLUMNS.items()}


RUN_COLUMNS: Mapping[str, Callable[[RunSummary], Any]] = {
    "run_id": lambda run: run.run_id,
    "lab": lambda run: run.lab,
    "status": lambda run: run.status,
    "started": lambda run: run.started.isoformat(),
    "finished": lambda run: run.finished.isoformat() if run.finished else None,
    "simulated": lambda run: run.simulated,
    "hosts": lambda run: run.hosts,
    "directory": lambda run: str(run.directory),
    "error": lambda run: run.error,
}
"""Columns of `--csv` and keys of `--json`: what each takes from a run."""


def report(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="Run id, the beginning of one, or `last`.")],
    runs_dir: RunsDirectory = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> int:
    """Write a run's report again from what is stored, and say where it is."""
    from testbed.measure.report.page import write_report
    from testbed.measure.results.store import RunStore

    stored = RunStore(runs_dir).load(run_id)
    path = stored.summary.directory / "report.html"
    write_report(stored, path)
    count = len(stored.timings)
    document = _summary_json(stored.summary) | {"report": str(path), "timings": count}
    print_answer(document, [f"{path}  ({count} timings)"], as_json=as_json)
    return DONE
