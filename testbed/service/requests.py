"""Requests for runs: a model for each command, which is all that a body may say, and the table of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias, Union, get_args

from pydantic import Field, TypeAdapter

from testbed.commands.declare import Lane, Role
from testbed.commands.table import declared_commands
from testbed.design.topology.strides import Method
from testbed.service.declared import models_of
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
from testbed.service.requests_of_switches import (
    SwitchApply,
    SwitchConnect,
    SwitchDisconnect,
    SwitchHome,
    SwitchIdentity,
    SwitchPorts,
    SwitchPower,
    SwitchRead,
    SwitchShutter,
)


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


class Discover(_Moving):
    """`testbed discover`: find the ports of the NICs of the lab, and write its lab file with them."""

    command: Literal["discover"]
    output: Literal[True] = True
    settle_s: Annotated[float, Field(ge=0, le=600)] | None = None
    options: ClassVar[Mapping[str, str]] = {"settle_s": "--settle"}
    writes: ClassVar[Mapping[str, str]] = {"output": "lab.yaml"}


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


_OfLab = Discover
_OfLeases = LeaseList | LeaseRequest | LeaseExtend | LeaseRelease | LeaseBreak | Maintenance
_OfResults = ResultList | RunsQuery | RunsCompare | RunsTrend | Report | Metrics | AuditLines
_Looking = SwitchIdentity | SwitchPorts | SwitchRead | SwitchPower
_OfSwitches = _Looking | SwitchConnect | SwitchDisconnect | SwitchApply | SwitchShutter | SwitchHome
_Any = _OfLab | _OfLeases | _OfResults | _OfSwitches
REQUESTS: tuple[type[Request], ...] = (
    *get_args(_Any),
    *(
        model
        for words, command in declared_commands()
        if command.role is not None
        for model in models_of(words, command)
    ),
)
"""All commands that can be asked for."""
if TYPE_CHECKING:
    AnyRequest: TypeAlias = Request
else:
    AnyRequest = Annotated[Union[REQUESTS], Field(discriminator="command")]  # noqa: UP007  of a tuple
_ADAPTER: TypeAdapter[Any] = TypeAdapter(AnyRequest)


MODELS: Mapping[str, type[Request]] = {command_of(one): one for one in REQUESTS}
"""The model of each command."""
LANES: Mapping[str, Lane] = {command_of(one): one.lane for one in REQUESTS}
"""The lane of each command."""


def parse_request(text: str | bytes) -> Request:
    """Return the request that a JSON document is. Raises `pydantic.ValidationError`."""
    request: Request = _ADAPTER.validate_json(text)
    return request
