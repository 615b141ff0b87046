"""Errors of the testbed, sorted by who must act.

    TestbedError
    ├── UsageError                (user)
    ├── LabFileError              (user)
    ├── TopologyError             (user)
    │   └── DemandError           (user)
    ├── WorkloadError             (user)
    │   └── StrategyError
    │       └── OutOfMemory
    ├── SearchError               (user)
    ├── OffloadError              (user)
    ├── PlanFileError             (user)
    ├── IntentError               (user)
    ├── RefusedToMove             (user)
    ├── HostError                 (device)
    ├── LabStartError             (ourselves)
    ├── DriftError                (conflict)
    ├── PlanStale                 (conflict)
    ├── StorageError              (user)
    ├── JournalError              (ourselves)
    ├── OperationRefused          (conflict)
    ├── LeaseDenied               (conflict)
    │   ├── LeaseStale            (conflict)
    │   ├── LeaseHeld             (conflict)
    │   ├── LeaseImpossible       (user)
    │   ├── UnderMaintenance      (conflict)
    │   └── LightDenied           (conflict)
    ├── ClockError                (ourselves)
    ├── ApplyFailed               (unknown)
    ├── VerifyFailed              (device)
    ├── CollectiveError           (device)
    │   ├── CollectiveTimeout
    │   └── WrongResult
    ├── InferenceError            (user)
    ├── ResultsError              (user)
    ├── Interrupted               (unknown)
    └── TimedOut                  (device)
        └── MoveTimedOut          (unknown)

Each class has a stable `code`, shared by command line, journal and service. Errors of switches are in
`ocs_drivers.errors` and have the same attributes `code` and `who`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from lightbed.errors import LightbedError
from lightbed.wording import list_some


class TestbedError(LightbedError, code="testbed.error"):
    """Root of the testbed's errors. The message says what, why and what to do."""

    __test__ = False  # not a pytest class


class UsageError(TestbedError, code="usage", who="user"):
    """Options exclude each other, or a value cannot be read; the message names the option and an example."""


class LabFileError(TestbedError, code="lab.file", who="user"):
    """The lab file is wrong; the message is `file:line: what; hint`."""


class TopologyError(TestbedError, code="topology", who="user"):
    """The topology is impossible, or cannot be wired to this lab."""


class DemandError(TopologyError, code="topology.demand", who="user"):
    """A demand is not a number, is negative, or names nodes or groups that do not exist."""


class WorkloadError(TestbedError, code="workload", who="user"):
    """A model, a profile or a task graph cannot be read or run."""


class StrategyError(WorkloadError, code="workload.strategy"):
    """A strategy does not fit its workload or its servers."""


class OutOfMemory(StrategyError, code="workload.memory"):
    """A server has less memory than the strategy needs there."""


class SearchError(TestbedError, code="search", who="user"):
    """A search cannot start or resume: its options, its checkpoint or its workers."""


class OffloadError(TestbedError, code="offload", who="user"):
    """A pipeline cannot be offloaded: its metrics, script, configuration or workers."""


class PlanFileError(TestbedError, code="plan.file", who="user"):
    """A plan file or change file cannot be read, or is for another lab."""


class IntentError(TestbedError, code="intent", who="user"):
    """A stored topology (`--epoch N`) does not exist, or does not fit the current lab file."""


class RefusedToMove(TestbedError, code="refused", who="user"):
    """The lab is real, and `--really-move NAME` was not given."""


class HostError(TestbedError, code="host", who="device"):
    """A host cannot be reached, or a command failed there. `host` is the first, `reasons` has the reason of each."""

    def __init__(self, message: str, *, host: str = "", reasons: Mapping[str, str] | None = None) -> None:
        self.reasons = dict(reasons or ({host: message} if host else {}))
        self.host = next(iter(self.reasons), "")
        super().__init__(message)


class LabStartError(TestbedError, code="lab.start"):
    """The simulated lab did not start, or is not running."""


class DriftError(TestbedError, code="drift", who="conflict"):
    """A switch changed between plan and apply; nothing was sent."""


class PlanStale(TestbedError, code="plan.stale", who="conflict"):
    """The lab has changed since the change was planned; `differences` names the fields. Nothing was sent."""

    def __init__(self, what: str, *, differences: Sequence[Any] = ()) -> None:
        self.differences = tuple(differences)
        fields = list_some(self.differences, "; ")
        super().__init__(f"{what}: {fields}; nothing was sent. See `testbed plan`, and plan again")


class StorageError(TestbedError, code="storage", who="user"):
    """The database cannot be used: its address, its file system, its revision, or a backup."""


class JournalError(TestbedError, code="journal"):
    """The journal cannot be written, so nothing was sent to a device."""


class LeaseDenied(TestbedError, code="lease.denied", who="conflict"):
    """Somebody else holds the lease, or the lease does not cover the operation."""


class LeaseStale(LeaseDenied, code="lease.stale"):
    """The lease has ended, or its parts were granted again; nothing was sent."""


class LeaseHeld(LeaseDenied, code="lease.held"):
    """The holder of the lease is writing to a device."""


class LeaseImpossible(LeaseDenied, code="lease.impossible", who="user"):
    """The request names parts that the lab does not have, so it can never be granted."""


class UnderMaintenance(LeaseDenied, code="maintenance"):
    """The lab is under maintenance: people may have their hands in the rack, so nothing moves."""


class LightDenied(LeaseDenied, code="light.denied"):
    """A program was not started: its lease or its light is not available. The exit code is 3."""

    exit_code: ClassVar[int] = 3


class ClockError(TestbedError, code="clock"):
    """The clock is behind the newest entry of the database: leases cannot be judged, and nothing moves."""


class ApplyFailed(TestbedError, code="apply", who="unknown"):
    """Circuits failed, or their state is unknown; `result` lists the outcome of each."""

    def __init__(self, message: str, *, result: object = None) -> None:
        self.result = result
        super().__init__(message)


class VerifyFailed(TestbedError, code="verify", who="device"):
    """Light, fibres or routes are not as planned."""


class CollectiveError(TestbedError, code="collective", who="device"):
    """A rank failed, or did not get ready."""


class CollectiveTimeout(CollectiveError, code="collective.timeout"):
    """The deadline of a collective passed; the message names the rank that waited and the link without traffic."""


class WrongResult(CollectiveError, code="collective.wrong"):
    """A rank computed a wrong result."""


class InferenceError(TestbedError, code="inference", who="user"):
    """A model cannot be tried on a board: the lab has none, or the smartNIC cannot hold the model."""


class ResultsError(TestbedError, code="results", who="user"):
    """Stored or imported results cannot be read."""


class Interrupted(TestbedError, code="interrupted", who="unknown"):
    """Ctrl-C arrived while a device was moving; the move may still happen. `unknown` holds its pairs."""

    def __init__(self, message: str, *, unknown: Mapping[int, int] | None = None) -> None:
        self.unknown = dict(unknown or {})
        super().__init__(message)


class TimedOut(TestbedError, code="timed_out", who="device"):
    """`--timeout` passed while nothing was moving."""


class MoveTimedOut(TimedOut, code="timed_out.moving", who="unknown"):
    """`--timeout` passed while a device was moving; the move may still happen. `unknown` holds its pairs."""

    def __init__(self, message: str, *, unknown: Mapping[int, int] | None = None) -> None:
        self.unknown = dict(unknown or {})
        super().__init__(message)
