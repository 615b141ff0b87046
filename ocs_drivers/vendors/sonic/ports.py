"""Names of ports and cross-connects, and back: `1A` is an input, `2B` an output, `1A-2B` a cross-connect.

Numbers of the contract: inputs 1..N, outputs N+1..N+M; so of a 64x64 switch, 2B is port 66.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ocs_drivers.errors import ProtocolDesync

Pair = tuple[int, int]

LONGEST_LIST = 700
"""Characters of the pairs of one command: less than what the shell's line editor would wrap."""

_PORT = re.compile(r"([1-9][0-9]{0,8})([AB])")
_SHORTEST_RANGE = 3


@dataclass(frozen=True, slots=True)
class Names:
    """Numbers and names of one switch with `inputs` ports on its A side.

    >>> names = Names(inputs=64)
    >>> names.of_port(1), names.of_port(66), names.of_pair((1, 66))
    ('1A', '2B', '1A-2B')
    >>> names.pair("1A-2B")
    (1, 66)
    """

    inputs: int

    def of_port(self, port: int) -> str:
        """Return the name of a port."""
        return f"{port}A" if port <= self.inputs else f"{port - self.inputs}B"

    def of_pair(self, pair: Pair) -> str:
        """Return the name of a cross-connect."""
        return f"{self.of_port(pair[0])}-{self.of_port(pair[1])}"

    def port(self, name: str) -> int:
        """Return the number of a port. Raises `ProtocolDesync` for what is not a name of one."""
        match = _PORT.fullmatch(name)
        if match is None:
            raise ProtocolDesync("not the name of a port", received=name)
        return int(match[1]) + (self.inputs if match[2] == "B" else 0)

    def pair(self, name: str) -> Pair:
        """Return the ports of a cross-connect. Raises `ProtocolDesync` for one that does not lead from A to B."""
        source, _, output = name.partition("-")
        if not source.endswith("A") or not output.endswith("B"):
            raise ProtocolDesync("not the name of a cross-connect", received=name)
        return self.port(source), self.port(output)

    def lists(self, pairs: Iterable[Pair]) -> Iterator[str]:
        """Return the pairs as lists for as few commands as may be, runs of them as ranges.

        >>> list(Names(64).lists([(10, 75), (12, 76), (13, 77), (14, 78)]))
        ['10A-11B,12A..14A-12B..14B']
        """
        line = ""
        for item in self._items(sorted(pairs)):
            if line and len(line) + 1 + len(item) > LONGEST_LIST:
                yield line
                line = ""
            line += f",{item}" if line else item
        if line:
            yield line

    def _items(self, pairs: list[Pair]) -> Iterator[str]:
        start = 0
        for end in range(1, len(pairs) + 1):
            if end < len(pairs) and pairs[end] == (pairs[end - 1][0] + 1, pairs[end - 1][1] + 1):
                continue
            run = pairs[start:end]
            if len(run) >= _SHORTEST_RANGE:
                sides = zip(run[0], run[-1], strict=True)
                yield "-".join(f"{self.of_port(first)}..{self.of_port(last)}" for first, last in sides)
            else:
                yield from map(self.of_pair, run)
            start = end
