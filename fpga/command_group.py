"""A group of commands whose modules are imported when a command is used, not to list it (equal text: two rooms).

`fpga` and `testbed` may not import each other, so each has this file; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

Table = Mapping[str, tuple[str, str]]
"""Name of a command -> the module whose `register(app)` adds it, and its line in the group's help."""


class _Imported(Mapping[str, Any]):
    """Commands by name; asking for one imports its module."""

    def __init__(self, package: str, table: Table) -> None:
        self._package = package
        self._table = table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __getitem__(self, name: str) -> Any:
        app = typer.Typer(add_completion=False)
        app.callback()(lambda: None)  # with a single command typer would leave out its name
        import_module(f"{self._package}.{self._table[name][0]}").register(app)
        group: Any = typer.main.get_command(app)
        return group.commands[name]


class Group(TyperGroup):
    """A group without options of its own, which does not parse them where a command is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Leave `--help` out where it cannot stand: typer imports pydantic to find that it is not given."""
        self.add_help_option = not args or args[0].startswith("-")
        return super().parse_args(ctx, args)


class CommandGroup(Group):
    """Commands of a table. `--help` lists the lines of the table and imports none of them."""

    def __init__(self, *, name: str, help: str, package: str, table: Table) -> None:  # noqa: A002  typer's name
        super().__init__(name=name, help=help)
        self.commands: Any = _Imported(package, table)
        self._lines = {command: line for command, (_, line) in table.items()}

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the table."""
        return list(self._lines)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of a group like this one whose commands are nothing but their lines."""
        listed: Any = {name: TyperCommand(name, help=line) for name, line in self._lines.items()}
        TyperGroup(name=self.name, help=self.help, commands=listed).format_help(ctx, formatter)
