"""Requests for runs: a model for each command, which is all that a body may say, and the table of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, Union

from pydantic import Field, TypeAdapter

from testbed.commands.declare import Lane
from testbed.commands.table import declared_commands
from testbed.service.declared import models_of
from testbed.service.request import Request, command_of

REQUESTS: tuple[type[Request], ...] = tuple(
    model
    for words, command in declared_commands()
    if command.role is not None and not command.has_own_route
    for model in models_of(words, command)
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
