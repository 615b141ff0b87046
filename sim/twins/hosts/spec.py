"""Names and addresses of a simulated host, and the places of its own files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Interface

HOME = "/run/home"
ETC = "/run/etc"
COMMANDS = "/run/sbin"
"""Programs that a host has of its own; first in the PATH."""
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class HostSpec:
    """One host to be: its name, management address with prefix length, SSH port and NICs.

    `fabric` are addresses in the optical fabric with their names; nobody has them before a topology is applied.
    """

    name: str
    namespace: str
    address: IPv4Interface
    ssh_port: int
    nics: tuple[str, ...]
    fabric: tuple[tuple[str, str], ...] = ()


def hosts_file(everybody: Iterable[HostSpec]) -> str:
    """Return /etc/hosts: names of the management network as they are, those of the fabric beside them."""
    lines = ["127.0.0.1 localhost"]
    for host in everybody:
        lines.append(f"{host.address.ip} {host.name}")
        lines += [f"{address} {name}" for address, name in host.fabric]
    return "\n".join(lines) + "\n"
