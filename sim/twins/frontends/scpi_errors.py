"""Errors as SCPI has them: numbers and texts of SCPI-99 volume 2, chapter 21, and the queue they wait in."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from sim.twins.switch.matrix import Reason, Refused

_QUEUE_LENGTH = 16
_NUMBER_OF: Mapping[Reason, int] = {
    Reason.NO_SUCH_PORT: -222,
    Reason.WRONG_SIDE: -222,
    Reason.REPEATED: -224,
    Reason.UNEQUAL: -224,
    Reason.FAILED: -240,
}
"""Errors for reasons of the matrix; -221, settings conflict, for all others."""


class ScpiError(Exception):
    """An error for the queue: SCPI-99 number and text, and what it is about."""

    TEXTS: Mapping[int, str] = {
        -102: "Syntax error",
        -108: "Parameter not allowed",
        -109: "Missing parameter",
        -113: "Undefined header",
        -221: "Settings conflict",
        -222: "Data out of range",
        -223: "Too much data",
        -224: "Illegal parameter value",
        -240: "Hardware error",
        -350: "Queue overflow",
        -363: "Input buffer overrun",
    }

    def __init__(self, number: int, about: str = "") -> None:
        self.number = number
        self.about = about
        super().__init__(str(self))

    def __str__(self) -> str:
        text = self.TEXTS[self.number]
        quoted = f"{text};{self.about}" if self.about else text
        return f'{self.number}, "{quoted}"'


def error_of(refusal: Refused) -> ScpiError:
    """Return the error for what the switch refuses."""
    return ScpiError(_NUMBER_OF.get(refusal.reason, -221), str(refusal))


NO_ERROR = '0, "No error"'


class ErrorQueue:
    """First in, first out; when it is full its last entry becomes -350 and newer ones are lost."""

    def __init__(self, length: int = _QUEUE_LENGTH) -> None:
        self._length = length
        self._errors: deque[ScpiError] = deque()

    def __len__(self) -> int:
        return len(self._errors)

    def push(self, error: ScpiError) -> None:
        """Add an error."""
        if len(self._errors) < self._length:
            self._errors.append(error)
        else:
            self._errors[-1] = ScpiError(-350)

    def pop(self) -> str:
        """Take the oldest, as text."""
        return str(self._errors.popleft()) if self._errors else NO_ERROR

    def pop_all(self) -> str:
        """Take all, as one text."""
        texts = [self.pop() for _ in range(max(1, len(self._errors)))]
        return ",".join(texts)

    def clear(self) -> None:
        """Forget all."""
        self._errors.clear()
