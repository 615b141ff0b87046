"""Refusals of operations, sorted by who must act.

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

from testbed.errors import TestbedError


class OperationRefused(TestbedError, code="operation", who="conflict"):
    """An operation that may not begin, or not go on; nothing more was sent."""


class NoSuchOperation(OperationRefused, code="operation.none", who="user"):
    """The journal knows no such operation of this lab."""


class OperationRunning(OperationRefused, code="operation.running", who="conflict"):
    """A living process carries the operation out."""


class OperationStopped(OperationRefused, code="operation.stopped", who="conflict"):
    """The emergency stop of the lab is in force: nothing moves until it is released."""


class Superseded(OperationRefused, code="operation.superseded", who="conflict"):
    """Later operations have taken hosts or ports that the operation was for."""


class ConfirmPending(OperationRefused, code="confirm.pending", who="conflict"):
    """An apply waits for its confirmation; another may not begin meanwhile."""


class NothingToConfirm(OperationRefused, code="confirm.none", who="user"):
    """No apply waits for a confirmation."""


class NotArmed(OperationRefused, code="confirm.unarmed", who="ourselves"):
    """An apply that stands although the process that would go back from it could not be started."""


class NothingBefore(OperationRefused, code="rollback.none", who="user"):
    """There is no verified epoch to go back to."""
