"""`testbed apply`: patch a topology, install the hosts' routes, and verify both."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from testbed.commands.about import HostsFields, describe_findings, describe_hosts, make_heading_lines
from testbed.commands.context import CommandContext
from testbed.commands.declare import input_file_option, option
from testbed.commands.documents import EXIT_DONE, EXIT_ERROR, OMIT_NONE, Finding, yield_finding_lines
from testbed.commands.groups import (
    INTERVAL_CONVERTER,
    TAKE_OVER_OPTION,
    HostsChoice,
    HostsCommand,
    MovingCommand,
    TopologyCommand,
)

if TYPE_CHECKING:
    from testbed.lab.model import Lab
    from testbed.operate.choice import DesignChoice
    from testbed.operate.confirmation import Confirmation
    from testbed.operate.model import LabPlan
    from testbed.operate.session import AddNote, BringUpReport, Change, LabSession

PROGRESS_THRESHOLD_S = 1.0
"""Expected duration from which an apply shows its progress."""


@dataclass(frozen=True, kw_only=True)
class AwaitedConfirmation:
    """The epoch to roll back to, the time, and whether the rollback is armed. It is armed only without findings."""

    back_to: int
    due: str | None
    armed: bool


@dataclass(frozen=True, kw_only=True)
class ApplyDocument(HostsFields):
    """Outcome of an apply: its operation in the journal, times in seconds, and the findings of its proof."""

    operation: str
    changed: bool
    circuits: int
    outage_s: float
    total_s: float
    journal_s: float
    verified: bool
    findings: tuple[Finding, ...]
    confirm: AwaitedConfirmation | None = field(default=None, metadata=OMIT_NONE)
    notes: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """1 if the proof has findings."""
        return EXIT_DONE if self.verified else EXIT_ERROR


@dataclass(frozen=True, kw_only=True)
class Apply(MovingCommand, HostsCommand, TopologyCommand):
    """`testbed apply`."""

    take_over: Annotated[bool, TAKE_OVER_OPTION] = False
    change: Annotated[
        Path | None,
        input_file_option("Apply this change of `testbed plan --out`, if the lab is unchanged since."),
    ] = None
    expect: Annotated[
        str | None, option("Apply only if `plan` still reports this revision.", metavar="REVISION")
    ] = None
    confirm_within: Annotated[
        float | None,
        option(
            (
                "Roll back to the previous verified epoch unless `testbed confirm` runs within this time, "
                "e.g. 10m."
            ),
            metavar="TIME",
            text=INTERVAL_CONVERTER,
        ),
    ] = None

    def run(self, context: CommandContext) -> ApplyDocument:
        """Apply the topology. Raises `RefusedToMove`, `PlanStale`, and the errors of the devices."""
        from testbed.operate.apply import check_permission
        from testbed.operate.choice import choose_design, describe_apply_effect
        from testbed.operate.engine.consent import stop_on_interrupt
        from testbed.operate.named_topology import NamedTopology
        from testbed.operate.planned_change import ChangeRequest

        assert context.lab_file is not None
        request = ChangeRequest.from_options(
            context.lab_file,
            self.named_topology,
            context.runs_dir,
            self.change,
            self.expect,
            take_over=self.take_over,
        )
        choice, lab = request.design_choice, request.design_choice.lab
        if not (lab.simulated or context.is_quiet or self.really_move == lab.name):
            _say_plan(
                context, choice, take_over=request.takes_over
            )  # shown even if the next line refuses the apply
        check_permission(lab, self.really_move)
        notes: list[str] = []

        def add_note(line: str) -> None:
            notes.append(line)
            context.say(line)

        for line in describe_apply_effect(choice, self.named_topology, context.runs_dir):
            add_note(line)
        automatic_rollback = _Confirmation.from_options(
            lab, self.confirm_within, self.hosts, self.really_move, context.runs_dir
        )
        with (
            stop_on_interrupt(context.print_note),
            context.open_session(lab, self.hosts, writes_journal=True) as session,
        ):
            lab_plan = request.plan(session)
            with _show_progress(session, lab_plan, context.runs_dir):
                report = session.carry_out(
                    choice.design,
                    lab_plan,
                    add_note,
                    topology_source=choice.topology_source,
                    change=automatic_rollback.change,
                )
            automatic_rollback.arm(session, report, add_note)
        choice = choose_design(lab, NamedTopology(epoch=report.epoch), context.runs_dir)
        findings = describe_findings(report.verify_report.findings)
        context.say(
            *make_heading_lines(choice, self.hosts),
            *choice.describe_unfinished(),
            *yield_finding_lines(findings),
        )
        if report.verify_report.ok:
            context.say("everything is as planned")
        return ApplyDocument(
            **describe_hosts(choice, self.hosts),
            operation=report.apply_result.operation,
            changed=report.plan.has_changes,
            circuits=len(report.plan.circuits),
            outage_s=report.apply_result.outage_s,
            total_s=report.apply_result.total_s,
            journal_s=report.apply_result.journal_s,
            verified=report.verify_report.ok,
            findings=findings,
            confirm=automatic_rollback.describe(),
            notes=tuple(notes),
        )


def _say_plan(context: CommandContext, choice: DesignChoice, *, take_over: bool) -> None:
    from testbed.operate.plan import describe_plan

    with context.open_session(choice.lab) as session:
        lab_plan = session.plan(choice.design, take_over=take_over)
    context.say(*make_heading_lines(choice), *describe_plan(choice.lab, lab_plan))


@contextmanager
def _show_progress(session: LabSession, lab_plan: LabPlan, runs_dir: Path) -> Iterator[None]:
    """Show the progress on standard error if the apply is expected to take `PROGRESS_THRESHOLD_S` or more.

    Earlier durations give the estimate.
    """
    from testbed.commands.progress import narrate
    from testbed.errors import JournalError
    from testbed.operate.durations import Durations, Forecast, learn_durations

    durations = Durations()
    with suppress(JournalError):
        durations = learn_durations(runs_dir, session.lab.name)
    forecast = Forecast(lab_plan, durations)
    if forecast.total_s < PROGRESS_THRESHOLD_S:
        yield
        return
    with narrate() as narrator:

        def show_progress(switch: str) -> None:
            percent, progress_text = forecast.finish_step(switch)
            narrator.tick(percent, 100, progress_text)

        session.on_step = show_progress
        yield


@dataclass
class _Confirmation:
    """The confirmation of an apply. It does nothing without `--confirm-within`."""

    lab: Lab
    change: Change
    hosts: HostsChoice
    really_move: str | None
    runs_dir: Path
    armed_confirmation: Confirmation | None = None

    @classmethod
    def from_options(
        cls,
        lab: Lab,
        confirm_timeout_s: float | None,
        hosts: HostsChoice,
        really_move: str | None,
        runs_dir: Path,
    ) -> _Confirmation:
        """Return the confirmation for `confirm_timeout_s`.

        Raises `NoEarlierEpoch` if no verified epoch precedes this one.
        """
        from testbed.operate.session import APPLY_CHANGE, Change

        change = APPLY_CHANGE
        if confirm_timeout_s is not None:
            from testbed.operate.recovery.rollback import find_last_verified

            change = Change(confirmation_terms=(confirm_timeout_s, find_last_verified(runs_dir, lab).epoch))
        return cls(lab, change, hosts, really_move, runs_dir)

    def arm(self, session: LabSession, report: BringUpReport, add_note: AddNote) -> None:
        """Start the watcher if the proof has no findings, else end the confirmation. Raises `WatcherNotArmed`."""
        if self.change.confirmation_terms is None or report.epoch is None:
            return
        from testbed.operate.confirmation import ConfirmationLog

        confirmations = ConfirmationLog(session.writable_journal, self.lab.name)
        if not report.verify_report.ok:
            confirmations.end_pending("the proof has findings")
            add_note(
                "automatic rollback is not armed, because the proof has findings: run `testbed rollback`"
            )
            return
        self.armed_confirmation = confirmations.arm(lambda: self._start_watcher(report.epoch), report.epoch)
        deadline_text = self.armed_confirmation.due_at[:19].replace("T", " ")
        add_note(
            f"The lab rolls back to epoch {self.armed_confirmation.back_to} at {deadline_text} UTC, "
            "unless you run `testbed confirm` first"
        )

    def describe(self) -> AwaitedConfirmation | None:
        """Return the confirmation for the document, or None without `--confirm-within`."""
        if self.change.confirmation_terms is None:
            return None
        due_at = self.armed_confirmation.due_at if self.armed_confirmation else None
        return AwaitedConfirmation(
            back_to=self.change.confirmation_terms[1], due=due_at, armed=self.armed_confirmation is not None
        )

    def _start_watcher(self, epoch: int | None) -> None:
        from lightbed.children import make_module_command

        arguments = [
            *make_module_command("testbed.commands.lab.confirmation"),
            self.runs_dir.absolute(),
            self.lab.path.absolute(),
        ]
        arguments += [epoch, self.hosts, *([self.really_move] if self.really_move else [])]
        log_path = self.runs_dir / f"confirmation-of-epoch-{epoch}.log"
        with log_path.open("ab") as log_file, Path(os.devnull).open("rb") as null_file:
            file_actions = [(os.POSIX_SPAWN_DUP2, null_file.fileno(), 0)]
            file_actions += [(os.POSIX_SPAWN_DUP2, log_file.fileno(), descriptor) for descriptor in (1, 2)]
            # We do not wait for the watcher: it has its own session and runs longer than this process.
            os.posix_spawn(
                sys.executable,
                list(map(str, arguments)),
                _make_watcher_environment(),
                file_actions=file_actions,
                setsid=True,
            )


def _make_watcher_environment() -> dict[str, str]:
    """Return the environment of the watcher, with the lease and the database of this process."""
    from testbed.leases.choice import get_selected_lease
    from testbed.storage.address import get_database_address

    database = get_database_address("")
    variables = {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "LIGHTBED_LEASE": get_selected_lease(),
    }
    return os.environ | variables | {"LIGHTBED_DATABASE": database if isinstance(database, str) else ""}
