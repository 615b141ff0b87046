"""`testbed verify`: check that circuits, light, fibres, kernels and packets are as planned."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from lightbed.wording import format_count
from testbed.commands.about import HostsFields, describe_findings, describe_hosts, make_heading_lines
from testbed.commands.context import CommandContext
from testbed.commands.declare import option
from testbed.commands.documents import EXIT_CHANGES, EXIT_DONE, OMIT_NONE, Finding, yield_finding_lines
from testbed.commands.groups import HostsCommand, TopologyCommand

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.operate.choice import DesignChoice
    from testbed.operate.model import VerifyReport


@dataclass(frozen=True, kw_only=True)
class CountedLink:
    """Bytes of a link: planned, simulated, and counted since the last `testbed job` of the plan."""

    link: str
    planned_bytes: int
    simulated_bytes: int
    counted_bytes: int | None
    retransmitted_bytes: int


@dataclass(frozen=True, kw_only=True)
class VerifyDocument(HostsFields):
    """Outcome of a verify: how much was checked, the findings, and the circuits that each switch holds.

    `pairs` counts the pairs of hosts that the plan connects. `loss_floor` is the smallest loss rate that the pings
    detect on every link.
    """

    ok: bool
    circuits: int
    links_heard: int
    findings: tuple[Finding, ...]
    held: dict[str, tuple[tuple[int, int], ...]]
    pairs: int
    pairs_reached: int
    loss_floor: float | None
    links: tuple[CountedLink, ...]
    notes: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)

    @property
    def exit_code(self) -> int:
        """2 if something differs from the plan."""
        return EXIT_DONE if self.ok else EXIT_CHANGES


@dataclass(frozen=True, kw_only=True)
class Verify(HostsCommand, TopologyCommand):
    """`testbed verify`."""

    variants: ClassVar = {"narrow": "moving"}
    narrow: Annotated[
        bool,
        option(
            "Find out which ends are swapped or dark; briefly moves circuits with findings, and free ones."
        ),
    ] = False
    really_move: Annotated[
        str | None,
        option("Name of the lab; required to change a real one.", metavar="NAME", only_with="narrow"),
    ] = None

    def run(self, context: CommandContext) -> VerifyDocument:
        """Check the whole lab. Without findings, mark the epoch as verified. Raises the errors of `choose_design`."""
        from testbed.measure.plan_job import count_links_since_last_job, summarise_links
        from testbed.operate.apply import check_permission
        from testbed.operate.choice import choose_design
        from testbed.operate.narrow import narrow
        from testbed.operate.proof.effects import UNFINISHED
        from testbed.operate.session import open_and_record_checks
        from testbed.operate.unfinished import find_unfinished_or_error
        from testbed.storage.owner import get_current_run

        choice = choose_design(context.running_lab, self.named_topology, context.runs_dir)
        notes: list[str] = []
        if self.narrow:
            check_permission(choice.lab, self.really_move)
        unfinished = find_unfinished_or_error(context.runs_dir, choice.lab)
        unproven_operations = tuple(
            operation
            for operation in unfinished
            if operation.lacks_proof and operation.intent == choice.intent
        )
        # An unproven operation lacks only this proof.
        other_operations = tuple(
            operation for operation in unfinished if operation not in unproven_operations
        )
        with context.open_session(
            choice.lab, self.hosts, writes_journal=self.narrow, skip_unreachable=True
        ) as session:
            report = session.prove(choice.design, other_operations)
            if self.narrow:
                report = narrow(session, choice.design, report, notes.append)
            links = count_links_since_last_job(session, choice, context.runs_dir)
            has_hosts = session.fleet is not None
        if report.ok and unproven_operations and (has_hosts or self.hosts == "auto"):
            choice, note = _mark_verified(choice, report, context.runs_dir)
            notes.append(note)
        is_settled = all(finding.kind != "changing" for finding in report.findings)
        # A local verify writes nothing. Only a run of the service stores its checks.
        if get_current_run() and has_hosts and is_settled:
            open_and_record_checks(context.runs_dir, choice.lab, choice.design.wiring, report)
        if choice.intent and choice.intent.lacks_proof:
            unproven_findings = tuple(
                UNFINISHED.report(operation.operation, operation.detail, operation.hint)
                for operation in unproven_operations
            )
            report = replace(report, findings=(*unproven_findings, *report.findings))
        findings = describe_findings(report.findings, choice)
        context.say(*make_heading_lines(choice, self.hosts), _summarise(report), *notes)
        context.say(
            *(f"since it ran as a job: {line}" for line in summarise_links(links)),
            *yield_finding_lines(findings),
        )
        if report.ok:
            context.say("everything is as planned")
        return VerifyDocument(
            **describe_hosts(choice, self.hosts),
            ok=report.ok,
            circuits=report.circuits,
            links_heard=report.links_received,
            findings=findings,
            held=dict(report.held),
            pairs=report.pairs,
            pairs_reached=report.pairs_reached,
            loss_floor=report.loss_floor,
            links=tuple(CountedLink(**asdict(link)) for link in links),
            notes=tuple(notes) if self.narrow or notes else None,
        )


def _mark_verified(choice: DesignChoice, report: VerifyReport, runs_dir: Path) -> tuple[DesignChoice, str]:
    """Mark an epoch as verified. Return the choice with its new state, and a line about it."""
    from testbed.errors import JournalError
    from testbed.operate.journal import open_journal
    from testbed.operate.session import record_proof
    from testbed.operate.unfinished import find_unfinished_or_error
    from testbed.operation_errors import OperationRunning

    intent = choice.intent
    assert intent is not None
    try:
        with open_journal(runs_dir) as journal:
            record_proof(journal, choice.lab, intent, report)
    except (JournalError, OperationRunning) as error:
        return choice, f"epoch {intent.epoch} cannot be marked as verified: {error}"
    unfinished = find_unfinished_or_error(runs_dir, choice.lab)
    choice = replace(choice, intent=replace(intent, state="verified"), unfinished=unfinished)
    return choice, f"epoch {intent.epoch} is verified now"


def _summarise(report: VerifyReport) -> str:
    summary = (
        f", {format_count(report.links_received, 'one-way link')} heard by probe"
        if report.links_received
        else ""
    )
    summary += f", {report.pairs_reached} of {report.pairs} pairs reached" if report.pairs else ""
    if report.loss_floor is not None:
        summary += f"; a loss of {report.loss_floor:.1%} on any link is found with 99 % confidence"
    return f"{format_count(report.circuits, 'circuit')} checked{summary}"
