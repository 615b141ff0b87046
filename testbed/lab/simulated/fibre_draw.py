"""Random fibres of a simulated lab: the wiring that a discovery has to find.

The seed determines the ports of every NIC, which fibres are crossed, and which are dead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from lightbed.wording import format_count
from testbed.errors import LabStartError
from testbed.lab.model import UNKNOWN_FIBRE, FibreEnd, Lab, LabHost, LabNic
from testbed.lab.schema import DEFAULT_FIBRE_LOSS_DB

Place = tuple[int, int]
"""Host and NIC by their indices in the lab file."""


@dataclass(frozen=True, slots=True)
class DrawnFibres:
    """A lab with its actual fibres; `crossed` and `dead` name fibres like `a/nic1:transmit`."""

    lab: Lab
    crossed: tuple[tuple[str, str], ...] = ()
    dead: tuple[str, ...] = ()


def draw_fibres(lab: Lab, seed: int, *, crossed: int = 0, dead: int = 0) -> DrawnFibres:
    """Return the lab with random ports for every NIC, `crossed` pairs of swapped fibres, and `dead` fibres.

    A NIC with a known fibre stays at that switch. Other NICs take switches in turn, by their index in the host. Raises
    `LabStartError` if there are too few ports or fibres.
    """
    rng = random.Random(seed)
    fibre_ends = _draw_ends(lab, rng)
    names = sorted(fibre_ends)
    if 2 * crossed + dead > len(names):
        problem = (
            f"{format_count(crossed, 'crossed pair')} and {format_count(dead, 'dead fibre')} are more than "
            f"the {len(names)} fibres of the lab"
        )
        raise LabStartError(f"{problem}; lower --crossed or --dead")
    pairs = []
    for _ in range(crossed):
        pair = _draw_pair(names, fibre_ends, rng)
        fibre_ends[pair[0]], fibre_ends[pair[1]] = fibre_ends[pair[1]], fibre_ends[pair[0]]
        pairs.append(pair)
        names = [name for name in names if name not in pair]
    dead_names = tuple(sorted(rng.sample(names, dead)))
    wired = _set_fibres(lab, lambda nic: (fibre_ends[f"{nic}:transmit"], fibre_ends[f"{nic}:receive"]))
    return DrawnFibres(wired, tuple(pairs), dead_names)


def remove_fibres(lab: Lab) -> Lab:
    """Return the lab with all fibres unknown, as before a discovery."""
    return _set_fibres(lab, lambda _nic: (UNKNOWN_FIBRE, UNKNOWN_FIBRE))


def _set_fibres(lab: Lab, ends_of: Callable[[str], tuple[FibreEnd, FibreEnd]]) -> Lab:
    """Return the lab with new fibres. `ends_of` returns the ends of the transmit and receive fibre of a `host/nic`."""

    def wire(host: LabHost, nic: LabNic) -> LabNic:
        transmit, receive = ends_of(f"{host.name}/{nic.name}")
        return replace(nic, transmit=transmit, receive=receive)

    hosts = (replace(host, nics=tuple(wire(host, nic) for nic in host.nics)) for host in lab.hosts)
    return replace(lab, hosts=tuple(hosts))


def _draw_ends(lab: Lab, rng: random.Random) -> dict[str, FibreEnd]:
    """Return the end of every fibre. A NIC's input and output have the same position on their sides."""
    free = {switch.name: _shuffle(range(min(switch.inputs, switch.outputs)), rng) for switch in lab.switches}
    inputs = {switch.name: switch.inputs for switch in lab.switches}
    fibre_ends: dict[str, FibreEnd] = {}
    for label, nic_index, nic in _label_nics(lab):
        switch = nic.transmit.switch or nic.receive.switch or lab.switches[nic_index % len(lab.switches)].name
        if not free[switch]:
            problem = f"switch '{switch}' has too few ports for the NICs of lab '{lab.name}'"
            raise LabStartError(f"{problem}; give it more inputs and outputs, or the hosts fewer NICs")
        offset = free[switch].pop()
        fibre_ends[f"{label}:transmit"] = _make_end(nic.transmit, switch, 1 + offset)
        fibre_ends[f"{label}:receive"] = _make_end(nic.receive, switch, 1 + inputs[switch] + offset)
    return fibre_ends


def _shuffle(ports: range, rng: random.Random) -> list[int]:
    return rng.sample(ports, len(ports))


def _make_end(fibre: FibreEnd, switch: str, port: int) -> FibreEnd:
    return FibreEnd(switch, port, DEFAULT_FIBRE_LOSS_DB if fibre == UNKNOWN_FIBRE else fibre.loss_db)


def _draw_pair(names: list[str], fibre_ends: dict[str, FibreEnd], rng: random.Random) -> tuple[str, str]:
    """Return two random fibres of the same direction that end at one switch. Raises `LabStartError`."""
    pairs = [
        (nic, other_nic)
        for nic_index, nic in enumerate(names)
        for other_nic in names[nic_index + 1 :]
        if nic.rpartition(":")[2] == other_nic.rpartition(":")[2]
        and fibre_ends[nic].switch == fibre_ends[other_nic].switch
    ]
    if not pairs:
        raise LabStartError("no pair of fibres remains to cross; lower --crossed")
    return rng.choice(pairs)


def _label_nics(lab: Lab) -> Iterator[tuple[str, int, LabNic]]:
    for host in lab.hosts:
        for nic_index, nic in enumerate(host.nics):
            yield f"{host.name}/{nic.name}", nic_index, nic
