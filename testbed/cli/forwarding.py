"""Commands that a service can carry out, and the service that was chosen: `--server URL` or LIGHTBED_SERVER."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from typer import Context

_server: ContextVar[str] = ContextVar("server", default="")


def choose(url: str) -> None:
    """Ask this service; an empty URL works here."""
    _server.set(url)


def forwarded(words: str, command: Any) -> None:
    """Let a command ask the service where one was chosen."""
    here: Callable[..., int] = command.callback
    invoke: Callable[[Context], Any] = command.invoke
    defaults = {param.name: param.default for param in command.params}
    needs = getattr(getattr(here, "declared", None), "needs", "lab")
    invoked: list[Context] = []

    def note(context: Context) -> Any:
        invoked[:] = [context]
        return invoke(context)

    def ask(**given: Any) -> int:
        """Carry it out here, or let the service; commands of a group, and local work without a lab, are not its own."""
        (context,) = invoked
        is_local = needs == "lab unless local" and given["lab_file"] is None
        if not _server.get() or is_local or context.invoked_subcommand is not None:
            return here(**given)
        from testbed.cli.remote import carry_out

        return carry_out(_server.get(), words, (context.obj or {}) | given, defaults)

    command.invoke, command.callback = note, ask
