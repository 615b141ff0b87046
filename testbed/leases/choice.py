"""The lease that a command was given by `--lease`. Nothing here imports a database."""

from __future__ import annotations

from contextvars import ContextVar

_chosen: ContextVar[str] = ContextVar("lease", default="")


def choose(lease: str) -> None:
    """Move under this lease; an empty one means an implicit lease for the time of each operation."""
    _chosen.set(lease)


def find_chosen() -> str:
    """Return the lease that was given, empty if none was."""
    return _chosen.get()
