"""Needs of a test, from its markers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from testbed.operate.borrow import HostNeeds

DEFAULT_HOSTS = 4
DEFAULT_DEGREE = 2


class MarkedItem(Protocol):
    """A test: an item of pytest."""

    def get_closest_marker(self, name: str) -> Any:
        """Return the marker of that name, or None."""


@dataclass(frozen=True, slots=True)
class LabNeeds(HostNeeds):
    """Needs of a test. A need without its marker is None, 0 or False."""

    needs_board: bool = False

    @classmethod
    def from_item(cls, item: MarkedItem) -> LabNeeds:
        """Return the needs of a test. Raises `ValueError` for a marker whose argument is not a count."""
        return cls(
            host_count=_read_count(item, "testbed_hosts", minimum=2),
            degree=_read_count(item, "testbed_degree"),
            gpu_count_per_host=_read_count(item, "testbed_gpu", default=1) or 0,
            needs_board=item.get_closest_marker("testbed_board") is not None,
        )


def _read_count(item: MarkedItem, name: str, *, minimum: int = 1, default: int | None = None) -> int | None:
    marker = item.get_closest_marker(name)
    if marker is None:
        return None
    arguments = (*marker.args, *marker.kwargs.values())
    count = arguments[0] if arguments else default
    if not isinstance(count, int) or isinstance(count, bool) or count < minimum or len(arguments) > 1:
        raise ValueError(
            f"@pytest.mark.{name}{arguments} is not a count of {minimum} or more: write {name}(4)"
        )
    return count
