"""Epochs of a lab and what each of them changed, from the journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.operate.engine.transitions import StepState
from testbed.operate.intent import Intent, stored_intents
from testbed.operate.recovery.records import OperationRecord, operations_of

_CARRIED_OUT = (StepState.OBSERVED, StepState.VERIFIED, StepState.COMPENSATED)


def history_of(runs_dir: str | Path, lab: str) -> list[dict[str, Any]]:
    """Return the epochs of a lab for programs, the newest first. Raises `JournalError`."""
    operations = {one.id: one for one in operations_of(runs_dir, lab)}
    return [_epoch(intent, operations.get(intent.operation)) for intent in stored_intents(runs_dir, lab)]


def _epoch(intent: Intent, operation: OperationRecord | None) -> dict[str, Any]:
    row = operation.row if operation else {}
    return {
        "id": intent.epoch,
        "operation": intent.operation,
        "kind": operation.kind if operation else "apply",
        "state": intent.standing,
        "verified": intent.state == "verified",
        "at": intent.intended_at,
        "who": row.get("who") or "",
        "why": row.get("why") or intent.stated.words or intent.name,
        "changes": list(changes_of(operation)) if operation else [],
    }


def changes_of(operation: OperationRecord) -> Iterator[dict[str, Any]]:
    """Yield what an operation has changed, device by device: circuits made and removed, or the routes of a host."""
    for device in dict.fromkeys(step.device for step in operation.steps):
        steps = [step for step in operation.on(device) if step.state in _CARRIED_OUT]
        if not steps:
            continue
        if steps[0].change != "circuits":
            yield {"device": device, "change": steps[0].change}
            continue
        before, after = steps[0].before.pairs, steps[-1].after.pairs
        yield {
            "device": device,
            "change": "circuits",
            "made": sorted(map(list, after - before)),
            "removed": sorted(map(list, before - after)),
        }
