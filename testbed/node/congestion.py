"""Congestion controls of the transport: Reno and CUBIC, and MLTCP's gain, which scales both.

Standard library only: this file is copied to the hosts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

INITIAL_WINDOW = 10.0
CUBIC_C, CUBIC_BETA = 0.4, 0.7


@dataclass(slots=True)
class Reno:
    """Reno: additive increase by `gain` segments per round trip, window halved on a loss."""

    window: float = INITIAL_WINDOW
    threshold: float = math.inf

    def on_ack(self, gain: float, _now_s: float, _rtt_s: float) -> None:
        """Grow by a segment in slow start, else by `gain` divided by the window."""
        self.window += 1.0 if self.window < self.threshold else gain / self.window

    def on_loss(self, _now_s: float) -> None:
        """Halve the window. Callers call this once for all losses of a round trip."""
        self.threshold = self.window = max(2.0, self.window / 2)

    def on_timeout(self, now_s: float) -> None:
        """Begin again with one segment."""
        self.on_loss(now_s)
        self.window = 1.0


@dataclass(slots=True)
class Cubic:
    """CUBIC (RFC 9438) without fast convergence; `gain` scales each step towards its curve."""

    window: float = INITIAL_WINDOW
    threshold: float = math.inf
    curve_top: float = 0.0
    curve_start_s: float | None = None
    origin_s: float = 0.0
    reno_window: float = 0.0

    def on_ack(self, gain: float, now_s: float, rtt_s: float) -> None:
        """Grow by a segment in slow start, else towards the cubic curve, and no slower than Reno."""
        if self.window < self.threshold:
            self.window += 1.0
            return
        if self.curve_start_s is None:
            self.curve_start_s, self.reno_window = now_s, self.window
            self.origin_s = math.cbrt(max(self.curve_top - self.window, 0.0) / CUBIC_C)
            self.curve_top = max(self.curve_top, self.window)
        curve_window = CUBIC_C * (now_s - self.curve_start_s + rtt_s - self.origin_s) ** 3 + self.curve_top
        target_window = min(max(curve_window, self.window), 1.5 * self.window)
        self.reno_window += gain * 3 * (1 - CUBIC_BETA) / (1 + CUBIC_BETA) / self.window
        self.window = max(self.window + gain * (target_window - self.window) / self.window, self.reno_window)

    def on_loss(self, _now_s: float) -> None:
        """Reduce the window to 0.7 and start a new curve."""
        self.curve_top, self.curve_start_s = self.window, None
        self.threshold = self.window = max(2.0, self.window * CUBIC_BETA)

    def on_timeout(self, now_s: float) -> None:
        """Begin again with one segment."""
        self.on_loss(now_s)
        self.window = 1.0


CONGESTION_CONTROLS: dict[str, Callable[[], Reno | Cubic]] = {"reno": Reno, "cubic": Cubic}


@dataclass(frozen=True, slots=True)
class MltcpGain:
    """MLTCP's gain F, a function of the acknowledged share of an iteration's bytes. The default is always 1.

    >>> MltcpGain(1.75, 0.25).evaluate(0.5)
    1.125
    """

    slope: float = 0.0
    intercept: float = 1.0

    def evaluate(self, acked_share: float) -> float:
        """Return F of the smaller of `acked_share` and 1."""
        return self.slope * min(acked_share, 1.0) + self.intercept
