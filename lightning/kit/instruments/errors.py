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


class InstrumentError(DeviceError, code="instrument"):
    """A laboratory instrument."""


class InstrumentGone(InstrumentError, ConnectionError, code="instrument.gone"):
    """Nobody answers at the address, or the connection broke."""


class InstrumentSilent(InstrumentError, TimeoutError, code="instrument.silent"):
    """It took the question and did not answer in time."""


class UnreadableReply(InstrumentError, code="instrument.unreadable-reply"):
    """It answered something that is not an answer to the question."""


class InstrumentRefused(InstrumentError, code="instrument.refused"):
    """It put an error into its queue."""


class WrongInstrument(InstrumentError, code="instrument.wrong"):
    """Something else answers at the address."""


class NotAsSet(InstrumentError, code="instrument.not-as-set"):
    """It took the setting, and reads back another value, or never settled."""
