"""Findings about one host: the state of its kernel compared with its forwarding plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Network, ip_network

from lightbed.wording import list_some
from testbed.lab.hosts.forwarding import ROUTE_PROTOCOL, list_set_addresses, make_forwarding_path
from testbed.lab.hosts.kernel_state import UNKNOWN_MAC, Interface, KernelState, Neighbour, PlannedState, Route
from testbed.lab.hosts.packet_rules import overlaps
from testbed.lab.model import Lab, LabHost
from testbed.operate.model import FindingKind, LinkFinding

MISSING_INTERFACE = FindingKind(
    "missing_interface",
    "the host has no interface with the name of the NIC",
    "correct the name in the lab file, or load the NIC's driver on the host",
)
INTERFACE_DOWN = FindingKind(
    "interface_down",
    "an interface is administratively down",
    ("run `ip link set dev NIC up` on the host, then `testbed apply`, because the kernel removed the routes"),
)
WRONG_MASTER = FindingKind(
    "wrong_master",
    "a NIC belongs to a bridge, a bond or a VRF, which gets all packets that the NIC receives",
    "run `ip link set dev NIC nomaster` on the host, then `testbed apply`",
)
WRONG_MTU = FindingKind(
    "wrong_mtu",
    "an interface has a different MTU than the lab file",
    "run `testbed apply`",
    stops_packets=False,
)
WRONG_RATE = FindingKind(
    "wrong_rate",
    "a NIC sends at a different rate than the lab file",
    "check the negotiated rate (`ethtool NIC`) and the queueing discipline (`tc qdisc`), or correct `rate_mbps`",
    stops_packets=False,
)
WRONG_QUEUE = FindingKind(
    "wrong_queue",
    "a NIC has a queueing discipline, a tc filter or an XDP program that may drop, delay or divert packets",
    (
        "remove it: `tc qdisc del dev NIC root` (or `clsact` or `ingress` instead of `root`), or "
        "`ip link set dev NIC xdp off`"
    ),
)
PACKET_FILTER = FindingKind(
    "packet_filter",
    "packet filter rules may drop, change or divert packets of the lab",
    "remove the rules that the detail names (`nft -a list ruleset`), or restrict them to other NICs",
)
WRONG_RULE = FindingKind(
    "wrong_rule",
    "policy rules apply to packets of the lab before the routes of the lab",
    "remove the rules that the detail names (`ip rule del`), or restrict them to other addresses",
)
WRONG_ADDRESS = FindingKind("wrong_address", "an address is missing, or not planned", "run `testbed apply`")
FORWARDING_OFF = FindingKind("forwarding_off", "a host does not forward packets", "run `testbed apply`")
WRONG_SYSCTL = FindingKind("wrong_sysctl", "a kernel setting is not as planned", "run `testbed apply`")
WRONG_NEIGHBOUR = FindingKind(
    "wrong_neighbour",
    "a neighbour entry is missing, has another MAC address, or is not permanent",
    "run `testbed apply`",
)
MISSING_ROUTE = FindingKind("missing_route", "planned routes are missing", "run `testbed apply`")
WRONG_ROUTE = FindingKind(
    "wrong_route",
    "routes lead over another link than planned, or a more specific route takes some of a host's addresses",
    "run `testbed apply`",
)
EXTRA_ROUTE = FindingKind(
    "extra_route",
    "routes of lightbed lead to addresses that are not planned",
    "run `testbed apply`",
    stops_packets=False,
)
NOT_CONFIGURED = FindingKind(
    "not_configured",
    "hosts have nothing of the plan: no address, no route and no neighbour entry",
    "run `testbed apply`",
)
OTHER_TOPOLOGY = FindingKind(
    "other_topology", "hosts have the routes and neighbour entries of another topology", "run `testbed apply`"
)

RATE_TOLERANCE = 0.01
_LOOPBACK = "lo"
_IP_FORWARD = "net/ipv4/ip_forward"


def judge_host(
    lab: Lab, host: LabHost, planned_state: PlannedState, kernel_state: KernelState
) -> tuple[LinkFinding, ...]:
    """Return the findings about a host, without findings that follow from another finding.

    An interface that is down, or has no address, explains missing routes and neighbours. A missing node address
    explains missing routes with this source. A host that holds nothing of the plan, or another plan, is one finding.
    """
    comparison = _Comparison(lab, host, planned_state, kernel_state)
    checks = (
        check for check in HOST_CHECKS if check.covers_unconfigured_hosts or not comparison.is_unconfigured
    )
    return tuple(finding for check in checks for finding in check.judge(comparison))


def count_deviations(lab: Lab, host: LabHost, planned_state: PlannedState, kernel_state: KernelState) -> int:
    """Return the number of addresses, neighbours and routes in which a host differs from a planned state."""
    comparison = _Comparison(lab, host, planned_state, kernel_state)
    address_count = sum(len(comparison.find_missing_addresses(device)) for device in planned_state.addresses)
    route_count = len(comparison.missing_routes) + len(comparison.wrong_routes) + len(comparison.extra_routes)
    return address_count + route_count + len(comparison.wrong_neighbours)


def is_unconfigured(lab: Lab, host: LabHost, planned_state: PlannedState, kernel_state: KernelState) -> bool:
    """Return whether a host holds nothing of any plan."""
    return _Comparison(lab, host, planned_state, kernel_state).is_unconfigured


@dataclass(frozen=True)
class _Comparison:
    """The kernel of one host, compared with its plan."""

    lab: Lab
    host: LabHost
    planned_state: PlannedState
    kernel_state: KernelState

    @cached_property
    def networks(self) -> tuple[IPv4Network, ...]:
        """Networks of the lab that concern the host: its own addresses, and the targets of planned routes."""
        own_addresses = (
            address for addresses in self.planned_state.addresses.values() for address in addresses
        )
        return tuple(
            IPv4Network(block, strict=False) for block in {*own_addresses, *self.planned_state.routes}
        )

    def is_usable(self, device: str) -> bool:
        """Return whether an interface exists, is up, and is not part of a bridge, bond or VRF."""
        interface = self.kernel_state.interfaces.get(device)
        return interface is not None and interface.is_up and not interface.master

    def can_hold_routes(self, device: str) -> bool:
        """Return whether an interface can hold routes. The kernel drops them all when the last address is removed."""
        return self.is_usable(device) and bool(self.kernel_state.interfaces[device].addresses)

    def find_missing_addresses(self, device: str) -> frozenset[str]:
        """Return planned addresses that an interface lacks, or none if the interface itself is missing."""
        interface = self.kernel_state.interfaces.get(device)
        return self.planned_state.addresses[device] - interface.addresses if interface else frozenset()

    @cached_property
    def judged_routes(self) -> dict[str, Route]:
        """Planned routes whose absence no other finding explains."""
        missing_addresses = {
            address.split("/")[0]
            for device in self.planned_state.addresses
            for address in self.find_missing_addresses(device)
        }
        return {
            target: route
            for target, route in self.planned_state.routes.items()
            if self.can_hold_routes(route.device) and route.source not in missing_addresses
        }

    @cached_property
    def kernel_routes(self) -> Mapping[str, Route]:
        """Routes of the kernel by target. Of several routes to one target, the kernel uses the first."""
        return {route.target: route for route in reversed(self.kernel_state.routes)}

    @cached_property
    def missing_routes(self) -> tuple[Route, ...]:
        """Planned routes that the kernel does not have."""
        return tuple(
            route for target, route in self.judged_routes.items() if target not in self.kernel_routes
        )

    @cached_property
    def wrong_routes(self) -> tuple[tuple[Route, Route], ...]:
        """Pairs of a planned route and the different route that the kernel has instead, of any origin."""
        pairs = [
            (route, self.kernel_routes[target])
            for target, route in self.judged_routes.items()
            if target in self.kernel_routes
        ]
        pairs += [
            (route, kernel_route)
            for kernel_route, target in self._target_by_inner_route.items()
            for route in self._find_judged_routes(target)
        ]
        return tuple(
            (route, kernel_route)
            for route, kernel_route in pairs
            if _select_path_fields(route) != _select_path_fields(kernel_route)
        )

    def _find_judged_routes(self, target: str) -> Iterator[Route]:
        if target in self.judged_routes:
            yield self.judged_routes[target]

    @cached_property
    def _target_by_inner_route(self) -> dict[Route, str]:
        """Targets of planned routes, by the more specific routes inside their block, which the kernel prefers."""
        blocks = [
            (ip_network(target), target) for target in self.planned_state.routes if not target.endswith("/32")
        ]
        unplanned_routes = (
            route for route in self.kernel_state.routes if route.target not in self.planned_state.routes
        )
        unplanned_blocks = [
            (route, ip_network(route.target)) for route in unplanned_routes if "/" in route.target
        ]
        return {
            route: target
            for route, route_block in unplanned_blocks
            for block, target in blocks
            if route_block != block and route_block.version == block.version and route_block.subnet_of(block)  # type: ignore[arg-type]
        }

    @cached_property
    def extra_routes(self) -> tuple[Route, ...]:
        """Routes with lightbed's protocol number that are not planned and do not lead to boards of the lab."""
        own_routes = (route for route in self.kernel_state.routes if route.protocol == str(ROUTE_PROTOCOL))
        board_targets = {f"{port.address}/32" for board in self.lab.boards for port in board.ports}
        expected_targets = self.planned_state.routes.keys() | board_targets
        return tuple(
            route
            for route in own_routes
            if route.target not in expected_targets and route not in self._target_by_inner_route
        )

    @cached_property
    def wrong_neighbours(self) -> tuple[tuple[str, str, str], ...]:
        """Neighbours that are not as planned: interface, address, and a description of the error."""
        descriptions = (
            (device, address, _describe_error(self.kernel_state.neighbours.get((device, address)), mac))
            for (device, address), mac in self.planned_state.neighbours.items()
            if self.can_hold_routes(device)
        )
        return tuple(description for description in descriptions if description[2])

    @cached_property
    def is_unconfigured(self) -> bool:
        """True if nothing of any plan was installed."""
        has_own_routes = any(route.protocol == str(ROUTE_PROTOCOL) for route in self.kernel_state.routes)
        planned_entries = self.planned_state.neighbours.keys() & self.kernel_state.neighbours.keys()
        has_usable_nic = any(self.is_usable(route.device) for route in self.planned_state.routes.values())
        return has_usable_nic and not has_own_routes and not planned_entries

    @cached_property
    def is_of_another_topology(self) -> bool:
        """True if at least half of the routes and half of the neighbours belong to another plan."""
        route_count = len(self.missing_routes) + len(self.wrong_routes)
        neighbour_count = sum(self.can_hold_routes(device) for device, _ in self.planned_state.neighbours)
        return bool(
            self.kernel_state.routes
            and len(self.judged_routes) > 1
            and len(self.missing_routes) < len(self.judged_routes)
            and 2 * route_count >= len(self.judged_routes)
            and 2 * len(self.wrong_neighbours) >= max(neighbour_count, 1)
        )


def _select_path_fields(route: Route) -> tuple[str, str, str, str]:
    return route.device, route.gateway, route.source, route.options


def _describe_error(neighbour: Neighbour | None, mac: str) -> str:
    if neighbour is None or not neighbour.mac:
        return "missing"
    if UNKNOWN_MAC not in (mac, neighbour.mac) and neighbour.mac != mac:
        return f"at {neighbour.mac}, not {mac}"
    return "" if neighbour.is_permanent else "learnt, not permanent"


def _judge_interfaces(comparison: _Comparison) -> Iterator[LinkFinding]:
    host = comparison.host
    for nic in host.nics:
        subject, interface = f"{host.name}/{nic.name}", comparison.kernel_state.interfaces.get(nic.name)
        if interface is None:
            names = ", ".join(sorted(comparison.kernel_state.interfaces))
            yield MISSING_INTERFACE.report(subject, f"{host.name} has {names}")
            continue
        if not interface.is_up:
            yield INTERFACE_DOWN.report(subject, f"{nic.name} of {host.name} is administratively down")
        if interface.master:
            detail = (
                f"{nic.name} of {host.name} is part of {interface.master}, which takes its incoming packets"
            )
            yield WRONG_MASTER.report(subject, detail)
        if comparison.is_unconfigured:
            continue
        planned_mtu = comparison.planned_state.mtus.get(nic.name, interface.mtu)
        if interface.mtu != planned_mtu:
            yield WRONG_MTU.report(subject, f"the MTU is {interface.mtu}, not {planned_mtu}")
        yield from _judge_rate(comparison.lab, subject, interface)


def _judge_packet_rules(comparison: _Comparison) -> Iterator[LinkFinding]:
    """Yield findings about queues of NICs, packet filters and policy rules, which act before the routes of the lab."""
    host, nics = comparison.host.name, [nic.name for nic in comparison.host.nics]
    for name in nics:
        interface = comparison.kernel_state.interfaces.get(name)
        if interface and interface.queue_notes:
            detail = f"{name} of {host} has {interface.queue_notes}"
            yield WRONG_QUEUE.report(f"{host}/{name}", detail)
    filter_texts = [
        packet_filter.description
        for packet_filter in comparison.kernel_state.filters
        if packet_filter.concerns(nics, comparison.networks)
    ]
    if filter_texts:
        yield _list_facts(PACKET_FILTER, host, filter_texts)
    rules = list(_find_earlier_rules(comparison))
    if rules:
        yield _list_facts(WRONG_RULE, host, rules)


def _find_earlier_rules(comparison: _Comparison) -> Iterator[str]:
    """Yield the policy rules that apply to packets of the lab before the kernel looks up the table `main`."""
    for rule in comparison.kernel_state.rules:
        if rule.looks_up_main:
            return
        if not (overlaps(rule.source, comparison.networks) and overlaps(rule.target, comparison.networks)):
            continue
        if rule.needs_mark:
            continue  # only a packet filter sets marks, and that has its own finding
        if rule.input_interface and rule.input_interface not in {
            _LOOPBACK,
            *(nic.name for nic in comparison.host.nics),
        }:
            continue
        if rule.action:
            yield f"rule {rule.description}"
        elif rule.table != "main":
            routes = [
                route
                for route in comparison.kernel_state.routes_by_table.get(rule.table, ())
                if overlaps(route.target, comparison.networks) and not route.options.startswith("throw")
            ]
            if routes:
                yield f"rule {rule.description}: {_describe_route(routes[0])}"
    if comparison.kernel_state.rules:
        yield "no rule looks up the table main, which has the routes of the lab"


def _judge_rate(lab: Lab, subject: str, interface: Interface) -> Iterator[LinkFinding]:
    planned_mbps, actual_mbps = lab.link.rate_mbps, interface.rate_mbps
    if actual_mbps is not None and abs(actual_mbps - planned_mbps) > RATE_TOLERANCE * planned_mbps:
        yield WRONG_RATE.report(subject, f"the NIC sends at {actual_mbps:g} Mbit/s, not {planned_mbps:g}")


def _judge_addresses(comparison: _Comparison) -> Iterator[LinkFinding]:
    """Yield findings about missing addresses, and about unplanned addresses on NICs; lo may have other addresses."""
    for device, planned_addresses in comparison.planned_state.addresses.items():
        interface = comparison.kernel_state.interfaces.get(device)
        if interface is None:
            continue
        deviations = [f"{address} is missing" for address in sorted(planned_addresses - interface.addresses)]
        if device != _LOOPBACK:
            deviations += [
                f"{address} is not planned" for address in sorted(interface.addresses - planned_addresses)
            ]
        if deviations:
            subject = f"{comparison.host.name}/{device}"
            yield _list_facts(WRONG_ADDRESS, subject, deviations, f"of the addresses of {device} ")


def _judge_foreign_addresses(comparison: _Comparison) -> Iterator[LinkFinding]:
    """Yield findings about addresses of other hosts on lo and other interfaces, which an apply does not remove."""
    host_by_address = {
        f"{address}/32": other_host.name
        for other_host in (*comparison.lab.hosts, *comparison.lab.other_hosts)
        if other_host.name != comparison.host.name
        for address in (*list_set_addresses(other_host), *(nic.address for nic in other_host.nics))
    }
    for device, interface in comparison.kernel_state.interfaces.items():
        if device in {nic.name for nic in comparison.host.nics}:
            continue  # reported as not planned
        for address in sorted(interface.addresses & host_by_address.keys()):
            subject = f"{comparison.host.name}/{device}"
            detail = (
                f"{device} has {address}, an address of {host_by_address[address]}: packets for it end here"
            )
            yield WRONG_ADDRESS.report(
                subject, detail, f"`ip address del {address} dev {device}` on the host"
            )


def _judge_sysctls(comparison: _Comparison) -> Iterator[LinkFinding]:
    """Yield findings about disabled forwarding, of the host or of single NICs, and one about other settings."""
    host, sysctls = comparison.host.name, comparison.kernel_state.sysctls
    if not comparison.planned_state.sysctls:
        return
    forwarding_settings = {_IP_FORWARD, *(make_forwarding_path(nic.name) for nic in comparison.host.nics)}
    if sysctls.get(_IP_FORWARD) != comparison.planned_state.sysctls[_IP_FORWARD]:
        detail = (
            f"{_IP_FORWARD} is {sysctls.get(_IP_FORWARD, 'not there')}: packets for other hosts are dropped"
        )
        yield FORWARDING_OFF.report(host, detail)
    else:
        for nic in comparison.host.nics:
            path = make_forwarding_path(nic.name)
            if sysctls.get(path, "1") != "1":
                detail = f"{path} is {sysctls[path]}: packets that arrive there are dropped"
                yield FORWARDING_OFF.report(f"{host}/{nic.name}", detail)
    wrong_settings = [
        f"{path} is {sysctls.get(path, 'not there')}, not {value}"
        for path, value in comparison.planned_state.sysctls.items()
        if path not in forwarding_settings and sysctls.get(path) != value and _can_exist(comparison, path)
    ]
    if wrong_settings:
        yield _list_facts(WRONG_SYSCTL, host, wrong_settings)


def _can_exist(comparison: _Comparison, path: str) -> bool:
    """Return whether a setting can exist. A missing interface has no settings, but its own finding."""
    missing_nics = (
        nic.name for nic in comparison.host.nics if nic.name not in comparison.kernel_state.interfaces
    )
    return not any(f"/{name}/" in path for name in missing_nics)


def _judge_routes(comparison: _Comparison) -> Iterator[LinkFinding]:
    """Yield one finding of each kind about routes and neighbours, or none if the host holds another topology."""
    if comparison.is_of_another_topology:
        return
    host, route_count = comparison.host.name, len(comparison.planned_state.routes)
    missing_routes, wrong_routes = comparison.missing_routes, comparison.wrong_routes
    neighbours = comparison.wrong_neighbours
    if neighbours:
        descriptions = [f"{address} on {device} is {error}" for device, address, error in neighbours]
        yield _list_facts(WRONG_NEIGHBOUR, host, descriptions, "neighbour ")
    if missing_routes:
        count = "none" if len(missing_routes) == route_count else f"{route_count - len(missing_routes)}"
        descriptions = [_describe_route(route) for route in missing_routes]
        yield _list_facts(
            MISSING_ROUTE, host, descriptions, f"{count} of {route_count} planned routes are there; missing: "
        )
    if wrong_routes:
        descriptions = [
            f"{_describe_route(kernel_route)}, not {_describe_route(route)}"
            for route, kernel_route in wrong_routes
        ]
        yield _list_facts(WRONG_ROUTE, host, descriptions)
    if comparison.extra_routes:
        yield _list_facts(EXTRA_ROUTE, host, [_describe_route(route) for route in comparison.extra_routes])


def _judge_topology(comparison: _Comparison) -> Iterator[LinkFinding]:
    """Yield one finding if the host holds another topology."""
    if comparison.is_of_another_topology:
        host, route_count = comparison.host.name, len(comparison.planned_state.routes)
        missing_routes, wrong_routes = comparison.missing_routes, comparison.wrong_routes
        neighbours = comparison.wrong_neighbours
        detail = (
            f"on {host} {len(missing_routes) + len(wrong_routes)} of {route_count} routes and {len(neighbours)} of "
            f"{len(comparison.planned_state.neighbours)} neighbours are not those of this plan"
        )
        yield OTHER_TOPOLOGY.report(host, detail)


def _list_facts(kind: FindingKind, subject: str, facts: list[str], intro: str = "") -> LinkFinding:
    """Return a finding whose detail lists the first facts, and whose parts are all facts."""
    return kind.report(subject, intro + list_some(facts, "; "), parts=tuple(facts))


def _describe_route(route: Route) -> str:
    words = [route.target.removesuffix("/32")]
    words += ["via", route.gateway] if route.gateway else []
    words += ["dev", route.device] if route.device else ["dropped"]
    words += ["src", route.source] if route.source else []
    return " ".join([*words, *([route.options] if route.options else [])])


def _judge_unconfigured_host(comparison: _Comparison) -> Iterator[LinkFinding]:
    """Yield one finding if the host holds nothing of any plan."""
    if comparison.is_unconfigured:
        host = comparison.host.name
        detail = (
            f"{host} has none of the {len(comparison.planned_state.routes)} routes, and no neighbour entry"
        )
        yield NOT_CONFIGURED.report(host, detail)


@dataclass(frozen=True, slots=True)
class HostCheck:
    """A check of one host, and the kinds that it adds to the table of findings. Most checks skip a bare host."""

    judge: Callable[[_Comparison], Iterator[LinkFinding]]
    kinds: tuple[FindingKind, ...] = ()
    covers_unconfigured_hosts: bool = False


HOST_CHECKS = (
    HostCheck(
        _judge_interfaces,
        (MISSING_INTERFACE, INTERFACE_DOWN, WRONG_MASTER, WRONG_MTU, WRONG_RATE),
        covers_unconfigured_hosts=True,
    ),
    HostCheck(_judge_packet_rules, (WRONG_QUEUE, PACKET_FILTER, WRONG_RULE), covers_unconfigured_hosts=True),
    HostCheck(_judge_addresses, (WRONG_ADDRESS,)),
    HostCheck(_judge_foreign_addresses),
    HostCheck(_judge_sysctls, (FORWARDING_OFF, WRONG_SYSCTL)),
    HostCheck(_judge_routes, (WRONG_NEIGHBOUR, MISSING_ROUTE, WRONG_ROUTE, EXTRA_ROUTE)),
    HostCheck(_judge_unconfigured_host, (NOT_CONFIGURED,), covers_unconfigured_hosts=True),
    HostCheck(_judge_topology, (OTHER_TOPOLOGY,)),
)
"""Every check of a host, in the order of its findings."""

KINDS = tuple(kind for check in HOST_CHECKS for kind in check.kinds)
