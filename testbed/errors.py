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
from typing import Any, ClassVar

from lightbed.errors import LightbedError, Who
from lightbed.wording import list_some


class TestbedError(LightbedError):
    """Root of the testbed's errors. The message says what, why and what to do."""

    __test__ = False  # not a pytest class
    code = "testbed.error"


class UsageError(TestbedError):
    """Options that exclude each other, or a value that cannot be read. The message names the option."""

    code = "usage"
    who: ClassVar[Who] = "user"


class LabFileError(TestbedError):
    """The lab file is wrong. The message begins with `file:line:` and ends with the hint."""

    code = "lab.file"
    who = "user"


class TopologyError(TestbedError):
    """A topology that cannot exist, or that cannot be wired to these NICs and switches."""

    code = "topology"
    who = "user"


class DemandError(TopologyError):
    """Demands that are no demands: not a number, negative, or of nodes and groups that do not exist."""

    code = "topology.demand"
    who = "user"


class WorkloadError(TestbedError):
    """A model, a profile or a task graph that cannot be read or run."""

    code = "workload"
    who = "user"


class StrategyError(WorkloadError):
    """A strategy that does not fit its workload or its servers."""

    code = "workload.strategy"


class OutOfMemory(StrategyError):
    """A server's memory does not hold what the strategy puts there."""

    code = "workload.memory"


class SearchError(TestbedError):
    """A search cannot be begun or gone on with: its options, its checkpoint, its workers."""

    code = "search"
    who = "user"


class OffloadError(TestbedError):
    """A pipeline cannot be run elsewhere: its metrics, its script, its configuration, its workers."""

    code = "offload"
    who = "user"


class PlanFileError(TestbedError):
    """A plan file cannot be read, or is for another lab."""

    code = "plan.file"
    who = "user"


class IntentError(TestbedError):
    """A stored topology that does not exist, or does not fit the lab file of today."""

    code = "intent"
    who = "user"


class RefusedToMove(TestbedError):
    """A lab that is not simulated, and the operator did not say `--really-move NAME`."""

    code = "refused"
    who = "user"


class HostError(TestbedError):
    """Hosts cannot be reached, or a command failed there; `host` is the first, `reasons` says why of each."""

    code = "host"
    who = "device"

    def __init__(self, message: str, *, host: str = "", reasons: Mapping[str, str] | None = None) -> None:
        self.reasons = dict(reasons or ({host: message} if host else {}))
        self.host = next(iter(self.reasons), "")
        super().__init__(message)


class LabStartError(TestbedError):
    """The simulated lab did not come up."""

    code = "lab.start"


class DriftError(TestbedError):
    """A switch is not as the plan saw it."""

    code = "drift"
    who = "conflict"


class PlanStale(TestbedError):
    """The lab is not as it was when a change was planned; `differences` are the fields. Nothing was sent."""

    code = "plan.stale"
    who = "conflict"

    def __init__(self, what: str, *, differences: Sequence[Any] = ()) -> None:
        self.differences = tuple(differences)
        fields = list_some(self.differences, "; ")
        super().__init__(f"{what}: {fields}; nothing was sent. See `testbed plan`, and plan again")


class StorageError(TestbedError):
    """A database that cannot be used: its address, its file system or its revision is not one that will do."""

    code = "storage"
    who = "user"


class JournalError(TestbedError):
    """The journal cannot be written; without a written intent nothing is sent to a device."""

    code = "journal"


class LeaseDenied(TestbedError):
    """A lease that is not granted, or that does not allow what was to be done."""

    code = "lease.denied"
    who: ClassVar[Who] = "conflict"


class LeaseStale(LeaseDenied):
    """The lease ended, or its parts were granted again: nothing may be sent under it."""

    code = "lease.stale"


class LeaseHeld(LeaseDenied):
    """The holder is in the middle of a write to a device, so the lease cannot be taken from it."""

    code = "lease.held"


class LeaseImpossible(LeaseDenied):
    """A request for what the lab does not have."""

    code = "lease.impossible"
    who = "user"


class UnderMaintenance(LeaseDenied):
    """The lab is under maintenance: somebody's hands are in the rack."""

    code = "maintenance"


class ClockError(TestbedError):
    """The clock is behind the newest entry of the database."""

    code = "clock"


class ApplyFailed(TestbedError):
    """Some circuits were not made, or nobody knows; `result` (an `ApplyResult`) accounts for every pair."""

    code = "apply"
    who = "unknown"

    def __init__(self, message: str, *, result: object = None) -> None:
        self.result = result
        super().__init__(message)


class VerifyFailed(TestbedError):
    """Light, fibres or routes are not as planned."""

    code = "verify"
    who = "device"


class CollectiveError(TestbedError):
    """A collective failed."""

    code = "collective"
    who = "device"


class CollectiveTimeout(CollectiveError):
    """The deadline passed; the message names the rank that waited and the link that is dark."""

    code = "collective.timeout"


class WrongResult(CollectiveError):
    """A rank holds a wrong sum."""

    code = "collective.wrong"


class ResultsError(TestbedError):
    """Stored or imported results cannot be read."""

    code = "results"
    who = "user"


class Interrupted(TestbedError):
    """Ctrl-C while a device was being moved: what was sent may still be carried out; `unknown` are its pairs."""

    code = "interrupted"
    who = "unknown"

    def __init__(self, message: str, *, unknown: Mapping[int, int] | None = None) -> None:
        self.unknown = dict(unknown or {})
        super().__init__(message)


class TimedOut(TestbedError):
    """The time of a command is over: `--timeout`."""

    code = "timed_out"
    who: ClassVar[Who] = "device"


class MoveTimedOut(TimedOut):
    """The time is over while a device was being moved; `unknown` are its pairs."""

    code = "timed_out.moving"
    who = "unknown"

    def __init__(self, message: str, *, unknown: Mapping[int, int] | None = None) -> None:
        self.unknown = dict(unknown or {})
        super().__init__(message)
