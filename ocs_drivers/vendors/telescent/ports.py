"""Port numbers of a Telescent.

The device counts ports from 0, and each port has an input and an output that go their own ways: input 3 of ours
is the input of its port 2, and the first output of ours is the output of its port 0.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Numbering:
    """Our port numbers and the device's, for a frame with `ports` ports.

    >>> Numbering(96).input_port(0), Numbering(96).output_port(0)
    (1, 97)
    >>> Numbering(96).device_pair((3, 97))
    (2, 0)
    """

    ports: int

    def input_port(self, number: int) -> int:
        """Return our number of the input of the device's port `number`."""
        return number + 1

    def output_port(self, number: int) -> int:
        """Return our number of the output of the device's port `number`."""
        return self.ports + number + 1

    def device_pair(self, pair: tuple[int, int]) -> tuple[int, int]:
        """Return the device's numbers of the two ports of a circuit."""
        return pair[0] - 1, pair[1] - self.ports - 1

    def name(self, port: int) -> str:
        """Return the device's name of our port, on its side."""
        return str((port - 1) % self.ports)
