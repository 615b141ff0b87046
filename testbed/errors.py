"""Errors of the testbed, sorted by who must act.

    TestbedError
    ├── UsageError            options that exclude each other, or a value that cannot be read (user)
    ├── LabFileError          the lab file is wrong: file, line, hint                  (user)
    ├── TopologyError         no such topology, or it cannot be wired                  (user)
    │   └── DemandError       demands that no topology can be found for                (user)
    ├── WorkloadError         a model, profile or task graph that cannot be read or run (user)
    │   └── StrategyError     a strategy that does not fit its workload
    │       └── OutOfMemory   a server's memory does not hold what the strategy puts there
    ├── SearchError           a search, its checkpoint or its workers                  (user)
    ├── OffloadError          a pipeline that cannot be offloaded, its script, workers (user)
    ├── PlanFileError         a plan file cannot be read, or is for another lab        (user)
    ├── IntentError           a stored topology that is not there or does not fit      (user)
    ├── RefusedToMove         a real lab, and `--really-move NAME` was not given       (user)
    ├── HostError             a host cannot be reached or a command failed there       (device)
    ├── LabStartError         the simulated lab did not come up                        (ourselves)
    ├── DriftError            a switch changed between plan and apply                  (conflict)
    ├── PlanStale             a change file, or --expect, is for another state         (conflict)
    ├── StorageError          a database that cannot be used: its address, file system, revision (user)
    ├── JournalError          the journal cannot be written, so nothing was sent       (ourselves)
    ├── OperationRefused      an operation that may not begin, or go on: `testbed.operation_errors`
    ├── LeaseDenied           somebody else holds it, or the lease does not allow it   (conflict)
    │   ├── LeaseStale        the lease ended, or a newer one was granted              (conflict)
    │   ├── LeaseHeld         its holder is in the middle of a write to a device       (conflict)
    │   ├── LeaseImpossible   what the lab does not have can never be granted          (user)
    │   └── UnderMaintenance  hands are in the rack: nothing moves                     (conflict)
    ├── ClockError            the clock stepped back: no lease can be judged           (ourselves)
    ├── ApplyFailed           circuits failed or unknown; the report names each        (unknown)
    ├── VerifyFailed          light, fibres or routes are not as planned               (device)
    ├── CollectiveError       a collective failed                                      (device)
    │   ├── CollectiveTimeout the deadline passed; names rank and link
    │   └── WrongResult       a rank holds a wrong sum
    ├── ResultsError          stored or imported results cannot be read                (user)
    ├── Interrupted           Ctrl-C while a device was being moved                    (unknown)
    └── TimedOut              the time of a command is over                            (device)
        └── MoveTimedOut      while a device was being moved                           (unknown)

Each class has a stable `code`, shared by command line, journal and service. Errors of the switches are
`ocs_drivers.errors` and carry the same two attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightbed.errors import LightbedError
from lightbed.wording import list_some


class TestbedError(LightbedError, code="testbed.error"):
    """Root of the testbed's errors. The message says what, why and what to do."""

    __test__ = False  # not a pytest class


class UsageError(TestbedError, code="usage", who="user"):
    """Options that exclude each other, or a value that cannot be read. The message names the option."""


class LabFileError(TestbedError, code="lab.file", who="user"):
    """The lab file is wrong. The message begins with `file:line:` and ends with the hint."""


class TopologyError(TestbedError, code="topology", who="user"):
    """A topology that cannot exist, or that cannot be wired to these NICs and switches."""


class DemandError(TopologyError, code="topology.demand", who="user"):
    """Demands that are no demands: not a number, negative, or of nodes and groups that do not exist."""


class WorkloadError(TestbedError, code="workload", who="user"):
    """A model, a profile or a task graph that cannot be read or run."""


class StrategyError(WorkloadError, code="workload.strategy"):
    """A strategy that does not fit its workload or its servers."""


class OutOfMemory(StrategyError, code="workload.memory"):
    """A server's memory does not hold what the strategy puts there."""


class SearchError(TestbedError, code="search", who="user"):
    """A search cannot be begun or gone on with: its options, its checkpoint, its workers."""


class OffloadError(TestbedError, code="offload", who="user"):
    """A pipeline cannot be run elsewhere: its metrics, its script, its configuration, its workers."""


class PlanFileError(TestbedError, code="plan.file", who="user"):
    """A plan file cannot be read, or is for another lab."""


class IntentError(TestbedError, code="intent", who="user"):
    """A stored topology that does not exist, or does not fit the lab file of today."""


class RefusedToMove(TestbedError, code="refused", who="user"):
    """A lab that is not simulated, and the operator did not say `--really-move NAME`."""


class HostError(TestbedError, code="host", who="device"):
    """Hosts cannot be reached, or a command failed there; `host` is the first, `reasons` says why of each."""

    def __init__(self, message: str, *, host: str = "", reasons: Mapping[str, str] | None = None) -> None:
        self.reasons = dict(reasons or ({host: message} if host else {}))
        self.host = next(iter(self.reasons), "")
        super().__init__(message)


class LabStartError(TestbedError, code="lab.start"):
    """The simulated lab did not come up."""


class DriftError(TestbedError, code="drift", who="conflict"):
    """A switch is not as the plan saw it."""


class PlanStale(TestbedError, code="plan.stale", who="conflict"):
    """The lab is not as it was when a change was planned; `differences` are the fields. Nothing was sent."""

    def __init__(self, what: str, *, differences: Sequence[Any] = ()) -> None:
        self.differences = tuple(differences)
        fields = list_some(self.differences, "; ")
        super().__init__(f"{what}: {fields}; nothing was sent. See `testbed plan`, and plan again")


class StorageError(TestbedError, code="storage", who="user"):
    """A database that cannot be used: its address, its file system or its revision is not one that will do."""


class JournalError(TestbedError, code="journal"):
    """The journal cannot be written; without a written intent nothing is sent to a device."""


class LeaseDenied(TestbedError, code="lease.denied", who="conflict"):
    """A lease that is not granted, or that does not allow what was to be done."""


class LeaseStale(LeaseDenied, code="lease.stale"):
    """The lease ended, or its parts were granted again: nothing may be sent under it."""


class LeaseHeld(LeaseDenied, code="lease.held"):
    """The holder is in the middle of a write to a device, so the lease cannot be taken from it."""


class LeaseImpossible(LeaseDenied, code="lease.impossible", who="user"):
    """A request for what the lab does not have."""


class UnderMaintenance(LeaseDenied, code="maintenance"):
    """The lab is under maintenance: somebody's hands are in the rack."""


class ClockError(TestbedError, code="clock"):
    """The clock is behind the newest entry of the database."""


class ApplyFailed(TestbedError, code="apply", who="unknown"):
    """Some circuits were not made, or nobody knows; `result` (an `ApplyResult`) accounts for every pair."""

    def __init__(self, message: str, *, result: object = None) -> None:
        self.result = result
        super().__init__(message)


class VerifyFailed(TestbedError, code="verify", who="device"):
    """Light, fibres or routes are not as planned."""


class CollectiveError(TestbedError, code="collective", who="device"):
    """A collective failed."""


class CollectiveTimeout(CollectiveError, code="collective.timeout"):
    """The deadline passed; the message names the rank that waited and the link that is dark."""


class WrongResult(CollectiveError, code="collective.wrong"):
    """A rank holds a wrong sum."""


class ResultsError(TestbedError, code="results", who="user"):
    """Stored or imported results cannot be read."""


class Interrupted(TestbedError, code="interrupted", who="unknown"):
    """Ctrl-C while a device was being moved: what was sent may still be carried out; `unknown` are its pairs."""

    def __init__(self, message: str, *, unknown: Mapping[int, int] | None = None) -> None:
        self.unknown = dict(unknown or {})
        super().__init__(message)


class TimedOut(TestbedError, code="timed_out", who="device"):
    """The time of a command is over: `--timeout`."""


class MoveTimedOut(TimedOut, code="timed_out.moving", who="unknown"):
    """The time is over while a device was being moved; `unknown` are its pairs."""

    def __init__(self, message: str, *, unknown: Mapping[int, int] | None = None) -> None:
        self.unknown = dict(unknown or {})
        super().__init__(message)
