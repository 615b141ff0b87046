"""Refusals of operations, each with who must act.

OperationRefused
├── NoSuchOperation               (user)
├── OperationRunning              (conflict)
├── OperationStopped              (conflict)
├── OperationSuperseded           (conflict)
├── ConfirmPending                (conflict)
├── NoPendingConfirmation         (user)
├── WatcherNotArmed               (ourselves)
└── NoEarlierEpoch                (user)
"""

from __future__ import annotations

from testbed.errors import TestbedError


class OperationRefused(TestbedError, code="operation", who="conflict"):
    """An operation was refused, or was stopped before it was complete."""


class NoSuchOperation(OperationRefused, code="operation.none", who="user"):
    """The journal has no operation of this id for the lab."""


class OperationRunning(OperationRefused, code="operation.running", who="conflict"):
    """A running process executes the operation."""


class OperationStopped(OperationRefused, code="operation.stopped", who="conflict"):
    """The emergency stop of the lab is in force (`testbed stop`)."""


class OperationSuperseded(OperationRefused, code="operation.superseded", who="conflict"):
    """Later operations use hosts or ports of this operation."""


class ConfirmPending(OperationRefused, code="confirm.pending", who="conflict"):
    """An apply awaits `testbed confirm`, so no other apply may start."""


class NoPendingConfirmation(OperationRefused, code="confirm.none", who="user"):
    """No apply awaits confirmation."""


class WatcherNotArmed(OperationRefused, code="confirm.unarmed", who="ourselves"):
    """The watcher that would roll back did not start; the applied topology stays in force."""


class NoEarlierEpoch(OperationRefused, code="rollback.none", who="user"):
    """There is no verified epoch to roll back to."""
