"""`testbed nccl|runs|report`: measure collectives, look at what was measured, read other people's results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from testbed.cli.measuring import Sizes, measure_lab
from testbed.cli.options import DEFAULT_RUNS, AsJson, Groups, HostsMode, Method, RunsDirectory, Simplex
from testbed.cli.output import DONE, print_json, print_lines, print_table
from testbed.errors import ResultsError
from testbed.measure.nccl_import import import_nccl
from testbed.measure.nccl_table import NcclTable, table_json
from testbed.measure.records import RunSummary
from testbed.measure.report import write_report
from testbed.measure.store import RunStore


def nccl(
    lab_file: Annotated[Path | None, typer.Argument(metavar="[LAB]", help="Lab file to measure.")] = None,
    import_file: Annotated[
        Path | None, typer.Option("--import", metavar="FILE", help="Read nccl-tests output, text or JSON.")
    ] = None,
    simplex: Simplex = False,
    method: Method = "geometric",
    demand: Groups = None,
    hosts: HostsMode = "auto",
    sizes: Sizes = "1KiB:8MiB",
    deadline_s: Annotated[float, typer.Option("--deadline", help="Seconds until hosts end it.")] = 60.0,
    runs_dir: RunsDirectory = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> int:
    """Measure AllReduce on a lab whose circuits stand, or import results of nccl-tests."""
    if (lab_file is None) == (import_file is None):
        raise ResultsError("give either a lab file to measure, or --import FILE with results of nccl-tests")
    if import_file is not None:
        _show_import(import_nccl(import_file), as_json=as_json)
        return DONE
    assert lab_file is not None
    return measure_lab(
        lab_file,
        simplex=simplex,
        method=method,
        demand=demand,
        hosts=hosts,
        sizes=sizes,
        deadline_s=deadline_s,
        runs_dir=runs_dir,
        as_json=as_json,
    )


def _show_import(table: NcclTable, *, as_json: bool) -> None:
    document: dict[str, Any] = table_json(table)
    if as_json:
        print_json(document)
        return
    rows = document["results"]
    columns = [key for key in rows[0] if not isinstance(rows[0][key], dict)] if rows else []
    print_table("Imported results", columns, [[row.get(key, "") for key in columns] for row in rows])
    print_lines([f"problem: {problem}" for problem in document.get("problems", [])])


def runs(runs_dir: RunsDirectory = DEFAULT_RUNS, as_json: AsJson = False) -> int:
    """List the runs of a results directory, the newest first."""
    found = RunStore(runs_dir).list_runs()
    if as_json:
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
    finished = run.finished.isoformat() if run.finished else None
    return {
        "run_id": run.run_id,
        "lab": run.lab,
        "status": run.status,
        "started": run.started.isoformat(),
        "finished": finished,
        "simulated": run.simulated,
        "hosts": run.hosts,
        "directory": str(run.directory),
        "error": run.error,
    }


def report(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="Run id, the beginning of one, or `last`.")],
    runs_dir: RunsDirectory = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> int:
    """Write a run's report anew from what is stored, and say where it is."""
    stored = RunStore(runs_dir).load(run_id)
    path = stored.summary.directory / "report.html"
    write_report(stored, path)
    if as_json:
        print_json(_summary_json(stored.summary) | {"report": str(path), "timings": len(stored.timings)})
    else:
        print_lines([f"{path}  ({len(stored.timings)} timings)"])
    return DONE
