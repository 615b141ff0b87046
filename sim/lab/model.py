"""Types of a checked wiring document, and the error of a lab that does not start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Literal

from lightbed.errors import LightbedError
from sim.twins.hosts.redirects import LinkShape
from sim.twins.switch.device import BootMode

Place = tuple[str | int, ...]
"""Path to a value in the document: keys and numbers of entries."""


@dataclass(frozen=True, slots=True)
class Address:
    """Address at which a device answers."""

    host: IPv4Address
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class SwitchDocument:
    """One switch twin: the addresses of its frontends by scheme, that of its control socket, and its character.

    What is None is as the family is delivered.
    """

    name: str
    family: str
    inputs: int
    outputs: int
    frontends: Mapping[str, Address]
    control: Address
    switch_time_s: float | None
    speed: float
    options: Mapping[str, str]
    boot_mode: BootMode
    user: str | None
    password: str | None


@dataclass(frozen=True, slots=True)
class HostDocument:
    """One host: management address, SSH port, NIC names in order; addresses in the fabric with their names."""

    name: str
    management: Address
    nics: tuple[str, ...]
    fabric: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A checked wiring document; `raw` is what the plant reads. `represents_gbps` chooses the NICs' modules."""

    lab: str
    hosts_mode: Literal["kernel", "model"]
    subnet: IPv4Network
    control: Address
    link: LinkShape
    represents_gbps: float
    authorized_key: str
    switches: tuple[SwitchDocument, ...]
    hosts: tuple[HostDocument, ...]
    raw: Mapping[str, Any]

    @property
    def root_address(self) -> IPv4Address:
        """Our own address in the management network: its first."""
        return self.subnet[1]

    @property
    def twin_addresses(self) -> tuple[IPv4Address, ...]:
        """Addresses that the twins need in the management namespace, each once."""
        listeners = [self.control.host]
        for switch in self.switches:
            listeners += [address.host for address in (*switch.frontends.values(), switch.control)]
        return tuple(sorted(set(listeners) - {self.root_address}))


class LabError(LightbedError):
    """A lab that cannot start as asked. `code` is a stable word for programs, `hint` what a person can do.

    Codes: `document`, `not_root`, `subnet_taken`, `no_such_lab`, `no_library`, `interrupted`;
    `sim.twins.hosts.netns.KernelFault` adds those of the kernel, and any other refusal of the machine is `machine`.
    """

    def __init__(self, what: str, *, hint: str, code: str) -> None:
        self.what = what
        self.hint = hint
        self.code = code
        super().__init__(f"{what}. {hint}")
