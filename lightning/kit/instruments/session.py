"""A session with one SCPI instrument: its identity, queries, and verified settings."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from lightning.errors import OutOfRange
from lightning.kit.instruments.line import (
    InstrumentError,
    InstrumentRefused,
    Line,
    SettingMismatch,
    UnreadableReply,
    WrongInstrument,
    open_line,
)

_MAX_ERROR_COUNT = 32
_ERROR_ENTRY = re.compile(r'\s*([+-]?\d+)\s*,\s*"?([^"]*)"?\s*')
_POLL_S = 0.005

OpenLine = Callable[[str, float], Line]


@dataclass(frozen=True, slots=True)
class Identity:
    """Answer to `*IDN?`."""

    make: str
    model: str
    serial: str
    firmware: str

    def __str__(self) -> str:
        return f"{self.make} {self.model} {self.serial}"


class Session:
    """A connection to one instrument, opened at the first use and again after a failure.

    Several threads may share a session, but only one process may use the instrument. Connecting raises
    `WrongInstrument` unless the identity contains every one of `expected_words`, in upper or lower case.
    """

    def __init__(
        self,
        resource: str,
        expected_words: tuple[str, ...],
        *,
        timeout_s: float = 2.0,
        settle_s: float = 10.0,
        connect: OpenLine = open_line,
    ) -> None:
        self.resource = resource
        self.settle_s = settle_s
        self._expected_words = expected_words
        self._timeout_s = timeout_s
        self._connect = connect
        self._lock = threading.RLock()
        self._line: Line | None = None
        self._identity: Identity | None = None

    @property
    def identity(self) -> Identity:
        """The identity of the instrument at the address. Connects if necessary."""
        with self._lock:
            self._connect_once()
            assert self._identity is not None
            return self._identity

    def open(self) -> None:
        """Connect and check the identity. Raise `InstrumentError` if that fails."""
        with self._lock:
            self._connect_once()

    def ask(self, query: str) -> str:
        """Send a query and return the reply. Raise `InstrumentError` if there is none."""
        with self._lock:
            connection = self._connect_once()
            try:
                return connection.query(query)
            except InstrumentError:
                self._disconnect()
                raise

    def ask_number(self, query: str) -> float:
        """Send a query and return the reply as a finite number. Raise `InstrumentError`."""
        reply = self.ask(query)
        try:
            value = float(reply)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or abs(value) > 9.8e37:  # SCPI's infinities and its "not a number"
            raise self._make_unreadable_error(query, reply, "a number")
        return value

    def ask_bool(self, query: str) -> bool:
        """Send a query and return the reply (`1` or `ON`, `0` or `OFF`) as a bool. Raise `InstrumentError`."""
        return self.ask_word(query, "1", "0", "ON", "OFF") in ("1", "ON")

    def ask_word(self, query: str, *words: str) -> str:
        """Send a query and return the reply, one of `words`, in upper case. Raise `InstrumentError`."""
        reply = self.ask(query)
        if reply.upper() not in words:
            raise self._make_unreadable_error(query, reply, " or ".join(words[:2]))
        return reply.upper()

    def send_command(self, command: str) -> None:
        """Send a command and read the error queue. Raise `InstrumentRefused` with all entries, if there are any."""
        with self._lock:
            connection = self._connect_once()
            try:
                connection.write(command)
            except InstrumentError:
                self._disconnect()
                raise
            errors = self._read_errors()
        if errors:
            raise InstrumentRefused(
                f"{command!r} was refused: {'; '.join(errors)}",
                device=self.resource,
                hint="Look up the error in the instrument's manual, and check its display",
            )

    def wait_until(self, is_settled: Callable[[], bool], subject: str) -> None:
        """Poll `is_settled` until it is true. Raise `SettingMismatch` after `settle_s`."""
        deadline_s = time.monotonic() + self.settle_s
        while not is_settled():
            if time.monotonic() > deadline_s:
                raise SettingMismatch(
                    f"{subject} did not settle within {self.settle_s:g} s",
                    device=self.resource,
                    hint="Look at the instrument's display for a warm-up, an interlock or an alarm",
                )
            time.sleep(_POLL_S)

    def check_reading(self, subject: str, setpoint: float, reading: float, tolerance: float) -> None:
        """Raise `SettingMismatch` unless a reading is within `tolerance` of its setpoint."""
        if not abs(reading - setpoint) <= tolerance:
            raise SettingMismatch(
                f"{subject} was set to {setpoint:g} and reads {reading:g}",
                device=self.resource,
                hint="Look at the instrument's display: a limit, an interlock or another program may hold it",
            )

    def check_range(self, subject: str, value: float, low: float, high: float) -> None:
        """Raise `OutOfRange`, before anything is sent, unless a value lies from `low` to `high`."""
        if not low <= value <= high:
            raise OutOfRange(
                f"{subject} {value:g} is outside {low:g} to {high:g}; nothing was sent",
                device=self.resource,
                hint="Choose a value in the range",
            )

    def close(self) -> None:
        """Disconnect; the next use connects again."""
        with self._lock:
            self._disconnect()

    def _connect_once(self) -> Line:
        if self._line is None:
            connection = self._connect(self.resource, self._timeout_s)
            try:
                self._identity = self._check_identity(connection.query("*IDN?"))
                connection.write("*CLS")
            except InstrumentError:
                connection.close()
                raise
            self._line = connection
        return self._line

    def _check_identity(self, reply: str) -> Identity:
        fields = [field.strip() for field in reply.split(",")]
        if len(fields) < 4 or not all(
            expected_word.lower() in reply.lower() for expected_word in self._expected_words
        ):
            raise WrongInstrument(
                f"{reply[:80]!r} answered, but a {' '.join(self._expected_words)} was expected",
                device=self.resource,
                hint="Check the address against the instrument's label",
            )
        return Identity(fields[0], fields[1], fields[2], fields[3])

    def _read_errors(self) -> list[str]:
        """Read the error queue until it is empty, and return its entries."""
        errors: list[str] = []
        for _ in range(_MAX_ERROR_COUNT):
            reply = self.ask("SYST:ERR?")
            match = _ERROR_ENTRY.fullmatch(reply)
            if match is None:
                raise self._make_unreadable_error("SYST:ERR?", reply, "an error number and text")
            if int(match[1]) == 0:
                break
            errors.append(f"{match[1]} {match[2]}")
        return errors

    def _make_unreadable_error(self, query: str, reply: str, expected: str) -> UnreadableReply:
        self.close()
        return UnreadableReply(
            f"the reply to {query!r} is {reply[:80]!r}, which is not {expected}; the connection was closed",
            device=self.resource,
            hint="Check whether another program uses the instrument; the next use connects again",
        )

    def _disconnect(self) -> None:
        connection, self._line = self._line, None
        if connection is not None:
            connection.close()
