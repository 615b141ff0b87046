"""The lease of the option `--lease`. This module needs no database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_chosen: ContextVar[str] = ContextVar("lease", default="")


def select_lease(lease: str) -> None:
    """Use this lease from now on; an empty id means an implicit lease for each operation."""
    _chosen.set(lease)


def get_selected_lease() -> str:
    """Return the id of the chosen lease, empty if none was chosen."""
    return _chosen.get()


@contextmanager
def use_lease(lease: str) -> Iterator[None]:
    """Make changes under this lease in the block; with an empty id, each under one of its own."""
    before = get_selected_lease()
    select_lease(lease)
    try:
        yield
    finally:
        select_lease(before)
