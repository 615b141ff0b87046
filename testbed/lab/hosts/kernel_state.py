"""The state of the hosts' kernels, read and planned: interfaces, addresses, routes, neighbours, settings, filters.

The state is read in one round trip per host, with programs that every Linux has (`ip -j`, `tc -j`, `grep`), and `nft`
or `iptables` if a host has them. This module parses their output, so a host needs no lightbed and tests can use
recorded output. The planned state of a host is its state after running the batch of its forwarding plan.
"""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any

from testbed.errors import HostError
from testbed.lab.hosts.forwarding import ROUTE_PROTOCOL, HostForwarding, list_sysctls
from testbed.lab.hosts.packet_rules import (
    INGRESS_KINDS,
    PacketFilter,
    PolicyRule,
    parse_class_rates,
    parse_iptables,
    parse_nft,
    parse_policy_rules,
    parse_queues,
)
from testbed.lab.model import Lab, LabHost

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet


HEADING_PREFIX = "=== "
_COMMAND_BY_PART = {
    "address": "ip -j address show",
    "route": "ip -j -4 route show table all",
    "rule": "ip -j -4 rule show",
    "neigh": "ip -j -4 neigh show",
    "qdisc": "tc -j qdisc show",
}
_FILTER_COMMAND_BY_PART = {
    "nft": "PATH=$PATH:/usr/sbin:/sbin nft -j list ruleset 2>/dev/null",
    # In addition to nft, which does not print targets that only iptables understands.
    "iptables": "PATH=$PATH:/usr/sbin:/sbin; { iptables-legacy-save; iptables-save; } 2>/dev/null",
}
_SYSCTL_PREFIX, _NET_PREFIX = "/proc/sys/", "/sys/class/net/"
_MEGABITS_PER_BYTE = 8e-6
UNKNOWN_MAC = "00:00:00:00:00:00"
"""MAC address assumed for a NIC whose host does not answer. Its neighbour entries are not compared."""


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface. `rate_mbps` is the lowest of its speed, token buckets and classes, or None if all are unknown.

    `master` is the bridge, bond or VRF that contains it. `queue_notes` describes XDP programs and queueing disciplines
    other than rates. `has_ingress_hook` is True if tc filters or an XDP program process packets before the kernel.
    """

    mac: str
    is_up: bool
    has_carrier: bool
    mtu: int
    addresses: frozenset[str]
    rate_mbps: float | None = None
    master: str = ""
    queue_notes: str = ""
    has_ingress_hook: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """One IPv4 route; `device` is empty unless the route is unicast.

    `options` lists metrics such as `mtu 600`, after the route's type if it is `local` or `throw`.
    """

    target: str
    device: str
    gateway: str
    source: str
    protocol: str
    options: str = ""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One neighbour entry. A permanent entry needs no ARP and never times out."""

    mac: str
    is_permanent: bool


@dataclass(frozen=True, slots=True)
class KernelState:
    """Forwarding state of one host's kernel. Neighbours are keyed by (interface, address).

    `routes` holds the table `main`. `rules` may look up other tables (`routes_by_table`) before `main`.
    """

    interfaces: Mapping[str, Interface]
    routes: tuple[Route, ...]
    neighbours: Mapping[tuple[str, str], Neighbour]
    sysctls: Mapping[str, str]
    rules: tuple[PolicyRule, ...] = ()
    routes_by_table: Mapping[str, tuple[Route, ...]] = field(default_factory=dict)
    filters: tuple[PacketFilter, ...] = ()


def read_kernels(fleet: Fleet, lab: Lab) -> dict[str, KernelState]:
    """Return the state of every host of the lab that the fleet reaches. Raises `HostError`."""
    reached_hosts = {host.name for host in fleet.hosts}
    command_by_host = {
        host.name: make_state_command(host) for host in lab.hosts if host.name in reached_hosts
    }
    state_by_host: dict[str, KernelState] = {}
    reason_by_host: dict[str, str] = {}
    for host, result in fleet.run(command_by_host).items():
        try:
            state_by_host[host] = parse_state(result.stdout)
        except (ValueError, KeyError, TypeError, AttributeError):
            reason_by_host[host] = result.stderr.strip()[-200:] or f"it printed {result.stdout[:80]!r}"
    if reason_by_host:
        problems = "; ".join(
            f"the state of host {host} cannot be read ({reason})" for host, reason in reason_by_host.items()
        )
        raise HostError(
            f"{problems}; it needs iproute2 and grep, see `ip -j address`", reasons=reason_by_host
        )
    return state_by_host


def make_state_command(host: LabHost) -> str:
    """Return the shell command that prints the state of one host, each part under a heading."""
    files = [f"{_SYSCTL_PREFIX}{setting.partition('=')[0]}" for setting in list_sysctls(host)]
    files += [f"{_NET_PREFIX}{nic.name}/speed" for nic in host.nics]
    nic_names = shlex.join(nic.name for nic in host.nics)
    class_command = (
        f'for nic in {nic_names}; do tc class show dev "$nic" 2>/dev/null | sed "s/^/$nic /"; done'
    )
    command_by_part = {
        **_COMMAND_BY_PART,
        **_FILTER_COMMAND_BY_PART,
        "class": class_command,
        "files": f"grep -sH '' {shlex.join(files)}",
    }
    return (
        "; ".join(f"echo '{HEADING_PREFIX}{name}'; {command}" for name, command in command_by_part.items())
        + "; true"
    )


def split_by_heading(text: str) -> dict[str, str]:
    """Return the text below each heading of `make_state_command`, by heading."""
    lines_by_heading: dict[str, list[str]] = {}
    lines: list[str] = []  # text before the first heading is a login message
    for line in text.splitlines():
        if line.startswith(HEADING_PREFIX):
            lines = lines_by_heading.setdefault(line.removeprefix(HEADING_PREFIX), [])
        else:
            lines.append(line)
    return {name: "\n".join(part_lines).strip() for name, part_lines in lines_by_heading.items()}


def parse_state(text: str) -> KernelState:
    """Return the state in the output of `make_state_command`.

    Raises `ValueError`, `KeyError`, `TypeError` or `AttributeError` for other text.
    """
    text_by_part = split_by_heading(text)
    entries_by_part: dict[str, list[dict[str, Any]]] = {
        name: json.loads(text_by_part[name] or "[]") for name in _COMMAND_BY_PART
    }
    file_lines = (line.partition(":") for line in text_by_part["files"].splitlines())
    text_by_path = {path: text.strip() for path, _, text in file_lines}
    rate_by_interface = _compute_rates(
        entries_by_part["qdisc"], parse_class_rates(text_by_part.get("class", "")), text_by_path
    )
    queues_by_interface = parse_queues(entries_by_part["qdisc"])
    ingress_interfaces = {
        queue["dev"] for queue in entries_by_part["qdisc"] if queue["kind"] in INGRESS_KINDS
    }
    routes_by_table: dict[str, list[Route]] = {}
    for entry in entries_by_part["route"]:
        if entry.get("table") == "local" and entry.get("protocol") == "kernel":
            continue  # this route leads to the host's own address
        routes_by_table.setdefault(str(entry.get("table", "main")), []).append(_parse_route(entry))
    return KernelState(
        interfaces={
            entry["ifname"]: _parse_interface(
                entry, rate_by_interface, queues_by_interface, ingress_interfaces
            )
            for entry in entries_by_part["address"]
        },
        routes=tuple(routes_by_table.pop("main", ())),
        neighbours={
            (entry["dev"], entry["dst"]): Neighbour(
                str(entry.get("lladdr", "")), "PERMANENT" in entry.get("state", ())
            )
            for entry in entries_by_part["neigh"]
        },
        sysctls={
            path.removeprefix(_SYSCTL_PREFIX): text
            for path, text in text_by_path.items()
            if path.startswith(_SYSCTL_PREFIX)
        },
        rules=parse_policy_rules(entries_by_part["rule"]),
        routes_by_table={name: tuple(routes) for name, routes in routes_by_table.items()},
        filters=(*parse_nft(text_by_part.get("nft", "")), *parse_iptables(text_by_part.get("iptables", ""))),
    )


def _compute_rates(
    queues: Iterable[Mapping[str, Any]],
    class_rate_by_interface: Mapping[str, float],
    text_by_path: Mapping[str, str],
) -> dict[str, float]:
    """Return the rate of each interface in Mbit/s: the lowest of its speed, token buckets and classes.

    `tc` prints bytes per second. The kernel gives the speed in Mbit/s, or -1 if it is unknown.
    """
    rate_by_interface = {
        path.split("/")[-2]: float(text)
        for path, text in text_by_path.items()
        if path.startswith(_NET_PREFIX) and text.lstrip("-").isdigit() and int(text) > 0
    }
    bucket_rates = [
        (queue["dev"], queue["options"]["rate"] * _MEGABITS_PER_BYTE)
        for queue in queues
        if queue["kind"] == "tbf"
    ]
    for device, rate in (*bucket_rates, *class_rate_by_interface.items()):
        rate_by_interface[device] = min(rate, rate_by_interface.get(device, rate))
    return rate_by_interface


def _parse_interface(
    entry: Mapping[str, Any],
    rate_by_interface: Mapping[str, float],
    queues_by_interface: Mapping[str, str],
    ingress_interfaces: Container[str],
) -> Interface:
    name, flags = entry["ifname"], entry["flags"]
    has_xdp_program = bool(entry.get("xdp"))
    queue_notes = [
        *([queues_by_interface[name]] if name in queues_by_interface else []),
        *(["an XDP program"] if has_xdp_program else []),
    ]
    ipv4_entries = (
        address_entry for address_entry in entry.get("addr_info", ()) if address_entry.get("family") == "inet"
    )
    return Interface(
        mac=str(entry.get("address", "")),
        is_up="UP" in flags,
        has_carrier="LOWER_UP" in flags,
        mtu=int(entry["mtu"]),
        addresses=frozenset(
            f"{address_entry['local']}/{address_entry['prefixlen']}" for address_entry in ipv4_entries
        ),
        rate_mbps=rate_by_interface.get(name),
        master=str(entry.get("master", "")),
        queue_notes=", ".join(queue_notes),
        has_ingress_hook=name in ingress_interfaces or has_xdp_program,
    )


def _parse_route(entry: Mapping[str, Any]) -> Route:
    is_special = entry.get("type", "unicast") != "unicast"
    target = str(entry["dst"])
    options = [
        f"{name} {value}" for metrics in entry.get("metrics", ()) for name, value in sorted(metrics.items())
    ]
    return Route(
        target=f"{target}/32" if "/" not in target and target != "default" else target,
        device="" if is_special else str(entry.get("dev", "")),
        gateway=str(entry.get("gateway", "")),
        source=str(entry.get("prefsrc", "")),
        protocol=str(entry.get("protocol", "")),
        options=" ".join([*([entry["type"]] if entry.get("type") in ("local", "throw") else []), *options]),
    )


@dataclass(frozen=True, slots=True)
class PlannedState:
    """Planned counterpart of `KernelState`. Routes are keyed by target, addresses and MTUs by interface."""

    sysctls: Mapping[str, str]
    mtus: Mapping[str, int]
    addresses: Mapping[str, frozenset[str]]
    neighbours: Mapping[tuple[str, str], str]
    routes: Mapping[str, Route]


EMPTY_STATE = PlannedState({}, {}, {}, {}, {})
"""State of a host on which lightbed has installed nothing."""


def plan_state(forwarding: HostForwarding) -> PlannedState:
    """Return the state after installing `forwarding`. It follows from the lines, so state and commands agree."""
    *_, final_state = list_installation_states(EMPTY_STATE, forwarding)
    return final_state


def list_installation_states(
    initial_state: PlannedState, forwarding: HostForwarding
) -> Iterator[PlannedState]:
    """Yield the states of an installation: before it, after the settings, and after each line of the batch."""
    yield initial_state
    sysctls = {**initial_state.sysctls, **dict(setting.split("=", 1) for setting in forwarding.sysctls)}
    state = replace(initial_state, sysctls=sysctls)
    yield state
    for line in forwarding.batch:
        state = _apply_line(state, *line.split())
        yield state


def _remove_routes_inside(route_by_target: Mapping[str, Route], block: str) -> dict[str, Route]:
    """Return the routes whose target is not inside a block."""
    network = IPv4Network(block)
    return {
        target: route
        for target, route in route_by_target.items()
        if not IPv4Network(target).subnet_of(network)
    }


def _apply_line(
    state: PlannedState, object_type: str, command: str, subject: str, *arguments: str
) -> PlannedState:
    """Return the state after one line of `ip -batch`. Settings (`sysctls`) stay as they are."""
    value_by_option = dict(itertools.pairwise(arguments))
    mtu_by_interface, addresses_by_interface = dict(state.mtus), dict(state.addresses)
    mac_by_neighbour, route_by_target = dict(state.neighbours), dict(state.routes)
    match object_type, command:
        case "route", "flush":  # either by protocol, or inside the block that follows the word `root`
            route_by_target = (
                {} if subject == "proto" else _remove_routes_inside(route_by_target, arguments[0])
            )
        case "neigh", "flush":
            mac_by_neighbour = {key: mac for key, mac in mac_by_neighbour.items() if key[0] != arguments[0]}
        case "addr", "flush":
            addresses_by_interface[arguments[0]] = frozenset()
        case "link", "set":
            mtu_by_interface[arguments[0]] = int(value_by_option["mtu"])
        case "addr", "replace":
            addresses_by_interface[value_by_option["dev"]] = addresses_by_interface.get(
                value_by_option["dev"], frozenset()
            ) | {subject}
        case "neigh", "replace":
            mac_by_neighbour[value_by_option["dev"], subject] = value_by_option["lladdr"]
        case "route", "replace":
            route_by_target[subject] = Route(
                subject,
                value_by_option["dev"],
                value_by_option.get("via", ""),
                value_by_option["src"],
                str(ROUTE_PROTOCOL),
            )
    return PlannedState(
        state.sysctls, mtu_by_interface, addresses_by_interface, mac_by_neighbour, route_by_target
    )
