"""`testbed confirm`: keep what waits for a confirmation."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.commands.declare import Command
from testbed.commands.documents import Document, UnfinishedOperation
from testbed.commands.place import Place


@dataclass(frozen=True, kw_only=True)
class Confirmation(Document):
    """The epoch that is kept, and the one to which the lab would have gone back."""

    lab: str
    epoch: int
    confirmed: bool
    back_to: int | None
    unfinished: tuple[UnfinishedOperation, ...]


@dataclass(frozen=True, kw_only=True)
class Confirm(Command[Confirmation]):
    """`testbed confirm`."""

    lane = "prompt"

    def run(self, at: Place) -> Confirmation:
        """Keep the epoch that waits for a confirmation. Raises `NothingToConfirm`."""
        from testbed.operate.confirmation import Confirmations
        from testbed.operate.journal import journal_in

        name = at.lab.name
        with journal_in(at.runs_dir) as journal:
            kept = Confirmations(journal, name).confirm()
        at.say(f"epoch {kept.epoch} of lab '{name}' is kept")
        return Confirmation(
            lab=name, epoch=kept.epoch, confirmed=True, back_to=kept.back_to, unfinished=at.say_unfinished()
        )
