"""Things that are found by their names."""

from __future__ import annotations

from typing import Protocol, TypeVar


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_T = TypeVar("_T", bound=_Named)


def named(things: tuple[_T, ...], name: str) -> _T:
    """Return the thing of that name. Raises KeyError."""
    for thing in things:
        if thing.name == name:
            return thing
    raise KeyError(f"no {name!r}; there are: {', '.join(thing.name for thing in things)}")
