"""Operations that ended, or were killed, before all of their work was done, as the journal's file tells them.

An operation is forgotten when later ones have covered what it left, and not before: an epoch when newer ones are
meant for all of its hosts, a discovery when the next one has begun or its circuits are gone and its hosts were
configured, any other when its ports were patched again. Reading needs no right to write.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightbed.wording import count_noun
from testbed.errors import JournalError
from testbed.lab.model import Lab
from testbed.operate.confirmation import find_unwatched
from testbed.operate.engine.planned import ROUTES
from testbed.operate.intent import Intent, find_replaced, in_force, load_intents, read_journal
from testbed.storage.owner import is_running

Row = Mapping[str, Any]
SwitchCircuit = tuple[str, int, int]
"""A cross-connect: switch, input port, output port."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An operation whose work was not done, what is known of it, and the next command.

    Of an apply `intent` is the epoch and `replaced` are those before it, parts of which may stand; with
    `circuits_stood` the switches were done, and only hosts were left. `circuits` are those that a discovery left.
    One that `is_superseded` is an apply on some of whose hosts a newer epoch stands. One that `is_for_a_person` waits
    for a decision: an epoch that nobody has confirmed. Of one that `lacks_proof` all stands, and only its proof did not
    end. `kind` is that of the operation where it is no apply.
    """

    operation: str
    detail: str
    hint: str
    intent: Intent | None = None
    replaced: tuple[Intent, ...] = ()
    circuits_stood: bool = False
    circuits: frozenset[SwitchCircuit] = frozenset()
    is_superseded: bool = False
    is_for_a_person: bool = False
    lacks_proof: bool = False
    kind: str = ""

    def line(self) -> str:
        """Return one line for people."""
        return f"unfinished: {self.operation}: {self.detail}; {self.hint}"

    def json(self) -> dict[str, str]:
        """Return the same for programs."""
        return {"operation": self.operation, "detail": self.detail, "hint": self.hint}


def find_unfinished_operations(runs_dir: str | Path, lab: Lab) -> tuple[Unfinished, ...]:
    """Return operations on a lab that were left unfinished and that no later one covers, oldest first.

    Epochs that never stood, those whose proof did not end, those that wait for a confirmation and are not watched,
    discoveries that were killed, and other operations that were killed or have steps of which nobody knows what became.
    Hosts that are no longer in the lab file need no epoch: none can be meant for them. Raises `JournalError`.
    """
    journal = _Journal(runs_dir, lab)
    unconfirmed = (Unfinished(*told, is_for_a_person=True) for told in find_unwatched(runs_dir, lab.name))
    found = (*_applies(journal), *_proofs(journal), *_discoveries(journal), *_others(journal), *unconfirmed)
    return tuple(sorted(found, key=lambda one: one.operation))


def find_unfinished_or_error(runs_dir: str | Path, lab: Lab) -> tuple[Unfinished, ...]:
    """Return the same; a journal that cannot be read is told as one: nobody can say then that all was finished."""
    try:
        return find_unfinished_operations(runs_dir, lab)
    except JournalError as error:
        return (Unfinished(str(runs_dir), str(error), _UNREADABLE_HINT),)


_UNREADABLE_HINT = (
    "make the file readable, or give the --runs-dir of the lab's applies: none can begin with this one"
)


class _Journal:
    """Rows of one lab in the journal's file, the oldest first; intents the newest first."""

    def __init__(self, runs_dir: str | Path, lab: Lab) -> None:
        self._runs_dir, self._lab = runs_dir, lab.name
        self.hosts = frozenset(host.name for host in (*lab.hosts, *lab.others))
        self.intents = load_intents(runs_dir, lab.name)
        self.operations = self._operations()
        self.discoveries = self.rows(_DISCOVERIES)

    def _operations(self) -> Mapping[str, Row]:
        """Return the operations by id; how many steps are `open`, on which `switches`, and whether any was `begun`."""
        switches: defaultdict[str, list[str]] = defaultdict(list)
        begun: set[str] = set()
        for step in self.rows(_BEGUN_STEPS):
            begun.add(step["operation"])
            if step["outcome"] is None:
                switches[step["operation"]].append(step["switch"])
        return {
            row["id"]: {
                **row,
                "begun": row["id"] in begun,
                "open": len(switches[row["id"]]),
                "switches": ",".join(dict.fromkeys(switches[row["id"]])),
            }
            for row in self.rows(_OPERATIONS)
        }

    def rows(self, query: str) -> Sequence[Row]:
        """Return the rows of a query about this lab."""
        return read_journal(self._runs_dir, query, self._lab)


_OPERATIONS = """
select * from operations where lab = ? order by started
"""
_BEGUN_STEPS = """
select s.operation, s.switch, s.outcome from steps s join operations o on o.id = s.operation
where o.lab = ? and s.intent_at <> '' order by s.intent_at
"""
_STEPS = """
select s.* from steps s join operations o on o.id = s.operation where o.lab = ?
"""
_READS = """
select o.owner, s.switch, s.intent_at, s.read_back from steps s join operations o on o.id = s.operation
where o.lab = ? and s.read_back is not null order by s.intent_at
"""
_DISCOVERIES = (
    "select id, owner, state, started, problem, circuits from discoveries where lab = ? order by started"
)


def _applies(journal: _Journal) -> Iterator[Unfinished]:
    """Yield epochs that never stood, as far as no newer one is meant for their hosts."""
    newer: set[str] = set()
    for intent in journal.intents:
        left = [host for host in intent.hosts if host in journal.hosts and host not in newer]
        if left and intent.is_unfinished:
            is_partly_covered = not newer.isdisjoint(intent.hosts)
            yield _make_unfinished(journal, intent, left if is_partly_covered else ())
        newer.update(intent.hosts)


def _make_unfinished(journal: _Journal, intent: Intent, left: Sequence[str]) -> Unfinished:
    """Return what is told of an epoch; `left` are the hosts that no newer one is meant for, empty where that is all."""
    how = f"failed ({intent.error})" if intent.error else "was killed"
    begun = f"the apply of epoch {intent.epoch}, begun {_minute(intent.intended_at)},"
    only = f"; newer epochs are meant for all hosts but {', '.join(left)}" if left else ""
    row = journal.operations.get(intent.operation)
    open_steps = _open_steps(row) if row else ""
    return Unfinished(
        intent.operation,
        f"{begun} {how} before circuits and routes stood{open_steps}{only}",
        f"run {'' if left else '`testbed resume`, or '}`testbed apply --epoch {intent.epoch}`",
        intent,
        find_replaced(journal.intents, intent),
        circuits_stood=row is not None and row.get("stage", "") in ("routes", "proof"),
        is_superseded=bool(left),
    )


def _proofs(journal: _Journal) -> Iterator[Unfinished]:
    """Yield epochs in force whose process died in their proof."""
    for intent in in_force(journal.intents):
        if (
            intent.lacks_proof and intent.operation in journal.operations
        ):  # a repair stores what stands already
            begun = f"the apply of epoch {intent.epoch}, begun {_minute(intent.intended_at)},"
            yield Unfinished(
                intent.operation,
                f"{begun} was killed in its proof: circuits and routes were made, and nobody knows whether they work",
                "run `testbed verify`: without findings the epoch is verified; or `testbed resume`",
                intent,
                circuits_stood=True,
                lacks_proof=True,
            )


def _discoveries(journal: _Journal) -> Iterator[Unfinished]:
    """Yield the last discovery if it was killed and nothing has covered it: each begins with what others left."""
    last = journal.discoveries[-1] if journal.discoveries else None
    if last is None or last["state"] != "running" or is_running(last["owner"]):
        return
    circuits = frozenset(
        (source[0], source[1], target[1])
        for state in json.loads(last["circuits"])
        for source, target in state
    )
    if not _is_covered_discovery(journal, last, circuits):
        left = f"; up to {len(circuits)} of its circuits may stand" if circuits else ""
        yield Unfinished(
            last["id"],
            f"a discovery of fibres that was killed, begun {_minute(last['started'])}{left}, and NICs may be set down",
            "run `testbed discover` again: it removes what is its own, and goes on",
            circuits=circuits,
        )


def _is_covered_discovery(journal: _Journal, row: Row, circuits: frozenset[SwitchCircuit]) -> bool:
    """Return whether hosts were configured since, and the last read of each switch shows no circuit of it."""
    hosts = journal.hosts.intersection(host for host, _ in json.loads(row["problem"])["nics"])
    later = (one for one in journal.intents if one.applied_at and one.intended_at > row["started"])
    if not any(hosts.issubset(one.hosts) for one in later):
        return False
    held = {
        read["switch"]: {(read["switch"], int(i), o) for i, o in json.loads(read["read_back"]).items()}
        for read in journal.rows(_READS)
        if read["intent_at"] > row["started"] and read["owner"] != row["owner"]
    }
    return all(circuit[0] in held and circuit not in held[circuit[0]] for circuit in circuits)


def _others(journal: _Journal) -> Iterator[Unfinished]:
    """Yield operations that are no apply of an epoch and no round of a discovery: those have been told."""
    known = {intent.operation for intent in journal.intents}
    discoverers = {row["owner"] for row in journal.discoveries}
    rows = list(journal.operations.values())
    left = [
        (at, row)
        for at, row in enumerate(rows)
        if row["id"] not in known and row["owner"] not in discoverers and _is_left(row)
    ]
    ports = _ports_of_operations(journal) if left else {}
    for at, row in left:
        later = [one for one in rows[at + 1 :] if one["state"] == "done"]
        if not any(_covers(journal, one, row, ports) for one in later):
            how = "killed" if row["state"] in ("running", "killed") else row["state"]
            kind = row.get("kind") or ""
            detail = f"{_KINDS.get(kind, 'an operation')} that was {how}, begun {_minute(row['started'])}"
            yield Unfinished(row["id"], detail + _open_steps(row), _HINT, kind=kind)


_KINDS = {"repair": "a repair", "trial": "a trial of `testbed verify --narrow`"}
_HINT = "run `testbed resume`, or see what the switches hold with `testbed plan` and `testbed apply` again"


def _is_left(row: Row) -> bool:
    if row["state"] == "running":
        return not is_running(row["owner"])
    return bool(row["begun"] if row["state"] == "killed" else row["open"])


def _ports_of_operations(journal: _Journal) -> Mapping[str, set[tuple[str, int]]]:
    """Return the ports whose circuits each operation was to change, and 0 of each host that it was to configure."""
    ports: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
    for step in journal.rows(_STEPS):
        if step.get("change") == ROUTES:
            ports[step["operation"]].add((step["switch"], 0))
            continue
        before, after = (set(json.loads(step[key]).items()) for key in ("before", "after"))
        for source, output in before ^ after:
            ports[step["operation"]] |= {(step["switch"], int(source)), (step["switch"], output)}
    return ports


def _covers(journal: _Journal, later: Row, row: Row, ports: Mapping[str, set[tuple[str, int]]]) -> bool:
    """Return whether a later operation has patched all ports of one, or is the apply of all hosts of its time."""
    if ports.get(row["id"], set()) <= ports.get(later["id"], set()):
        return True
    intent = next((one for one in journal.intents if one.operation == later["id"]), None)
    if intent is None or intent.applied_at is None:
        return False
    then = in_force([one for one in journal.intents if one.intended_at < row["started"]])
    hosts = {host for one in then for host in one.hosts}
    return (hosts & journal.hosts).issubset(intent.hosts)


def _open_steps(row: Row) -> str:
    return (
        f"; {count_noun(row['open'], 'step')} without an outcome on {row['switches']}" if row["open"] else ""
    )


def _minute(moment: str) -> str:
    return f"{moment[:16].replace('T', ' ')} UTC"
