"""Documents of the interface, described in `openapi.json`. Responses may have more keys than these."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from testbed.design.topology.strides import Method
from testbed.service.requests import Hosts, Interval, PositiveInteger, TextLine

Document = dict[str, Any]


class _OpenModel(BaseModel):
    model_config = ConfigDict(extra="allow")


class _ClosedModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Problem(_OpenModel):
    """A problem document (RFC 9457). `code` is the error's code on the command line, `who` says who must act."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    who: str
    instance: str


class Health(_OpenModel):
    """State of the service. `labs` says whether each lab answers."""

    status: str


class LabDocument(_OpenModel):
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


class LabList(_OpenModel):
    """The labs of the service."""

    labs: list[LabDocument]


class HostDocument(_OpenModel):
    """A host with its NICs, and the ports of their fibres."""

    name: str
    management: str
    address: str
    nics: list[Document]


class HostList(_OpenModel):
    """The hosts of a lab."""

    lab: str
    hosts: list[HostDocument]


class SwitchDocument(_OpenModel):
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


class SwitchList(_OpenModel):
    """The switches of a lab."""

    lab: str
    switches: list[SwitchDocument]


class TopologyDocument(_OpenModel):
    """A topology of a lab: an epoch, its state, and its links."""

    lab: str
    epoch: int
    state: str
    name: str


class TopologyList(_OpenModel):
    """The topologies of a lab, newest first."""

    lab: str
    topologies: list[TopologyDocument]


class HistoryDocument(_OpenModel):
    """The epochs of a lab, in the form of `testbed history`."""

    lab: str
    epochs: list[Document]


class OperationList(_OpenModel):
    """The operations of a lab, in the form of `testbed journal`."""

    lab: str
    operations: list[Document]


class FindingList(_OpenModel):
    """Findings of the newest check of the topology in force. `seen` gives the time and run of the check, or is null."""

    lab: str
    seen: Document | None
    findings: list[Document]


class DriftDocument(_OpenModel):
    """Stored losses of fibre sections."""

    lab: str
    places: list[Document]


class LeaseDocument(_OpenModel):
    """A lease. Times are seconds since 1970."""

    id: str
    state: str
    owner: str
    resources: list[str]
    expires: float
    token: int | None


class LeaseList(_OpenModel):
    """The leases of a lab."""

    lab: str
    leases: list[LeaseDocument]
    maintenance: Document | None


class RunDocument(_OpenModel):
    """A run: a submitted command, its state, and its outcome."""

    id: str
    lab: str
    command: str
    state: str
    who: str
    exit_code: int | None


class RunList(_OpenModel):
    """Runs, newest first."""

    runs: list[RunDocument]


class ResultList(_OpenModel):
    """Stored runs of measurements, in the form of `testbed runs`."""

    runs: list[Document]


class AuditDocument(_OpenModel):
    """Lines of the audit log, oldest first, and whether the whole log is unchanged."""

    entries: list[Document]
    whole: bool
    lines: int


class StillDocument(_OpenModel):
    """A lab, and whether it is stopped or under maintenance."""

    lab: str


Resource = Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z0-9:_./-]+$")]
Seconds = Annotated[float, Field(gt=0, le=31_536_000)]


class LeaseRequest(_ClosedModel):
    """Request for parts of a lab. Without `resources`, it is for the whole lab."""

    resources: list[Resource] = []
    ttl_s: Seconds = 3600.0
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    starts_s: Annotated[float, Field(ge=0, le=4e9)] | None = None
    allowed: list[TextLine] = []
    reason: TextLine = ""


class LeaseExtension(_ClosedModel):
    """New duration of a lease, from now on. The default is the duration of its request."""

    ttl_s: Seconds | None = None


class Reason(_ClosedModel):
    """Reason for a change, which is stored."""

    reason: Annotated[TextLine, Field(min_length=1)]


class TopologyRequest(_ClosedModel):
    """Topology to apply: options of `testbed apply`."""

    simplex: bool = False
    method: Method | None = None
    demand: list[TextLine] = []
    hosts_of: TextLine = ""
    plan_file: str | None = None
    epoch: PositiveInteger | None = None
    take_over: bool = False
    hosts: Hosts = "auto"
    lease: TextLine = ""
    really_move: TextLine | None = None
    confirm_within: Interval | None = None
    why: TextLine = ""
