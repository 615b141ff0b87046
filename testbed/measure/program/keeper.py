"""The keeper of a program: a process that restores hosts and releases the lease if our process is killed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Literal, Self

from lightbed.children import child_environment, module_command

if TYPE_CHECKING:
    from testbed.operate.borrow import LabState

Debt = Literal["lease", "hosts"]


@dataclass
class Keeper:
    """A context manager that starts the keeper process (`give_back`) and tells it what there is to give back.

    When the block ends without debts, the keeper process ends. Otherwise it settles the debts. `reason` is the reason
    stated for our lease: by this text, the keeper finds a lease that was granted just before we were killed.
    """

    runs_dir: Path
    lab_file: Path
    run_id: str
    reason: str
    debts: set[Debt] = field(default_factory=set)

    def __enter__(self) -> Self:
        from testbed.storage.address import get_database_address
        from testbed.storage.owner import get_current_process

        database = get_database_address("")
        environment = child_environment() | {
            "LIGHTBED_DATABASE": database if isinstance(database, str) else ""
        }
        arguments = [
            self.runs_dir.absolute(),
            self.lab_file.absolute(),
            self.run_id,
            self.reason,
            get_current_process(),
        ]
        command = [*module_command("testbed.measure.program.give_back"), *map(str, arguments)]
        read_end, write_end = os.pipe()
        log_path = self.runs_dir / self.run_id / "keeper.log"
        try:
            with log_path.open("ab") as log_file:
                streams = [(os.POSIX_SPAWN_DUP2, read_end, 0)]
                streams += [(os.POSIX_SPAWN_DUP2, log_file.fileno(), descriptor) for descriptor in (1, 2)]
                self._process = os.posix_spawn(
                    sys.executable, command, environment, file_actions=streams, setsid=True
                )
        finally:
            os.close(read_end)
        self._pipe: IO[str] = os.fdopen(write_end, "w", buffering=1, encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            if not self.debts:
                self._pipe.write("done\n")
            self._pipe.close()
        if not self.debts:  # with debts, the keeper waits for the lock of our run, so we must not wait for it
            os.waitpid(self._process, 0)

    def note_lease(self, lease: str) -> None:
        """Tell the keeper which lease to release."""
        self._write({"lease": lease})

    def note_state(self, state: LabState, hosts: Sequence[str], lease: str) -> None:
        """Tell the keeper to which state it has to restore the hosts, and under which lease."""
        self.debts.add("hosts")
        self._write({"state": state.to_json(), "hosts": list(hosts), "under": lease})

    def _write(self, document: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):  # the program goes on if the keeper has died
            self._pipe.write(json.dumps(document) + "\n")
