"""Commands that a service can carry out, and the service that was chosen: `--server URL` or LIGHTBED_SERVER."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from typer import Context

COMMANDS = frozenset(
    {
        *("plan", "apply", "verify", "path", "drift", "repair", "resume", "rollback"),
        *("env", "nccl", "job", "maintenance", "stop"),
        *("runs", "runs query", "runs compare", "runs trend", "report", "metrics", "audit"),
        *(f"lease {one}" for one in ("list", "request", "extend", "release", "break")),
    }
)
"""Commands that a service carries out, beside those whose declaration has a role."""
_server: ContextVar[str] = ContextVar("server", default="")


def choose(url: str) -> None:
    """Ask this service; an empty URL works here."""
    _server.set(url)


def forwarded(words: str, command: Any) -> None:
    """Let a command ask the service where one was chosen."""
    here: Callable[..., int] = command.callback
    invoke: Callable[[Context], Any] = command.invoke
    defaults = {param.name: param.default for param in command.params}
    invoked: list[Context] = []

    def note(context: Context) -> Any:
        invoked[:] = [context]
        return invoke(context)

    def ask(**given: Any) -> int:
        """Carry it out here, or let the service; results of elsewhere, and commands of a group, are not its own."""
        (context,) = invoked
        is_anothers = context.invoked_subcommand is not None or bool(given.get("import_file"))
        if not _server.get() or is_anothers:
            return here(**given)
        from testbed.cli.remote import carry_out

        return carry_out(_server.get(), words, (context.obj or {}) | given, defaults)

    command.invoke, command.callback = note, ask
