"""Reference pages of the three programs, generated from their commands."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fpga import cli as countaction
from lightning import cli as lightning
from testbed.cli import app as testbed
from testbed.commands.declare import list_document_types
from testbed.commands.documents import Document
from testbed.commands.table import load_command

PROGRAMS = {"testbed": testbed, "countaction": countaction, "lightning": lightning}


def make_command_pages() -> dict[str, str]:
    """Return a page of Markdown for each program, by its path in the documentation."""
    return {
        f"reference/commands/{name}.md": "\n".join(_write_page(name, module.build_app()))
        for name, module in PROGRAMS.items()
    }


def _write_page(name: str, app: Any) -> Iterator[str]:
    yield f"# `{name}`\n"
    yield from _write_help(app)
    for words, command in _list_commands(app, (name,)):
        yield f"## `{' '.join(words)}`\n"
        yield from _write_help(command)
        yield f"    {' '.join(words)} {' '.join(_list_usage_words(command))}\n"
        yield from _write_parameters(command)
        declared = load_command(" ".join(words[1:])) if name == "testbed" else None
        for document in list_document_types(declared) if declared is not None else ():
            yield from _write_document(document)


def _list_commands(group: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the words and the command of everything that can be run below a group, including runnable groups."""
    for name, command in group.commands.items():
        is_group = hasattr(command, "commands")
        if not is_group or command.invoke_without_command:
            yield (*words, name), command
        if is_group:
            yield from _list_commands(command, (*words, name))


def _write_help(command: Any) -> Iterator[str]:
    text = inspect.cleandoc(command.help or "").replace("\b", "").replace("\f", "")
    if text:
        yield f"{text}\n"


def _list_usage_words(command: Any) -> Iterator[str]:
    if any(parameter.param_type_name == "option" for parameter in command.params):
        yield "[OPTIONS]"
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            name = _format_argument(parameter)
            yield (name if parameter.required else f"[{name}]") + ("..." if parameter.nargs == -1 else "")


def _format_argument(parameter: Any) -> str:
    """Return the name of an argument in capitals, without the brackets of an optional argument."""
    metavar = str(parameter.metavar or parameter.name).rstrip(".")
    return (metavar[1:-1] if re.fullmatch(r"\[[^]]*\]", metavar) else metavar).upper()


def _write_parameters(command: Any) -> Iterator[str]:
    rows = [
        row
        for parameter in command.params
        if not getattr(parameter, "hidden", False)
        for row in [_format_row(parameter)]
    ]
    if rows:
        yield "| argument or option | meaning | default |\n|---|---|---|"
        yield from rows
        yield ""


def _write_document(document: type[Document]) -> Iterator[str]:
    """Yield the table of the keys of a `--json` document and of its records."""
    yield f"`--json` prints: {inspect.cleandoc(document.__doc__ or '')}\n"
    yield "| key | type |\n|---|---|"
    yield from (f"| `{key}` | {_escape(kind)} |" for key, kind in _list_keys(document, ""))
    yield ""


def _list_keys(record: type, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield keys and types. Keys of records in a list are `list[].key`, in a mapping `mapping.NAME.key`."""
    hints = get_type_hints(record)
    for field in dataclasses.fields(record):
        key = prefix + field.metadata.get("key", field.name)
        kind = hints[field.name]
        optional = ", may be left out" if field.metadata.get("omit_none") else ""
        record_type, suffix = _find_record_type(kind)
        yield key, ("object" if record_type and not suffix else _format_type(kind)) + optional
        if record_type:
            yield from _list_keys(record_type, f"{key}{suffix}.")


def _find_record_type(kind: Any) -> tuple[type | None, str]:
    """Return the record type in a field, list or mapping, and the suffix of its keys; (None, "") for other types."""
    options = (
        [option for option in get_args(kind) if option is not NoneType]
        if isinstance(kind, UnionType)
        else [kind]
    )
    for option in options:
        if dataclasses.is_dataclass(option):
            return option, ""  # type: ignore[return-value]
        arguments = get_args(option)
        if get_origin(option) is tuple and dataclasses.is_dataclass(arguments[0]):
            return arguments[0], "[]"
        if get_origin(option) is dict and dataclasses.is_dataclass(arguments[1]):
            return arguments[1], ".NAME"
    return None, ""


def _format_type(kind: Any) -> str:
    """Return the name of a type in JSON terms.

    >>> _format_type(tuple[tuple[int, int], ...] | None)
    'list of lists of integers, or null'
    """
    if isinstance(kind, UnionType):
        names = [_format_type(member) for member in get_args(kind) if member is not NoneType]
        return ", or ".join([*names, *(["null"] if NoneType in get_args(kind) else [])])
    if get_origin(kind) is tuple:
        return f"list of {_make_plural(_format_type(get_args(kind)[0]))}"
    if get_origin(kind) is dict:
        return f"mapping of names to {_make_plural(_format_type(get_args(kind)[1]))}"
    if get_origin(kind) is Literal:
        return ", ".join(f'"{choice}"' for choice in get_args(kind))
    return _NAMES.get(kind, "object")


_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", Any: "any value"}


def _make_plural(name: str) -> str:
    noun, space, remainder = name.partition(" ")
    return f"{noun}s{space}{remainder}"


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


def _format_row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = _format_argument(parameter)
    else:
        name = ", ".join((*parameter.opts, *parameter.secondary_opts))
    meaning = " ".join((getattr(parameter, "help", None) or "").split())
    default = parameter.default
    default_text = (
        "" if default is None or callable(default) or default in (False, (), "") else f"`{default}`"
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (f"`{name}`", meaning, default_text)) + " |"
