"""Deadlines: how long a program may run before its device counts as stuck. Callers pass the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lightning.errors import DeviceStuck

Clock = Callable[[], float]
"""Returns monotonic seconds."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Time limits of a device."""

    progress_s: float = 5.0
    """Longest time without a new shot."""
    call_s: float = 10.0
    """Limit of a single call over the network or to the board's own hardware."""
    slowness: float = 10.0
    """A run may take `slowness` times its compiled length, plus `progress_s` and `computing_s`."""
    computing_s: float = 0.0
    """Limit of a call in which a twin simulates a measurement, if longer than `call_s`."""

    def get_call_limit_s(self, name: str) -> float:
        """Return the limit of this call, in seconds.

        >>> (
        ...     Patience(computing_s=60.0).get_call_limit_s("get_decimated"),
        ...     Patience().get_call_limit_s("get_decimated"),
        ... )
        (60.0, 10.0)
        """
        return max(self.call_s, self.computing_s) if name in COMPUTING_CALLS else self.call_s


COMPUTING_CALLS = frozenset({"start_tproc", "start_readout", "get_decimated", "get_accumulated"})
"""Calls in which a twin simulates light and samples. All others return at once."""

SIMULATED_PATIENCE = Patience(slowness=10_000.0, computing_s=120.0, progress_s=60.0)
"""Limits for a twin. Its speed depends on the computer that runs it."""


class Progress:
    """Deadline for the shot counter of one device."""

    def __init__(self, device: str, patience: Patience, clock: Clock) -> None:
        self._device = device
        self.patience = patience
        self._clock = clock
        self._count = 0
        self._runs = 0
        self._start_s = self._count_changed_s = clock()
        self._limit_s: float | None = None
        self.is_external = False
        """True if the run waits for an external trigger."""

    @property
    def progress_text(self) -> str:
        """The last known progress of the device, in words."""
        return f"in run {self._runs}, after {self._count} shots" if self._runs else "before the first run"

    def note_load(self) -> None:
        """Note that a program was loaded, which resets the count of runs."""
        self._runs = self._count = 0

    def begin(self, expected_s: float | None) -> None:
        """Note the start of a run. `expected_s` is its compiled length, or None if unknown."""
        self._runs += 1
        self._count = 0
        self._start_s = self._count_changed_s = self._clock()
        slack_s = self.patience.progress_s + self.patience.computing_s
        self._limit_s = None if expected_s is None else slack_s + self.patience.slowness * expected_s

    def note_count(self, count: int) -> None:
        """Note the value of the shot counter. Raise `DeviceStuck` if the run is late or the count does not move."""
        if count != self._count:
            is_first_external_count = self.is_external and self._count == 0
            self._count, self._count_changed_s = count, self._clock()
            self._start_s = self._count_changed_s if is_first_external_count else self._start_s
            elapsed_s = self._count_changed_s - self._start_s
            if self._limit_s is not None and elapsed_s > self._limit_s:
                raise self._make_stuck_error(
                    f"the run has taken {elapsed_s:.1f} s; the limit is {self._limit_s:.1f} s"
                )
            return
        silent_s = self._clock() - self._count_changed_s
        if silent_s > self.patience.progress_s:
            raise self._make_stuck_error(f"its shot counter has not moved for {silent_s:.1f} s")

    def _make_stuck_error(self, problem: str) -> DeviceStuck:
        is_waiting = self.is_external and self._count == 0
        hint = (
            'Send the external trigger that start_src("external") waits for'
            if is_waiting
            else "Load its firmware again (or restart the server of the board), then try again; no data was kept. If"
            " one shot takes that long, connect with patience=Patience(progress_s=...)"
        )
        return DeviceStuck(f"{problem}, {self.progress_text}", device=self._device, hint=hint)
