"""Deadlines: how long a program may take before its device counts as stuck. A machine without a clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lightning.errors import DeviceStuck

Clock = Callable[[], float]
"""Seconds that only grow."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits of waiting, each with its purpose."""

    progress_s: float = 5.0
    """Without a new shot being counted."""
    call_s: float = 10.0
    """For the answer to a single call over the network or to the board's own hardware."""
    slowness: float = 10.0
    """A run may take this much longer than its compiled length (and `progress_s` and `computing_s` more)."""
    computing_s: float = 0.0
    """For the answer to a call in which a twin reckons what a board would measure, where `call_s` is less."""

    def of_call(self, name: str) -> float:
        """Return the seconds that the answer to this call may take.

        >>> Patience(computing_s=60.0).of_call("get_decimated"), Patience().of_call("get_decimated")
        (60.0, 10.0)
        """
        return max(self.call_s, self.computing_s) if name in COMPUTING else self.call_s


COMPUTING = frozenset({"start_tproc", "start_readout", "get_decimated", "get_accumulated"})
"""Calls in which a twin works out light and samples; in all others it only looks something up."""

SIMULATED = Patience(slowness=10_000.0, computing_s=120.0, progress_s=60.0)
"""A twin works as fast as its computer lets it: how long it reckons says nothing about the device."""


class Progress:
    """Follows the shot counter of one device through its runs."""

    def __init__(self, device: str, patience: Patience, clock: Clock) -> None:
        self._device = device
        self.patience = patience
        self._clock = clock
        self._count = 0
        self._runs = 0
        self._begun = self._moved = clock()
        self._limit_s: float | None = None
        self.external = False
        """Whether the run waits for a trigger from outside."""

    @property
    def reached(self) -> str:
        """Return how far the device was when it was last seen."""
        return f"in run {self._runs}, after {self._count} shots" if self._runs else "before the first run"

    def note_load(self) -> None:
        """Note that a program was loaded: runs are counted again from here."""
        self._runs = self._count = 0

    def begin(self, expected_s: float | None) -> None:
        """Note that a run starts, of this compiled length if that is known."""
        self._runs += 1
        self._count = 0
        self._begun = self._moved = self._clock()
        slack = self.patience.progress_s + self.patience.computing_s
        self._limit_s = None if expected_s is None else slack + self.patience.slowness * expected_s

    def note_count(self, count: int) -> None:
        """Note that the counter stands at `count`. Raises `DeviceStuck`."""
        if count != self._count:
            first_from_outside = self.external and self._count == 0
            self._count, self._moved = count, self._clock()
            self._begun = self._moved if first_from_outside else self._begun
            taken_s = self._moved - self._begun
            if self._limit_s is not None and taken_s > self._limit_s:
                raise self._make_stuck(
                    f"the run has taken {taken_s:.1f} s; the limit is {self._limit_s:.1f} s"
                )
            return
        silent_s = self._clock() - self._moved
        if silent_s > self.patience.progress_s:
            raise self._make_stuck(f"its shot counter has not moved for {silent_s:.1f} s")

    def _make_stuck(self, what: str) -> DeviceStuck:
        waiting = self.external and self._count == 0
        hint = (
            'Give the external trigger that start_src("external") waits for'
            if waiting
            else "Load its firmware again (or restart the server of the board), then try again; nothing was kept. If"
            " one shot takes so long, connect with patience=Patience(progress_s=...)"
        )
        return DeviceStuck(f"{what}, {self.reached}", device=self._device, hint=hint)
