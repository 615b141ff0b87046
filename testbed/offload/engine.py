"""Engines run stages of a pipeline elsewhere; the engine of this process stands in for them in tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from testbed.offload.stages import Runner


class WorkerLost(Exception):
    """A worker ended before its result was here: what it was asked for is to be asked again."""


class Engine(Protocol):
    """A pool of workers. `submit` returns at once; a future that raises `WorkerLost` may be submitted again."""

    @property
    def slots(self) -> int:
        """Number of stages that run at the same time, 1 or more."""
        ...

    def open(self, runner: Runner) -> None:
        """Give the pipeline to the workers. Raises `OffloadError` when there are none."""
        ...

    def submit(self, stage: str, payload: Any, epoch: int) -> Future[Any]:
        """Return the future of what a stage makes of a payload; see `Runner.run`."""
        ...

    def cpu_ns(self) -> int:
        """Return processor time that workers took in the trainer's process, so that it does not count as its own."""
        ...

    def jobs(self) -> frozenset[str]:
        """Return the names of all jobs that share the workers, this one with them."""
        ...

    def workers(self) -> tuple[str, ...]:
        """Return the hosts of the workers, one for each thread, sorted: what a decision was measured with."""
        ...

    def close(self) -> None:
        """Release the workers."""
        ...


class InProcess:
    """Workers as threads of this process. `loses(n)`: the worker of the n-th stage ends before it answers."""

    def __init__(self, slots: int = 1, *, loses: Callable[[int], bool] = lambda _number: False) -> None:
        self.slots = slots
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="offload")
        self._loses = loses
        self._runner: Runner | None = None
        self._submitted = 0
        self._cpu_ns = 0
        self._lock = threading.Lock()

    def open(self, runner: Runner) -> None:
        """Take the runner itself: workers and trainer are one process."""
        self._runner = runner

    def submit(self, stage: str, payload: Any, epoch: int) -> Future[Any]:
        """Return the future of a stage that a thread runs."""
        number = self._submitted
        self._submitted += 1
        return self._threads.submit(self._run, number, stage, payload, epoch)

    def _run(self, number: int, stage: str, payload: Any, epoch: int) -> Any:
        assert self._runner is not None, "open() comes first"
        if self._loses(number):
            raise WorkerLost(f"the worker of stage {number} is lost, as requested")
        before = time.thread_time_ns()
        try:
            return self._runner.run(stage, payload, epoch)
        finally:
            with self._lock:
                self._cpu_ns += time.thread_time_ns() - before

    def cpu_ns(self) -> int:
        """Return the processor time of the threads."""
        return self._cpu_ns

    def jobs(self) -> frozenset[str]:
        """Return the one job of this process."""
        return frozenset({"this"})

    def workers(self) -> tuple[str, ...]:
        """Return this process, once for each thread."""
        return ("this",) * self.slots

    def close(self) -> None:
        """End the threads; what has not begun is left."""
        self._threads.shutdown(wait=True, cancel_futures=True)
