"""The model of a lab file: frozen classes for switches, hosts, NICs, boards and fibres.

Several jobs may share a lab. Each job has a shard: its own hosts with their NICs, circuits and links.
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
    """The switch port at which a fibre of a NIC ends, and the loss of the fibre."""

    switch: str
    port: int
    loss_db: float


UNKNOWN_FIBRE = FibreEnd("", 0, 0.0)
"""A fibre whose end is not known, as in a bare lab file."""


@dataclass(frozen=True, slots=True)
class LabNic:
    """One interface of a host: kernel name, IPv4 address, transmit fibre and receive fibre.

    `gpu` is the number, from 0, of the GPU beside it. The NIC also serves the next GPUs if they have no NIC.
    """

    name: str
    address: IPv4Address
    transmit: FibreEnd
    receive: FibreEnd
    gpu: int = 0


@dataclass(frozen=True, slots=True)
class LabHost:
    """A host. `management` is its address for SSH. `address` is its node address, which belongs to none of its links.

    `unused_nics` holds NICs that the lab file excludes from every topology, for instance because a fibre is dead.
    `server` is the machine of a logical server, and empty for a host that is a whole machine. `gpus` is the number of
    its GPUs, or None if the lab file does not give it.
    """

    name: str
    management: IPv4Address
    address: IPv4Address
    nics: tuple[LabNic, ...]
    python: str
    user: str = "root"
    ssh_port: int = 22
    unused_nics: tuple[LabNic, ...] = ()
    server: str = ""
    gpus: int | None = None

    def find_nics_beside(self, gpu: int) -> tuple[int, ...]:
        """Return the indices in `nics` of the NICs that serve a GPU, given by its number."""
        nearest_gpu = max((nic.gpu for nic in (*self.nics, *self.unused_nics) if nic.gpu <= gpu), default=0)
        return tuple(index for index, nic in enumerate(self.nics) if nic.gpu == nearest_gpu)


@dataclass(frozen=True, slots=True)
class LabBoardPort:
    """One port of a board: MAC and IPv4 address, UDP port of inference requests, transmit fibre and receive fibre."""

    name: str
    address: IPv4Address
    mac: str
    port: int
    transmit: FibreEnd
    receive: FibreEnd


@dataclass(frozen=True, slots=True)
class LabBoard:
    """A smartNIC whose ports connect to switches.

    `address` locates its registers, in the form of `--bus`; it is empty in a simulated lab. `program` lists the files
    of its models, numbered from 0. Without files, its ports are dark in a simulated lab.
    """

    name: str
    address: str
    program: tuple[Path, ...]
    bitstream: Path | None
    ports: tuple[LabBoardPort, ...]


@dataclass(frozen=True, slots=True)
class LabSwitch:
    """A switch. `address` is an argument of `ocs_drivers.open_switch`. Ports have the device's own numbers."""

    name: str
    address: str
    input_count: int
    output_count: int
    insertion_loss_db: float = 1.2


@dataclass(frozen=True, slots=True)
class SwitchTwin:
    """Behaviour of the twin of a switch in a simulated lab. Its TCP ports are at the address of the switch.

    `switch_time_s` is None for the default of the switch family. The twin's clock runs `speed` times as fast as real
    time. `options` are specific to the family.
    """

    tl1_port: int = 3082
    control_port: int = 7025
    switch_time_s: float | None = None
    boot_mode: str = "DARK"
    speed: float = 1.0
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LinkClass:
    """The properties of every link.

    `rate_mbps` is the rate of the NIC. It stands for `represents_gbps`, the rate of a real link.

    With `fit_rate`, a simulated lab starts with a lower rate if its machine cannot carry this one.
    """

    rate_mbps: float
    represents_gbps: float
    mtu: int
    transmit_power_dbm: float
    fit_rate: bool = False

    @property
    def scale(self) -> float:
        """Factor by which the represented link is faster than the link of the lab."""
        return self.represents_gbps * 1000 / self.rate_mbps


@dataclass(frozen=True, slots=True)
class Lab:
    """A validated lab file.

    In a shard (`make_shard`), `hosts` holds the hosts of one job, and `other_hosts` those that this job may not change.
    `revision` is a hash of the file's text. Comparisons ignore it, so labs with the same content are equal.
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
    other_hosts: tuple[LabHost, ...] = ()
    boards: tuple[LabBoard, ...] = ()
    revision: str = field(default="", compare=False)

    @property
    def gpus_per_host(self) -> int | None:
        """Number of GPUs of each host, or None if unknown. Raises `TopologyError` if hosts differ."""
        distinct_counts = {host.gpus for host in self.hosts}
        if len(distinct_counts) > 1:
            counts_text = ", ".join(f"{host.name} {host.gpus or 'unknown'}" for host in self.hosts[:4])
            raise TopologyError(
                f"{self.path}: hosts have different numbers of GPUs ({counts_text}): use equal hosts"
            )
        return distinct_counts.pop()

    def get_nic(self, nic: Nic) -> LabNic:
        """Return the interface of a NIC that a topology gives by node and index."""
        return self.hosts[nic.node].nics[nic.index]

    def nic_label(self, nic: Nic) -> str:
        """Return the label of a NIC, `host/nic`."""
        return f"{self.hosts[nic.node].name}/{self.get_nic(nic).name}"

    def link_label(self, link: Link) -> str:
        """Return the label of a link, `a/nic1 -> b/nic1`."""
        return f"{self.nic_label(link.source)} -> {self.nic_label(link.target)}"

    def find_board_port(self, board: str, port: str) -> LabBoardPort:
        """Return a port of a board. Raises `TopologyError` for names that the lab does not have."""
        port_by_label = {
            f"{lab_board.name}/{lab_port.name}": lab_port
            for lab_board in self.boards
            for lab_port in lab_board.ports
        }
        if f"{board}/{port}" not in port_by_label:
            hint = (
                f"ports of boards are {', '.join(port_by_label)}"
                if port_by_label
                else "the lab file has no boards"
            )
            raise TopologyError(f"{self.path}: no port {port!r} of a board {board!r}; {hint}")
        return port_by_label[f"{board}/{port}"]

    def get_switch(self, name: str) -> LabSwitch:
        """Return the switch of this name. Raises `StopIteration` for an unknown name."""
        return next(switch for switch in self.switches if switch.name == name)


def make_shard(lab: Lab, names: Sequence[str]) -> Lab:
    """Return the shard of one job: its hosts in the given order, node 0 first, and all other hosts as `other_hosts`.

    Raises `TopologyError` for a host that the lab does not have or that is named twice, and for an empty list.
    """
    host_by_name = {host.name: host for host in (*lab.hosts, *lab.other_hosts)}
    unknown_names = [name for name in names if name not in host_by_name]
    if unknown_names:
        raise TopologyError(f"{lab.path}: no host {unknown_names[0]!r}; hosts are {', '.join(host_by_name)}")
    if len(set(names)) != len(names) or not names:
        raise TopologyError(f"hosts {', '.join(names) or '(none)'}: name each host of the job once")
    other_hosts = tuple(host for name, host in host_by_name.items() if name not in names)
    return replace(lab, hosts=tuple(host_by_name[name] for name in names), other_hosts=other_hosts)


def count_logical_servers(lab: Lab) -> int:
    """Return the number of logical servers into which each server of a job is divided.

    Logical servers of other jobs count too. Raises `TopologyError` if the servers of the job differ in this number,
    because the devices of a job must be alike.
    """
    host_count_by_server = Counter(host.server for host in (*lab.hosts, *lab.other_hosts) if host.server)
    count_by_host = {host.name: host_count_by_server[host.server] if host.server else 1 for host in lab.hosts}
    if len(set(count_by_host.values())) > 1:
        max_host = max(count_by_host, key=count_by_host.__getitem__)
        min_host = min(count_by_host, key=count_by_host.__getitem__)
        problem = (
            f"the server of host {max_host!r} is {count_by_host[max_host]} logical servers, "
            f"that of {min_host!r} {count_by_host[min_host]}"
        )
        hint = "with --hosts-of, choose hosts whose servers have the same number of logical servers"
        raise TopologyError(f"{lab.path}: {problem}: {hint}")
    return next(iter(count_by_host.values()), 1)
