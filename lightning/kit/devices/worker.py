"""Calls with a deadline, for hardware on this very machine: a transfer that never ends cannot be interrupted there.

A thread makes the call; whoever waits for it gives up in time. A thread that hangs is left behind (it is a daemon,
so the program can still end), and the next call gets a new one. The thread ends with its `Worker`.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

Job = Callable[[], None]


class Worker:
    """Makes calls one after the other in a thread of its own."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] | None = None

    def bounded(self, call: Callable[..., Any], limit_s: float) -> Callable[..., Any]:
        """Return `call`, which now raises `TimeoutError` when it has not returned after `limit_s`."""

        def made(*args: Any, **kwargs: Any) -> Any:
            outcome: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

            def job() -> None:
                try:
                    outcome.put((True, call(*args, **kwargs)))
                except BaseException as error:  # noqa: BLE001  raised again where it is waited for
                    outcome.put((False, error))

            return self._wait(job, outcome, limit_s)

        return made

    def _wait(self, job: Job, outcome: queue.SimpleQueue[tuple[bool, Any]], limit_s: float) -> Any:
        self._running().put(job)
        try:
            returned, value = outcome.get(timeout=limit_s)
        except queue.Empty:
            self._jobs = None
            raise TimeoutError(f"no return after {limit_s:g} s") from None
        if not returned:
            raise value
        return value

    def _running(self) -> queue.SimpleQueue[Job | None]:
        if self._jobs is None:
            self._jobs = queue.SimpleQueue()
            weakref.finalize(self, self._jobs.put, None)
            threading.Thread(target=_work, args=(self._jobs,), daemon=True, name="calls to the board").start()
        return self._jobs


def _work(jobs: queue.SimpleQueue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # it holds the worker, whose end is waited for
