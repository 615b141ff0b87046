"""Output of commands with its exit status, and the interpretation of a line that was typed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Printed:
    """Output of a command, lines parted by LF without a last line end, and its exit status.

    `leaves` is True of a command that ends the session.
    """

    text: str
    status: int = 0
    leaves: bool = False


class Left(Exception):
    """A line that ends the session; the argument is what it printed."""


Execute = Callable[[str], Awaitable[Printed]]
Interpreter = Callable[[str, int, Execute], Awaitable[Printed]]
"""Does a line that may have several commands, given the exit status of what was done before."""


async def one_command(line: str, status: int, execute: Execute) -> Printed:
    """Interpret a line as one command; an empty one leaves the exit status as it is."""
    return await execute(line) if line else Printed("", status)
