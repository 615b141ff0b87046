r"""Stored intents: the topologies of a lab, each stored before the first byte of its apply is sent to a device.

    intended  ->  applied (circuits and routes are in place)  ->  verified
        \____________________\______________________________->  failed

An epoch is one such topology. The epochs of a lab are numbered from 1. The table is in the journal's database and holds
the whole design (nodes, links, hosts), so that options and plan file need not be given again. Reading needs no write
permission. `IntentLog` writes, with one transaction for each change of state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from testbed.design.model import Link, Nic, Topology, Wiring
from testbed.errors import IntentError, JournalError
from testbed.lab.model import Lab
from testbed.storage.address import get_database_address
from testbed.storage.owner import get_current_process, is_running
from testbed.storage.reading import explain_unreadable, find_hint, is_database_error, read_rows

if TYPE_CHECKING:
    from testbed.operate.journal import Journal


State = Literal["intended", "applied", "verified", "failed"]


@dataclass(frozen=True, slots=True)
class TopologySource:
    """Source of a topology as its user named it: options in `options_text`, or the text of a plan file.

    `repaired_epoch` is the epoch that this topology repairs, or None.
    """

    options_text: str = ""
    plan_text: str | None = None
    repaired_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Intent:
    """One epoch of a lab: the topology, laid onto NICs, and the state of its apply.

    `nics` holds the names of each host's NICs at that time, in order. `error` says why the apply or its proof failed.
    """

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
    nics: Mapping[str, tuple[str, ...]]
    topology_source: TopologySource
    intended_at: str
    applied_at: str | None
    error: str

    @property
    def is_under_way(self) -> bool:
        """True while the process that applies the epoch runs."""
        return self.state in ("intended", "applied") and is_running(self.owner)

    @property
    def is_unfinished(self) -> bool:
        """True if the apply failed or was killed before circuits and routes were in place."""
        return self.applied_at is None and not self.is_under_way

    @property
    def lacks_proof(self) -> bool:
        """True if circuits and routes are in place, but the process ended before the proof did."""
        return self.state == "applied" and not self.is_under_way

    @property
    def status(self) -> str:
        """The state as text. For an unfinished or failed epoch, the text also says why."""
        if self.is_under_way:
            return "under way"
        if self.applied_at is None:
            return f"unfinished: {'failed' if self.error else 'killed'} before circuits and routes stood"
        return (
            f"failed: its proof ended with {self.error or 'an error'}"
            if self.state == "failed"
            else self.state
        )

    def describe(self) -> str:
        """Return `epoch 3 (verified, 2026-03-01 10:20 UTC): --simplex`."""
        time_text = self.intended_at[:16].replace("T", " ")
        return f"epoch {self.epoch} ({self.status}, {time_text} UTC): {self.topology_source.options_text or self.name}"

    def check_fits(self, lab: Lab) -> None:
        """Raise `IntentError` unless the lab has the hosts and NICs that this topology connects."""
        hosts = {host.name: host for host in (*lab.hosts, *lab.other_hosts)}
        for name in self.hosts:
            current_nics = tuple(nic.name for nic in hosts[name].nics) if name in hosts else ()
            stored_nics = self.nics.get(name, current_nics)[: self.wiring.degree]
            if len(current_nics) < self.wiring.degree or current_nics[: len(stored_nics)] != stored_nics:
                self._raise_difference(lab, name, current_nics, stored_nics)

    def _raise_difference(
        self, lab: Lab, host: str, current_nics: tuple[str, ...], stored_nics: tuple[str, ...]
    ) -> NoReturn:
        problem = f"has no host '{host}' with {self.wiring.degree} NICs, which epoch {self.epoch} connects"
        if current_nics and current_nics[: len(stored_nics)] != stored_nics:
            problem = (
                f"lists {', '.join(current_nics)} for host '{host}', but epoch {self.epoch} connects "
                f"{', '.join(stored_nics)}"
            )
        difference = (
            f"the file differs from {self.lab_file}, with which epoch {self.epoch} was applied "
            f"(revision {self.revision}, now {lab.revision})"
        )
        hint = "name a topology for the current hosts and NICs (--method, --simplex, --plan)"
        raise IntentError(f"{lab.path} {problem}: {difference}; {hint}, or correct the lab file")


def load_intents(runs_dir: str | Path, lab: str) -> tuple[Intent, ...]:
    """Return the epochs of a lab, newest first. Raises `JournalError`."""
    return tuple(
        map(
            parse_intent,
            read_journal(runs_dir, "select * from intents where lab = ? order by epoch desc", lab),
        )
    )


def select_in_force(intents: Sequence[Intent]) -> tuple[Intent, ...]:
    """Return the epochs that no newer epoch replaces, newest first. Jobs on separate hosts have one each."""
    newer_hosts: set[str] = set()
    current_intents = []
    for intent in intents:
        if newer_hosts.isdisjoint(intent.hosts):
            current_intents.append(intent)
        newer_hosts.update(intent.hosts)
    return tuple(current_intents)


def find_replaced_intents(intents: Sequence[Intent], intent: Intent) -> tuple[Intent, ...]:
    """Return the earlier epochs that may still be partly in place after an unfinished epoch, newest first.

    For each host, these are the earlier epochs back to the last complete one.
    """
    hosts, replaced_intents = set(intent.hosts), []
    for earlier_intent in intents:
        if earlier_intent.epoch < intent.epoch and not hosts.isdisjoint(earlier_intent.hosts):
            replaced_intents.append(earlier_intent)
            if earlier_intent.applied_at is not None:
                hosts.difference_update(earlier_intent.hosts)
    return tuple(replaced_intents)


def read_journal(runs_dir: str | Path, query: str, lab: str) -> list[Mapping[str, Any]]:
    """Return the rows of a query with one parameter, the lab's name. Raises `JournalError`."""
    address = get_database_address(runs_dir)
    try:
        return read_rows(address, query, (lab,))
    except Exception as error:
        if not is_database_error(error):
            raise
        problem = explain_unreadable(address, error)
        hint = f"{find_hint(error)}, or name the topology (--method, --simplex, --demand, --plan)"
        raise JournalError(f"cannot read the stored topology of lab '{lab}': {problem}; {hint}") from error


def parse_intent(row: Mapping[str, Any]) -> Intent:
    """Return the epoch in a row of the table, or in a mapping with the same keys."""
    document = json.loads(row["topology"])
    nodes, degree, simplex = document["nodes"], document["degree"], document["simplex"]
    edges = tuple((source, target) for source, target in document["edges"])
    links = tuple(
        Link(Nic(source, source_index), Nic(target, target_index))
        for source, source_index, target, target_index in document["links"]
    )
    copied_keys = (
        "lab",
        "epoch",
        "state",
        "operation",
        "owner",
        "lab_file",
        "revision",
        "name",
        "intended_at",
    )
    return Intent(
        **{key: row[key] for key in copied_keys},
        topology=Topology(nodes, degree, simplex, tuple(document["strides"]), edges),
        wiring=Wiring(nodes, degree, simplex, links),
        hosts=tuple(json.loads(row["hosts"])),
        nics={host: tuple(nics) for host, nics in document.get("nics", {}).items()},
        topology_source=TopologySource(row["words"], row["plan_text"], row["repairs"]),
        applied_at=row["applied_at"],
        error=row["error"],
    )


class IntentLog:
    """Writable epochs of one lab in the journal."""

    def __init__(self, journal: Journal, lab: Lab) -> None:
        self._journal = journal
        self._lab = lab

    @contextmanager
    def record_apply(
        self,
        topology: Topology,
        wiring: Wiring,
        name: str,
        topology_source: TopologySource,
        epoch: int | None = None,
    ) -> Iterator[ApplyRecord]:
        """Provide the record of one apply. An error within the block ends it as `failed`. Raises `JournalError`.

        Pass an `epoch` to resume it.
        """
        record = ApplyRecord(self, topology, wiring, name, topology_source, epoch)
        try:
            yield record
        except BaseException as error:
            with suppress(JournalError):  # the first error says more
                record.store_state("failed", str(error) or type(error).__name__)
            raise

    def store(
        self,
        topology: Topology,
        wiring: Wiring,
        name: str,
        topology_source: TopologySource,
        operation: str,
        state: State,
    ) -> int:
        """Store a new epoch and return its number. It is on disk when this returns. Raises `JournalError`."""
        values = {
            "lab": self._lab.name,
            "state": state,
            "operation": operation,
            "owner": get_current_process(),
            "lab_file": str(self._lab.path.absolute()),
            "revision": self._lab.revision,
            "name": name,
            "topology": render_topology(topology, wiring, self._lab),
            "hosts": json.dumps([host.name for host in self._lab.hosts]),
            "words": topology_source.options_text,
            "plan_text": topology_source.plan_text,
            "repairs": topology_source.repaired_epoch,
            "intended_at": _format_now(),
            "applied_at": None if state == "intended" else _format_now(),
        }
        import sqlalchemy as sa  # imported late: a plan needs no SQLAlchemy

        from testbed.storage.schema import intents

        with self._journal.open_transaction() as connection:
            newest_epoch = sa.select(sa.func.coalesce(sa.func.max(intents.c.epoch), 0)).where(
                intents.c.lab == self._lab.name
            )
            epoch = int(connection.execute(newest_epoch).scalar_one()) + 1
            connection.execute(intents.insert().values(epoch=epoch, **values))
        return epoch

    def resume(self, epoch: int) -> None:
        """Take over an unfinished epoch for this process. Raises `JournalError`."""
        from testbed.storage.schema import intents

        values = {"state": "intended", "error": "", "owner": get_current_process()}
        conditions = (intents.c.lab == self._lab.name, intents.c.epoch == epoch)
        with self._journal.open_transaction() as connection:
            connection.execute(intents.update().where(*conditions).values(values))

    def store_state(self, epoch: int, state: State, error: str = "") -> None:
        """Store the new state of an epoch, with its time. Raises `JournalError`."""
        from testbed.storage.schema import intents

        time_column = "applied_at" if state == "applied" else "ended_at"
        values = {"state": state, "error": error, time_column: _format_now()}
        with self._journal.open_transaction() as connection:
            connection.execute(
                intents.update()
                .where(intents.c.lab == self._lab.name, intents.c.epoch == epoch)
                .values(values)
            )

    def mark_verified(self, epoch: int) -> None:
        """Mark an applied epoch as verified. Raises `JournalError` if its state is no longer `applied`."""
        from testbed.storage.schema import intents

        conditions = (intents.c.lab == self._lab.name, intents.c.epoch == epoch, intents.c.state == "applied")
        with self._journal.open_transaction() as connection:
            result = connection.execute(
                intents.update().where(*conditions).values({"state": "verified", "ended_at": _format_now()})
            )
            if result.rowcount != 1:
                raise JournalError(
                    f"another process changed epoch {epoch} meanwhile: check it with `testbed history`"
                )


@dataclass(slots=True)
class ApplyRecord:
    """The record of one apply. `epoch` is None until `begin`, which is called before anything is sent."""

    intent_log: IntentLog
    topology: Topology
    wiring: Wiring
    name: str
    topology_source: TopologySource
    epoch: int | None = field(default=None)

    def begin(self, operation: str) -> None:
        """Store the intent as a new epoch, or take over the epoch that is resumed."""
        if self.epoch is not None:
            self.intent_log.resume(self.epoch)
            return
        self.epoch = self.intent_log.store(
            self.topology, self.wiring, self.name, self.topology_source, operation, state="intended"
        )

    def store_state(self, state: State, error: str = "") -> None:
        """Store the new state of the epoch. Before `begin`, do nothing."""
        if self.epoch is not None:
            self.intent_log.store_state(self.epoch, state, error)


class NoRecord:
    """The record of an apply whose epoch is not stored."""

    epoch = None

    def begin(self, operation: str) -> None:
        """Store nothing."""

    def store_state(self, state: State, error: str = "") -> None:
        """Store nothing."""


def render_topology(topology: Topology, wiring: Wiring, lab: Lab) -> str:
    """Return a topology and its links between NICs as JSON text, as the table stores it."""
    return json.dumps(
        {
            "nodes": topology.nodes,
            "degree": topology.degree,
            "simplex": topology.simplex,
            "strides": topology.strides,
            "edges": topology.edges,
            "links": [[*link.source, *link.target] for link in wiring.links],
            "nics": {host.name: [nic.name for nic in host.nics] for host in lab.hosts},
        }
    )


def _format_now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
