"""NICs that are attached to ports of boards: their circuits, routes to the boards, and pings of the boards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ocs_drivers.model import CrossConnects
from testbed.errors import HostError
from testbed.lab.hosts.forwarding import ROUTE_PROTOCOL
from testbed.lab.model import Lab, LabBoardPort, LabHost, LabNic

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet


@dataclass(frozen=True, slots=True)
class BoardLink:
    """A NIC of a host with circuits to a port of a board and back."""

    host: LabHost
    nic: LabNic
    board: str
    port: LabBoardPort

    @property
    def label(self) -> str:
        """Label of the port, `board1/port1`."""
        return f"{self.board}/{self.port.name}"

    @property
    def pairs(self) -> frozenset[tuple[str, int, int]]:
        """Both circuits, as switch, input and output."""
        nic_transmit_end, port_transmit_end = self.nic.transmit, self.port.transmit
        return frozenset(
            {
                (nic_transmit_end.switch, nic_transmit_end.port, self.port.receive.port),
                (port_transmit_end.switch, port_transmit_end.port, self.nic.receive.port),
            }
        )


def find_board_links(lab: Lab, circuits_by_switch: Mapping[str, CrossConnects]) -> tuple[BoardLink, ...]:
    """Return the NICs of the lab's hosts that the switches connect with a port of a board, in both directions."""
    nic_by_transmitter = {
        (nic.transmit.switch, nic.transmit.port): (host, nic) for host in lab.hosts for nic in host.nics
    }
    links = []
    for board in lab.boards:
        for port in board.ports:
            receive_circuits = circuits_by_switch.get(port.receive.switch)
            source_port = (
                receive_circuits.inputs_by_output.get(port.receive.port)
                if receive_circuits is not None
                else None
            )
            if source_port is None or (port.receive.switch, source_port) not in nic_by_transmitter:
                continue
            host, nic = nic_by_transmitter[port.receive.switch, source_port]
            transmit_circuits = circuits_by_switch.get(port.transmit.switch)
            is_duplex = (
                transmit_circuits is not None
                and transmit_circuits.get(port.transmit.port) == nic.receive.port
            )
            if is_duplex and nic.receive.switch == port.transmit.switch:
                links.append(BoardLink(host, nic, board.name, port))
    return tuple(links)


def find_free_links(
    links: Iterable[BoardLink], used_ports: Collection[tuple[str, int]]
) -> tuple[BoardLink, ...]:
    """Return the links whose NICs a topology leaves free. `used_ports` are the ports of its circuits."""
    return tuple(
        link
        for link in links
        if not {(fibre_end.switch, fibre_end.port) for fibre_end in (link.nic.transmit, link.nic.receive)}
        & set(used_ports)
    )


def find_free_circuits(
    lab: Lab, circuits_by_switch: Mapping[str, CrossConnects], used_ports: Collection[tuple[str, int]]
) -> frozenset[tuple[str, int, int]]:
    """Return the circuits to and from boards at NICs that a topology leaves free, as switch, input and output."""
    return frozenset(
        circuit
        for link in find_free_links(find_board_links(lab, circuits_by_switch), used_ports)
        for circuit in link.pairs
    )


def set_board_routes(fleet: Fleet, mtu: int, links: Iterable[BoardLink]) -> None:
    """Give NICs their addresses, and hosts routes over them to the boards. Raises `HostError`.

    The neighbour entries are not permanent: a board answers ARP itself, which proves that it is there.
    """
    lines_by_host: defaultdict[str, list[str]] = defaultdict(list)
    for link in links:
        nic, board_address = link.nic, link.port.address
        lines_by_host[link.host.name] += [
            f"link set dev {nic.name} mtu {mtu} up",
            f"addr replace {nic.address}/32 dev {nic.name}",
            f"neigh flush to {board_address} dev {nic.name}",
            f"route replace {board_address}/32 dev {nic.name} scope link src {nic.address} proto {ROUTE_PROTOCOL}",
        ]
    stdin_by_host = {host: "".join(f"{line}\n" for line in lines) for host, lines in lines_by_host.items()}
    results = (
        fleet.run(dict.fromkeys(stdin_by_host, "ip -batch -"), stdin=stdin_by_host) if stdin_by_host else {}
    )
    for host, result in results.items():
        if result.exit_status:
            last_line = (result.stderr.strip() or "no message").splitlines()[-1]
            raise HostError(f"the route to a board cannot be set on {host}: {last_line}", host=host)


def ping_boards(fleet: Fleet, links: Iterable[BoardLink]) -> dict[str, bool]:
    """Return whether each port of a board answers its host's ping, by label. Hosts outside the fleet are left out.

    Raises `HostError`.
    """
    reachable_hosts = {host.name for host in fleet.hosts}
    reachable_links = {link.label: link for link in links if link.host.name in reachable_hosts}
    commands_by_host: defaultdict[str, list[str]] = defaultdict(list)
    for label, link in reachable_links.items():
        ping_command = f"ping -n -q -c 3 -i 0.2 -W 1 {link.port.address}"
        commands_by_host[link.host.name].append(f"{ping_command} >/dev/null 2>&1 && echo {label}")
    results = (
        fleet.run({host: f"{'; '.join(lines)}; true" for host, lines in commands_by_host.items()})
        if reachable_links
        else {}
    )
    return {label: label in results[link.host.name].stdout.split() for label, link in reachable_links.items()}
