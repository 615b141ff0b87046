"""Requests for runs: a model for each command, made from its declaration, and the conversion to command-line arguments.

A body may contain only the fields of its model, which have the names of the command's parameters. A request contains
the text of a file instead of its path. Files that the command reads or writes are in the run's folder, so a request
cannot name a file of the service's machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator

from testbed.commands import declare
from testbed.commands.declare import REQUIRED, Command, Lane, Option, Role, list_fields
from testbed.commands.table import COMMANDS, list_declared_commands, load_command
from testbed.service_errors import InvalidRequest

if TYPE_CHECKING:
    from testbed.lab.model import Lab


Hosts = Literal["auto", "kernel", "model"]
TextLine = Annotated[str, Field(max_length=400, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
"""Text without control characters."""
Interval = Annotated[str, Field(pattern=r"^\d{1,6}[smhd]$")]
PositiveInteger = Annotated[int, Field(ge=1, le=2**31 - 1)]
_FIXED_FIELDS = frozenset({"command", "if_match", "lab", "why", "text", "labs", "switch"})
_MAX_INTEGER = 2**31 - 1
_EXTRA_FIELDS_BY_COMMAND: Mapping[str, Mapping[str, Any]] = {
    "apply": {
        "if_match": (Annotated[TextLine, Field(description="ETags of the topology that it may replace.")], "")
    }
}
"""Fields of requests that are not options of the command."""


class Request(BaseModel):
    """Base of requests, with their common fields: the lab, the reason, and the form of the output.

    - `role`: lowest role that may submit the request, with a token of scope `needs_scope`.
    - `readers`: lowest role that may read the outcome.
    - `lane`: queue of the run, which limits how many runs execute at once (see `workers`).
    - `positional_fields`: fields that are positional arguments. `options` maps the other fields to their options.
    - `files`: fields whose text the command reads from a file.
    - `writes`: fields that stand for files to write, with the names of these files.
    """

    model_config = ConfigDict(extra="forbid")
    role: ClassVar[Role] = "operator"
    needs_scope: ClassVar[str] = "runs:write"
    readers: ClassVar[Role] = "viewer"
    lane: ClassVar[Lane] = "looking"
    positional_fields: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[str, ...]] = ()
    writes: ClassVar[Mapping[str, str]] = {}
    options: ClassVar[Mapping[str, str]] = {}
    is_lab_last: ClassVar[bool] = False
    has_program: ClassVar[bool] = False
    names_lab_file: ClassVar[bool] = True
    has_runs_dir: ClassVar[bool] = True

    lab: Annotated[TextLine, Field(min_length=1)]
    why: TextLine = ""
    text: Annotated[bool, Field(description="Lines for people in place of one JSON document.")] = False

    @model_validator(mode="before")
    @classmethod
    def _leave_out_null(cls, body: Any) -> Any:
        """Return a body without null fields, so that these get their defaults."""
        if not isinstance(body, dict):
            return body
        return {
            name: value for name, value in body.items() if value is not None or name not in cls.model_fields
        }

    def list_labs(self) -> tuple[str, ...]:
        """Return the labs that the request names, or () for a request about all labs."""
        if "labs" in type(self).model_fields:
            return tuple(vars(self)["labs"])
        return (self.lab,) if self.lab else ()

    def check_devices(self, lab: Lab) -> None:
        """Raise `InvalidRequest` for a device that is not in the lab."""

    def make_arguments(self, lab_files: Mapping[str, Path], runs_dir: Path, folder: Path) -> list[str]:
        """Return the arguments of the command, and write the files that it reads to `folder`."""
        values_by_field = {name: self._list_values(name, folder) for name in type(self).model_fields}
        positional = [str(value) for name in self.positional_fields for value in values_by_field[name]]
        lab_arguments = [str(lab_files[name]) for name in self.list_labs() if self.names_lab_file]
        options = [
            *self._yield_options(values_by_field),
            *([f"--runs-dir={runs_dir}"] if self.has_runs_dir else []),
        ]
        first_arguments = [*self.list_command_words(lab_files), *options, *([] if self.text else ["--json"])]
        if self.has_program:
            return [*first_arguments, *lab_arguments, "--", *positional]
        return [
            *first_arguments,
            "--",
            *([*positional, *lab_arguments] if self.is_lab_last else [*lab_arguments, *positional]),
        ]

    def list_command_words(self, lab_files: Mapping[str, Path]) -> list[str]:
        """Return the words with which the command begins."""
        return get_command(type(self)).split()

    def _yield_options(self, values_by_field: Mapping[str, list[Any]]) -> Iterator[str]:
        for name, values in values_by_field.items():
            if name in self.positional_fields or (name in _FIXED_FIELDS and name not in self.options):
                continue
            option = self.options.get(name, f"--{name.replace('_', '-')}")
            yield from (option if value is True else f"{option}={value}" for value in values)

    def _list_values(self, name: str, folder: Path) -> list[Any]:
        """Return the values of a field as a list, which may be empty. The value of a file is its path in `folder`.

        Writes files that the command reads, and removes files that an earlier attempt wrote.
        """
        value = getattr(self, name)
        if value is None or value is False or value == "":
            return []
        if name in self.writes:
            # An earlier attempt may have written the file.
            (folder / self.writes[name]).unlink(missing_ok=True)
            return [folder / self.writes[name]]
        if name in self.files:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{name}.json"
            path.write_text(value, encoding="utf-8")
            return [path]
        return value if isinstance(value, list) else [value]


class SwitchRequest(Request):
    """Request for a command on a switch. It gives the switch's name in the lab file instead of its address."""

    switch: TextLine

    def check_devices(self, lab: Lab) -> None:
        """Raise `InvalidRequest` unless the lab has this switch."""
        switch_names = [switch.name for switch in lab.switches]
        if self.switch not in switch_names:
            raise InvalidRequest(
                f"lab {lab.name!r} has no switch {self.switch!r}; it has {', '.join(switch_names)}"
            )

    def list_command_words(self, lab_files: Mapping[str, Path]) -> list[str]:
        """Return the words with which the command begins, with the current address of the switch."""
        from testbed.lab.inventory import load_lab
        from testbed.lab.simulated.lifecycle import find_running_lab

        lab = find_running_lab(load_lab(lab_files[self.lab]))
        group, command = super().list_command_words(lab_files)
        return [group, lab.get_switch(self.switch).address, command]


def get_command(request: type[Request]) -> str:
    """Return the words of a model's command."""
    return str(request.model_fields["command"].annotation.__args__[0])  # type: ignore[union-attr]


def list_models() -> tuple[type[Request], ...]:
    """Return the models of all commands that can be submitted, and of their variants."""
    models = []
    for words, command in list_declared_commands():
        names = (words, *(f"{words} --{variant}" for variant in command.variants))
        models += [model for name in names if (model := find_model(name))]
    return tuple(models)


@cache
def find_model(name: str) -> type[Request] | None:
    """Return the model of a command or of its variant, such as `verify --narrow`, or None if it cannot be submitted."""
    words, dashes, variant = name.partition(" --")
    command = load_command(words)
    if command is None or command.role is None or command.has_service_route:
        return None
    return make_model(words, command, variant) if not dashes or variant in command.variants else None


def make_model(words: str, command: type[Command[Any]], variant: str) -> type[Request]:
    """Return a model whose fields are the command's options, without local options and options of other variants."""
    included_fields = [
        field
        for field in list_fields(command)
        if not field.option.is_local
        and field.option.only_with in ("", variant)
        and field.name not in command.variants
    ]
    all_words = f"{words} --{variant}" if variant else words
    fields: dict[str, Any] = {"command": (Literal[all_words], ...)}
    fields |= {field.name: _make_field(field) for field in included_fields}
    if command.needs in ("lab if any", "labs if any", "nothing") and "lab" not in fields:
        fields["lab"] = (TextLine, "")
    if command.needs == "labs if any":
        fields["labs"] = (list[TextLine], [])
    if {"really_move", "yes"} & set(fields):  # the command changes a lab or a switch, so it may need a lease
        fields["lease"] = (TextLine, "")
    fields |= _EXTRA_FIELDS_BY_COMMAND.get(words, {})
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
    model.has_program = any(field.option.follows_dashes for field in included_fields)
    model.positional_fields = tuple(field.name for field in included_fields if field.option.is_argument)
    model.files = tuple(field.name for field in included_fields if field.option.reads)
    model.writes = {field.name: field.option.writes for field in included_fields if field.option.writes}
    model.options = {
        field.name: field.option_names[0] for field in included_fields if not field.option.is_argument
    }
    return model


def _make_field(field: declare.Field) -> tuple[Any, Any]:
    """Return the type and the default of a field of a request."""
    option, field_type = field.option, field.value_type
    if option.writes:
        return (Literal[True], True) if field.default is REQUIRED else (bool, False)
    if option.reads:
        field_type = str if option.most is None else Annotated[str, Field(max_length=int(option.most))]
    elif option.text is not None:
        field_type = Annotated[str, Field(pattern=option.text.pattern)] if option.text.pattern else TextLine
    elif field.has_many_values:
        field_type = (
            Annotated[list[TextLine], Field(min_length=1)] if field.default is REQUIRED else list[TextLine]
        )
    elif field_type is str:
        field_type = _make_text_type(option)
    elif field_type in (int, float):
        max_value = option.most if option.most is not None else _MAX_INTEGER if field_type is int else None
        field_type = Annotated[field_type, Field(ge=option.least, le=max_value)]
    default: Any = ... if field.default is REQUIRED else field.default
    if field.has_many_values and default == ():
        default = []
    return (field_type | None if field.is_optional else field_type), default


def _make_text_type(option: Option) -> Any:
    """Return the type of a text in a request. It is a single line unless the option `has_lines`."""
    length_limits: Any = {"min_length": option.least, "max_length": option.most}
    if option.has_lines:
        return Annotated[str, Field(pattern=r"^[^\x00]*$", **length_limits)]
    return TextLine if option.least is None else Annotated[TextLine, Field(**length_limits)]


def find_lane(name: str) -> Lane:
    """Return the lane of a command or its variant, or `looking` for an unknown command."""
    model = find_model(name)
    return model.lane if model else "looking"


def parse_request(text: str | bytes) -> Request:
    """Parse a stored request. Raise `InvalidRequest` if it belongs to another version.

    Makes only the model of its command: each run is a separate process, and all models take half a second.
    """
    name = json.loads(text)["command"]
    model = find_model(name)
    if model is None:
        raise InvalidRequest(f"this version has no command {name!r}")
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise InvalidRequest(f"this version has another request {name!r}: {error}") from error
