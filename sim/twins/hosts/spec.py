"""Names and addresses of a simulated host, and the paths of its own files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Interface

HOME_FOLDER = "/run/home"
ETC_FOLDER = "/run/etc"
COMMANDS_FOLDER = "/run/sbin"
"""Directory of the host's own programs, first in its PATH."""
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class HostSpec:
    """Specification of a host: name, network namespace, management address with prefix length, SSH port and NICs.

    `fabric_addresses` holds the host's (address, name) pairs in the optical fabric. NICs get them when a topology is
    applied.
    """

    name: str
    namespace: str
    address: IPv4Interface
    ssh_port: int
    nics: tuple[str, ...]
    fabric_addresses: tuple[tuple[str, str], ...] = ()


def format_hosts_file(hosts: Iterable[HostSpec]) -> str:
    """Return the content of /etc/hosts, with the host names in the management network and in the fabric."""
    lines = ["127.0.0.1 localhost"]
    for host in hosts:
        lines.append(f"{host.address.ip} {host.name}")
        lines += [f"{address} {name}" for address, name in host.fabric_addresses]
    return "\n".join(lines) + "\n"
