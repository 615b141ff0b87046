"""Requests for runs: a model for each command, which is all that a body may say, and the table of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias, Union, get_args

from pydantic import Field, TypeAdapter

from testbed.commands.declare import Lane, Role
from testbed.commands.table import declared_commands
from testbed.design.topology.strides import Method
from testbed.service.declared import model_of
from testbed.service.request import Hosts, Interval, Line, Request, Whole, command_of
from testbed.service.requests_of_results import (
    AuditLines,
    Metrics,
    Report,
    ResultList,
    RunsCompare,
    RunsQuery,
    RunsTrend,
)

Deadline = Annotated[float, Field(ge=1, le=86400)]


class _Named(Request):
    """Options that name a topology."""

    options: ClassVar[Mapping[str, str]] = {"plan_file": "--plan"}
    files: ClassVar[tuple[str, ...]] = ("plan_file",)
    simplex: bool = False
    method: Method | None = None
    demand: list[Line] = Field(default=[])
    plan_file: str | None = None
    epoch: Whole | None = None


class _WithHosts(Request):
    """Option of commands that ask hosts."""

    hosts: Hosts = "auto"


class _Moving(Request):
    """Options of commands that move the lab."""

    lane: ClassVar[Lane] = "moving"
    lease: Line = ""
    really_move: Line | None = None


class Plan(_Named):
    """`testbed plan`: what would change."""

    files: ClassVar[tuple[str, ...]] = ("plan_file", "change")
    command: Literal["plan"]
    take_over: bool = False
    change: str | None = None
    patches: bool = False
    out: bool = False
    options: ClassVar[Mapping[str, str]] = {"plan_file": "--plan", "patches": "--patch-list"}
    writes: ClassVar[Mapping[str, str]] = {"out": "change.json"}


class Apply(_Named, _WithHosts, _Moving):
    """`testbed apply`: patch a topology, install routes, prove both."""

    files: ClassVar[tuple[str, ...]] = ("plan_file", "change")
    command: Literal["apply"]
    take_over: bool = False
    change: str | None = None
    expect: Line | None = None
    confirm_within: Interval | None = None
    if_match: Annotated[Line, Field(description="ETags of the topology that it may replace.")] = ""


class Environment(_Named):
    """`testbed env`: variables and ranks with which programs use the links."""

    lane: ClassVar[Lane] = "reading"
    role: ClassVar[Role] = "viewer"
    command: Literal["env"]
    as_shell: bool = False
    options: ClassVar[Mapping[str, str]] = {"plan_file": "--plan", "as_shell": "--shell"}


class Measure(_Named, _WithHosts):
    """`testbed nccl`: measure AllReduce on the circuits that stand."""

    lane: ClassVar[Lane] = "moving"
    command: Literal["nccl"]
    program: Literal["auto", "gloo", "nccl", "nccl-tests"] = "auto"
    interfaces: Line = ""
    sizes: Line = ""
    deadline_s: Deadline | None = None
    options: ClassVar[Mapping[str, str]] = {
        "plan_file": "--plan",
        "program": "--with",
        "interfaces": "--nccl-interfaces",
        "deadline_s": "--deadline",
    }


class PlanJob(_Named, _WithHosts):
    """`testbed job`: run the plan in force as a job."""

    lane: ClassVar[Lane] = "moving"
    command: Literal["job"]
    iterations: Annotated[int, Field(ge=1, le=1000)] | None = None
    lasts_s: Annotated[float, Field(ge=0.01, le=3600)] | None = None
    factor: Annotated[float, Field(ge=0, le=1e9)] | None = None
    deadline_s: Deadline | None = None
    options: ClassVar[Mapping[str, str]] = {
        "plan_file": "--plan",
        "lasts_s": "--lasts",
        "deadline_s": "--deadline",
    }


class Verify(_Named, _WithHosts):
    """`testbed verify`: compare the lab with the plan."""

    command: Literal["verify"]


class VerifyNarrow(_Named, _WithHosts, _Moving):
    """`testbed verify --narrow`: the same, and take circuits down for a moment to find where light is lost."""

    command: Literal["verify --narrow"]


class FollowPath(_Named, _WithHosts):
    """`testbed path`: follow a packet between two hosts."""

    command: Literal["path"]
    source: Line
    target: Line
    positional: ClassVar[tuple[str, ...]] = ("source", "target")


class Drift(_Named, _WithHosts):
    """`testbed drift`: read power and loss, and keep them."""

    command: Literal["drift"]
    since: Line | None = None


class Repair(_Named, _WithHosts, _Moving):
    """`testbed repair`: look for lost fibres; with `apply` do without them."""

    command: Literal["repair"]
    apply: bool = False


class Resume(_WithHosts, _Moving):
    """`testbed resume`: go on with an operation that ended too early."""

    command: Literal["resume"]
    operation: Line | None = None
    positional: ClassVar[tuple[str, ...]] = ("operation",)


class Rollback(_WithHosts, _Moving):
    """`testbed rollback`: go back to an earlier verified epoch."""

    command: Literal["rollback"]
    epoch: Whole | None = None
    take_over: bool = False
    positional: ClassVar[tuple[str, ...]] = ("epoch",)


class LeaseList(Request):
    """`testbed lease list`: the leases of the lab."""

    lane: ClassVar[Lane] = "reading"
    role: ClassVar[Role] = "viewer"
    command: Literal["lease list"]
    ended: bool = False


class LeaseRequest(Request):
    """`testbed lease request`: ask for parts of the lab."""

    lane: ClassVar[Lane] = "waiting"
    command: Literal["lease request"]
    resources: list[Line] = Field(default=[])
    ttl: Interval | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    at: Line = ""
    wait: Annotated[float, Field(ge=0, le=3600)] = 0.0
    allow: list[Line] = Field(default=[])
    reason: Line = ""
    positional: ClassVar[tuple[str, ...]] = ("resources",)


class LeaseExtend(Request):
    """`testbed lease extend`: let a lease last longer."""

    lane: ClassVar[Lane] = "prompt"
    command: Literal["lease extend"]
    lease: Line
    ttl: Interval | None = None
    positional: ClassVar[tuple[str, ...]] = ("lease",)


class LeaseRelease(Request):
    """`testbed lease release`: give a lease back."""

    lane: ClassVar[Lane] = "prompt"
    command: Literal["lease release"]
    lease: Line
    positional: ClassVar[tuple[str, ...]] = ("lease",)


class LeaseBreak(Request):
    """`testbed lease break`: take a lease from whoever holds it."""

    lane: ClassVar[Lane] = "prompt"
    role: ClassVar[Role] = "admin"
    command: Literal["lease break"]
    lease: Line
    reason: Annotated[Line, Field(min_length=1)]
    positional: ClassVar[tuple[str, ...]] = ("lease",)


class Maintenance(Request):
    """`testbed maintenance`: stop all motion while hands are in the rack."""

    lane: ClassVar[Lane] = "waiting"
    role: ClassVar[Role] = "developer"
    command: Literal["maintenance"]
    to: Literal["on", "off"]
    reason: Line = ""
    wait: Annotated[float, Field(ge=0, le=3600)] = 120.0
    positional: ClassVar[tuple[str, ...]] = ("to",)
    is_lab_last: ClassVar[bool] = True


_OfLab = Plan | Apply | Verify | VerifyNarrow | FollowPath | Drift | Repair | Resume | Rollback
_OfEpochs = Environment | Measure | PlanJob
_OfLeases = LeaseList | LeaseRequest | LeaseExtend | LeaseRelease | LeaseBreak | Maintenance
_OfResults = ResultList | RunsQuery | RunsCompare | RunsTrend | Report | Metrics | AuditLines
_Any = _OfLab | _OfEpochs | _OfLeases | _OfResults
REQUESTS: tuple[type[Request], ...] = (
    *get_args(_Any),
    *(model_of(words, command) for words, command in declared_commands() if command.role is not None),
)
"""All commands that can be asked for."""
if TYPE_CHECKING:
    AnyRequest: TypeAlias = Request
else:
    AnyRequest = Annotated[Union[REQUESTS], Field(discriminator="command")]  # noqa: UP007  of a tuple
_ADAPTER: TypeAdapter[Any] = TypeAdapter(AnyRequest)


LANES: Mapping[str, Lane] = {command_of(one): one.lane for one in REQUESTS}
"""The lane of each command."""


def parse_request(text: str | bytes) -> Request:
    """Return the request that a JSON document is. Raises `pydantic.ValidationError`."""
    request: Request = _ADAPTER.validate_json(text)
    return request
