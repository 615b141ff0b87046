"""Unfinished operations, which failed or were killed before their work was complete, read from the journal.

An operation is reported until later operations cover it:

- an epoch, until newer epochs exist for all of its hosts
- a discovery, until the next discovery starts, or its circuits are gone and its hosts were configured
- any other operation, until its ports were patched again

Reading needs no write permission.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightbed.wording import format_count
from testbed.errors import JournalError
from testbed.lab.model import Lab
from testbed.operate.confirmation import find_unwatched_confirmations
from testbed.operate.engine.planned import ROUTES_CHANGE
from testbed.operate.intent import Intent, find_replaced_intents, load_intents, read_journal, select_in_force
from testbed.storage.owner import is_running

Row = Mapping[str, Any]
SwitchCircuit = tuple[str, int, int]
"""A cross-connect: switch, input port, output port."""


@dataclass(frozen=True, slots=True)
class IncompleteOperation:
    """An unfinished operation, with a description (`detail`) and a hint at the next command.

    | field | meaning |
    |---|---|
    | `intent` | the epoch of an apply |
    | `replaced` | earlier epochs that may still be partly in place |
    | `were_circuits_in_place` | the switches were done, only hosts were not |
    | `circuits` | circuits that a discovery may have left |
    | `is_superseded` | a newer epoch exists for some of the hosts |
    | `awaits_confirmation` | an epoch awaits confirmation |
    | `lacks_proof` | circuits and routes are in place, only the proof did not end |
    | `operation_kind` | kind of the operation, if it is not an apply |
    """

    operation: str
    detail: str
    hint: str
    intent: Intent | None = None
    replaced: tuple[Intent, ...] = ()
    were_circuits_in_place: bool = False
    circuits: frozenset[SwitchCircuit] = frozenset()
    is_superseded: bool = False
    awaits_confirmation: bool = False
    lacks_proof: bool = False
    operation_kind: str = ""

    def format_line(self) -> str:
        """Return one line of text."""
        return f"unfinished: {self.operation}: {self.detail}; {self.hint}"

    def json(self) -> dict[str, str]:
        """Return operation, detail and hint for JSON documents."""
        return {"operation": self.operation, "detail": self.detail, "hint": self.hint}


def find_unfinished_operations(runs_dir: str | Path, lab: Lab) -> tuple[IncompleteOperation, ...]:
    """Return the unfinished operations of a lab that no later operation covers, oldest first.

    These are epochs that were never completed, epochs whose proof did not end, epochs that await confirmation without
    a watcher, discoveries that were killed, and other operations that were killed or have steps without an outcome.
    Hosts that are no longer in the lab file are ignored, because no newer epoch can cover them. Raises `JournalError`.
    """
    journal = _Journal(runs_dir, lab)
    unconfirmed_operations = (
        IncompleteOperation(*texts, awaits_confirmation=True)
        for texts in find_unwatched_confirmations(runs_dir, lab.name)
    )
    operations = (
        *_find_applies(journal),
        *_find_proofs(journal),
        *_find_discoveries(journal),
        *_find_other_operations(journal),
        *unconfirmed_operations,
    )
    return tuple(sorted(operations, key=lambda operation: operation.operation))


def find_unfinished_or_error(runs_dir: str | Path, lab: Lab) -> tuple[IncompleteOperation, ...]:
    """Return `find_unfinished_operations`, or one entry that holds the error if the journal cannot be read."""
    try:
        return find_unfinished_operations(runs_dir, lab)
    except JournalError as error:
        return (IncompleteOperation(str(runs_dir), str(error), _UNREADABLE_HINT),)


_UNREADABLE_HINT = (
    "make the file readable, or give the --runs-dir of the lab's applies: no apply can start with this one"
)


class _Journal:
    """Rows of one lab in the journal, oldest first; intents newest first."""

    def __init__(self, runs_dir: str | Path, lab: Lab) -> None:
        self._runs_dir, self._lab = runs_dir, lab.name
        self.hosts = frozenset(host.name for host in (*lab.hosts, *lab.other_hosts))
        self.intents = load_intents(runs_dir, lab.name)
        self.row_by_operation = self._load_operations()
        self.discovery_rows = self.read_rows(_DISCOVERY_QUERY)

    def _load_operations(self) -> Mapping[str, Row]:
        """Return operations by id. `open` counts steps without an outcome. `begun` is True if a step was intended."""
        open_switches_by_operation: defaultdict[str, list[str]] = defaultdict(list)
        begun_operations: set[str] = set()
        for step in self.read_rows(_STARTED_STEPS_QUERY):
            begun_operations.add(step["operation"])
            if step["outcome"] is None:
                open_switches_by_operation[step["operation"]].append(step["switch"])
        return {
            row["id"]: {
                **row,
                "begun": row["id"] in begun_operations,
                "open": len(open_switches_by_operation[row["id"]]),
                "switches": ",".join(dict.fromkeys(open_switches_by_operation[row["id"]])),
            }
            for row in self.read_rows(_OPERATIONS_QUERY)
        }

    def read_rows(self, query: str) -> Sequence[Row]:
        """Return the rows of a query about this lab."""
        return read_journal(self._runs_dir, query, self._lab)


_OPERATIONS_QUERY = """
select * from operations where lab = ? order by started
"""
_STARTED_STEPS_QUERY = """
select s.operation, s.switch, s.outcome from steps s join operations o on o.id = s.operation
where o.lab = ? and s.intent_at <> '' order by s.intent_at
"""
_STEP_QUERY = """
select s.* from steps s join operations o on o.id = s.operation where o.lab = ?
"""
_READ_QUERY = """
select o.owner, s.switch, s.intent_at, s.read_back from steps s join operations o on o.id = s.operation
where o.lab = ? and s.read_back is not null order by s.intent_at
"""
_DISCOVERY_QUERY = (
    "select id, owner, state, started, problem, circuits from discoveries where lab = ? order by started"
)


def _find_applies(journal: _Journal) -> Iterator[IncompleteOperation]:
    """Yield epochs that were never completed and that have hosts without a newer epoch."""
    covered_hosts: set[str] = set()
    # Intents are newest first, so `covered_hosts` holds every host that a later epoch covers.
    for intent in journal.intents:
        uncovered_hosts = [
            host for host in intent.hosts if host in journal.hosts and host not in covered_hosts
        ]
        if uncovered_hosts and intent.is_unfinished:
            is_partly_covered = not covered_hosts.isdisjoint(intent.hosts)
            yield _make_unfinished(journal, intent, uncovered_hosts if is_partly_covered else ())
        covered_hosts.update(intent.hosts)


def _make_unfinished(
    journal: _Journal, intent: Intent, uncovered_hosts: Sequence[str]
) -> IncompleteOperation:
    """Return the entry of an epoch. `uncovered_hosts` lists hosts without a newer epoch if other hosts have one."""
    outcome = f"failed ({intent.error})" if intent.error else "was killed"
    description = f"the apply of epoch {intent.epoch}, begun {_format_utc(intent.intended_at)},"
    coverage_note = (
        f"; newer epochs exist for all hosts but {', '.join(uncovered_hosts)}" if uncovered_hosts else ""
    )
    row = journal.row_by_operation.get(intent.operation)
    open_steps = _describe_open_steps(row) if row else ""
    return IncompleteOperation(
        intent.operation,
        f"{description} {outcome} before circuits and routes stood{open_steps}{coverage_note}",
        f"run {'' if uncovered_hosts else '`testbed resume`, or '}`testbed apply --epoch {intent.epoch}`",
        intent,
        find_replaced_intents(journal.intents, intent),
        were_circuits_in_place=row is not None and row.get("stage", "") in ("routes", "proof"),
        is_superseded=bool(uncovered_hosts),
    )


def _find_proofs(journal: _Journal) -> Iterator[IncompleteOperation]:
    """Yield epochs in force whose process died during the proof."""
    for intent in select_in_force(journal.intents):
        # `record_proof` needs the operation; an epoch stored for a topology already in force may have none here.
        if intent.lacks_proof and intent.operation in journal.row_by_operation:
            description = f"the apply of epoch {intent.epoch}, begun {_format_utc(intent.intended_at)},"
            yield IncompleteOperation(
                intent.operation,
                f"{description} was killed in its proof: circuits and routes are in place, but were not verified",
                "run `testbed verify`, which marks the epoch as verified if it finds nothing; or `testbed resume`",
                intent,
                were_circuits_in_place=True,
                lacks_proof=True,
            )


def _find_discoveries(journal: _Journal) -> Iterator[IncompleteOperation]:
    """Yield the last discovery if it was killed and not covered since. Each discovery covers all earlier ones."""
    last_discovery = journal.discovery_rows[-1] if journal.discovery_rows else None
    if last_discovery is None or last_discovery["state"] != "running" or is_running(last_discovery["owner"]):
        return
    circuits = frozenset(
        (source[0], source[1], target[1])
        for state in json.loads(last_discovery["circuits"])
        for source, target in state
    )
    if not _is_covered_discovery(journal, last_discovery, circuits):
        circuits_note = f"; up to {len(circuits)} of its circuits may still exist" if circuits else ""
        yield IncompleteOperation(
            last_discovery["id"],
            f"a discovery of fibres that was killed, begun {_format_utc(last_discovery['started'])}{circuits_note}, "
            "and NICs may be down",
            "run `testbed discover` again: it removes its circuits and continues",
            circuits=circuits,
        )


def _is_covered_discovery(journal: _Journal, row: Row, circuits: frozenset[SwitchCircuit]) -> bool:
    """Return whether a discovery's hosts were configured since, and the last reads show none of its circuits."""
    hosts = journal.hosts.intersection(host for host, _ in json.loads(row["problem"])["nics"])
    later_intents = (
        intent for intent in journal.intents if intent.applied_at and intent.intended_at > row["started"]
    )
    if not any(hosts.issubset(intent.hosts) for intent in later_intents):
        return False
    circuits_by_switch = {
        read_row["switch"]: {
            (read_row["switch"], int(source), output)
            for source, output in json.loads(read_row["read_back"]).items()
        }
        for read_row in journal.read_rows(_READ_QUERY)
        if read_row["intent_at"] > row["started"] and read_row["owner"] != row["owner"]
    }
    return all(
        circuit[0] in circuits_by_switch and circuit not in circuits_by_switch[circuit[0]]
        for circuit in circuits
    )


def _find_other_operations(journal: _Journal) -> Iterator[IncompleteOperation]:
    """Yield unfinished operations that are neither the apply of an epoch nor a round of a discovery."""
    apply_operations = {intent.operation for intent in journal.intents}
    discovery_owners = {row["owner"] for row in journal.discovery_rows}
    rows = list(journal.row_by_operation.values())
    candidates = [
        (index, row)
        for index, row in enumerate(rows)
        if row["id"] not in apply_operations and row["owner"] not in discovery_owners and _is_unfinished(row)
    ]
    ports_by_operation = _find_ports(journal) if candidates else {}
    for index, row in candidates:
        later_rows = [later_row for later_row in rows[index + 1 :] if later_row["state"] == "done"]
        if not any(_is_covering(journal, later_row, row, ports_by_operation) for later_row in later_rows):
            outcome = "killed" if row["state"] in ("running", "killed") else row["state"]
            kind = row.get("kind") or ""
            detail = f"{_KIND_WORDS.get(kind, 'an operation')} that was {outcome}, begun {_format_utc(row['started'])}"
            yield IncompleteOperation(
                row["id"], detail + _describe_open_steps(row), _RESUME_HINT, operation_kind=kind
            )


_KIND_WORDS = {
    "attach": "an attachment of a board",
    "repair": "a repair",
    "trial": "a trial of `testbed verify --narrow`",
}
_RESUME_HINT = (
    "run `testbed resume`, or compare the switches with `testbed plan` and run `testbed apply` again"
)


def _is_unfinished(row: Row) -> bool:
    if row["state"] == "running":
        return not is_running(row["owner"])
    return bool(row["begun"] if row["state"] == "killed" else row["open"])


def _find_ports(journal: _Journal) -> Mapping[str, set[tuple[str, int]]]:
    """Return the ports whose circuits each operation changes. Port 0 of a host stands for its configuration."""
    ports_by_operation: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
    for step in journal.read_rows(_STEP_QUERY):
        if step.get("change") == ROUTES_CHANGE:
            ports_by_operation[step["operation"]].add((step["switch"], 0))
            continue
        pairs_before, pairs_after = (set(json.loads(step[key]).items()) for key in ("before", "after"))
        for source, output in pairs_before ^ pairs_after:
            ports_by_operation[step["operation"]] |= {(step["switch"], int(source)), (step["switch"], output)}
    return ports_by_operation


def _is_covering(
    journal: _Journal, later_row: Row, row: Row, ports_by_operation: Mapping[str, set[tuple[str, int]]]
) -> bool:
    """Return whether a later operation has patched all ports of `row`, or applied an epoch for all its hosts.

    These are the hosts of the epochs in force when `row` started.
    """
    if ports_by_operation.get(row["id"], set()) <= ports_by_operation.get(later_row["id"], set()):
        return True
    intent = next(
        (candidate for candidate in journal.intents if candidate.operation == later_row["id"]), None
    )
    if intent is None or intent.applied_at is None:
        return False
    earlier_intents = select_in_force(
        [candidate for candidate in journal.intents if candidate.intended_at < row["started"]]
    )
    earlier_hosts = {host for earlier_intent in earlier_intents for host in earlier_intent.hosts}
    return (earlier_hosts & journal.hosts).issubset(intent.hosts)


def _describe_open_steps(row: Row) -> str:
    return (
        f"; {format_count(row['open'], 'step')} without an outcome on {row['switches']}"
        if row["open"]
        else ""
    )


def _format_utc(time_text: str) -> str:
    return f"{time_text[:16].replace('T', ' ')} UTC"
