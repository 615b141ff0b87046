"""Records of operations and epochs in the journal, read without write permission."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ocs_drivers.model import CrossConnects
from testbed.operate.engine.planned import SwitchGoal, parse_circuits, parse_goal
from testbed.operate.engine.transitions import StepState
from testbed.operate.intent import Intent, load_intents, read_journal
from testbed.storage.owner import is_running

Row = Mapping[str, Any]
_DONE_STATES = (StepState.OBSERVED, StepState.VERIFIED, StepState.COMPENSATED)
_STEPS_QUERY = (
    "select s.* from steps s join operations o on o.id = s.operation where o.lab = ? "
    "order by s.operation, s.switch, s.ordinal"
)


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of an operation, from a row of the journal."""

    row: Row

    @property
    def device(self) -> str:
        """Name of the switch or host."""
        return str(self.row["switch"])

    @property
    def ordinal(self) -> int:
        """Number of the step on its device in the operation, from 0."""
        return int(self.row["ordinal"])

    @property
    def change_kind(self) -> str:
        """Kind of change: `circuits` or `routes`."""
        return str(self.row.get("change") or "circuits")

    @property
    def state(self) -> StepState:
        """Last stored state."""
        return StepState(self.row["state"])

    @property
    def circuits_before(self) -> CrossConnects:
        """Circuits of the switch before the step."""
        return parse_circuits(self.row["before"])

    @property
    def circuits_after(self) -> CrossConnects:
        """Circuits that the switch should hold after the step."""
        return parse_circuits(self.row["after"])

    def json(self) -> dict[str, Any]:
        """Return the step for JSON documents."""
        keys = ("address", "kind", "before", "after", "intent_at", "outcome", "outcome_at", "read_back")
        return {
            "device": self.device,
            "ordinal": self.ordinal,
            "change": self.change_kind,
            "state": self.state.value,
            "reason": self.row.get("reason", ""),
            **{key: self.row[key] for key in keys},
        }


@dataclass(frozen=True, slots=True)
class OperationRecord:
    """One operation with its steps, in the order of device and number."""

    row: Row
    steps: tuple[StepRecord, ...] = field(default=())

    @property
    def id(self) -> str:
        """Identifier."""
        return str(self.row["id"])

    @property
    def kind(self) -> str:
        """Kind of the operation: apply, repair, rollback, trial."""
        return str(self.row.get("kind") or "apply")

    @property
    def state(self) -> str:
        """State of the operation. It is `killed` if the stored state is `running` but the process has ended."""
        state = str(self.row["state"])
        return "killed" if state == "running" and not is_running(self.row["owner"]) else state

    @property
    def goal(self) -> dict[str, SwitchGoal]:
        """Goal of each switch, or {} if the operation has no goal."""
        return parse_goal(self.row.get("goal") or "")

    @property
    def has_sent_nothing(self) -> bool:
        """True if all of its steps are still `planned`."""
        return all(step.state is StepState.PLANNED for step in self.steps)

    def list_steps(self, device: str) -> tuple[StepRecord, ...]:
        """Return the steps of one device."""
        return tuple(step for step in self.steps if step.device == device)

    def json(self) -> dict[str, Any]:
        """Return the operation and its steps for JSON documents."""
        columns = {
            key: self.row.get(key, "") for key in ("who", "why", "stage", "reason", "owner", "started")
        }
        return {
            "id": self.id,
            "kind": self.kind,
            "state": self.state,
            **columns,
            "finished": self.row["finished"],
            "steps": [step.json() for step in self.steps],
        }


def load_operations(runs_dir: str | Path, lab: str) -> tuple[OperationRecord, ...]:
    """Return all operations of a lab, oldest first. Raises `JournalError`."""
    rows = read_journal(runs_dir, "select * from operations where lab = ? order by started, id", lab)
    steps = read_journal(runs_dir, _STEPS_QUERY, lab)
    steps_by_operation: dict[str, list[StepRecord]] = {}
    for row in steps:
        steps_by_operation.setdefault(row["operation"], []).append(StepRecord(row))
    return tuple(OperationRecord(row, tuple(steps_by_operation.get(row["id"], ()))) for row in rows)


def find_operation(records: Sequence[OperationRecord], operation: str) -> OperationRecord | None:
    """Return the operation with this id, or None."""
    return next((record for record in records if record.id == operation), None)


def load_history(runs_dir: str | Path, lab: str) -> list[dict[str, Any]]:
    """Return the epochs of a lab for JSON documents, the newest first. Raises `JournalError`."""
    operations = {record.id: record for record in load_operations(runs_dir, lab)}
    return [_render_epoch(intent, operations.get(intent.operation)) for intent in load_intents(runs_dir, lab)]


def _render_epoch(intent: Intent, operation: OperationRecord | None) -> dict[str, Any]:
    row = operation.row if operation else {}
    return {
        "id": intent.epoch,
        "operation": intent.operation,
        "kind": operation.kind if operation else "apply",
        "state": intent.status,
        "verified": intent.state == "verified",
        "at": intent.intended_at,
        "who": row.get("who") or "",
        "why": row.get("why") or intent.topology_source.options_text or intent.name,
        "changes": list(list_changes(operation)) if operation else [],
    }


def list_changes(operation: OperationRecord) -> Iterator[dict[str, Any]]:
    """Yield the changes of an operation for each device: circuits made and removed, or the routes of a host.

    Only steps that are done count. Circuits are compared before the first and after the last of these steps.
    """
    for device in dict.fromkeys(step.device for step in operation.steps):
        steps = [step for step in operation.list_steps(device) if step.state in _DONE_STATES]
        if not steps:
            continue
        if steps[0].change_kind != "circuits":
            yield {"device": device, "change": steps[0].change_kind}
            continue
        pairs_before, pairs_after = steps[0].circuits_before.pairs, steps[-1].circuits_after.pairs
        yield {
            "device": device,
            "change": "circuits",
            "made": sorted(map(list, pairs_after - pairs_before)),
            "removed": sorted(map(list, pairs_before - pairs_after)),
        }
