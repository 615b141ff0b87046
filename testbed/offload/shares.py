"""Shares of the work for workers that are not equal."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.errors import OffloadError


class Shares:
    """Turns by weight: who is furthest behind its share comes next.

    >>> shares = Shares({"a": 2, "b": 1})
    >>> shares.use({"a": "a", "b": "b"})
    >>> [shares.next() for _ in range(6)]
    ['a', 'b', 'a', 'a', 'b', 'a']
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        for name, weight in weights.items():
            if not weight > 0:
                raise OffloadError(
                    f"the weight of {name} is {weight}: give more than 0, or leave the worker out"
                )
        self._weights = dict(weights)
        self._behind: dict[str, float] = {}
        self._by_address: dict[str, float] = {}

    def use(self, addresses: Mapping[str, str]) -> None:
        """Take the addresses of named workers. Raises `OffloadError` for a name that nobody has."""
        for name, weight in self._weights.items():
            if name not in addresses:
                raise OffloadError(
                    f"no worker is named {name}, to give it a weight: there are {', '.join(addresses)}"
                )
            self._by_address[addresses[name]] = weight
        self._behind = dict.fromkeys(self._by_address, 0.0)

    def next(self) -> str | None:
        """Return the address whose turn it is, None when nobody has a weight."""
        if not self._behind:
            return None
        for address, weight in self._by_address.items():
            self._behind[address] += weight
        first = max(self._behind, key=lambda address: self._behind[address])
        self._behind[first] -= sum(self._by_address.values())
        return first
