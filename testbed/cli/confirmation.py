"""An apply that is to be confirmed, and the process that goes back without that: `python -m testbed.cli.confirmation`.

The process has a session of its own, so that neither Ctrl-C nor the end of a terminal reaches it.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbed.children import module_command
from testbed.operate.change import APPLY, Change
from testbed.operate.confirmation import Confirmation, Confirmations
from testbed.storage.address import address_in, choose

if TYPE_CHECKING:
    from testbed.lab.model import Lab
    from testbed.lab.simulated.lifecycle import HostsChoice
    from testbed.operate.session import BringUpReport, LabSession, Note


@dataclass
class Confirmed:
    """Part of an apply that `--confirm-within` adds; nothing where it was not given."""

    lab: Lab
    change: Change
    hosts: HostsChoice
    really_move: str | None
    runs_dir: Path
    armed: Confirmation | None = None

    @classmethod
    def of(
        cls, lab: Lab, within_s: float | None, hosts: HostsChoice, really_move: str | None, runs_dir: Path
    ) -> Confirmed:
        """Return it. Raises `NothingBefore` where there is no verified epoch to go back to."""
        change = APPLY
        if within_s is not None:
            from testbed.operate.recovery.rollback import last_verified

            change = Change(confirm=(within_s, last_verified(runs_dir, lab).epoch))
        return cls(lab, change, hosts, really_move, runs_dir)

    def arm(self, session: LabSession, brought: BringUpReport, note: Note) -> None:
        """Arm it after the proof, and only if nothing was found. Raises `NotArmed`."""
        if self.change.confirm is None or brought.epoch is None:
            return
        confirmations = Confirmations(session.writable, self.lab.name)
        if not brought.verified.ok:
            confirmations.end("the proof found something")
            note("not armed: the proof found something; `testbed rollback` goes back")
            return
        self.armed = confirmations.arm(lambda: self._start(brought.epoch), brought.epoch)
        due = self.armed.due_at[:19].replace("T", " ")
        note(
            f"goes back to epoch {self.armed.back_to} at {due} UTC, unless `testbed confirm` is given before"
        )

    def json(self) -> dict[str, Any]:
        """Return its keys of the document."""
        if self.change.confirm is None:
            return {}
        due = self.armed.due_at if self.armed else None
        return {"confirm": {"back_to": self.change.confirm[1], "due": due, "armed": self.armed is not None}}

    def _start(self, epoch: int | None) -> None:
        words = [
            *module_command("testbed.cli.confirmation"),
            self.runs_dir.absolute(),
            self.lab.path.absolute(),
        ]
        words += [epoch, self.hosts, *(["--really-move", self.really_move] if self.really_move else [])]
        log = self.runs_dir / f"confirmation-of-epoch-{epoch}.log"
        with log.open("ab") as out, Path(os.devnull).open("rb") as nothing:
            streams = [(os.POSIX_SPAWN_DUP2, nothing.fileno(), 0)]
            streams += [(os.POSIX_SPAWN_DUP2, out.fileno(), number) for number in (1, 2)]
            # Nobody waits for it: it goes on when this process has ended.
            os.posix_spawn(
                sys.executable, list(map(str, words)), _environment(), file_actions=streams, setsid=True
            )


def main(arguments: list[str]) -> int:
    """Watch one epoch: arm it, wait, and go back unless it was confirmed."""
    from testbed.lab.inventory import load_lab
    from testbed.operate.journal import journal_in

    os.chdir("/")
    runs_dir, lab_file, epoch, hosts, *further = arguments
    choose(os.environ.get("LIGHTBED_DATABASE", ""))
    with journal_in(runs_dir) as journal:
        confirmations = Confirmations(journal, load_lab(Path(lab_file)).name)

        def go_back(back_to: int) -> str:
            return _roll_back([lab_file, str(back_to), "--hosts", hosts, "--runs-dir", runs_dir, *further])

        print(confirmations.watch(int(epoch), go_back), flush=True)
    return 0


def _environment() -> dict[str, str]:
    """Return the environment of the watcher: it moves under the same lease, and looks into the same database."""
    from testbed.leases.choice import chosen

    database = address_in("")
    given = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "LIGHTBED_LEASE": chosen()}
    return os.environ | given | {"LIGHTBED_DATABASE": database if isinstance(database, str) else ""}


def _roll_back(words: list[str]) -> str:
    """Go back as a person would; return why that failed, or nothing."""
    from testbed.cli.app import run_app

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = run_app(["rollback", *words])
    print(said.getvalue(), flush=True)
    return "" if code == 0 else (said.getvalue().strip().splitlines() or [f"exit code {code}"])[-1]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
