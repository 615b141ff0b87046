"""Pages of the three programs, made from the commands themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from fpga import cli as countaction
from lightning import cli as lightning
from testbed.cli import app as testbed

PROGRAMS = {"testbed": testbed, "countaction": countaction, "lightning": lightning}


def command_pages() -> dict[str, str]:
    """Return a page of Markdown for each program, by its path in the documentation."""
    return {
        f"reference/commands/{name}.md": "\n".join(_page(name, module.build_app()))
        for name, module in PROGRAMS.items()
    }


def _page(name: str, app: Any) -> Iterator[str]:
    yield f"# `{name}`\n"
    yield from _help(app)
    for words, command in _commands(app, (name,)):
        yield f"## `{' '.join(words)}`\n"
        yield from _help(command)
        yield f"    {' '.join(words)} {' '.join(_usage(command))}\n"
        yield from _parameters(command)


def _commands(group: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command below a group that does something itself, with its words; some are groups, too."""
    for name, command in group.commands.items():
        is_group = hasattr(command, "commands")
        if not is_group or command.invoke_without_command:
            yield (*words, name), command
        if is_group:
            yield from _commands(command, (*words, name))


def _help(command: Any) -> Iterator[str]:
    text = inspect.cleandoc(command.help or "").replace("\b", "").replace("\f", "")
    if text:
        yield f"{text}\n"


def _usage(command: Any) -> Iterator[str]:
    if any(parameter.param_type_name == "option" for parameter in command.params):
        yield "[OPTIONS]"
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            name = _argument(parameter)
            yield (name if parameter.required else f"[{name}]") + ("..." if parameter.nargs == -1 else "")


def _argument(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name).strip("[].").upper()


def _parameters(command: Any) -> Iterator[str]:
    rows = [
        row
        for parameter in command.params
        if not getattr(parameter, "hidden", False)
        for row in [_row(parameter)]
    ]
    if rows:
        yield "| argument or option | meaning | default |\n|---|---|---|"
        yield from rows
        yield ""


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = _argument(parameter)
    else:
        name = ", ".join((*parameter.opts, *parameter.secondary_opts))
    meaning = " ".join((getattr(parameter, "help", None) or "").split())
    default = parameter.default
    shown = "" if default is None or callable(default) or default in (False, (), "") else f"`{default}`"
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (f"`{name}`", meaning, shown)) + " |"
