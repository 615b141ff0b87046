"""Requests for declared commands: a model made from the declaration of each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from testbed.commands import declare
from testbed.commands.declare import REQUIRED, Command, fields_of, takes_lease
from testbed.commands.table import COMMANDS
from testbed.service.request import Line, Request, SwitchRequest

_MOST = 2**31 - 1


def model_of(words: str, command: type[Command[Any]]) -> type[Request]:
    """Return the model of the requests for a command: its options as fields, but for those that are local."""
    fields: dict[str, Any] = {
        each.name: _field(each) for each in fields_of(command) if not each.option.is_local
    }
    base = SwitchRequest if command.needs == "switch" else Request
    further: dict[str, Any] = {} if command.needs in ("lab", "bare lab", "switch") else {"lab": (Line, "")}
    if takes_lease(command):
        further["lease"] = (Line, "")
    sentence = f"`testbed {words}`: {COMMANDS[words][1]}"
    further["command"] = (Literal[words], ...)
    model = create_model(command.__name__, __base__=base, __doc__=sentence, **further, **fields)
    given = [each for each in fields_of(command) if each.name in fields]
    assert command.role is not None
    model.role, model.needs_scope, model.readers = command.role, command.needs_scope, command.readers
    model.lane, model.is_lab_last, model.has_runs_dir = (
        command.lane,
        command.is_lab_last,
        command.has_runs_dir,
    )
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
        kind = Annotated[str, Field(pattern=option.text.pattern)]
    elif each.has_several:
        kind = Annotated[list[Line], Field(min_length=1)] if each.default is REQUIRED else list[Line]
    elif kind is str:
        kind = Line
    elif kind in (int, float):
        most = option.most if option.most is not None else _MOST if kind is int else None
        kind = Annotated[kind, Field(ge=option.least, le=most)]
    elif kind is Path:
        raise TypeError(f"{each.name} is a path, which no request may name")
    default: Any = ... if each.default is REQUIRED else each.default
    if each.has_several and default == ():
        default = []
    return (kind | None if each.is_optional else kind), default
