"""Engines, which run stages of a pipeline on workers. `ThreadEngine` uses threads, for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from testbed.offload.stages import Runner


class WorkerLost(Exception):
    """A worker was lost before its result arrived. Its stage may be submitted again."""


class Engine(Protocol):
    """A pool of workers. `submit` does not block. A stage whose future raises `WorkerLost` may be submitted again."""

    @property
    def slot_count(self) -> int:
        """Number of stages that can run at the same time, at least 1."""
        ...

    def open(self, runner: Runner) -> None:
        """Send the pipeline to the workers. Raises `OffloadError` if there are none."""
        ...

    def submit(self, stage: str, payload: Any, epoch: int) -> Future[Any]:
        """Submit a stage (see `Runner.run_stage`), and return the future of its result."""
        ...

    def read_cpu_ns(self) -> int:
        """Return the processor time in ns that workers used inside the trainer's process, to subtract from its own."""
        ...

    def list_jobs(self) -> frozenset[str]:
        """Return the names of all jobs that share the workers, including this one."""
        ...

    def list_workers(self) -> tuple[str, ...]:
        """Return the host of each worker thread, sorted. A decision holds only for workers that were measured."""
        ...

    def close(self) -> None:
        """Release the workers."""
        ...


class ThreadEngine:
    """Workers as threads of this process. If `is_lost(n)`, the n-th stage raises `WorkerLost`."""

    def __init__(
        self, slot_count: int = 1, *, is_lost: Callable[[int], bool] = lambda _number: False
    ) -> None:
        self.slot_count = slot_count
        self._threads = ThreadPoolExecutor(slot_count, thread_name_prefix="offload")
        self._is_lost = is_lost
        self._runner: Runner | None = None
        self._submitted_count = 0
        self._cpu_ns = 0
        self._lock = threading.Lock()

    def open(self, runner: Runner) -> None:
        """Use the runner itself, because workers and trainer are one process."""
        self._runner = runner

    def submit(self, stage: str, payload: Any, epoch: int) -> Future[Any]:
        """Submit a stage to the threads, and return its future."""
        number = self._submitted_count
        self._submitted_count += 1
        return self._threads.submit(self._run, number, stage, payload, epoch)

    def _run(self, number: int, stage: str, payload: Any, epoch: int) -> Any:
        assert self._runner is not None, "submit() before open()"
        if self._is_lost(number):
            raise WorkerLost(f"the worker of stage {number} is lost, as requested")
        start_ns = time.thread_time_ns()
        try:
            return self._runner.run_stage(stage, payload, epoch)
        finally:
            with self._lock:
                self._cpu_ns += time.thread_time_ns() - start_ns

    def read_cpu_ns(self) -> int:
        """Return the processor time of the threads in ns."""
        return self._cpu_ns

    def list_jobs(self) -> frozenset[str]:
        """Return the only job, which is this process."""
        return frozenset({"this"})

    def list_workers(self) -> tuple[str, ...]:
        """Return this process, once for each thread."""
        return ("this",) * self.slot_count

    def close(self) -> None:
        """Stop the threads, and cancel stages that have not started."""
        self._threads.shutdown(wait=True, cancel_futures=True)
