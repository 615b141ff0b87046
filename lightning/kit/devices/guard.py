"""A guard before a board that may not answer: a QickSoc with deadlines.

QICK asks a running program for its shot counter without pause and without end, and waits for streamed data for
ever. `GuardedSoc` passes every call on, and raises `DeviceStuck` when the counter stands still for five seconds or
the run is far over its compiled length, and `DeviceGone` when the device does not answer. It is a `QickConfig`, so
programs are compiled from it as from the board itself.

Hardware on this very machine has its calls made by a `Worker`: a transfer that never ends cannot be interrupted there.
A thread makes the call; whoever waits for it gives up in time. A thread that hangs is left behind (it is a daemon, so
the program can still end), and the next call gets a new one. The thread ends with its `Worker`.
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
from lightning.kit.devices.deadline import SIMULATED, Clock, Patience, Progress
from lightning.kit.devices.identity import identity_of
from lightning.kit.programs import ticks

Job = Callable[[], None]

POLL_S = 0.2
"""For one look into the stream, before the counter is asked whether the device is alive."""
INSTRUCTION_TICKS = 16
"""Reckoned for an instruction of version 1, which takes a few clocks: on the safe side."""
OVERFLOWED = "Overflowed the averages buffer"
"""So QICK's reader of streamed sums begins; on a board it is the cause of what its thread's reader raises."""
Call = Callable[..., Any]


class Worker:
    """Makes calls one after the other in a thread of its own."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] | None = None

    def bound_call(self, call: Callable[..., Any], limit_s: float) -> Callable[..., Any]:
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


class GuardedSoc(QickConfig):  # type: ignore[misc]
    """A QickSoc (board, proxy or twin) with deadlines. Attributes that are not here are the soc's."""

    def __init__(
        self,
        soc: Any,
        *,
        identity: str = "",
        patience: Patience | None = None,
        clock: Clock = time.monotonic,
        lost: tuple[type[Exception], ...] = (),
        worker: Worker | None = None,
    ) -> None:
        """Guard `soc`; `lost` are exceptions of its transport that mean that nobody answers."""
        super().__init__(soc.get_cfg())
        self.unguarded = soc
        self._cached: list[str] = []
        """Names under which guarded calls are kept in this object's dictionary."""
        self.simulated = bool(getattr(soc, "simulated", False))
        self.identity = identity or identity_of(soc).name
        self.patience = patience or (SIMULATED if self.simulated else Patience())
        self._clock = clock
        self._lost: tuple[type[Exception], ...] = (ConnectionError, TimeoutError, *lost)
        self._worker = worker
        self._progress = Progress(self.identity, self.patience, clock)
        self._announced_s: float | None = None
        self._expected_s: float | None = None
        self._counter_addr = 1
        self._streamed = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "unguarded" not in self.__dict__:
            raise AttributeError(name)
        found = getattr(self.unguarded, name)
        if not callable(found):
            return found
        return self._keep(name, self._guarding(name, found))

    def be_patient(self, patience: Patience) -> None:
        """Wait by other limits from now on."""
        self.patience = self._progress.patience = patience
        while self._cached:
            del self.__dict__[self._cached.pop()]
        if limit_calls := getattr(self.unguarded, "limit_calls", None):
            limit_calls(patience)

    def guarding(self) -> dict[str, Any]:
        """Return how it guards, for another that stands before the same device."""
        return {
            "patience": self.patience,
            "clock": self._clock,
            "lost": self._lost,
            "worker": self._worker,
        }

    def expect(self, seconds: float | None) -> None:
        """Take how long one run of the program takes that is loaded next, where its words do not say."""
        self._announced_s = seconds

    def start_src(self, src: str) -> None:
        """Set the source of the start, as QickSoc does; an external start is not a stuck device."""
        self._progress.external = src == "external"
        self._pass_on("start_src", src)

    def load_bin_program(self, binprog: Any, load_mem: bool = True) -> None:
        """Load a program, as QickSoc does; from the words of a version 1 program its length is read.

        Raises `UnsupportedClock` when the converters' clocks are not locked, or not those of the configuration:
        whatever the program measured would be wrong.
        """
        # Not everything with a QickSoc's interface has converters.
        if hasattr(self.unguarded, "clocks_locked") and hasattr(self.unguarded, "get_sample_rates"):
            check_running_clocks(self)
        self._expected_s, self._announced_s = self._announced_s, None
        if isinstance(binprog, list):
            length = ticks(binprog, per_instruction=INSTRUCTION_TICKS)
            f_time_hz = float(self["tprocs"][0]["f_time"]) * 1e6
            self._expected_s = None if length is None else length / f_time_hz
        self._progress.note_load()
        self._pass_on("load_bin_program", binprog, load_mem=load_mem)

    def start_tproc(self) -> None:
        """Start the processor, as QickSoc does; time runs from here."""
        self._pass_on("start_tproc")
        self._progress.begin(self._expected_s)

    def get_tproc_counter(self, addr: int) -> int:
        """Return the counter, as QickSoc does. Raises `DeviceStuck` when it has stood still for too long."""
        count = int(self._pass_on("get_tproc_counter", addr))
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
        """Start a readout, as QickSoc does; time runs from here."""
        self._pass_on("start_readout", total_shots, counter_addr, ch_list, reads_per_shot, stride)
        self._counter_addr = counter_addr
        self._streamed = 0
        self._progress.begin(self._expected_s)

    def poll_data(self, totaltime: float = 0.1, timeout: float | None = None) -> list[Any]:
        """Return streamed data, as QickSoc does, but never wait for ever: without data, the counter must move on.

        Raises `DeviceStuck` when it does not.
        """
        wait_s = POLL_S if timeout is None else timeout
        found: list[Any] = self._pass_on("poll_data", totaltime=totaltime, timeout=wait_s)
        if found:
            self._streamed += sum(points for points, _ in found)
            self._progress.note_count(self._streamed)
        else:
            counted = int(self._pass_on("get_tproc_counter", self._counter_addr))
            self._progress.note_count(max(counted, self._streamed))
        return found

    def _pass_on(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        kept = f"_call_{name}"
        guarded = self.__dict__.get(kept) or self._keep(
            kept, self._guarding(name, getattr(self.unguarded, name))
        )
        return guarded(*args, **kwargs)

    def _keep(self, name: str, guarded: Call) -> Call:
        """Return a call, which is found without `__getattr__` from now on."""
        self.__dict__[name] = guarded
        self._cached.append(name)
        return guarded

    def _guarding(self, name: str, call: Call) -> Call:
        """Return the call, with its failures named; kept by who asks, because some are made thousands of times."""
        run = call if self._worker is None else self._worker.bound_call(call, self.patience.of_call(name))
        lost = self._lost

        def guarded(*args: Any, **kwargs: Any) -> Any:
            try:
                return run(*args, **kwargs)
            except DeviceGone:
                raise
            except lost as error:
                raise self._make_gone(name, error) from error
            except RuntimeError as error:  # QICK's reader of streamed data tells so what its own thread met
                if isinstance(error.__cause__, lost):
                    raise self._make_gone(name, error.__cause__) from error
                if OVERFLOWED in f"{error} {error.__cause__}":
                    raise self._overrun() from error
                raise

        return guarded

    def _overrun(self) -> ReadoutOverrun:
        return ReadoutOverrun(
            "the memory of sums ran over: they came faster than they were fetched",
            device=self.identity,
            hint="Raise relax_delay_us, or lower reps and raise soft_avgs, which starts again each time",
        )

    def _make_gone(self, name: str, error: Exception) -> DeviceGone:
        return DeviceGone(
            f"no answer to {name} {self._progress.reached} ({error})",
            device=self.identity,
            hint="Check power, network and the server of the board, then connect again",
        )


def guard_soc(soc: Any) -> GuardedSoc:
    """Return the soc with deadlines, once: a bare QickSoc, a twin, or one that has them already."""
    if isinstance(soc, GuardedSoc):
        return soc
    return GuardedSoc(soc, worker=None if getattr(soc, "simulated", False) else Worker())
