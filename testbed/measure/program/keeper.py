"""The keeper of a program, seen from the process that runs it: it learns what to give back if we are killed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from lightbed.children import child_environment, module_command

if TYPE_CHECKING:
    from testbed.operate.borrow import LabState


@dataclass
class Keeper:
    """Starts the process of `give_back` and writes to its input: what there is to give back if this process is killed.

    A context manager: at its end, the keeper ends if the hosts are settled, and gives them back if not. `reason` is
    that of our leases, by which the keeper finds one that it does not know.
    """

    runs_dir: Path
    lab_file: Path
    run_id: str
    reason: str
    is_settled: bool = True

    def __enter__(self) -> Self:
        from testbed.storage.address import address_in
        from testbed.storage.owner import this_process

        database = address_in("")
        environment = child_environment() | {
            "LIGHTBED_DATABASE": database if isinstance(database, str) else ""
        }
        words = [self.runs_dir.absolute(), self.lab_file.absolute(), self.run_id, self.reason, this_process()]
        command = [*module_command("testbed.measure.program.give_back"), *map(str, words)]
        reading, writing = os.pipe()
        log = self.runs_dir / self.run_id / "keeper.log"
        try:
            with log.open("ab") as out:
                streams = [(os.POSIX_SPAWN_DUP2, reading, 0)]
                streams += [(os.POSIX_SPAWN_DUP2, out.fileno(), number) for number in (1, 2)]
                self._process = os.posix_spawn(
                    sys.executable, command, environment, file_actions=streams, setsid=True
                )
        finally:
            os.close(reading)
        self._pipe: IO[str] = os.fdopen(writing, "w", buffering=1, encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            if self.is_settled:
                self._pipe.write("done\n")
            self._pipe.close()
        os.waitpid(self._process, 0)

    def note_lease(self, lease: str) -> None:
        """Let the keeper release this lease."""
        self._write({"lease": lease})

    def note_state(self, state: LabState, hosts: Sequence[str], lease: str) -> None:
        """Let the keeper restore hosts to this state, under this lease."""
        self.is_settled = False
        self._write({"state": state.to_json(), "hosts": list(hosts), "under": lease})

    def settle(self) -> None:
        """Note that the hosts are restored, or that they are marked as faulty."""
        self.is_settled = True

    def _write(self, document: dict[str, Any]) -> None:
        self._pipe.write(json.dumps(document) + "\n")
