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


@dataclass(frozen=True, slots=True)
class DrawnFibres:
    """A lab with its actual fibres; `crossed_pairs` and `dead_fibre_names` name fibres like `a/nic1:transmit`."""

    lab: Lab
    crossed_pairs: tuple[tuple[str, str], ...] = ()
    dead_fibre_names: tuple[str, ...] = ()


def draw_fibres(lab: Lab, seed: int, *, crossed_count: int = 0, dead_count: int = 0) -> DrawnFibres:
    """Return the lab with random ports for every NIC, and its swapped and dead fibres.

    `crossed_count` pairs of fibres are swapped, and `dead_count` fibres are named as dead. A NIC with a known fibre
    stays at that switch. Other NICs take switches in turn, by their index in the host. Raises `LabStartError` if there
    are too few ports or fibres.
    """
    rng = random.Random(seed)
    end_by_fibre = _draw_ends(lab, rng)
    fibre_names = sorted(end_by_fibre)
    if 2 * crossed_count + dead_count > len(fibre_names):
        problem = (
            f"{format_count(crossed_count, 'crossed pair')} and {format_count(dead_count, 'dead fibre')} are more than "
            f"the {len(fibre_names)} fibres of the lab"
        )
        raise LabStartError(f"{problem}; lower --crossed or --dead")
    pairs = []
    for _ in range(crossed_count):
        pair = _draw_pair(fibre_names, end_by_fibre, rng)
        end_by_fibre[pair[0]], end_by_fibre[pair[1]] = end_by_fibre[pair[1]], end_by_fibre[pair[0]]
        pairs.append(pair)
        fibre_names = [fibre_name for fibre_name in fibre_names if fibre_name not in pair]
    dead_names = tuple(sorted(rng.sample(fibre_names, dead_count)))
    wired_lab = _set_fibres(
        lab, lambda nic: (end_by_fibre[f"{nic}:transmit"], end_by_fibre[f"{nic}:receive"])
    )
    return DrawnFibres(wired_lab, tuple(pairs), dead_names)


def remove_fibres(lab: Lab) -> Lab:
    """Return the lab with all fibres unknown, as before a discovery."""
    return _set_fibres(lab, lambda _nic: (UNKNOWN_FIBRE, UNKNOWN_FIBRE))


def _set_fibres(lab: Lab, find_ends: Callable[[str], tuple[FibreEnd, FibreEnd]]) -> Lab:
    """Return the lab with new fibres. `find_ends` returns the ends of transmit and receive fibre of a `host/nic`."""

    def set_nic_fibres(host: LabHost, nic: LabNic) -> LabNic:
        transmit, receive = find_ends(f"{host.name}/{nic.name}")
        return replace(nic, transmit=transmit, receive=receive)

    hosts = (replace(host, nics=tuple(set_nic_fibres(host, nic) for nic in host.nics)) for host in lab.hosts)
    return replace(lab, hosts=tuple(hosts))


def _draw_ends(lab: Lab, rng: random.Random) -> dict[str, FibreEnd]:
    """Return the end of every fibre. A NIC's input and output have the same position on their sides."""
    free_offsets_by_switch = {
        switch.name: _shuffle(range(min(switch.input_count, switch.output_count)), rng)
        for switch in lab.switches
    }
    input_count_by_switch = {switch.name: switch.input_count for switch in lab.switches}
    end_by_fibre: dict[str, FibreEnd] = {}
    for label, nic_index, nic in _label_nics(lab):
        switch = nic.transmit.switch or nic.receive.switch or lab.switches[nic_index % len(lab.switches)].name
        if not free_offsets_by_switch[switch]:
            problem = f"switch '{switch}' has too few ports for the NICs of lab '{lab.name}'"
            raise LabStartError(f"{problem}; give it more inputs and outputs, or the hosts fewer NICs")
        offset = free_offsets_by_switch[switch].pop()
        end_by_fibre[f"{label}:transmit"] = _make_end(nic.transmit, switch, 1 + offset)
        end_by_fibre[f"{label}:receive"] = _make_end(
            nic.receive, switch, 1 + input_count_by_switch[switch] + offset
        )
    return end_by_fibre


def _shuffle(ports: range, rng: random.Random) -> list[int]:
    return rng.sample(ports, len(ports))


def _make_end(fibre: FibreEnd, switch: str, port: int) -> FibreEnd:
    return FibreEnd(switch, port, DEFAULT_FIBRE_LOSS_DB if fibre == UNKNOWN_FIBRE else fibre.loss_db)


def _draw_pair(
    fibre_names: list[str], end_by_fibre: dict[str, FibreEnd], rng: random.Random
) -> tuple[str, str]:
    """Return two random fibres of the same direction that end at one switch. Raises `LabStartError`."""
    pairs = [
        (fibre_name, other_name)
        for name_index, fibre_name in enumerate(fibre_names)
        for other_name in fibre_names[name_index + 1 :]
        if fibre_name.rpartition(":")[2] == other_name.rpartition(":")[2]
        and end_by_fibre[fibre_name].switch == end_by_fibre[other_name].switch
    ]
    if not pairs:
        raise LabStartError("no pair of fibres remains to cross; lower --crossed")
    return rng.choice(pairs)


def _label_nics(lab: Lab) -> Iterator[tuple[str, int, LabNic]]:
    for host in lab.hosts:
        for nic_index, nic in enumerate(host.nics):
            yield f"{host.name}/{nic.name}", nic_index, nic
