"""Commands that a service can carry out, and the service that was chosen: `--server URL` or LIGHTBED_SERVER."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from importlib import import_module
from typing import Any

COMMANDS = frozenset(
    {
        "plan",
        "apply",
        "verify",
        "path",
        "drift",
        "repair",
        "resume",
        "rollback",
        "confirm",
        "history",
        "journal",
        "env",
        "nccl",
        "job",
    }
    | {"lease list", "lease request", "lease extend", "lease release", "lease break", "maintenance", "stop"}
)
"""Commands that a service carries out. Those that need no lab work here as ever."""
_server: ContextVar[str] = ContextVar("server", default="")


def choose(url: str) -> None:
    """Ask this service; an empty URL works here."""
    _server.set(url)


def forwarded(words: str, command: Any) -> None:
    """Let a command ask the service where one was chosen."""
    here: Callable[..., int] = command.callback
    defaults = {param.name: param.default for param in command.params}

    def ask(**given: Any) -> int:
        if not _server.get() or given.get("import_file"):  # results of elsewhere are read here
            return here(**given)
        remote = import_module(
            "testbed.cli.remote"
        )  # it is loaded where it is used, and prints as commands do
        return int(remote.carry_out(_server.get(), words, given, defaults))

    command.callback = ask
