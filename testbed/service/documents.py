"""Documents of the interface, described in `openapi.json`. Responses may have more keys than these."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from testbed.design.topology.strides import Method
from testbed.service.requests import Hosts, Interval, Line, Whole

Document = dict[str, Any]


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Problem(_Open):
    """A problem document (RFC 9457). `code` is the error's code on the command line, `who` says who must act."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    who: str
    instance: str


class Health(_Open):
    """State of the service. `labs` says whether each lab answers."""

    status: str


class LabDocument(_Open):
    """A lab and its current state."""

    name: str
    simulated: bool
    revision: str
    hosts: list[str]
    switches: list[str]
    topology: Document | None
    maintenance: Document | None
    stopped: bool
    leases: list[Document]
    runs: list[Document]
    findings: list[Document]


class LabList(_Open):
    """The labs of the service."""

    labs: list[LabDocument]


class HostDocument(_Open):
    """A host with its NICs, and the ports of their fibres."""

    name: str
    management: str
    address: str
    nics: list[Document]


class HostList(_Open):
    """The hosts of a lab."""

    lab: str
    hosts: list[HostDocument]


class SwitchDocument(_Open):
    """A switch with its circuits, and its ports with optical power, as last read.

    `seen` says when its circuits were read, and by which operation or run.
    """

    name: str
    address: str
    inputs: int
    outputs: int
    circuits: list[Document]
    seen: Document | None
    ports: list[Document]


class SwitchList(_Open):
    """The switches of a lab."""

    lab: str
    switches: list[SwitchDocument]


class TopologyDocument(_Open):
    """A topology of a lab: an epoch, its state, and its links."""

    lab: str
    epoch: int
    state: str
    name: str


class TopologyList(_Open):
    """The topologies of a lab, newest first."""

    lab: str
    topologies: list[TopologyDocument]


class HistoryDocument(_Open):
    """The epochs of a lab, in the form of `testbed history`."""

    lab: str
    epochs: list[Document]


class OperationList(_Open):
    """The operations of a lab, in the form of `testbed journal`."""

    lab: str
    operations: list[Document]


class FindingList(_Open):
    """Findings of the newest check of the topology in force. `seen` says when and by which run, or is null."""

    lab: str
    seen: Document | None
    findings: list[Document]


class DriftDocument(_Open):
    """Stored losses of fibre sections."""

    lab: str
    places: list[Document]


class LeaseDocument(_Open):
    """A lease. Times are seconds since 1970."""

    id: str
    state: str
    owner: str
    resources: list[str]
    expires: float
    token: int | None


class LeaseList(_Open):
    """The leases of a lab."""

    lab: str
    leases: list[LeaseDocument]
    maintenance: Document | None


class RunDocument(_Open):
    """A run: a submitted command, its state, and its outcome."""

    id: str
    lab: str
    command: str
    state: str
    who: str
    exit_code: int | None


class RunList(_Open):
    """Runs, newest first."""

    runs: list[RunDocument]


class ResultList(_Open):
    """Stored runs of measurements, in the form of `testbed runs`."""

    runs: list[Document]


class AuditDocument(_Open):
    """Lines of the audit log, oldest first, and whether the whole log is unchanged."""

    entries: list[Document]
    whole: bool
    lines: int


class StillDocument(_Open):
    """A lab, and whether it is stopped or under maintenance."""

    lab: str


Resource = Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z0-9:_./-]+$")]
Seconds = Annotated[float, Field(gt=0, le=31_536_000)]


class LeaseRequest(_Closed):
    """Request for parts of a lab. Without `resources`, it is for the whole lab."""

    resources: list[Resource] = []
    ttl_s: Seconds = 3600.0
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    starts_s: Annotated[float, Field(ge=0, le=4e9)] | None = None
    allowed: list[Line] = []
    reason: Line = ""


class LeaseExtension(_Closed):
    """New duration of a lease, from now on. The default is the duration of its request."""

    ttl_s: Seconds | None = None


class Reason(_Closed):
    """Reason for a change, which is stored."""

    reason: Annotated[Line, Field(min_length=1)]


class TopologyRequest(_Closed):
    """Topology to apply: options of `testbed apply`."""

    simplex: bool = False
    method: Method | None = None
    demand: list[Line] = []
    hosts_of: Line = ""
    plan_file: str | None = None
    epoch: Whole | None = None
    take_over: bool = False
    hosts: Hosts = "auto"
    lease: Line = ""
    really_move: Line | None = None
    confirm_within: Interval | None = None
    why: Line = ""
