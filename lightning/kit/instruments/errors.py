"""Errors of laboratory instruments.

    DeviceError
    └── InstrumentError
        ├── InstrumentGone     nobody answers at the address, or the connection broke
        ├── InstrumentSilent   it took the question and did not answer in time
        ├── UnreadableReply    it answered something that is not an answer to the question
        ├── InstrumentRefused  it put an error into its queue
        ├── WrongInstrument    something else answers at the address
        └── NotAsSet           it took the setting, and reads back another value, or never settled

After the first three the connection is closed, so that a late answer meets nobody; the next use connects again.
"""

from __future__ import annotations

from lightning.errors import DeviceError


class InstrumentError(DeviceError):
    """A laboratory instrument."""

    code = "instrument"


class InstrumentGone(InstrumentError, ConnectionError):
    """Nobody answers at the address, or the connection broke."""

    code = "instrument.gone"


class InstrumentSilent(InstrumentError, TimeoutError):
    """It took the question and did not answer in time."""

    code = "instrument.silent"


class UnreadableReply(InstrumentError):
    """It answered something that is not an answer to the question."""

    code = "instrument.unreadable-reply"


class InstrumentRefused(InstrumentError):
    """It put an error into its queue."""

    code = "instrument.refused"


class WrongInstrument(InstrumentError):
    """Something else answers at the address."""

    code = "instrument.wrong"


class NotAsSet(InstrumentError):
    """It took the setting, and reads back another value, or never settled."""

    code = "instrument.not-as-set"
