"""Boards of a simulated lab: for each port with a program, a process that is the board on the wire.

The command comes from the wiring document, so that this package knows nothing of the program. It runs in the network
namespace of its board, prints a line of JSON with `"ready": true`, and then answers the frames of its interface, which
has the name of the port. The end of the supervisor kills it.
"""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sim.lab.model import BoardDocument, LabError
from sim.twins.hosts import netns

READY_TIMEOUT_S = 600.0
"""Time for a board to get ready: the first build of a simulator takes a minute, on a busy machine several."""
_STOP_TIMEOUT_S = 5.0
_MAX_LOG_LINES = 20


def build_boards(boards: Sequence[BoardDocument], get_namespace: Callable[[str], str]) -> None:
    """Set up the ports of all boards, without addresses, so that the kernel does not answer frames there."""
    for board in boards:
        namespace = get_namespace(board.name)
        netns.run_batch("ip", [f"link set {port.name} up" for port in board.ports], namespace)


class BoardTwin:
    """The process of one port. Start it from the main thread: the kernel kills it when the starting thread ends."""

    def __init__(self, label: str, process: Process) -> None:
        self.label = label
        self._process = process
        self._error_lines: deque[str] = deque(maxlen=_MAX_LOG_LINES)
        self._tasks = [asyncio.create_task(self._read_errors())]

    @classmethod
    async def start(
        cls, label: str, command: Sequence[str], namespace: str, tools: Mapping[str, str]
    ) -> BoardTwin:
        """Start the process of a port, `board1/port1`. `await_ready` raises if there is no such program."""
        command_prefix = [
            tools["setpriv"],
            "--pdeathsig",
            "KILL",
            tools["nsenter"],
            f"--net=/run/netns/{namespace}",
        ]
        words = [word.replace("{namespace}", namespace) for word in command]
        process = await asyncio.create_subprocess_exec(
            *command_prefix, "--", *words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        return cls(label, process)

    async def await_ready(self, timeout_s: float = READY_TIMEOUT_S) -> Mapping[str, Any]:
        """Return the `nic` of the line with `"ready": true`. Raise `LabError` with the error of the process."""
        try:
            async with asyncio.timeout(timeout_s):
                document = await self._read_ready()
        except TimeoutError:
            raise self._make_error(f"is not ready after {timeout_s:g} s") from None
        self._tasks.append(asyncio.create_task(self._drain()))
        nic = document.get("nic", {})
        return nic if isinstance(nic, dict) else {}

    async def _read_ready(self) -> Mapping[str, Any]:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            with suppress(ValueError):
                document = json.loads(line)
                if isinstance(document, dict) and document.get("ready") is True:
                    return document
                if isinstance(document, dict) and "error" in document:
                    self._error_lines.append(_format_error(document["error"]))
        await self._process.wait()
        await self._tasks[0]
        raise self._make_error(f"ended with status {self._process.returncode}")

    def _make_error(self, problem: str) -> LabError:
        last_error = self._error_lines[-1] if self._error_lines else "no output"
        return LabError(
            f"board {self.label} {problem}: {last_error}",
            hint="Correct the cause, or remove `program` from the board in the lab file",
            code="board",
        )

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            if text := line.decode(errors="replace").strip():
                self._error_lines.append(text)

    async def _drain(self) -> None:
        """Read further output, so that the process never waits for a reader."""
        assert self._process.stdout is not None
        while await self._process.stdout.read(65536):
            pass

    async def await_end(self) -> None:
        """Return when the process has ended, for whatever reason."""
        await self._process.wait()

    async def stop(self) -> None:
        """End the process by SIGTERM and, if that does not help, by SIGKILL, and wait for its end."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def _format_error(error: object) -> str:
    """Return the text of an error that is a string, or a mapping with a message."""
    if isinstance(error, dict):
        return str(error.get("message", error))
    return str(error)
