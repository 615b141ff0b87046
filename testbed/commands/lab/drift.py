"""`testbed drift`: optical losses over time, compared with earlier readings and with the lab file."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from lightbed.wording import format_count
from testbed.commands.about import LabFields, describe_findings, describe_lab
from testbed.commands.context import CommandContext
from testbed.commands.declare import TextConverter, option
from testbed.commands.documents import EXIT_CHANGES, EXIT_DONE, Finding, yield_finding_lines
from testbed.commands.groups import INTERVAL_CONVERTER, HostsCommand, TopologyCommand
from testbed.errors import UsageError


def parse_time(text: str) -> float:
    """Parse a date or a time as seconds since 1970. It is in UTC unless it names a zone. Raises `UsageError`.

    >>> parse_time("1970-01-02")
    86400.0
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a time (example: 2026-05-01T12:00)") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


TIME_CONVERTER = TextConverter(
    parse_time, lambda seconds: datetime.fromtimestamp(seconds, UTC).isoformat(), ""
)
"""Seconds since 1970, written as a date or a time."""


@dataclass(frozen=True, kw_only=True)
class SectionLoss:
    """A fibre section: its loss, the loss that the lab file states, and the verdict on its series of readings."""

    place: str
    link: str
    loss_db: float
    intent_db: float
    excess_db: float
    power_dbm: float
    verdict: str
    baseline_db: float
    level_db: float
    noise_db: float
    slope_db_per_day: float
    since: str
    readings_since: int
    readings: int


@dataclass(frozen=True, kw_only=True)
class DriftDocument(LabFields):
    """A lab's optical losses and a verdict on each. `not_kept` says why they could not be stored, or is empty."""

    taken: str
    ok: bool
    not_kept: str
    series: tuple[SectionLoss, ...]
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """2 if light is lost, or an operation is unfinished."""
        return EXIT_DONE if self.ok and not self.unfinished else EXIT_CHANGES


@dataclass(frozen=True, kw_only=True)
class Drift(HostsCommand, TopologyCommand):
    """`testbed drift`."""

    every: Annotated[
        float | None,
        option(
            "Repeat at this interval until interrupted, e.g. 5m.",
            metavar="TIME",
            text=INTERVAL_CONVERTER,
            is_local=True,
            for_caller=True,
        ),
    ] = None
    since: Annotated[
        float | None,
        option(
            "Judge only readings since this time, e.g. after a repair.", metavar="TIME", text=TIME_CONVERTER
        ),
    ] = None

    def run(self, context: CommandContext) -> DriftDocument:
        """Read the optical power once and judge it. Then close the lab, so that it is free between readings."""
        from testbed.operate.choice import choose_design
        from testbed.operate.drift.history import open_history
        from testbed.operate.drift.report import read_drift
        from testbed.operate.plan import list_circuits

        choice = choose_design(context.running_lab, self.named_topology, context.runs_dir)
        with (
            open_history(context.runs_dir) as history,
            context.open_session(choice.lab, self.hosts, skip_unreachable=True) as session,
        ):
            planned_circuits = list_circuits(choice.lab, choice.design.wiring)
            report = read_drift(session, planned_circuits, history, time.time(), self.since)
        report_json = report.as_json()
        document = DriftDocument(
            **describe_lab(choice),
            taken=report_json["taken"],
            ok=report_json["ok"],
            not_kept=report_json["not_kept"],
            series=tuple(SectionLoss(**row) for row in report_json["series"]),
            findings=describe_findings(report.findings, choice),
        )
        verdicts = [section_loss.verdict for section_loss in document.series]
        counts_text = ", ".join(f"{verdicts.count(kind)} {kind}" for kind in dict.fromkeys(verdicts))
        readings = max((section_loss.readings for section_loss in document.series), default=0)
        context.say(
            f"{'SIMULATED ' if choice.lab.simulated else ''}lab {choice.lab.name}, {document.taken}: "
            f"{format_count(len(verdicts), 'place')}{f' ({counts_text})' if counts_text else ''}, "
            f"{format_count(readings, 'reading')}; "
            f"{choice.format_heading()}",
            *choice.format_warnings(),
        )
        if document.not_kept:
            context.say(
                f"this reading was judged, but could not be stored for later comparison: {document.not_kept}"
            )
        context.say(*choice.describe_unfinished(), *yield_finding_lines(document.findings))
        if not document.findings:
            context.say("no light is lost")
        return document
