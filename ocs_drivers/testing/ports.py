"""The ports that a test may use."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.errors import AddressError
from ocs_drivers.model import Capabilities, CrossConnects

MIN_PORTS_PER_SIDE = 4
_ITEM = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class FreePorts:
    """Inputs and outputs that a test may use; `is_whole_switch` is True if they are all ports of the switch.

    >>> free = FreePorts((3, 4, 7, 8), (49, 50, 51, 52), is_whole_switch=False)
    >>> free.make_pairs(2, 1)
    CrossConnects({3: 50, 4: 49})
    >>> free.make_full_pairs(1)
    CrossConnects({3: 50, 4: 51, 7: 52, 8: 49})
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    is_whole_switch: bool

    @property
    def scope(self) -> frozenset[int] | None:
        """Scope for `apply`: None if the whole switch may be used."""
        return None if self.is_whole_switch else frozenset(self.inputs)

    def get_input(self, number: int) -> int:
        """Return the port of the free input with this number, from 1."""
        return self.inputs[number - 1]

    def get_output(self, number: int) -> int:
        """Return the port of the free output with this number, from 1."""
        return self.outputs[number - 1]

    def make_pairs(self, *outputs: int) -> CrossConnects:
        """Return circuits from the first free inputs to these free outputs, counted from 1; 0 leaves an input out."""
        return CrossConnects(
            {
                self.get_input(number): self.get_output(output)
                for number, output in enumerate(outputs, 1)
                if output
            }
        )

    def make_full_pairs(self, shift: int = 0) -> CrossConnects:
        """Return as many circuits as the free ports can hold, with the outputs rotated by `shift`."""
        count = min(len(self.inputs), len(self.outputs))
        return CrossConnects({self.inputs[n]: self.outputs[(n + shift) % count] for n in range(count)})


def list_all_ports(capabilities: Capabilities) -> FreePorts:
    """Return all ports of a switch as free."""
    inputs, outputs = capabilities.inputs, capabilities.outputs
    return FreePorts(
        tuple(range(1, inputs + 1)), tuple(range(inputs + 1, inputs + outputs + 1)), is_whole_switch=True
    )


def parse_free_ports(text: str) -> FreePorts:
    """Parse free ports, written INPUTS:OUTPUTS. Raise `AddressError` for bad syntax or too few ports.

    >>> parse_free_ports("1-3,9:49-52").outputs
    (49, 50, 51, 52)
    """
    inputs, colon, outputs = text.partition(":")
    free_ports = FreePorts(_parse_ports(inputs), _parse_ports(outputs), is_whole_switch=False)
    if not colon or min(len(free_ports.inputs), len(free_ports.outputs)) < MIN_PORTS_PER_SIDE:
        raise AddressError(
            f"{text!r} does not name {MIN_PORTS_PER_SIDE} free inputs and {MIN_PORTS_PER_SIDE} free outputs",
            hint="Write them like 1-4:49-52 or 1,2,7,8:49,50,51,52.",
        )
    return free_ports


def find_free_ports(switch: OpticalSwitch, text: str) -> FreePorts:
    """Return the free ports that `text` lists, or all ports for `all`.

    Raise `AddressError` if listed ports carry circuits. With `all`, circuits are not checked.
    """
    if text == "all":
        return list_all_ports(switch.capabilities)
    free_ports = parse_free_ports(text)
    switch.plan(
        free_ports.make_full_pairs(), CrossConnects(), frozenset(free_ports.inputs)
    )  # raises for unknown ports or the wrong side
    ports = {*free_ports.inputs, *free_ports.outputs}
    busy_ports = ports & {port for pair in switch.read().connections.items() for port in pair}
    if busy_ports:
        raise AddressError(
            f"ports {sorted(busy_ports)} carry circuits, so they are not free; they were not changed",
            device=switch.address,
            hint="Name other ports with --free-ports.",
        )
    return free_ports


def _parse_ports(text: str) -> tuple[int, ...]:
    ports: list[int] = []
    for item in filter(None, text.split(",")):
        match = _ITEM.fullmatch(item.strip())
        if match is None:
            raise AddressError(f"{item!r} is not a port or a range of ports", hint="Write 5 or 5-8.")
        ports += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(ports)
