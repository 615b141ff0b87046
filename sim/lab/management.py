"""The management network: a bridge in a namespace of its own, one link of it on the root side.

The switch twins' addresses lie on the bridge, every host has a port on it, and the machine itself is its first
address. Nothing of it but one interface shows in the machine's own network.
"""

from __future__ import annotations

import json
import subprocess
from ipaddress import IPv4Network
from typing import Any

from sim.lab.errors import LabError
from sim.lab.found import LabNames
from sim.lab.model import Document
from sim.twins.hosts import netns
from sim.twins.hosts.twin import MANAGEMENT_LINK

_BRIDGE = "br0"
_OFF = {f"ipv6/conf/{scope}/disable_ipv6": 1 for scope in ("all", "default")}


def build_management(document: Document, names: LabNames) -> None:
    """Make the bridge with the twins' addresses, a port for each host, and our own link with its route."""
    netns.set_sysctls(names.management, _OFF)
    netns.batch("ip", _inside(document, names), names.management)
    netns.batch("ip", _root_side(document, names))
    root = names.root_link
    netns.write_sysctl(f"ipv6/conf/{root}/disable_ipv6", 1)
    netns.batch("ip", [f"link set {root} up"])
    netns.batch("ip", [f"link set uplink master {_BRIDGE} up"], names.management)


def _root_side(document: Document, names: LabNames) -> list[str]:
    link, address = names.root_link, f"{document.root_address}/{document.subnet.prefixlen}"
    return [
        f"link add {link} type veth peer name uplink netns {names.management}",
        f"addr add {address} dev {link}",
    ]


def _inside(document: Document, names: LabNames) -> list[str]:
    lines = ["link set lo up", f"link add {_BRIDGE} type bridge stp_state 0 forward_delay 0"]
    length = document.subnet.prefixlen
    lines += [f"addr add {address}/{length} dev {_BRIDGE}" for address in document.twin_addresses]
    for at, host in enumerate(document.hosts):
        lines.append(f"link add m{at} type veth peer name {MANAGEMENT_LINK} netns {names.host(host.name)}")
        lines.append(f"link set m{at} master {_BRIDGE} up")
    return [*lines, f"link set {_BRIDGE} up"]


def check_free(subnet: IPv4Network) -> None:
    """Raise `LabError` with code `subnet_taken` when an address or route of this machine overlaps the subnet."""
    for place, prefix in _in_use():
        if prefix.overlaps(subnet):
            raise subnet_taken(subnet, f"{place} uses {prefix}")


def subnet_taken(subnet: IPv4Network, why: str) -> LabError:
    """Return the refusal, saying who has the subnet."""
    return LabError(
        f"the subnet {subnet} is taken: {why}",
        hint="Give the lab another management subnet, or end what uses this one",
        code="subnet_taken",
    )


def _in_use() -> list[tuple[str, IPv4Network]]:
    """Return every IPv4 address and route of this network namespace but default routes, with its interface."""
    addresses = [
        (link["ifname"], f"{entry['local']}/{entry['prefixlen']}")
        for link in _ip("addr", "show")
        for entry in link.get("addr_info", ())
    ]
    routes = [
        (route.get("dev", "a route"), route["dst"])
        for route in _ip("route", "show", "table", "all")
        if route["dst"] != "default"
    ]
    return [(place, IPv4Network(prefix, strict=False)) for place, prefix in [*addresses, *routes]]


def _ip(*words: str) -> list[dict[str, Any]]:
    done = subprocess.run(["ip", "-4", "-j", *words], capture_output=True, text=True, check=False, timeout=10)
    if done.returncode != 0:
        raise netns.KernelFault(f"`ip {' '.join(words)}` failed: {done.stderr.strip()}")
    return [entry for entry in json.loads(done.stdout or "[]") if entry]
