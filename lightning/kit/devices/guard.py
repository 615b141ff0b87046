"""A QickSoc with deadlines, for a board that may not answer.

QICK polls the shot counter of a running program for ever, and waits for streamed data for ever. `GuardedSoc` forwards
every call. It raises `DeviceStuck` if the counter does not change for five seconds or the run far exceeds its compiled
length, and `DeviceGone` if the device does not answer. It is a `QickConfig`, so programs compile for it as for the
board itself.

A transfer that hangs on local hardware cannot be interrupted. A `Worker` therefore makes these calls in a thread, and
the caller waits with a timeout. If the thread hangs, the next call starts another. The threads are daemons, so the
program can still end. A thread that does not hang ends with its `Worker`.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from qick import QickConfig

from lightning.errors import DeviceGone, ReadoutOverrun
from lightning.kit.checks import check_running_clocks
from lightning.kit.devices.deadline import SIMULATED_PATIENCE, Clock, Patience, Progress
from lightning.kit.devices.identity import read_identity
from lightning.kit.programs import count_ticks

Job = Callable[[], None]

POLL_S = 0.2
"""Timeout of one read of the stream. Between two reads, the guard reads the shot counter."""
INSTRUCTION_TICKS = 16
"""Upper bound for an instruction of processor version 1, which takes a few clocks."""
OVERFLOW_TEXT = "Overflowed the averages buffer"
"""Text in QICK's error for streamed sums. On a board, this error is the `__cause__` of another error."""
Call = Callable[..., Any]


class Worker:
    """A thread that makes calls one at a time."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] | None = None

    def limit_time(self, call: Callable[..., Any], limit_s: float) -> Callable[..., Any]:
        """Return a function that makes `call` and raises `TimeoutError` if it takes longer than `limit_s`."""

        def limited_call(*args: Any, **kwargs: Any) -> Any:
            outcome: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

            def job() -> None:
                try:
                    outcome.put((True, call(*args, **kwargs)))
                except BaseException as error:  # noqa: BLE001  raised again in the waiting thread
                    outcome.put((False, error))

            return self._wait(job, outcome, limit_s)

        return limited_call

    def _wait(self, job: Job, outcome: queue.SimpleQueue[tuple[bool, Any]], limit_s: float) -> Any:
        self._get_queue().put(job)
        try:
            has_returned, value = outcome.get(timeout=limit_s)
        except queue.Empty:
            self._jobs = None
            raise TimeoutError(f"the call did not return within {limit_s:g} s") from None
        if not has_returned:
            raise value
        return value

    def _get_queue(self) -> queue.SimpleQueue[Job | None]:
        if self._jobs is None:
            self._jobs = queue.SimpleQueue()
            weakref.finalize(self, self._jobs.put, None)
            threading.Thread(
                target=_run_jobs, args=(self._jobs,), daemon=True, name="calls to the board"
            ).start()
        return self._jobs


def _run_jobs(jobs: queue.SimpleQueue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # the job references the worker, which could otherwise not be finalized


class GuardedSoc(QickConfig):  # type: ignore[misc]
    """A QickSoc (board, proxy or twin) with deadlines. Other attributes are forwarded to `unguarded`."""

    def __init__(
        self,
        soc: Any,
        *,
        identity: str = "",
        patience: Patience | None = None,
        clock: Clock = time.monotonic,
        lost_errors: tuple[type[Exception], ...] = (),
        worker: Worker | None = None,
    ) -> None:
        """Guard `soc`. `lost_errors` are exceptions of its transport that mean "the device does not answer"."""
        super().__init__(soc.get_cfg())
        self.unguarded = soc
        self._cached_names: list[str] = []
        """Names of the guarded calls in this object's dictionary."""
        self.simulated = bool(getattr(soc, "simulated", False))
        self.identity = identity or read_identity(soc).name
        self.patience = patience or (SIMULATED_PATIENCE if self.simulated else Patience())
        self._clock = clock
        self._lost_errors: tuple[type[Exception], ...] = (ConnectionError, TimeoutError, *lost_errors)
        self._worker = worker
        self._progress = Progress(self.identity, self.patience, clock)
        self._next_expected_s: float | None = None
        self._expected_s: float | None = None
        self._counter_addr = 1
        self._streamed_points = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "unguarded" not in self.__dict__:
            raise AttributeError(name)
        attribute = getattr(self.unguarded, name)
        if not callable(attribute):
            return attribute
        return self._cache_call(name, self._guard(name, attribute))

    def set_patience(self, patience: Patience) -> None:
        """Replace the time limits."""
        self.patience = self._progress.patience = patience
        while self._cached_names:
            del self.__dict__[self._cached_names.pop()]
        if limit_calls := getattr(self.unguarded, "limit_calls", None):
            limit_calls(patience)

    def make_guard_arguments(self) -> dict[str, Any]:
        """Return the arguments for a second guard of the same device."""
        return {
            "patience": self.patience,
            "clock": self._clock,
            "lost_errors": self._lost_errors,
            "worker": self._worker,
        }

    def expect_duration(self, duration_s: float | None) -> None:
        """Set the length of one run of the next program, for programs whose length `count_ticks` cannot compute."""
        self._next_expected_s = duration_s

    def start_src(self, src: str) -> None:
        """Set the start source. A device that waits for an external start does not count as stuck."""
        self._progress.is_external = src == "external"
        self._forward("start_src", src)

    def load_bin_program(self, binprog: Any, load_mem: bool = True) -> None:
        """Load a program, and compute the length of a version 1 program from its words.

        Raise `UnsupportedClock` if the converters' clocks are not locked, or differ from the configuration: all
        measurements would be wrong.
        """
        # Some objects with a QickSoc's interface have no converters.
        if hasattr(self.unguarded, "clocks_locked") and hasattr(self.unguarded, "get_sample_rates"):
            check_running_clocks(self)
        self._expected_s, self._next_expected_s = self._next_expected_s, None
        if isinstance(binprog, list):
            tick_count = count_ticks(binprog, ticks_per_instruction=INSTRUCTION_TICKS)
            f_time_hz = float(self["tprocs"][0]["f_time"]) * 1e6
            self._expected_s = None if tick_count is None else tick_count / f_time_hz
        self._progress.note_load()
        self._forward("load_bin_program", binprog, load_mem=load_mem)

    def start_tproc(self) -> None:
        """Start the processor and the deadline of the run."""
        self._forward("start_tproc")
        self._progress.begin(self._expected_s)

    def get_tproc_counter(self, addr: int) -> int:
        """Return the shot counter. Raise `DeviceStuck` if the run is late or the count stays unchanged too long."""
        count = int(self._forward("get_tproc_counter", addr))
        self._progress.note_count(count)
        return count

    def start_readout(
        self,
        total_shots: int,
        counter_addr: int = 1,
        ch_list: list[int] | None = None,
        reads_per_shot: int | list[int] = 1,
        stride: int | None = None,
    ) -> None:
        """Start a readout and the deadline of the run."""
        self._forward("start_readout", total_shots, counter_addr, ch_list, reads_per_shot, stride)
        self._counter_addr = counter_addr
        self._streamed_points = 0
        self._progress.begin(self._expected_s)

    def poll_data(self, totaltime: float = 0.1, timeout: float | None = None) -> list[Any]:
        """Return streamed data. Raise `DeviceStuck` if neither data nor the shot counter advance for too long."""
        wait_s = POLL_S if timeout is None else timeout
        data: list[Any] = self._forward("poll_data", totaltime=totaltime, timeout=wait_s)
        if data:
            self._streamed_points += sum(points for points, _ in data)
            self._progress.note_count(self._streamed_points)
        else:
            count = int(self._forward("get_tproc_counter", self._counter_addr))
            self._progress.note_count(max(count, self._streamed_points))
        return data

    def _forward(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        key = f"_call_{name}"
        guarded_call = self.__dict__.get(key) or self._cache_call(
            key, self._guard(name, getattr(self.unguarded, name))
        )
        return guarded_call(*args, **kwargs)

    def _cache_call(self, name: str, guarded_call: Call) -> Call:
        """Store the call in the instance dictionary, which bypasses `__getattr__`, and return it."""
        self.__dict__[name] = guarded_call
        self._cached_names.append(name)
        return guarded_call

    def _guard(self, name: str, call: Call) -> Call:
        """Return a function that makes the call and translates its errors.

        Callers cache the function, because some calls repeat thousands of times.
        """
        limited_call = (
            call
            if self._worker is None
            else self._worker.limit_time(call, self.patience.get_call_limit_s(name))
        )
        lost_errors = self._lost_errors

        def guarded_call(*args: Any, **kwargs: Any) -> Any:
            try:
                return limited_call(*args, **kwargs)
            except DeviceGone:
                raise
            except lost_errors as error:
                raise self._make_gone_error(name, error) from error
            except RuntimeError as error:  # QICK reports errors of its streaming thread this way
                if isinstance(error.__cause__, lost_errors):
                    raise self._make_gone_error(name, error.__cause__) from error
                if OVERFLOW_TEXT in f"{error} {error.__cause__}":
                    raise self._make_overrun_error() from error
                raise

        return guarded_call

    def _make_overrun_error(self) -> ReadoutOverrun:
        return ReadoutOverrun(
            "the sum buffer overflowed: sums arrived faster than they were read",
            device=self.identity,
            hint="Raise relax_delay_us, or lower reps and raise soft_avgs, which starts again each time",
        )

    def _make_gone_error(self, name: str, error: Exception) -> DeviceGone:
        return DeviceGone(
            f"no answer to {name} {self._progress.progress_text} ({error})",
            device=self.identity,
            hint="Check power, network and the server of the board, then connect again",
        )


def guard_soc(soc: Any) -> GuardedSoc:
    """Return `soc` (a QickSoc or a twin) with deadlines. Return a `GuardedSoc` unchanged."""
    if isinstance(soc, GuardedSoc):
        return soc
    return GuardedSoc(soc, worker=None if getattr(soc, "simulated", False) else Worker())
