"""Requests for runs: a model for each command, which is all that a body may say, and the table of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias, Union, get_args

from pydantic import Field, TypeAdapter

from testbed.commands.declare import Lane
from testbed.commands.table import declared_commands
from testbed.design.topology.strides import Method
from testbed.service.declared import models_of
from testbed.service.request import Hosts, Line, Request, Whole, command_of
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


_Looking = SwitchIdentity | SwitchPorts | SwitchRead | SwitchPower
_OfSwitches = _Looking | SwitchConnect | SwitchDisconnect | SwitchApply | SwitchShutter | SwitchHome
_Any = Discover | _OfSwitches
REQUESTS: tuple[type[Request], ...] = (
    *get_args(_Any),
    *(
        model
        for words, command in declared_commands()
        if command.role is not None and not command.has_own_route
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
