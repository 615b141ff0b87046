"""Writing epochs of stored intent: one transaction of the journal for each change of state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from testbed.design.model import Topology, Wiring
from testbed.errors import JournalError
from testbed.lab.model import Lab
from testbed.operate.intent import State, Stated
from testbed.operate.owner import this_process

if TYPE_CHECKING:
    from testbed.operate.journal import Journal


class IntentLog:
    """Epochs of one lab in the journal, for whoever applies them."""

    def __init__(self, journal: Journal, lab: Lab) -> None:
        self._journal = journal
        self._lab = lab

    @contextmanager
    def applying(
        self, topology: Topology, wiring: Wiring, name: str, stated: Stated, epoch: int | None = None
    ) -> Iterator[Applying]:
        """Provide the record of one apply; it ends as `failed` when something is raised. Raises `JournalError`.

        With an `epoch` it is the record of that one, which is resumed.
        """
        applying = Applying(self, topology, wiring, name, stated, epoch)
        try:
            yield applying
        except BaseException as error:
            with suppress(JournalError):  # what was raised says more
                applying.advance("failed", str(error) or type(error).__name__)
            raise

    def store(
        self, topology: Topology, wiring: Wiring, name: str, stated: Stated, operation: str, state: State
    ) -> int:
        """Write a new epoch and return its number; on disk when this returns. Raises `JournalError`."""
        values = {
            "lab": self._lab.name,
            "state": state,
            "operation": operation,
            "owner": this_process(),
            "lab_file": str(self._lab.path.absolute()),
            "revision": self._lab.revision,
            "name": name,
            "topology": topology_text(topology, wiring, self._lab),
            "hosts": json.dumps([host.name for host in self._lab.hosts]),
            "words": stated.words,
            "plan_text": stated.plan_text,
            "repairs": stated.repairs,
            "intended_at": _now(),
            "applied_at": None if state == "intended" else _now(),
        }
        import sqlalchemy as sa  # not for a plan

        from testbed.storage.schema import intents

        with self._journal.transaction() as connection:
            newest = sa.select(sa.func.coalesce(sa.func.max(intents.c.epoch), 0)).where(
                intents.c.lab == self._lab.name
            )
            epoch = int(connection.execute(newest).scalar_one()) + 1
            connection.execute(intents.insert().values(epoch=epoch, **values))
        return epoch

    def resume(self, epoch: int) -> None:
        """Take an epoch over that ended too early. Raises `JournalError`."""
        from testbed.storage.schema import intents

        taken = {"state": "intended", "error": "", "owner": this_process()}
        ours = (intents.c.lab == self._lab.name, intents.c.epoch == epoch)
        with self._journal.transaction() as connection:
            connection.execute(intents.update().where(*ours).values(taken))

    def advance(self, epoch: int, state: State, error: str = "") -> None:
        """Write what became of an epoch. Raises `JournalError`."""
        from testbed.storage.schema import intents

        moment = "applied_at" if state == "applied" else "ended_at"
        became = {"state": state, "error": error, moment: _now()}
        with self._journal.transaction() as connection:
            connection.execute(
                intents.update()
                .where(intents.c.lab == self._lab.name, intents.c.epoch == epoch)
                .values(became)
            )

    def complete(self, epoch: int) -> None:
        """Write that an epoch that lacked its proof has one. Raises `JournalError` where it lacks none now."""
        from testbed.storage.schema import intents

        ours = (intents.c.lab == self._lab.name, intents.c.epoch == epoch, intents.c.state == "applied")
        with self._journal.transaction() as connection:
            changed = connection.execute(
                intents.update().where(*ours).values({"state": "verified", "ended_at": _now()})
            )
            if changed.rowcount != 1:
                raise JournalError(f"somebody has gone on with epoch {epoch} meanwhile: look again")


@dataclass(slots=True)
class Applying:
    """The record of one apply. `epoch` is None until `begin`, which is called when nothing was sent yet."""

    log: IntentLog
    topology: Topology
    wiring: Wiring
    name: str
    stated: Stated
    epoch: int | None = field(default=None)

    def begin(self, operation: str) -> None:
        """Store the intent, or go on with the one that is stored."""
        if self.epoch is not None:
            self.log.resume(self.epoch)
            return
        self.epoch = self.log.store(
            self.topology, self.wiring, self.name, self.stated, operation, state="intended"
        )

    def advance(self, state: State, error: str = "") -> None:
        """Write what became of it; nothing where it was never begun."""
        if self.epoch is not None:
            self.log.advance(self.epoch, state, error)


class NotKept:
    """The record of an apply that nobody keeps."""

    epoch = None

    def begin(self, operation: str) -> None:
        """Store nothing."""

    def advance(self, state: State, error: str = "") -> None:
        """Store nothing."""


def topology_text(topology: Topology, wiring: Wiring, lab: Lab) -> str:
    """Return a topology as it was laid onto NICs, in the form that is stored."""
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


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
