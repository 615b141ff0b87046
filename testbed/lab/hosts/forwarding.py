"""Forwarding by hosts: addresses, routes and neighbours of every host for one wiring.

Planning is pure: a wiring, its routes and the MAC addresses yield one `ip -batch` text per host. Next hops are
addresses of NICs, not of hosts, so that a route determines its link. Neighbour entries are permanent for two reasons:
a one-way link carries no ARP reply, and after a switch change a learnt entry would name the wrong peer.
"""

from __future__ import annotations

import json
import shlex
from bisect import bisect_left
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Any

from testbed.design.model import Link, Routes, Wiring
from testbed.errors import HostError
from testbed.lab.model import Lab, LabHost

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import CommandResult, Fleet

MacsByHost = Mapping[str, Mapping[str, str]]
"""MAC addresses by host and NIC."""

ROUTE_PROTOCOL = 107  # marks routes of lightbed, so that only these are flushed; not assigned in rt_protos
NODE_LABEL = "lo:lightbed"  # marks the node address on lo, for the same reason

SET_NETWORK = IPv4Network("198.18.0.0/15")
"""Network of the host addresses of the second and later sets of routes."""

_MIN_PREFIX_LENGTH = 24
"""Prefix length of the largest block for a host's addresses. A larger block may contain other machines."""

# Linux uses the larger of `all` and the interface for these, so both are set. `default` covers later NICs.
_SYSCTLS_PER_INTERFACE = {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 0, "send_redirects": 0}
_SYSCTLS_PER_HOST = {"net/ipv4/ip_forward": 1, "net/ipv4/tcp_no_metrics_save": 1}


@dataclass(frozen=True, slots=True)
class HostForwarding:
    """Configuration of one host: kernel settings and the lines for one `ip -batch`."""

    host: str
    sysctls: tuple[str, ...]
    batch: tuple[str, ...]

    @property
    def install_command(self) -> str:
        """Shell command that installs everything; `batch_text` is its standard input."""
        return f"sysctl -q -w {' '.join(map(shlex.quote, self.sysctls))} && ip -batch -"

    @property
    def batch_text(self) -> str:
        """The batch as text."""
        return "".join(f"{line}\n" for line in self.batch)


def plan_forwarding(
    lab: Lab, wiring: Wiring, routes: Routes, macs: MacsByHost, further_routes: Sequence[Routes] = ()
) -> dict[str, HostForwarding]:
    """Return the configuration of every host for `routes` and for each set of `further_routes`.

    Node i of the wiring is host i of the lab. `macs` is the result of `read_macs`. Each set has its own address per
    host, see `list_set_addresses`. Raises `HostError` if two hosts would have the same address in a set.
    """
    route_sets = (routes, *further_routes)
    addresses_by_host = {
        host.name: list_set_addresses(host)[: len(route_sets)] for host in lab.hosts[: wiring.nodes]
    }
    _check_distinct(addresses_by_host)
    return {
        lab.hosts[node].name: HostForwarding(
            lab.hosts[node].name,
            tuple(list_sysctls(lab.hosts[node])),
            (
                *_make_address_lines(lab, lab.hosts[node], addresses_by_host[lab.hosts[node].name]),
                *_make_neighbour_lines(lab, wiring, node, macs),
                *_make_route_lines(lab, wiring, route_sets, node),
            ),
        )
        for node in range(wiring.nodes)
    }


def list_set_addresses(host: LabHost) -> tuple[IPv4Address, ...]:
    """Return the addresses of a host for four sets of routes: the node address, then three derived addresses.

    The derived addresses are in 198.18.0.0/15, which is reserved for benchmarks (RFC 2544) and routed nowhere else.

    >>> from ipaddress import IPv4Address, IPv4Network
    >>> host = LabHost("a", IPv4Address("10.99.0.11"), IPv4Address("10.100.1.100"), (), "python3")
    >>> [str(address) for address in list_set_addresses(host)]
    ['10.100.1.100', '198.18.5.145', '198.18.5.146', '198.18.5.147']
    """
    first_number = int(SET_NETWORK.network_address) + int(host.address) % 2**15 * 4
    return (host.address, *(IPv4Address(first_number + number) for number in range(1, 4)))


def _check_distinct(addresses_by_host: Mapping[str, Sequence[IPv4Address]]) -> None:
    host_by_address: dict[IPv4Address, str] = {}
    for host, addresses in addresses_by_host.items():
        for address in addresses[1:]:
            if host_by_address.setdefault(address, host) != host:
                hosts = f"hosts {host_by_address[address]} and {host}"
                problem = f"{hosts} would both get address {address} for their routes"
                hint = "give them node addresses that differ in their last 15 bits"
                raise HostError(f"{problem}; {hint}", host=host)


def list_sysctls(host: LabHost) -> Iterator[str]:
    """Yield kernel settings as `path=value`, with slashes, because interface names may contain dots."""
    for path, value in _SYSCTLS_PER_HOST.items():
        yield f"{path}={value}"
    for interface in ("all", "default", *(nic.name for nic in host.nics)):
        for key, value in _SYSCTLS_PER_INTERFACE.items():
            yield f"net/ipv4/conf/{interface}/{key}={value}"
    for nic in host.nics:  # `ip_forward` sets these too, but only when its own value changes
        yield f"{make_forwarding_path(nic.name)}=1"


def make_forwarding_path(interface: str) -> str:
    """Return the path of the setting that enables forwarding of packets from an interface."""
    return f"net/ipv4/conf/{interface}/forwarding"


def _make_address_lines(lab: Lab, host: LabHost, addresses: Sequence[IPv4Address]) -> Iterator[str]:
    """Yield lines that remove what an earlier epoch installed, then set addresses. Routes of other programs stay."""
    yield f"route flush proto {ROUTE_PROTOCOL}"
    yield f"addr flush dev lo label {NODE_LABEL}"
    for address in addresses:
        yield f"addr replace {address}/32 dev lo label {NODE_LABEL}"
    for nic in host.nics:
        yield f"link set dev {nic.name} mtu {lab.link.mtu} up"
        yield f"neigh flush dev {nic.name} nud all"
        yield f"addr flush dev {nic.name}"
        yield f"addr replace {nic.address}/32 dev {nic.name}"


def _make_neighbour_lines(lab: Lab, wiring: Wiring, node: int, macs: MacsByHost) -> Iterator[str]:
    for link in _find_links_from(wiring, node):
        peer = lab.get_nic(link.target)
        mac = macs[lab.hosts[link.target.node].name][peer.name]
        interface = lab.get_nic(link.source).name
        yield f"neigh replace {peer.address} lladdr {mac} nud permanent dev {interface}"


def _make_route_lines(lab: Lab, wiring: Wiring, route_sets: Sequence[Routes], node: int) -> Iterator[str]:
    """Yield the lines for routes to the far NIC of each link and, in each set, to every other host.

    The source of a route is the host's address in its set, so answers and sockets bound to that address stay in the
    set. The first set also reaches the NICs of other hosts, because Open MPI connects to them. One route covers these
    NICs and the node address if `find_blocks` finds one block.
    """
    own_addresses = list_set_addresses(lab.hosts[node])
    link_by_peer = {lab.get_nic(link.target).address: link for link in _find_links_from(wiring, node)}
    blocks_by_node = {
        other_node: find_blocks(lab, lab.hosts[other_node], link_by_peer)
        for other_node in range(wiring.nodes)
        if other_node != node
    }
    for block in (
        node_block
        for node_blocks in blocks_by_node.values()
        for node_block in node_blocks
        if node_block.prefixlen < node_block.max_prefixlen
    ):
        yield f"route flush root {block}"  # the kernel prefers a more specific route, whatever its origin
    for peer, link in link_by_peer.items():
        yield _make_route_line(lab, IPv4Network(peer), link, f"scope link src {own_addresses[0]}")
    for set_number, routes in enumerate(route_sets):
        for target_node in range(wiring.nodes):
            if (node, target_node) not in routes.first_link:
                continue
            link, host = routes.first_link[node, target_node], lab.hosts[target_node]
            via = lab.get_nic(link.target).address
            targets = (
                [IPv4Network(list_set_addresses(host)[set_number])]
                if set_number
                else blocks_by_node[target_node]
            )
            for target in targets:
                yield _make_route_line(lab, target, link, f"via {via} onlink src {own_addresses[set_number]}")


def _make_route_line(lab: Lab, target: IPv4Network, link: Link, options: str) -> str:
    return f"route replace {target} dev {lab.get_nic(link.source).name} {options} proto {ROUTE_PROTOCOL}"


def find_blocks(lab: Lab, host: LabHost, direct_peers: Container[IPv4Address] = ()) -> list[IPv4Network]:
    """Return the fewest blocks that cover the node address and NICs of a host, except addresses in `direct_peers`.

    Those addresses have a route of their own. A block contains no address of another host or of the management
    network, and at most 256 addresses.
    """
    foreign_numbers = sorted(
        int(address)
        for other_host in (*lab.hosts, *lab.other_hosts)
        for address in (
            other_host.management,
            *(_list_addresses(other_host) if other_host.name != host.name else ()),
        )
    )
    foreign_numbers = sorted(
        [*foreign_numbers, *(int(port.address) for board in lab.boards for port in board.ports)]
    )
    own_addresses = [address for address in _list_addresses(host) if address not in direct_peers]
    return _split_into_blocks(
        sorted(own_addresses), lambda block: _is_own(block, lab.management, foreign_numbers)
    )


def _list_addresses(host: LabHost) -> Iterator[IPv4Address]:
    yield from (host.address, *(nic.address for nic in (*host.nics, *host.unused_nics)))


def _is_own(block: IPv4Network, management: IPv4Network, foreign_numbers: Sequence[int]) -> bool:
    """Return whether a block is small enough, not reserved, and contains none of the sorted `foreign_numbers`."""
    if block.prefixlen == block.max_prefixlen:
        return True
    is_reserved = block.overlaps(management) or block.overlaps(SET_NETWORK)
    position = bisect_left(foreign_numbers, int(block.network_address))
    is_foreign = position < len(foreign_numbers) and foreign_numbers[position] <= int(block.broadcast_address)
    return block.prefixlen >= _MIN_PREFIX_LENGTH and not is_reserved and not is_foreign


def _split_into_blocks(
    addresses: Sequence[IPv4Address], is_own: Callable[[IPv4Network], bool]
) -> list[IPv4Network]:
    """Return the smallest block with all sorted addresses, or the blocks of its halves if `is_own` rejects it."""
    length = 32 - (int(addresses[0]) ^ int(addresses[-1])).bit_length()
    block = IPv4Network((addresses[0], length), strict=False)
    if is_own(block):
        return [block]
    _, upper_half = block.subnets()
    halves = [
        [address for address in addresses if (address in upper_half) is in_upper]
        for in_upper in (False, True)
    ]
    return [half_block for half in halves for half_block in _split_into_blocks(half, is_own)]


def _find_links_from(wiring: Wiring, node: int) -> Iterator[Link]:
    return (link for link in wiring.links if link.source.node == node)


def read_macs(fleet: Fleet) -> dict[str, dict[str, str]]:
    """Return the MAC address of every NIC of the lab file, by host and NIC.

    Raises `HostError` if a host lacks a NIC, or if a NIC carries the management address: installing routes would flush
    that address and end the connection.
    """
    results = fleet.run({host.name: "ip -j address show" for host in fleet.hosts})
    _check_exit_statuses(results, "interfaces cannot be listed")
    return {host.name: _find_macs(host, json.loads(results[host.name].stdout)) for host in fleet.hosts}


def _find_macs(host: LabHost, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    entry_by_interface = {entry["ifname"]: entry for entry in entries}
    return {nic.name: _find_mac(host, nic.name, entry_by_interface) for nic in host.nics}


def _find_mac(host: LabHost, nic: str, entry_by_interface: Mapping[str, Mapping[str, Any]]) -> str:
    entry = entry_by_interface.get(nic)
    if entry is None:
        interface_names = ", ".join(sorted(entry_by_interface))
        raise HostError(
            f"host {host.name} has no interface {nic} (it has {interface_names}); correct the lab file",
            host=host.name,
        )
    if str(host.management) in (address_entry.get("local") for address_entry in entry.get("addr_info", ())):
        problem = f"interface {nic} of host {host.name} carries the management address {host.management}"
        raise HostError(f"{problem}; name the NICs of the optical links in the lab file", host=host.name)
    return str(entry["address"])


def install(fleet: Fleet, forwarding_by_host: Mapping[str, HostForwarding]) -> None:
    """Configure all hosts in parallel, with one command each. Raises `HostError` naming every host that failed."""
    command_by_host = {host: forwarding.install_command for host, forwarding in forwarding_by_host.items()}
    result_by_host = fleet.run(
        command_by_host,
        stdin={host: forwarding.batch_text for host, forwarding in forwarding_by_host.items()},
    )
    _check_exit_statuses(result_by_host, "routes cannot be installed")


def _check_exit_statuses(result_by_host: Mapping[str, CommandResult], problem: str) -> None:
    failed_result_by_host = {
        host: result for host, result in result_by_host.items() if result.exit_status != 0
    }
    if failed_result_by_host:
        failures = "; ".join(
            f"{host}: {_get_last_line(result)}" for host, result in failed_result_by_host.items()
        )
        raise HostError(
            f"{problem} on {failures}; log in there and run `ip` by hand",
            host=next(iter(failed_result_by_host)),
        )


def _get_last_line(result: CommandResult) -> str:
    lines = (result.stderr.strip() or result.stdout.strip()).splitlines()
    return lines[-1] if lines else f"exit status {result.exit_status}, no message"
