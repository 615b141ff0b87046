"""The names of a Calient's ports against the numbers of the matrix.

A port `segment.fibre.port` has a fibre in and a fibre out: the n-th name is input n and output N+n.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sim.twins.switch.matrix import Reason, Refused

PORTS_PER_FIBRE = FIBRES_PER_SEGMENT = 8
_NAME = re.compile(r"(\d)\.(\d)\.(\d)")


@dataclass(frozen=True, slots=True)
class Names:
    """All names of a switch with so many ports."""

    ports: int

    def name(self, number: int) -> str:
        """Return the name of the n-th port, counted from 1.

        >>> Names(320).name(1), Names(320).name(9), Names(320).name(65)
        ('1.1.1', '1.2.1', '2.1.1')
        """
        fibres, port = divmod(number - 1, PORTS_PER_FIBRE)
        segment, fibre = divmod(fibres, FIBRES_PER_SEGMENT)
        return f"{segment + 1}.{fibre + 1}.{port + 1}"

    def number(self, name: str) -> int:
        """Return the port of a name. Raises `Refused`."""
        match = _NAME.fullmatch(name.strip())
        if match is None or not all(1 <= int(part) <= 8 for part in match.groups()):
            raise Refused(Reason.NO_SUCH_PORT, 0)
        segment, fibre, port = (int(part) - 1 for part in match.groups())
        number = (segment * FIBRES_PER_SEGMENT + fibre) * PORTS_PER_FIBRE + port + 1
        if number > self.ports:
            raise Refused(Reason.NO_SUCH_PORT, number)
        return number
