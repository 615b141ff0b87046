"""The planned state of a host's kernel: what the batch of its forwarding plan leaves behind."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Network

from testbed.lab.hosts.forwarding import ROUTE_PROTOCOL, HostForwarding
from testbed.lab.hosts.kernel_state import Route

UNKNOWN_MAC = "00:00:00:00:00:00"
"""Address of a NIC whose host does not answer: neighbours towards it are not compared."""


@dataclass(frozen=True, slots=True)
class PlannedState:
    """Planned state of one host; keys as in `KernelState`, routes by target, addresses and MTU by interface."""

    sysctls: Mapping[str, str]
    mtus: Mapping[str, int]
    addresses: Mapping[str, frozenset[str]]
    neighbours: Mapping[tuple[str, str], str]
    routes: Mapping[str, Route]


NOTHING = PlannedState({}, {}, {}, {}, {})
"""State of a host of which nothing is known, and on which nothing of ours was installed."""


def planned_state(part: HostForwarding) -> PlannedState:
    """Return what is so after `part` was installed, read from its own lines: the two cannot differ."""
    *_, last = states_while_installing(NOTHING, part)
    return last


def states_while_installing(before: PlannedState, part: HostForwarding) -> Iterator[PlannedState]:
    """Yield the state before `part`, with its settings, which are set first, and after each line of its batch."""
    yield before
    sysctls = {**before.sysctls, **dict(setting.split("=", 1) for setting in part.sysctls)}
    state = replace(before, sysctls=sysctls)
    yield state
    for line in part.batch:
        state = _after(state, *line.split())
        yield state


def _outside(routes: Mapping[str, Route], block: str) -> dict[str, Route]:
    """Return the routes that do not lead to a part of a block."""
    flushed = IPv4Network(block)
    return {target: route for target, route in routes.items() if not IPv4Network(target).subnet_of(flushed)}


def _after(state: PlannedState, what: str, verb: str, subject: str, *rest: str) -> PlannedState:
    """Return the state after one line of `ip -batch`; a flush of routes or addresses takes only ours."""
    value = dict(itertools.pairwise(rest))
    mtus, addresses = dict(state.mtus), dict(state.addresses)
    neighbours, routes = dict(state.neighbours), dict(state.routes)
    match what, verb:
        case "route", "flush":  # of ours, or of the block after `root`
            routes = {} if subject == "proto" else _outside(routes, rest[0])
        case "neigh", "flush":
            neighbours = {key: mac for key, mac in neighbours.items() if key[0] != rest[0]}
        case "addr", "flush":
            addresses[rest[0]] = frozenset()
        case "link", "set":
            mtus[rest[0]] = int(value["mtu"])
        case "addr", "replace":
            addresses[value["dev"]] = addresses.get(value["dev"], frozenset()) | {subject}
        case "neigh", "replace":
            neighbours[value["dev"], subject] = value["lladdr"]
        case "route", "replace":
            routes[subject] = Route(
                subject, value["dev"], value.get("via", ""), value["src"], str(ROUTE_PROTOCOL)
            )
    return PlannedState(state.sysctls, mtus, addresses, neighbours, routes)
