"""The lab as it is: switches, hosts, NICs and the fibres between them, as the lab file says. Frozen.

Several jobs may share a lab: each has hosts of its own, a shard, and with them their NICs, circuits and links.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from testbed.design.model import Link, Nic
from testbed.errors import TopologyError


@dataclass(frozen=True, slots=True)
class FibreEnd:
    """End of one fibre of a NIC: a port of a switch, and what the fibre loses on the way."""

    switch: str
    port: int
    loss_db: float


UNKNOWN_FIBRE = FibreEnd("", 0, 0.0)
"""Fibre of a bare lab file: it ends at some port of some switch."""


@dataclass(frozen=True, slots=True)
class LabNic:
    """One interface of a host: kernel name, IPv4 address, transmit fibre and receive fibre."""

    name: str
    address: IPv4Address
    transmit: FibreEnd
    receive: FibreEnd


@dataclass(frozen=True, slots=True)
class LabHost:
    """A host: `management` is where SSH answers, `address` is its node address, announced on no link.

    `unused` are NICs that the lab file keeps out of every topology, because a fibre is dead, for instance. `server` is
    the machine that the host is a logical server of; empty for a host that is a machine of its own.
    """

    name: str
    management: IPv4Address
    address: IPv4Address
    nics: tuple[LabNic, ...]
    python: str
    user: str = "root"
    ssh_port: int = 22
    unused: tuple[LabNic, ...] = ()
    server: str = ""


@dataclass(frozen=True, slots=True)
class LabSwitch:
    """A switch: `address` is what `ocs_drivers.open_switch` takes; ports in the device's own numbers."""

    name: str
    address: str
    inputs: int
    outputs: int
    insertion_loss_db: float = 1.2


@dataclass(frozen=True, slots=True)
class SwitchTwin:
    """Behaviour of the twin of a switch; only in simulated labs. Ports on the switch's own address.

    `switch_time_s` is None for the time that the family is delivered with; the twin's clock runs `speed` times as fast
    as ours. `options` are the family's own.
    """

    tl1_port: int = 3082
    control_port: int = 7025
    switch_time_s: float | None = None
    boot_mode: str = "DARK"
    speed: float = 1.0
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LinkClass:
    """The properties of every link: `rate_mbps` on the NIC, standing for `represents_gbps`; MTU; laser power.

    With `fit_rate` a simulated lab starts with a lower rate where its machine cannot carry this one.
    """

    rate_mbps: float
    represents_gbps: float
    mtu: int
    transmit_power_dbm: float
    fit_rate: bool = False

    @property
    def scale(self) -> float:
        """Factor by which the represented link is (1 on a real lab)."""
        return self.represents_gbps * 1000 / self.rate_mbps


@dataclass(frozen=True, slots=True)
class Lab:
    """A whole lab file, validated: every port used once, every fibre ends somewhere.

    Of a shard (`shards.shard_of`) `hosts` are those of one job, `others` the rest, which nobody may touch.
    `revision` is a hash of the file's text: two labs that mean the same are equal whatever the text.
    """

    name: str
    path: Path
    simulated: bool
    management: IPv4Network
    hosts: tuple[LabHost, ...]
    switches: tuple[LabSwitch, ...]
    twins: dict[str, SwitchTwin]
    link: LinkClass
    ssh_key: Path
    others: tuple[LabHost, ...] = ()
    revision: str = field(default="", compare=False)

    def nic(self, nic: Nic) -> LabNic:
        """Return the lab's interface for a planned one."""
        return self.hosts[nic.node].nics[nic.index]

    def nic_label(self, nic: Nic) -> str:
        """Return `host/nic`, as people write it."""
        return f"{self.hosts[nic.node].name}/{self.nic(nic).name}"

    def link_label(self, link: Link) -> str:
        """Return `a/nic1 -> b/nic1`."""
        return f"{self.nic_label(link.source)} -> {self.nic_label(link.target)}"

    def switch(self, name: str) -> LabSwitch:
        """Return the switch of that name."""
        return next(switch for switch in self.switches if switch.name == name)


def shard_of(lab: Lab, names: Sequence[str]) -> Lab:
    """Return the lab as one job sees it: its hosts in the given order, node 0 first; all others out of reach.

    Raises `TopologyError` for a host that the lab does not have, or that is named twice.
    """
    by_name = {host.name: host for host in (*lab.hosts, *lab.others)}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise TopologyError(f"{lab.path}: no host {unknown[0]!r}; hosts are {', '.join(by_name)}")
    if len(set(names)) != len(names) or not names:
        raise TopologyError(f"hosts {', '.join(names) or '(none)'}: name each host of the job once")
    others = tuple(host for name, host in by_name.items() if name not in names)
    return replace(lab, hosts=tuple(by_name[name] for name in names), others=others)


def logical_servers_of(lab: Lab) -> int:
    """Return how many logical servers each server of a job is cut into; those of other jobs count.

    Raises `TopologyError` when it is not the same number for all: devices of a job are alike.
    """
    every = Counter(host.server for host in (*lab.hosts, *lab.others) if host.server)
    counts = {host.name: every[host.server] if host.server else 1 for host in lab.hosts}
    if len(set(counts.values())) > 1:
        most, least = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
        cut = f"the server of host {most!r} is {counts[most]} logical ones, that of {least!r} {counts[least]}"
        raise TopologyError(
            f"{lab.path}: {cut}: choose hosts with --hosts-of whose servers are divided alike"
        )
    return next(iter(counts.values()), 1)
