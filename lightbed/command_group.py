"""A group of commands that imports the module of a command when the command is used, not when it is listed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer import core
from typer.core import TyperCommand, TyperGroup

CommandTable = Mapping[str, tuple[str, str]]
"""Name of a command -> its module, and its line in the help of the group."""
RegisterCommand = Callable[[typer.Typer, str, str], None]
"""Adds a command to an application, given its name and its module."""


def register_module(app: typer.Typer, _name: str, module: str) -> None:
    """Add the commands of a module by calling its `register(app)`."""
    import_module(module).register(app)


class CommandGroup(TyperGroup):
    """Group of the commands in a table. `--help` shows the lines of the table and imports no command.

    `register` adds one command, when it is used.
    """

    def __init__(
        self,
        *,
        name: str,
        help: str,  # noqa: A002  typer's name
        package: str,
        table: CommandTable,
        register: RegisterCommand = register_module,
    ) -> None:
        super().__init__(name=name, help=help, params=_make_program_options(name))
        self.commands: Any = _LazyCommands(package, table, register)
        self._lines = {command: line for command, (_, line) in table.items()}
        _convert_when_needed(self)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command with this name, or None. Errors of importing its module propagate."""
        if cmd_name not in self.commands:
            return None
        return self.commands[cmd_name]

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the table."""
        return list(self._lines)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of a copy of this group whose commands have only a name and a line."""
        commands: Any = {name: TyperCommand(name, help=line) for name, line in self._lines.items()}
        group = TyperGroup(name=self.name, help=self.help, commands=commands, params=self.params)
        group.format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Return the commands and options that begin with `incomplete`, without importing a command."""
        make_item: Any = vars(core)["CompletionItem"]  # of the click that typer brings, or of click
        matches = [
            make_item(name, help=line) for name, line in self._lines.items() if name.startswith(incomplete)
        ]
        return matches + TyperCommand.shell_complete(self, ctx, incomplete)

    def _main_shell_completion(self, *args: Any, **kwargs: Any) -> None:
        """Answer a shell that asks for completions, and exit. Otherwise do nothing."""
        if f"_{self.name}_COMPLETE".upper() in os.environ:
            from lightbed.completion import register_bash_completion

            register_bash_completion()
        super()._main_shell_completion(*args, **kwargs)


def _make_program_options(program: str) -> list[Any]:
    """Return `--version`, `--install-completion` and `--show-completion`."""

    def say_version(is_requested: bool) -> None:
        if is_requested:
            from importlib.metadata import version

            typer.echo(f"{program} {version('lightbed')}")
            raise typer.Exit

    def options(
        version: bool = typer.Option(
            False,
            "--version",
            callback=say_version,
            is_eager=True,
            expose_value=False,
            help="Print the version.",
        ),
    ) -> None:
        pass

    app = typer.Typer()
    app.callback()(options)
    return typer.main.get_command(app).params


class _LazyCommands(Mapping[str, Any]):
    """Commands by name. Looking one up imports its module."""

    def __init__(self, package: str, table: CommandTable, register: RegisterCommand) -> None:
        self._package = package
        self._register = register
        self._table = table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __getitem__(self, name: str) -> Any:
        app = typer.Typer(add_completion=False)
        app.callback()(
            lambda: None
        )  # without a callback, typer makes a single command the application itself
        self._register(app, name, f"{self._package}.{self._table[name][0]}")
        group: Any = typer.main.get_command(app)
        command = group.commands[name]
        for subcommand in (command, *getattr(command, "commands", {}).values()):
            _convert_when_needed(subcommand)
        return command


def _convert_when_needed(command: Any) -> None:
    """Replace typer's conversion in all parameters of a command, including `--help`, by `_Conversion`."""
    get_original_params = command.get_params

    def get_params(ctx: Any) -> Any:
        parameters = get_original_params(ctx)
        for param in parameters:
            if hasattr(param, "get_runtime_param") and "get_runtime_param" not in vars(param):
                conversion = _Conversion(param.get_runtime_param)
                param.get_runtime_param = lambda conversion=conversion: conversion
        return parameters

    command.get_params = get_params


class _Conversion:
    """Converter of values. It calls typer only if needed, because typer imports pydantic for this."""

    def __init__(self, make_typer_conversion: Any) -> None:
        self._make_typer_conversion = make_typer_conversion

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the converted value. Text needs no conversion, and defaults already have their type."""
        takes_several = param.multiple or param.nargs == -1
        if value is None:
            return () if takes_several else None
        if not takes_several and (value is param.default or _get_annotation(param) is str):
            return value
        return self._make_typer_conversion().coerce(value, param=param, ctx=ctx)


def _get_annotation(param: Any) -> Any:
    """Return the declared type of a parameter, or None if this version of typer stores it elsewhere."""
    return getattr(getattr(param, "type_descriptor", None), "annotation", None)
