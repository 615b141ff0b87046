"""Types of a wiring document, and the error of a lab that cannot start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Literal

from lightbed.errors import LightbedError
from sim.twins.hosts.redirects import LinkShape
from sim.twins.switch.device import BootMode

DocumentPath = tuple[str | int, ...]
"""Path to a value in the document: keys and indices."""


@dataclass(frozen=True, slots=True)
class Address:
    """IP address and port of a device."""

    host: IPv4Address
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class SwitchDocument:
    """A switch twin: addresses of its frontends by scheme, of its control socket, and its properties.

    None stands for the default of the family.
    """

    name: str
    family: str
    input_count: int
    output_count: int
    frontends: Mapping[str, Address]
    control_address: Address
    switch_time_s: float | None
    speed: float
    options: Mapping[str, str]
    boot_mode: BootMode
    user: str | None
    password: str | None


@dataclass(frozen=True, slots=True)
class HostDocument:
    """A host: management address with SSH port, NIC names in order, pairs of fabric address and name."""

    name: str
    management_address: Address
    nic_names: tuple[str, ...]
    fabric_addresses: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class BoardPortDocument:
    """A port of a board: the name of its interface, and the command of its process, empty if it is dark."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BoardDocument:
    """A board with its ports."""

    name: str
    ports: tuple[BoardPortDocument, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A checked wiring document.

    The plant reads `raw_document`; `represents_gbps` selects the transceivers of the NICs.
    """

    lab_name: str
    hosts_mode: Literal["kernel", "model"]
    subnet: IPv4Network
    control_address: Address
    link: LinkShape
    represents_gbps: float
    authorized_key: str
    switches: tuple[SwitchDocument, ...]
    hosts: tuple[HostDocument, ...]
    boards: tuple[BoardDocument, ...]
    raw_document: Mapping[str, Any]

    @property
    def root_address(self) -> IPv4Address:
        """Address of this machine in the management network: the first one."""
        return self.subnet[1]

    @property
    def twin_addresses(self) -> tuple[IPv4Address, ...]:
        """Distinct addresses that the twins need in the management namespace."""
        ip_addresses = [self.control_address.host]
        for switch in self.switches:
            ip_addresses += [address.host for address in (*switch.frontends.values(), switch.control_address)]
        return tuple(sorted(set(ip_addresses) - {self.root_address}))


class LabError(LightbedError):
    """A request that the lab cannot fulfil. `code` is stable, for programs; `hint` tells a person what to do.

    Codes: `document`, `not_root`, `subnet_taken`, `no_such_lab`, `no_library`, `board`, `interrupted`. The command also
    reports the codes of `sim.twins.hosts.netns.KernelFault`, and `machine` for any other error of the operating
    system.
    """

    def __init__(self, problem: str, *, hint: str, code: str) -> None:
        self.what = problem
        self.hint = hint
        self.code = code
        super().__init__(f"{problem}. {hint}")
