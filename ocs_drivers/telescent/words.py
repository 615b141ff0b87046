"""The commands of a Telescent, and the numbers it gives its ports.

The device counts ports from 0, and each port has an input and an output that go their own ways: input 3 of ours
is the input of its port 2, and the first output of ours is the output of its port 0.

The commands are those of one public driver for the fourth generation of the frame. Nobody has published what
today's firmware answers to, so every word can be replaced (see `cli_switch` for the options of an address).
"""

from __future__ import annotations

from dataclasses import dataclass

Command = tuple[str, bool]
"""A command, and whether it makes the robot move."""


@dataclass(frozen=True, slots=True)
class Words:
    """What is said to the device, and how it is understood.

    `prompt` and `robot_fault` are regular expressions. Assumptions, because nobody has published them: a
    refusal whose text matches `robot_fault` says that the robot has stopped; a status that begins with the
    letter `making` or `clearing` says that the robot still has to make or clear that circuit. A device that
    shows no such letters is understood as well: then a circuit is there when it is allocated.

    >>> [command for command, _ in Words().connecting(1, 2)]
    ['unlock --force -in 1', 'unlock --force -out 2', 'connect --force -in 1 -out 2']
    """

    prompt: str = r"[0-9a-zA-Z@]+>"
    table: str = "switchstate"
    input_state: str = "switchstate input"
    unlock: str = "unlock --force"
    connect: str = "connect --force"
    unallocate: str = "unallocate --force"
    robot_fault: str = r"(?i)\brobot\b|\bhoming\b"
    making: str = "C"
    clearing: str = "D"

    def connecting(self, source: int, output: int) -> tuple[Command, ...]:
        """The commands that connect the input of one port to the output of another."""
        return (
            (f"{self.unlock} -in {source}", False),
            (f"{self.unlock} -out {output}", False),
            (f"{self.connect} -in {source} -out {output}", True),
        )

    def disconnecting(self, source: int, output: int) -> tuple[Command, ...]:
        """The commands that take such a circuit down.

        Both directions of both ports are unlocked: the authors of the public driver met a device, or a
        simulator of it, that refuses to unallocate a port of which only one direction was unlocked.
        """
        return (
            (f"{self.unlock} {source}", False),
            (f"{self.unlock} {output}", False),
            (f"{self.unallocate} -in {source}", True),
            (f"{self.unallocate} -out {output}", True),
        )


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
        """Our number of the input of the device's port `number`."""
        return number + 1

    def output_port(self, number: int) -> int:
        """Our number of the output of the device's port `number`."""
        return self.ports + number + 1

    def device_pair(self, pair: tuple[int, int]) -> tuple[int, int]:
        """The device's numbers of the two ports of a circuit."""
        return pair[0] - 1, pair[1] - self.ports - 1

    def name(self, port: int) -> str:
        """What the device calls our port, on its side."""
        return str((port - 1) % self.ports)
