"""The text of a Glimmerglass without what is meant for a terminal: repeated commands and control sequences."""

from __future__ import annotations

import re

from ocs_drivers.timing import Deadline
from ocs_drivers.transports.echo import EchoCancelled
from ocs_drivers.transports.transport import Transport

_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[ -/]*[0-Z\\-~])")
_LONGEST_SEQUENCE = 32


class PlainText(EchoCancelled):
    """A transport without the echo of commands and without control sequences (ECMA-48), in any pieces.

    Released software repeats every command, and older software sets up a terminal when a client connects.
    """

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._unfinished = b""

    def open(self, timeout_s: float) -> None:
        """Connect."""
        self._unfinished = b""
        super().open(timeout_s)

    def receive(self, deadline: Deadline) -> bytes:
        """Return what has arrived as plain text; nothing, when none of it was."""
        text = _SEQUENCE.sub(b"", self._unfinished + super().receive(deadline))
        start = text.rfind(b"\x1b")
        if start < 0 or len(text) - start > _LONGEST_SEQUENCE:
            start = len(text)
        self._unfinished = text[start:]
        return text[:start]
