"""`testbed drift`: losses over time, each stretch of glass against its own past and against the lab file."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from lightbed.wording import counted
from testbed.cli import options
from testbed.cli.intervals import at_intervals, parse_interval
from testbed.cli.output import finding_lines, print_answer
from testbed.commands.documents import CHANGES, DONE

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.lab.simulated.lifecycle import HostsChoice
    from testbed.operate.choice import MeantDesign
    from testbed.operate.drift.report import DriftReport


def parse_time(text: str) -> float:
    """Return seconds since 1970 of a date or a time; UTC where it has no zone.

    >>> parse_time("1970-01-02")
    86400.0
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time: write for example 2026-05-01T12:00") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


Every = Annotated[
    float | None,
    typer.Option("--every", metavar="TIME", parser=parse_interval, help="Go on until interrupted, e.g. 5m."),
]
Since = Annotated[
    float | None,
    typer.Option(
        "--since", metavar="TIME", parser=parse_time, help="Judge readings from then on, e.g. after a repair."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("drift")(drift)


@options.names_topology
def drift(
    lab_file: options.LabFile,
    every: Every = None,
    since: Since = None,
    named: options.Named = options.NOTHING_NAMED,
    hosts: options.HostsMode = "auto",
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Read power and loss, keep them, and tell slow losses from sudden ones. Exit code 2 when light is lost."""

    def once() -> int:
        meant, report = _read_once(lab_file, named, hosts, runs_dir, since)
        print_answer(*_answer(meant, report), as_json=as_json)
        return DONE if report.ok and not meant.left else CHANGES

    return at_intervals(every, once, as_json=as_json)


def _read_once(
    lab_file: Path, named: options.Named, hosts: HostsChoice, runs_dir: Path, since_s: float | None
) -> tuple[MeantDesign, DriftReport]:
    """Open the lab, read it once and close it: nobody is kept from it between two readings."""
    from testbed.lab.simulated.lifecycle import hosts_of
    from testbed.operate.choice import running_design
    from testbed.operate.drift.history import history_in
    from testbed.operate.drift.report import read_drift
    from testbed.operate.plan import circuits_of
    from testbed.operate.session import open_lab

    meant = running_design(lab_file, named, runs_dir)
    modelled = hosts_of(meant.lab, hosts) == "model"
    with (
        history_in(runs_dir) as history,
        open_lab(meant.lab, None, model_hosts=modelled, partial=True) as session,
    ):
        planned = circuits_of(meant.lab, meant.design.wiring)
        return meant, read_drift(session, planned, history, time.time(), since_s)


def _answer(meant: MeantDesign, report: DriftReport) -> tuple[dict[str, object], list[str]]:
    lab = meant.lab
    document = {"lab": lab.name, "simulated": lab.simulated, **meant.json(), **report.as_json()}
    document["findings"] = found = meant.findings_json(report.findings)
    kinds = [stretch.verdict.kind for stretch in report.stretches]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    readings = max((stretch.verdict.readings for stretch in report.stretches), default=0)
    heading = (
        f"{'SIMULATED ' if lab.simulated else ''}lab {lab.name}, {document['taken']}: "
        f"{counted(len(kinds), 'place')}{f' ({counts})' if counts else ''}, {counted(readings, 'reading')}; "
        f"{meant.heading()}"
    )
    lines = [heading, *meant.lines()]
    if report.not_kept:
        lines.append(f"this reading is judged, and not kept for the next ones: {report.not_kept}")
    lines += meant.unfinished_lines()
    return document, [*lines, *(finding_lines(found) if found else ["no light is lost"])]
