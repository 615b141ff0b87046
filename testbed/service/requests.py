"""Requests for runs: a model made from the declaration of each command, which is all that a body may say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union

from pydantic import Field, TypeAdapter, create_model

from testbed.commands import declare
from testbed.commands.declare import REQUIRED, Command, Lane, Option, fields_of
from testbed.commands.table import COMMANDS, declared_commands
from testbed.service.request import Line, Request, SwitchRequest, command_of

_MOST = 2**31 - 1
_FIELDS_OF_REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "apply": {
        "if_match": (Annotated[Line, Field(description="ETags of the topology that it may replace.")], "")
    }
}
"""Fields of requests that no command has."""


def models_of(words: str, command: type[Command[Any]]) -> Iterator[type[Request]]:
    """Yield the model of the requests for a command, and one for each variant."""
    yield _model_of(words, command, "")
    for variant in command.variants:
        yield _model_of(words, command, variant)


def _model_of(words: str, command: type[Command[Any]], variant: str) -> type[Request]:
    """Return a model: options are fields, but for those that are local, or of another variant."""
    given = [
        each
        for each in fields_of(command)
        if not each.option.is_local
        and each.option.only_with in ("", variant)
        and each.name not in command.variants
    ]
    all_words = f"{words} --{variant}" if variant else words
    fields: dict[str, Any] = {"command": (Literal[all_words], ...)}
    fields |= {each.name: _field(each) for each in given}
    if command.needs in ("lab if any", "labs if any", "nothing") and "lab" not in fields:
        fields["lab"] = (Line, "")
    if command.needs == "labs if any":
        fields["labs"] = (list[Line], [])
    if {"really_move", "yes"} & set(fields):  # it moves light: a lab by its name, a switch by `--yes`
        fields["lease"] = (Line, "")
    fields |= _FIELDS_OF_REQUESTS.get(words, {})
    sentence = f"`testbed {all_words}`: {COMMANDS[words][1]}"
    model = create_model(
        command.__name__ + variant.capitalize(),
        __base__=SwitchRequest if command.needs == "switch" else Request,
        __doc__=sentence,
        **fields,
    )
    assert command.role is not None
    model.role, model.needs_scope, model.readers = command.role, command.needs_scope, command.readers
    model.lane = command.variants.get(variant, command.lane)
    model.is_lab_last, model.has_runs_dir = command.is_lab_last, command.has_runs_dir
    model.names_lab_file = command.needs not in ("nothing", "switch")
    model.positional = tuple(each.name for each in given if each.option.is_argument)
    model.files = tuple(each.name for each in given if each.option.reads)
    model.writes = {each.name: each.option.writes for each in given if each.option.writes}
    model.options = {each.name: each.words[0] for each in given if not each.option.is_argument}
    return model


def _field(each: declare.Field) -> tuple[Any, Any]:
    """Return the type and the default of a field of a request."""
    option, kind = each.option, each.kind
    if option.writes:
        return (Literal[True], True) if each.default is REQUIRED else (bool, False)
    if option.reads:
        kind = str if option.most is None else Annotated[str, Field(max_length=int(option.most))]
    elif option.text is not None:
        kind = Annotated[str, Field(pattern=option.text.pattern)] if option.text.pattern else Line
    elif each.has_several:
        kind = Annotated[list[Line], Field(min_length=1)] if each.default is REQUIRED else list[Line]
    elif kind is str:
        kind = _text_of(option)
    elif kind in (int, float):
        most = option.most if option.most is not None else _MOST if kind is int else None
        kind = Annotated[kind, Field(ge=option.least, le=most)]
    default: Any = ... if each.default is REQUIRED else each.default
    if each.has_several and default == ():
        default = []
    return (kind | None if each.is_optional else kind), default


def _text_of(option: Option) -> Any:
    """Return the type of a text in a request, of one line unless it may have more."""
    bounds: Any = {"min_length": option.least, "max_length": option.most}
    if option.has_lines:
        return Annotated[str, Field(pattern=r"^[^\x00]*$", **bounds)]
    return Line if option.least is None else Annotated[Line, Field(**bounds)]


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
