"""Common parts of the laboratory instruments: parameters, common commands, and settling time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sim.twins.frontends.scpi import ErrorQueue, Handler, ScpiError
from sim.twins.rfsoc.kit.knobs import set_knobs
from sim.twins.rfsoc.kit.state import KitState

_BOOLEAN_WORDS = {"1": True, "ON": True, "0": False, "OFF": False}

Schedule = Callable[[float, Callable[[], None]], object]
"""Calls a function after a delay in seconds."""


def get_single_parameter(parameters: Sequence[str]) -> str:
    """Return the only parameter of a command. Raise `ScpiError` unless there is exactly one."""
    if len(parameters) != 1:
        raise ScpiError(-108 if parameters else -109)
    return parameters[0]


def parse_number(text: str, low: float = -math.inf, high: float = math.inf) -> float:
    """Return a finite number. Raise `ScpiError`: -224 if it is not a number, -222 if it is not in `low` to `high`."""
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
    """Return True for `1` or `ON`, and False for `0` or `OFF`. Raise `ScpiError` (-224) for any other text."""
    try:
        return _BOOLEAN_WORDS[text.upper()]
    except KeyError:
        raise ScpiError(-224, text[:40]) from None


def make_common_commands(identity: str, error_queue: ErrorQueue) -> dict[str, Handler]:
    """Return the commands that every SCPI instrument has."""

    def error(*_: object) -> str:
        return error_queue.pop().replace(', "', ',"', 1)

    return {
        "*IDN?": lambda *_: identity,
        "*CLS": lambda *_: error_queue.clear(),
        "*OPC?": lambda *_: "1",
        "SYSTem:ERRor[:NEXT]?": error,
    }


class SettlingKnobs:
    """Settings with a settling time. Queries return new settings at once, but the light changes later, all together."""

    def __init__(self, state: KitState, schedule: Schedule, settling_s: float) -> None:
        self._state = state
        self._schedule = schedule
        self._settling_s = settling_s
        self._pending_settings: dict[str, Any] = {}
        self._change_count = 0

    @property
    def is_settled(self) -> bool:
        """True if all settings have taken effect."""
        return not self._pending_settings

    def get_setting(self, name: str) -> Any:
        """Return the setting of a knob, even if it has not taken effect yet."""
        return self._pending_settings.get(name, getattr(self._state.snapshot.parameters, name))

    def set_knobs(self, **settings: object) -> None:
        """Set knobs. They take effect when no further knob has been set for the settling time."""
        self._pending_settings |= settings
        self._change_count += 1
        self._schedule(self._settling_s, partial(self._apply_pending_settings, self._change_count))

    def _apply_pending_settings(self, change_number: int) -> None:
        if change_number == self._change_count:  # otherwise the call of a later `set_knobs` is pending
            settings, self._pending_settings = self._pending_settings, {}
            self._state.change(partial(set_knobs, settings=settings))
