"""`testbed runs [query|compare|trend]`, `testbed report`: look at what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lightbed.wording import counted
from testbed.cli.options import DEFAULT_RUNS, AsJson, RunsDirectory
from testbed.cli.output import print_answer, print_csv, print_json, print_lines, print_table
from testbed.commands.documents import CHANGES, DONE

if TYPE_CHECKING:
    from testbed.measure.results.records import RunSummary
    from testbed.measure.trends.comparison import RowPair

Run = Annotated[str, typer.Argument(metavar="RUN", help="Run id, the beginning of one, or `last`.")]
RunA = Annotated[str, typer.Argument(metavar="A", help="Run id, the beginning of one, or `last`.")]
RunB = Annotated[str, typer.Argument(metavar="B", help="The run to compare with it.")]
AsCsv = Annotated[
    bool, typer.Option("--csv", help="A header and one line a row, with the columns of --json.")
]
Statement = Annotated[
    str,
    typer.Argument(
        metavar="SQL", help="Tables: runs, timings, nic_bytes, phases, epochs, losses. DuckDB's dialect."
    ),
]
Rate = Annotated[
    float,
    typer.Option(
        "--rate",
        metavar="SHARE",
        min=0.0001,
        max=0.5,
        help="How often the report may be wrong without a change.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="List the runs of a results directory, the newest first.")
    group.callback(invoke_without_command=True)(runs)
    group.command("query")(query)
    group.command("compare")(compare)
    group.command("trend")(trend)
    app.add_typer(group, name="runs")
    app.command("report")(report)


def runs(
    context: typer.Context,
    runs_dir: RunsDirectory = DEFAULT_RUNS,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="A header and one line a run, with the columns of --json.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """List the runs of a results directory, the newest first; or ask them something."""
    if context.invoked_subcommand is not None:
        _check_nothing_given(context)
        return DONE
    return _list_runs(runs_dir, as_csv=as_csv, as_json=as_json)


def _check_nothing_given(context: typer.Context) -> None:
    """Raise `typer.BadParameter` for options before the word of a command, which would be lost."""
    for name in ("runs_dir", "as_csv", "as_json", "server", "database"):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(
                f"write options behind the command: testbed runs {context.invoked_subcommand} ..."
            )


def _list_runs(runs_dir: Path, *, as_csv: bool, as_json: bool) -> int:
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


def query(
    statement: Statement,
    runs_dir: RunsDirectory = DEFAULT_RUNS,
    as_csv: AsCsv = False,
    as_json: AsJson = False,
) -> int:
    """Ask the runs in SQL: of a copy in memory, so that nothing is changed and no other file is reached."""
    from testbed.measure.trends.sql import query_runs

    if as_csv and as_json:
        raise typer.BadParameter("give --csv or --json, not both")
    answer = query_runs(runs_dir, statement)
    if as_csv:
        print_csv(answer.columns, answer.rows)
    elif as_json:
        print_json({"columns": answer.columns, "rows": answer.rows})
    else:
        print_table(counted(len(answer.rows), "row"), answer.columns, answer.rows)
    return DONE


def compare(
    a: RunA, b: RunB, runs_dir: RunsDirectory = DEFAULT_RUNS, as_csv: AsCsv = False, as_json: AsJson = False
) -> int:
    """Compare what two runs measured, row by row, and say what else was different."""
    from testbed.measure.results.store import RunStore
    from testbed.measure.trends.comparison import compare_runs

    if as_csv and as_json:
        raise typer.BadParameter("give --csv or --json, not both")
    store = RunStore(runs_dir)
    one, other = store.load(a), store.load(b)
    found = compare_runs(one, other)
    names = {"a": one.summary.run_id, "b": other.summary.run_id}
    if as_json:
        print_json(names | found.as_json())
        return DONE
    if as_csv:
        print_csv(list(_COMPARED), [[column(row) for column in _COMPARED.values()] for row in found.rows])
        return DONE
    rows = [[column(row) for column in _COMPARED.values()] for row in found.rows]
    print_table(f"A = {names['a']}, B = {names['b']}: bus bandwidth in Mbit/s", list(_COMPARED), rows)
    if found.only_a or found.only_b:
        print_lines([f"measured by one of them only: {found.only_a} rows of A, {found.only_b} rows of B"])
    print_lines([f"{fact}: A {before or '-'}, B {after or '-'}" for fact, before, after in found.differences])
    return DONE


_COMPARED: Mapping[str, Callable[[RowPair], Any]] = {
    "configuration": lambda row: f"{row.before.topology}: {row.before.configuration}",
    "collective": lambda row: row.before.collective,
    "ranks": lambda row: row.before.ranks,
    "size_bytes": lambda row: row.before.size_bytes,
    "a_mbps": lambda row: row.before.busbw_mbps,
    "b_mbps": lambda row: row.after.busbw_mbps,
    "ratio": lambda row: f"{row.ratio:.3f}",
    "clear": lambda row: "yes" if row.is_clear else "no",
}
"""Columns of `runs compare`: what each takes from a pair of rows."""


def trend(
    lab: Annotated[str, typer.Option("--lab", metavar="NAME", help="Only this lab.")] = "",
    quantity: Annotated[
        Literal["bandwidth", "power"] | None, typer.Option("--quantity", help="Only this one.")
    ] = None,
    every_size: Annotated[
        bool, typer.Option("--every-size", help="All message sizes, not only the largest.")
    ] = False,
    rate: Rate = 0.05,
    runs_dir: RunsDirectory = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> int:
    """Find changes of bandwidth and optical power between runs. Exit code 2 when something was lost."""
    from testbed.measure.results.store import RunStore
    from testbed.measure.trends.report import find_trends, only
    from testbed.measure.trends.series import bandwidth_series, power_series

    stored = RunStore(runs_dir).list_runs()
    series = (*bandwidth_series(stored, every_size=every_size), *power_series(runs_dir, stored))
    report = find_trends(runs_dir, only(series, lab, quantity), rate)
    judged = len(report.series) - report.short
    lines = [f"{judged} series of {counted(len(stored), 'run')} judged"]
    if report.short:
        lines[0] += f", {report.short} too short (below 6 values)"
    lines += [line for change in report.changes for line in change.lines()] or ["no change of level"]
    print_answer(report.as_json(), lines, as_json=as_json)
    return CHANGES if report.regressions else DONE


def report(
    run_id: Run,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write it here, not beside the run's results."),
    ] = None,
    runs_dir: RunsDirectory = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> int:
    """Write a run's report again from what is stored, and say where it is."""
    from testbed.measure.report.page import write_report
    from testbed.measure.results.store import RunStore

    stored = RunStore(runs_dir).load(run_id)
    path = out or stored.summary.directory / "report.html"
    write_report(stored, path)
    count = len(stored.timings)
    document = _summary_json(stored.summary) | {"report": str(path), "timings": count}
    print_answer(document, [f"{path}  ({count} timings)"], as_json=as_json, output=path)
    return DONE
