"""The lease of the option `--lease`. This module needs no database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_selected_lease: ContextVar[str] = ContextVar("lease", default="")


def select_lease(lease_id: str) -> None:
    """Use this lease from now on; an empty id means an implicit lease for each operation."""
    _selected_lease.set(lease_id)


def get_selected_lease() -> str:
    """Return the id of the selected lease, or "" if none is selected."""
    return _selected_lease.get()


@contextmanager
def use_lease(lease_id: str) -> Iterator[None]:
    """Make the changes in the block under this lease. With an empty id, each operation gets an implicit lease."""
    previous_lease = get_selected_lease()
    select_lease(lease_id)
    try:
        yield
    finally:
        select_lease(previous_lease)
