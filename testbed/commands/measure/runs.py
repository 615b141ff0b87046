"""`testbed runs [query|compare|trend|explain]`, `testbed report`: read stored measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from lightbed.wording import format_count
from testbed.commands.context import CommandContext
from testbed.commands.declare import REQUIRED, Command, argument, option, output_file_option
from testbed.commands.documents import EXIT_CHANGES, EXIT_DONE, Document, TableDocument
from testbed.commands.groups import TableCommand

if TYPE_CHECKING:
    from testbed.measure.results.records import RunSummary
    from testbed.measure.trends.comparison import RunComparison
    from testbed.measure.trends.report import SeriesChange

RUN_HELP = "Run id, the beginning of one, or `last`."


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run of measurements: its lab, status and times, and the directory of its files."""

    run_id: str
    lab: str
    status: str
    started: str
    finished: str | None
    simulated: bool
    hosts: str
    directory: str
    error: str


RUN_COLUMNS = tuple(column.name for column in fields(RunRecord))
"""Columns of `--csv` and keys of `--json`."""


def _make_run_fields(run: RunSummary) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "lab": run.lab,
        "status": run.status,
        "started": run.started.isoformat(),
        "finished": run.finished.isoformat() if run.finished else None,
        "simulated": run.simulated,
        "hosts": run.hosts,
        "directory": str(run.directory),
        "error": run.error,
    }


@dataclass(frozen=True, kw_only=True)
class RunList(TableDocument):
    """The runs of a results directory, newest first."""

    runs: tuple[RunRecord, ...]

    def to_table(self) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        """Return a row for each run."""
        return RUN_COLUMNS, [[getattr(run, name) for name in RUN_COLUMNS] for run in self.runs]


@dataclass(frozen=True, kw_only=True)
class Runs(TableCommand, Command[RunList]):
    """`testbed runs`."""

    needs = "nothing"
    lane = "reading"
    role = "viewer"

    def run(self, context: CommandContext) -> RunList:
        """List the runs."""
        from testbed.measure.results.store import RunStore

        summaries = RunStore(context.runs_dir).list_runs()
        if summaries:
            rows = [
                [run.run_id, run.lab, run.status, f"{run.started:%Y-%m-%d %H:%M:%S}", run.hosts, source]
                for run in summaries
                for source in ["SIMULATED" if run.simulated else "real"]
            ]
            context.say_table("Runs", ["run", "lab", "status", "started (UTC)", "hosts", "simulated"], rows)
        else:
            context.say(f"no runs in {context.runs_dir}: `make run` makes one")
        return RunList(runs=tuple(RunRecord(**_make_run_fields(run)) for run in summaries))


@dataclass(frozen=True, kw_only=True)
class QueryAnswer(TableDocument):
    """The rows that an SQL statement returns, with the names of their columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def to_table(self) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        """Return columns and rows."""
        return self.columns, self.rows


@dataclass(frozen=True, kw_only=True)
class RunsQuery(TableCommand, Command[QueryAnswer]):
    """`testbed runs query`."""

    needs = "nothing"
    lane = "reading"
    role = "viewer"
    statement: Annotated[
        str,
        argument(
            "Tables: runs, timings, nic_bytes, ranks, flows, links, phases, epochs, losses. DuckDB's dialect.",
            "SQL",
            least=1,
            most=20_000,
            has_lines=True,
        ),
    ] = REQUIRED

    def run(self, context: CommandContext) -> QueryAnswer:
        """Query a copy of the runs in memory. Raises `ResultsError`."""
        from testbed.measure.trends.sql import query_runs

        answer = query_runs(context.runs_dir, self.statement)
        context.say_table(format_count(len(answer.rows), "row"), answer.columns, answer.rows)
        rows = tuple(
            tuple(str(cell) if isinstance(cell, datetime) else cell for cell in row) for row in answer.rows
        )
        return QueryAnswer(columns=answer.columns, rows=rows)  # times are text, as SQL writes them


@dataclass(frozen=True, kw_only=True)
class RowPair:
    """The same measurement in two runs, in Mbit/s of bus bandwidth.

    The difference is `clear` if the interquartile ranges of both runs' iterations do not overlap.
    """

    topology: str
    configuration: str
    collective: str
    ranks: int
    rings: int
    size_bytes: int
    a_mbps: float
    b_mbps: float
    ratio: float
    clear: bool
    cpu_limited: bool


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A fact that differs between two runs."""

    fact: str
    a: str
    b: str


COMPARISON_COLUMNS = (
    "configuration",
    "collective",
    "ranks",
    "size_bytes",
    "a_mbps",
    "b_mbps",
    "ratio",
    "clear",
)
"""Columns of the table of `runs compare`."""


@dataclass(frozen=True, kw_only=True)
class RunsComparison(TableDocument):
    """Comparison of two runs: common rows, numbers of rows in only one run, and facts that differ."""

    a: str
    b: str
    rows: tuple[RowPair, ...]
    only_a: int
    only_b: int
    differences: tuple[Difference, ...]

    def to_table(self) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        """Return a row for each measurement that both runs have."""
        return COMPARISON_COLUMNS, [
            [
                f"{row.topology}: {row.configuration}",
                row.collective,
                row.ranks,
                row.size_bytes,
                row.a_mbps,
                row.b_mbps,
                f"{row.ratio:.3f}",
                "yes" if row.clear else "no",
            ]
            for row in self.rows
        ]


@dataclass(frozen=True, kw_only=True)
class RunsCompare(TableCommand, Command[RunsComparison]):
    """`testbed runs compare`."""

    needs = "nothing"
    lane = "reading"
    role = "viewer"
    a: Annotated[str, argument(RUN_HELP, "A")] = REQUIRED
    b: Annotated[str, argument("Run to compare with it.", "B")] = REQUIRED

    def run(self, context: CommandContext) -> RunsComparison:
        """Compare the runs. Raises `ResultsError`."""
        from testbed.measure.results.store import RunStore
        from testbed.measure.trends.comparison import compare_runs

        store = RunStore(context.runs_dir)
        run_a, run_b = store.load_run(self.a), store.load_run(self.b)
        document = _make_comparison(run_a.summary.run_id, run_b.summary.run_id, compare_runs(run_a, run_b))
        title = f"A = {document.a}, B = {document.b}: bus bandwidth in Mbit/s"
        context.say_table(title, *document.to_table())
        if document.only_a or document.only_b:
            row_counts_text = f"{document.only_a} rows of A, {document.only_b} rows of B"
            context.say(f"measured by only one of them: {row_counts_text}")
        context.say(
            *(
                f"{difference.fact}: A {difference.a or '-'}, B {difference.b or '-'}"
                for difference in document.differences
            )
        )
        return document


def _make_comparison(run_id_a: str, run_id_b: str, comparison: RunComparison) -> RunsComparison:
    return RunsComparison(
        a=run_id_a,
        b=run_id_b,
        rows=tuple(RowPair(**row.as_json()) for row in comparison.rows),
        only_a=comparison.only_a_count,
        only_b=comparison.only_b_count,
        differences=tuple(
            Difference(fact=fact, a=value_a, b=value_b) for fact, value_a, value_b in comparison.differences
        ),
    )


@dataclass(frozen=True, kw_only=True)
class EpochOfChange:
    """A change of the lab between two values of a series."""

    id: int
    kind: str
    state: str
    at: str
    who: str
    why: str


@dataclass(frozen=True, kw_only=True)
class LevelChange:
    """A change of level of a series: the first run with the new level, both levels, and the epochs in between."""

    quantity: str
    lab: str
    simulated: bool
    series: str
    unit: str
    run: str
    at: str
    last_run_before: str
    before: float
    after: float
    confidence: float
    regression: bool
    epochs: tuple[EpochOfChange, ...]


@dataclass(frozen=True, kw_only=True)
class TrendDocument(Document):
    """Counts of series, of series `too_short` to judge, and of regressions. Lists all changes, regressions first."""

    series: int
    too_short: int
    rate: float
    regressions: int
    changes: tuple[LevelChange, ...]

    @property
    def exit_code(self) -> int:
        """2 if there is a regression."""
        return EXIT_CHANGES if self.regressions else EXIT_DONE


@dataclass(frozen=True, kw_only=True)
class RunsTrend(Command[TrendDocument]):
    """`testbed runs trend`."""

    needs = "nothing"
    lane = "reading"
    role = "viewer"
    lab: Annotated[str, option("Judge only the runs of this lab.", metavar="NAME")] = ""
    quantity: Annotated[Literal["bandwidth", "power"] | None, option("Judge only this series.")] = None
    every_size: Annotated[bool, option("Judge all message sizes, not only the largest.", "--every-size")] = (
        False
    )
    rate: Annotated[
        float,
        option(
            "Probability that the report is wrong although nothing has changed.",
            metavar="SHARE",
            least=0.0001,
            most=0.5,
        ),
    ] = 0.05

    def run(self, context: CommandContext) -> TrendDocument:
        """Find the changes. Raises `JournalError`."""
        from testbed.measure.results.store import RunStore
        from testbed.measure.trends.report import (
            find_trends,
            read_bandwidth_series,
            read_power_series,
            select_series,
        )

        summaries = RunStore(context.runs_dir).list_runs()
        series = (
            *read_bandwidth_series(summaries, every_size=self.every_size),
            *read_power_series(context.runs_dir, summaries),
        )
        report = find_trends(context.runs_dir, select_series(series, self.lab, self.quantity), self.rate)
        short_text = (
            f", {report.short_series_count} too short (below 6 values)" if report.short_series_count else ""
        )
        judged_count = len(report.series) - report.short_series_count
        context.say(f"{judged_count} series of {format_count(len(summaries), 'run')} judged{short_text}")
        context.say(
            *([line for change in report.changes for line in change.format_lines()] or ["no change of level"])
        )
        return TrendDocument(
            series=len(report.series),
            too_short=report.short_series_count,
            rate=report.false_alarm_rate,
            regressions=len(report.regressions),
            changes=tuple(_make_level_change(change) for change in report.changes),
        )


def _make_level_change(change: SeriesChange) -> LevelChange:
    row = change.as_json()
    return LevelChange(**row | {"epochs": tuple(EpochOfChange(**epoch) for epoch in row["epochs"])})


@dataclass(frozen=True, kw_only=True)
class RunCause:
    """A cause of a slow run: the slow rank and host, or the slow link (with its sender), and the evidence.

    `slower` is the estimated factor by which the cause lengthens the iterations that it affects.
    """

    cause: Literal["compute", "link", "retransmission", "processor", "late", "disk"]
    rank: int
    host: str
    link: str
    evidence: str
    slower: float


@dataclass(frozen=True, kw_only=True)
class RunExplanation(Document):
    """Causes that held up a run, the worst first. `note` says why a run cannot be explained, or is empty."""

    run_id: str
    ranks: int
    findings: tuple[RunCause, ...]
    note: str

    @property
    def exit_code(self) -> int:
        """2 if something held up the run."""
        return EXIT_CHANGES if self.findings else EXIT_DONE


@dataclass(frozen=True, kw_only=True)
class RunsExplain(Command[RunExplanation]):
    """`testbed runs explain`."""

    needs = "nothing"
    lane = "reading"
    role = "viewer"
    run_id: Annotated[str, argument(RUN_HELP, "RUN")] = REQUIRED

    def run(self, context: CommandContext) -> RunExplanation:
        """Find what held up the run. Raises `ResultsError`."""
        from testbed.measure.diagnosis import explain_run
        from testbed.measure.results.store import RunStore

        stored_run = RunStore(context.runs_dir).load_run(self.run_id)
        explanation = explain_run(stored_run)
        suffix = " (SIMULATED)" if stored_run.summary.simulated else ""
        context.say(
            f"run {stored_run.summary.run_id}{suffix}, {format_count(explanation.rank_count, 'rank')}",
            *([explanation.unexplained_reason] if explanation.unexplained_reason else ()),
            *(finding.describe() for finding in explanation.findings),
        )
        if not explanation.unexplained_reason and not explanation.findings:
            context.say("no rank and no link held up the others")
        return RunExplanation(
            run_id=stored_run.summary.run_id,
            ranks=explanation.rank_count,
            findings=tuple(RunCause(**asdict(finding)) for finding in explanation.findings),
            note=explanation.unexplained_reason,
        )


@dataclass(frozen=True, kw_only=True)
class ReportDocument(RunRecord, Document):
    """A run, the file of its report, and the number of its timings."""

    report: str
    timings: int


@dataclass(frozen=True, kw_only=True)
class Report(Command[ReportDocument]):
    """`testbed report`."""

    needs = "nothing"
    lane = "reading"
    role = "viewer"
    run_id: Annotated[str, argument(RUN_HELP, "RUN")] = REQUIRED
    out: Annotated[
        Path | None, output_file_option("report.html", "File to write; default: in the run's folder.")
    ] = None

    def list_default_files(self) -> dict[str, Path]:
        """Return a file in the current folder, because the run's directory is on the service's machine."""
        return {"report.html": Path(f"report-{self.run_id}.html")}

    def run(self, context: CommandContext) -> ReportDocument:
        """Write the report. Raises `ResultsError`."""
        from testbed.measure.report.page import write_report
        from testbed.measure.results.store import RunStore

        stored_run = RunStore(context.runs_dir).load_run(self.run_id)
        path = self.out or stored_run.summary.directory / "report.html"
        write_report(stored_run, path)
        timings = len(stored_run.timings)
        context.say(f"{path}  ({timings} timings)")
        return ReportDocument(**_make_run_fields(stored_run.summary), report=str(path), timings=timings)
