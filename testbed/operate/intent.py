r"""Stored intent: what a lab is meant to be, kept from before the first byte of an apply goes to a device.

    intended  ->  applied (circuits and routes stand)  ->  verified
        \____________________\_______________________->  failed

An epoch is one such topology; epochs of a lab are numbered from 1. The table stands in the journal's file and holds
the whole design (nodes, links, hosts), so that no option and no plan file has to be given again. Reading needs no
right to write; writing is for who holds the journal (`intent_log`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from testbed.database_file import database_in, read_rows
from testbed.design.model import Link, Nic, Topology, Wiring
from testbed.errors import IntentError, JournalError
from testbed.lab.model import Lab
from testbed.operate.owner import is_running

State = Literal["intended", "applied", "verified", "failed"]


@dataclass(frozen=True, slots=True)
class Stated:
    """Description of a topology by the person who asked for it: options in `words`, or the text of a plan file.

    `repairs` is the epoch of the topology that a repair replaces.
    """

    words: str = ""
    plan_text: str | None = None
    repairs: int | None = None


@dataclass(frozen=True, slots=True)
class Intent:
    """One epoch of a lab: the topology as it was laid onto NICs, and what became of it."""

    lab: str
    epoch: int
    state: State
    operation: str
    owner: str
    lab_file: str
    revision: str
    name: str
    topology: Topology
    wiring: Wiring
    hosts: tuple[str, ...]
    stated: Stated
    intended_at: str
    applied_at: str | None
    error: str

    @property
    def is_under_way(self) -> bool:
        """True while the process that applies it runs."""
        return self.state in ("intended", "applied") and is_running(self.owner)

    @property
    def is_unfinished(self) -> bool:
        """True if the apply ended, or was killed, before circuits and routes stood."""
        return self.applied_at is None and not self.is_under_way

    def describe(self) -> str:
        """Return `epoch 3 (verified, 2026-03-01 10:20 UTC): --simplex`."""
        state = "unfinished" if self.is_unfinished else self.state
        when = self.intended_at[:16].replace("T", " ")
        return f"epoch {self.epoch} ({state}, {when} UTC): {self.stated.words or self.name}"

    def check_fits(self, lab: Lab) -> None:
        """Raise `IntentError` unless the lab file of today has all hosts and NICs of this topology."""
        nics = {host.name: len(host.nics) for host in (*lab.hosts, *lab.others)}
        lost = [name for name in self.hosts if nics.get(name, 0) < self.wiring.degree]
        if lost:
            what = f"has no host '{lost[0]}' of {self.wiring.degree} NICs, which epoch {self.epoch} joins"
            hint = (
                "name a topology for the hosts of today (--method, --simplex, --plan) or correct the lab file"
            )
            raise IntentError(f"{lab.path}: {what}: {hint}")


def stored_intents(runs_dir: str | Path, lab: str) -> tuple[Intent, ...]:
    """Return the epochs of a lab, the newest first; none where nothing was stored. Raises `JournalError`."""
    return tuple(
        map(_intent, _read(runs_dir, "select * from intents where lab = ? order by epoch desc", lab))
    )


def in_force(intents: Sequence[Intent]) -> tuple[Intent, ...]:
    """Return the epochs that no newer one replaces, the newest first: jobs on hosts of their own stand beside it."""
    taken: set[str] = set()
    standing = []
    for intent in intents:
        if taken.isdisjoint(intent.hosts):
            standing.append(intent)
        taken.update(intent.hosts)
    return tuple(standing)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An operation that ended, or was killed, before what it was to do was done."""

    operation: str
    detail: str
    hint: str


def unfinished_operations(runs_dir: str | Path, lab: str) -> tuple[Unfinished, ...]:
    """Return operations on a lab that were left unfinished and that no later one made good, oldest first.

    Epochs that never stood, and operations with steps of which nobody knows what became, or whose process was
    killed, as far as no operation of this lab was done since. Raises `JournalError`.
    """
    told = {
        intent.operation: _left(intent)
        for intent in in_force(stored_intents(runs_dir, lab))
        if intent.is_unfinished
    }
    rows = _read(runs_dir, _OPERATIONS, lab)
    for row in rows[max((n for n, row in enumerate(rows, 1) if row["state"] == "done"), default=0) :]:
        killed = row["state"] == "running" and not is_running(row["owner"])
        if killed or (row["open"] and row["state"] != "running"):
            left = f"; {row['open']} steps without an outcome on {row['switches']}" if row["open"] else ""
            what = f"{'killed' if killed else row['state']}, begun {_minute(row['started'])}{left}"
            known = told.get(row["id"])
            detail = known.detail + left if known else f"an operation that was {what}"
            told[row["id"]] = Unfinished(row["id"], detail, known.hint if known else _HINT)
    return tuple(told[operation] for operation in sorted(told))


_HINT = "see what the switches hold with `testbed plan`, then `testbed apply` again"
_OPERATIONS = """
select o.id, o.owner, o.state, o.started, count(s.switch) as open, group_concat(distinct s.switch) as switches
from operations o left join steps s on s.operation = o.id and s.outcome is null
where o.lab = ? group by o.id order by o.started
"""


def _left(intent: Intent) -> Unfinished:
    how = f"failed ({intent.error})" if intent.error else "was killed"
    begun = f"the apply of epoch {intent.epoch}, begun {_minute(intent.intended_at)},"
    detail = f"{begun} {how} before circuits and routes stood"
    return Unfinished(intent.operation, detail, f"run `testbed apply --epoch {intent.epoch}`")


def _minute(moment: str) -> str:
    return f"{moment[:16].replace('T', ' ')} UTC"


def _read(runs_dir: str | Path, query: str, lab: str) -> list[Mapping[str, Any]]:
    path = database_in(runs_dir)
    try:
        return read_rows(path, query, (lab,))
    except Exception as error:  # sqlite3's own errors, which are not imported where there is no file
        if not (isinstance(error, OSError) or type(error).__module__ == "sqlite3"):
            raise
        what = f"{path} cannot be read ({getattr(error, 'strerror', None) or error})"
        hint = "name the topology (--method, --simplex, --demand, --plan) or another --runs-dir"
        raise JournalError(f"what lab '{lab}' is meant to be is not known: {what}; {hint}") from error


def _intent(row: Mapping[str, Any]) -> Intent:
    kept = json.loads(row["topology"])
    nodes, degree, simplex = kept["nodes"], kept["degree"], kept["simplex"]
    edges = tuple((a, b) for a, b in kept["edges"])
    links = tuple(Link(Nic(a, i), Nic(b, j)) for a, i, b, j in kept["links"])
    same = ("lab", "epoch", "state", "operation", "owner", "lab_file", "revision", "name", "intended_at")
    return Intent(
        **{key: row[key] for key in same},
        topology=Topology(nodes, degree, simplex, tuple(kept["strides"]), edges),
        wiring=Wiring(nodes, degree, simplex, links),
        hosts=tuple(json.loads(row["hosts"])),
        stated=Stated(row["words"], row["plan_text"], row["repairs"]),
        applied_at=row["applied_at"],
        error=row["error"],
    )
