"""Common parts of the laboratory instruments: parameters, refusals, and the time that settling takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sim.twins.frontends.scpi import ErrorQueue, Handler, ScpiError
from sim.twins.rfsoc.kit.knobs import turn
from sim.twins.rfsoc.kit.state import KitState

_TRUTHS = {"1": True, "ON": True, "0": False, "OFF": False}

Schedule = Callable[[float, Callable[[], None]], object]
"""(seconds, act): do it so much later."""


def get_single(texts: Sequence[str]) -> str:
    """Return the parameter, which must be the only one. Raises `ScpiError`."""
    if len(texts) != 1:
        raise ScpiError(-108 if texts else -109)
    return texts[0]


def parse_number(text: str, low: float = -math.inf, high: float = math.inf) -> float:
    """Return a finite number between two ends; raise `ScpiError`, -224 (no number) or -222 (outside)."""
    try:
        value = float(text)
    except ValueError:
        raise ScpiError(-224, text[:40]) from None
    if not math.isfinite(value):
        raise ScpiError(-224, text[:40])
    if not low <= value <= high:
        raise ScpiError(-222, text[:40])
    return value


def parse_bool(text: str) -> bool:
    """Return `1`, `ON`, `0` or `OFF`. Raises `ScpiError`."""
    try:
        return _TRUTHS[text.upper()]
    except KeyError:
        raise ScpiError(-224, text[:40]) from None


def common_commands(identity: str, errors: ErrorQueue) -> dict[str, Handler]:
    """Return the commands that every SCPI instrument has."""

    def error(*_: object) -> str:
        return errors.pop().replace(', "', ',"', 1)

    return {
        "*IDN?": lambda *_: identity,
        "*CLS": lambda *_: errors.clear(),
        "*OPC?": lambda *_: "1",
        "SYSTem:ERRor[:NEXT]?": error,
    }


class Settling:
    """Settings that are heard at once and reach the light a little later, all at the same moment."""

    def __init__(self, state: KitState, schedule: Schedule, seconds: float) -> None:
        self._state = state
        self._schedule = schedule
        self._seconds = seconds
        self._pending: dict[str, Any] = {}
        self._changes = 0

    @property
    def is_done(self) -> bool:
        """True if the light is as it was set."""
        return not self._pending

    def setting(self, name: str) -> Any:
        """Return the setting of a knob, whether the light has followed or not."""
        return self._pending.get(name, getattr(self._state.now.parameters, name))

    def set(self, **settings: object) -> None:
        """Set knobs; the light follows when all has been quiet for the time it takes to settle."""
        self._pending |= settings
        self._changes += 1
        self._schedule(self._seconds, partial(self._settle, self._changes))

    def _settle(self, change: int) -> None:
        if change == self._changes:  # otherwise something was set since: its own visit will come
            settings, self._pending = self._pending, {}
            self._state.change(partial(turn, settings=settings))
