"""Handle of the cleanup process, which restores hosts and releases the lease if our process is killed."""

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

from lightbed.children import make_child_environment, make_module_command

if TYPE_CHECKING:
    from testbed.operate.borrow import LabState

CleanupStep = Literal["lease", "hosts"]
"""Release the lease, or restore the hosts."""


@dataclass
class CleanupProcess:
    """Context manager that starts the cleanup process (module `cleanup`) and tells it what to clean up.

    `pending_steps` holds the steps that our process still has to do. If none is left at the end of the block, the
    cleanup process ends. Otherwise it does these steps. `reason` is the reason stated for our lease. By this text, the
    cleanup process finds a lease that was granted just before our process was killed.
    """

    runs_dir: Path
    lab_file: Path
    run_id: str
    reason: str
    pending_steps: set[CleanupStep] = field(default_factory=set)

    def __enter__(self) -> Self:
        from testbed.storage.address import get_database_address
        from testbed.storage.owner import get_current_process

        database = get_database_address("")
        environment = make_child_environment() | {
            "LIGHTBED_DATABASE": database if isinstance(database, str) else ""
        }
        arguments = [
            self.runs_dir.absolute(),
            self.lab_file.absolute(),
            self.run_id,
            self.reason,
            get_current_process(),
        ]
        command = [*make_module_command("testbed.measure.program.cleanup"), *map(str, arguments)]
        read_end, write_end = os.pipe()
        log_path = self.runs_dir / self.run_id / "cleanup.log"
        try:
            with log_path.open("ab") as log_file:
                file_actions = [(os.POSIX_SPAWN_DUP2, read_end, 0)]
                file_actions += [
                    (os.POSIX_SPAWN_DUP2, log_file.fileno(), descriptor) for descriptor in (1, 2)
                ]
                self._process = os.posix_spawn(
                    sys.executable, command, environment, file_actions=file_actions, setsid=True
                )
        finally:
            os.close(read_end)
        self._pipe: IO[str] = os.fdopen(write_end, "w", buffering=1, encoding="utf-8")
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            if not self.pending_steps:
                self._pipe.write("done\n")
            self._pipe.close()
        if not self.pending_steps:  # a cleanup waits for the lock of our run, so we must not wait for it
            os.waitpid(self._process, 0)

    def register_lease(self, lease_id: str) -> None:
        """Tell the cleanup process which lease to release."""
        self._write({"lease": lease_id})

    def register_state(self, state: LabState, hosts: Sequence[str], lease_id: str) -> None:
        """Tell the cleanup process to which state it has to restore the hosts, and under which lease."""
        self.pending_steps.add("hosts")
        self._write({"state": state.to_json(), "hosts": list(hosts), "restore_lease": lease_id})

    def _write(self, document: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):  # the program goes on if the cleanup process has died
            self._pipe.write(json.dumps(document) + "\n")
