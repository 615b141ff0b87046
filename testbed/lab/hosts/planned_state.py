"""The planned state of a host's kernel: what the batch of its forwarding plan leaves behind."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

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


def planned_state(part: HostForwarding) -> PlannedState:
    """Return what is so after `part` was installed, read from its own lines: the two cannot differ."""
    mtus: dict[str, int] = {}
    addresses: dict[str, frozenset[str]] = {}
    neighbours: dict[tuple[str, str], str] = {}
    routes: dict[str, Route] = {}
    for line in part.batch:
        what, verb, subject, *rest = line.split()
        value = dict(itertools.pairwise(rest))
        if (what, verb) == ("link", "set"):
            mtus[rest[0]] = int(value["mtu"])
        elif (what, verb) == ("addr", "replace"):
            addresses[value["dev"]] = addresses.get(value["dev"], frozenset()) | {subject}
        elif (what, verb) == ("neigh", "replace"):
            neighbours[value["dev"], subject] = value["lladdr"]
        elif (what, verb) == ("route", "replace"):
            routes[subject] = Route(
                subject, value["dev"], value.get("via", ""), value["src"], str(ROUTE_PROTOCOL)
            )
    sysctls = dict(setting.split("=", 1) for setting in part.sysctls)
    return PlannedState(sysctls, mtus, addresses, neighbours, routes)
