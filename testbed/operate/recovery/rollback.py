"""Rollback to an earlier verified epoch: planned, applied, journalled and verified like any other change."""

from __future__ import annotations

from pathlib import Path

from testbed.lab.model import Lab
from testbed.operate.design import Design
from testbed.operate.engine.transitions import StepEvent, StepState
from testbed.operate.intent import Intent, load_intents
from testbed.operate.session import AddNote, BringUpReport, Change, LabSession
from testbed.operation_errors import NoEarlierEpoch

_REPLACED_STATES = (StepState.OBSERVED, StepState.VERIFIED, StepState.FAILED, StepState.UNKNOWN)


def find_rollback_target(runs_dir: str | Path, lab: Lab, epoch: int | None) -> tuple[Intent, Intent]:
    """Return the current epoch of a lab and the epoch to restore.

    By default, the epoch to restore is the newest earlier verified epoch that shares hosts with the current epoch.
    Raises `NoEarlierEpoch` if there is none, or if the named epoch is not verified or not earlier.
    """
    stored_intents = load_intents(runs_dir, lab.name)
    hint = "see `testbed history`"
    if not stored_intents:
        raise NoEarlierEpoch(f"no epoch of lab '{lab.name}' is stored in {runs_dir}; {hint}")
    current_intent = stored_intents[0]
    candidates = [intent for intent in stored_intents[1:] if intent.state == "verified"]
    if epoch is not None:
        candidates = [intent for intent in candidates if intent.epoch == epoch]
    elif candidates:
        candidates = [
            intent for intent in candidates if not set(intent.hosts).isdisjoint(current_intent.hosts)
        ]
    if not candidates:
        problem = (
            f"epoch {epoch} is not a verified epoch before" if epoch else "there is no verified epoch before"
        )
        raise NoEarlierEpoch(
            f"{problem} the current epoch {current_intent.epoch} of lab '{lab.name}'; {hint}"
        )
    return current_intent, candidates[0]


def roll_back(
    session: LabSession,
    target_intent: Intent,
    current_intent: Intent,
    design: Design,
    add_note: AddNote = lambda _text: None,
    *,
    take_over: bool = False,
) -> BringUpReport:
    """Apply an earlier epoch as a new epoch. If the proof has no findings, mark the undone steps as compensated.

    Raises the errors of `LabSession.carry_out`.
    """
    change = Change("rollback", f"back to epoch {target_intent.epoch} from epoch {current_intent.epoch}")
    plan = session.plan(design, take_over=take_over)
    report = session.carry_out(
        design, plan, add_note, topology_source=target_intent.topology_source, change=change
    )
    if report.verify_report.ok:
        _mark_compensated(session, target_intent, report)
    return report


def _mark_compensated(session: LabSession, target_intent: Intent, report: BringUpReport) -> None:
    journal = session.writable_journal
    for intent in load_intents(journal.directory, session.lab.name):
        is_replaced = report.epoch is not None and target_intent.epoch < intent.epoch < report.epoch
        if is_replaced and set(intent.hosts) <= set(target_intent.hosts):
            journal.step_log.apply_event(intent.operation, StepEvent.COMPENSATE, _REPLACED_STATES)


def find_last_verified(runs_dir: str | Path, lab: Lab) -> Intent:
    """Return the newest verified epoch on any of the lab's hosts, as the target of an automatic rollback.

    Raises `NoEarlierEpoch` if there is none.
    """
    hosts = {host.name for host in lab.hosts}
    for intent in load_intents(runs_dir, lab.name):
        if intent.state == "verified" and not hosts.isdisjoint(intent.hosts):
            return intent
    raise NoEarlierEpoch(
        f"lab '{lab.name}' has no verified epoch to go back to in {runs_dir}; apply without --confirm-within first"
    )
