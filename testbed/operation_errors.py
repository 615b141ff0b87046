"""Refusals of operations, sorted by who must act; their codes are a table of the ground, `lightbed.errors.CODES`.

OperationRefused      an operation that may not begin, or not go on
├── NoSuchOperation   the journal knows no such operation of this lab          (user)
├── OperationRunning  a living process carries it out                          (conflict)
├── OperationStopped  the lab's emergency stop is in force                     (conflict)
├── Superseded        later operations have taken what it was for              (conflict)
├── ConfirmPending    an apply waits for `testbed confirm`                     (conflict)
├── NothingToConfirm  no apply waits for a confirmation                        (user)
├── NotArmed          the process that would go back could not be started      (ourselves)
└── NothingBefore     no verified epoch to go back to                          (user)
"""

from __future__ import annotations

from typing import ClassVar

from lightbed.errors import CODES, Who
from testbed.errors import TestbedError


class OperationRefused(TestbedError):
    """An operation that may not begin, or not go on; nothing more was sent. `who` is that of its code."""

    code = "operation"
    who: ClassVar[Who] = "conflict"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.who = CODES[cls.code]


class NoSuchOperation(OperationRefused):
    """The journal knows no such operation of this lab."""

    code = "operation.none"


class OperationRunning(OperationRefused):
    """A living process carries the operation out."""

    code = "operation.running"


class OperationStopped(OperationRefused):
    """The emergency stop of the lab is in force: nothing moves until it is released."""

    code = "operation.stopped"


class Superseded(OperationRefused):
    """Later operations have taken hosts or ports that the operation was for."""

    code = "operation.superseded"


class ConfirmPending(OperationRefused):
    """An apply waits for its confirmation; another may not begin meanwhile."""

    code = "confirm.pending"


class NothingToConfirm(OperationRefused):
    """No apply waits for a confirmation."""

    code = "confirm.none"


class NotArmed(OperationRefused):
    """An apply that stands although the process that would go back from it could not be started."""

    code = "confirm.unarmed"


class NothingBefore(OperationRefused):
    """There is no verified epoch to go back to."""

    code = "rollback.none"
