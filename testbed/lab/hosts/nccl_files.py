"""Topology and graph files of NCCL for each host of a lab, by the rules of `testbed.lab.hosts.nccl_rules`.

NCCL passes data from host to host in rank order, on all channels. A graph file orders only GPUs and NICs inside a host.
So each ring order of the topology has its own graph file, for a communicator with its ranks in that order. Parallel
rings of the same order are channels of one file.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lightbed.wording import format_count
from testbed.design.model import Link, Routes, Topology, Wiring
from testbed.design.topology.strides import list_rings
from testbed.errors import HostError, TopologyError
from testbed.lab.hosts.environment import render_shell
from testbed.lab.hosts.nccl_rules import (
    LINK_SPEED_PATTERN,
    MAX_CHANNEL_COUNT,
    MAX_CHILD_COUNT,
    MAX_ELEMENT_COUNT_BY_FILE,
    RING_PATTERN,
    TREE_PATTERN,
    FileKind,
)
from testbed.lab.model import Lab, LabHost

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet

TOPOLOGY_FILE = "topology.xml"
NCCL_SETTINGS = {"NCCL_NET": "Socket", "NCCL_CROSS_NIC": "1", "NCCL_ALGO": "Ring"}
"""Variables that make NCCL use the files. Its other network plugins name and number NICs differently."""

_NCCL_NAME_BY_ARCHITECTURE = {"x86_64": "x86_64", "aarch64": "arm64", "ppc64le": "ppc64", "ppc64": "ppc64"}
_ASSUMED_PROCESSOR = {"arch": "x86_64", "vendor": "AuthenticAMD"}
_VENDORS_WITH_MODEL = ("GenuineIntel", "CentaurHauls", "  Shanghai  ")
_VENDORS = ("AuthenticAMD", *_VENDORS_WITH_MODEL)
_MAX_AFFINITY_LENGTH = 253
_PATH_NAMES = ("LOC", "PXB", "PHB", "SYS")


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A PCI device or bridge: its address, its NUMA node, and the attributes of its XML element."""

    address: str
    numa: str
    attributes: Mapping[str, str]


PciPath = tuple[PciDevice, ...]
"""The bridges above a device, outermost first, then the device."""


@dataclass(frozen=True, slots=True)
class HostNic:
    """An interface of a host: its index in the kernel, and its PCI path, which is empty without a PCI device."""

    index: int
    path: PciPath


@dataclass(frozen=True, slots=True)
class HostHardware:
    """The hardware of a host as its kernel shows it: processor, affinity of each NUMA node, NICs and GPUs."""

    processor: Mapping[str, str]
    affinity_by_numa: Mapping[str, str]
    nics: Mapping[str, HostNic]
    gpus: tuple[PciPath, ...]


@dataclass(frozen=True, slots=True)
class RingChannel:
    """A ring as a channel: for each node, the indices of the NICs at which data enters and leaves.

    `relayed_hops` lists hops without their own link. They use the links of a route or of another channel.
    """

    nics: Mapping[int, tuple[int, int]]
    relayed_hops: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NcclRing:
    """Parallel rings of one order: the nodes in rank order, and one channel for each ring."""

    stride: int
    order: tuple[int, ...]
    channels: tuple[RingChannel, ...]

    @property
    def graph_file_name(self) -> str:
        """Name of the graph file."""
        return f"ring-{self.stride}.xml"


@dataclass(frozen=True, slots=True)
class NcclFiles:
    """The rings, and the files of all hosts as texts by host and name. `assumptions` describes each assumption."""

    texts_by_host: Mapping[str, Mapping[str, str]]
    rings: tuple[NcclRing, ...]
    assumptions: tuple[str, ...]


# ---------------------------------------------------------------------------- rings


def find_rings(topology: Topology, wiring: Wiring, routes: Routes) -> tuple[NcclRing, ...]:
    """Return the rings of a topology over all nodes, with the NICs that their links use.

    Raises `TopologyError` for a topology of one node, and for more parallel rings than NCCL has channels.
    """
    if topology.nodes < 2:
        raise TopologyError(
            "a topology of one host has no ring over optical links, so no NCCL files: use a lab with two hosts"
        )
    count_by_order: dict[tuple[int, tuple[int, ...]], int] = defaultdict(int)
    for ring in list_rings(topology):
        count_by_order[ring.stride, ring.order] += 1
    links_by_hop: dict[tuple[int, int], list[Link]] = defaultdict(list)
    for link in sorted(wiring.links):
        links_by_hop[link.source.node, link.target.node].append(link)
    if (max_count := max(count_by_order.values())) > MAX_CHANNEL_COUNT:
        raise TopologyError(
            f"{max_count} parallel rings: NCCL reads at most {MAX_CHANNEL_COUNT} channels; use a smaller degree"
        )
    return tuple(
        NcclRing(
            stride,
            order,
            tuple(_make_channel(order, copy_index, links_by_hop, routes) for copy_index in range(count)),
        )
        for (stride, order), count in count_by_order.items()
    )


def _make_channel(
    order: Sequence[int],
    copy_index: int,
    links_by_hop: Mapping[tuple[int, int], Sequence[Link]],
    routes: Routes,
) -> RingChannel:
    entry_nics, exit_nics, relayed_hops = {}, {}, []
    for source, target in zip(order, (*order[1:], order[0]), strict=True):
        direct_links = links_by_hop.get((source, target), ())
        path = (
            (direct_links[copy_index % len(direct_links)],) if direct_links else routes.path(source, target)
        )
        exit_nics[source], entry_nics[target] = path[0].source.index, path[-1].target.index
        if len(direct_links) <= copy_index:
            relayed_hops.append((source, target))
    return RingChannel({node: (entry_nics[node], exit_nics[node]) for node in order}, tuple(relayed_hops))


# ---------------------------------------------------------------------------- hardware


def read_hardware(fleet: Fleet, lab: Lab) -> tuple[dict[str, HostHardware], dict[str, str]]:
    """Return the hardware by host, and the reason for each host where reading it failed."""
    program = resources.files("testbed.node").joinpath("pci.py").read_bytes()
    path = f"{fleet.put({'pci.py': program})}/pci.py"
    reached_hosts = {host.name for host in fleet.hosts}
    command_by_host = {
        host.name: shlex.join([host.python, "-IS", path, *(nic.name for nic in host.nics)])
        for host in lab.hosts
        if host.name in reached_hosts
    }
    hardware_by_host, reason_by_host = {}, {}
    for host, result in fleet.run(command_by_host).items():
        try:
            hardware_by_host[host] = parse_hardware(json.loads(result.stdout))
        except (ValueError, KeyError, TypeError, AttributeError):
            last_line = result.stderr.strip().rpartition("\n")[2] or "no valid output"
            reason_by_host[host] = f"its PCI devices cannot be read: {last_line}"
    return hardware_by_host, reason_by_host


def parse_hardware(document: Mapping[str, Any]) -> HostHardware:
    """Return the hardware that `testbed/node/pci.py` printed. Raises `KeyError`, `TypeError` or `ValueError`."""
    return HostHardware(
        _describe_processor(str(document["arch"]), document["processor"]),
        {node: mask for node, mask in document["affinity"].items() if len(mask) <= _MAX_AFFINITY_LENGTH},
        {
            name: HostNic(int(nic["index"]), tuple(map(_parse_device, nic["path"])))
            for name, nic in document["nics"].items()
        },
        tuple(tuple(map(_parse_device, path)) for path in document["gpus"]),
    )


def _describe_processor(architecture: str, processor: Mapping[str, str] | None) -> dict[str, str]:
    """Return the values of a `cpu` element, or {} for a processor that NCCL does not know."""
    arch = _NCCL_NAME_BY_ARCHITECTURE.get(architecture)
    if arch != "x86_64":
        return {"arch": arch} if arch else {}
    if processor is None or processor["vendor"] not in _VENDORS:
        return {}
    attributes = {"arch": arch, "vendor": processor["vendor"]}
    return attributes | {"familyid": processor["family"], "modelid": processor["model"]}


def _parse_device(entry: Mapping[str, Any]) -> PciDevice:
    keys = ("class", "vendor", "device", "subsystem_vendor", "subsystem_device")
    attributes = {key: str(entry[key]) for key in keys if entry[key]}
    link_speed = str(entry["link_speed"])
    # NCCL counts an unknown and an empty speed as 8 GT/s.
    attributes["link_speed"] = link_speed if re.fullmatch(LINK_SPEED_PATTERN, link_speed) else ""
    attributes["link_width"] = str(int(entry["link_width"]))
    return PciDevice(str(entry["address"]), str(entry["numa"]), attributes)


# ---------------------------------------------------------------------------- files


def make_files(
    lab: Lab,
    topology: Topology,
    wiring: Wiring,
    routes: Routes,
    hardware_by_host: Mapping[str, HostHardware],
    reason_by_host: Mapping[str, str],
) -> NcclFiles:
    """Return the files of all hosts. `reason_by_host` says why `hardware_by_host` lacks a host.

    Raises `TopologyError` as `find_rings` does, and `HostError` for a host with more devices than NCCL reads.
    """
    rings = find_rings(topology, wiring, routes)
    texts_by_host: dict[str, Mapping[str, str]] = {}
    hosts_by_assumption: dict[str, list[str]] = defaultdict(list)
    for node, host in enumerate(lab.hosts[: topology.nodes]):
        view = _HostView.create(
            host, hardware_by_host.get(host.name), reason_by_host.get(host.name, "it was not read")
        )
        for assumption in view.assumptions:
            hosts_by_assumption[assumption].append(host.name)
        speed_mbps = max(1, round(lab.link.rate_mbps))
        topology_element = _build_topology(view, speed_mbps)
        graph_by_file = {
            ring.graph_file_name: _build_graphs(view, ring, node, lab.link.rate_mbps) for ring in rings
        }
        _check_size(host.name, "topology", topology_element)
        for graph in graph_by_file.values():
            _check_size(host.name, "graph", graph)
        text_by_file = {name: _render(element) for name, element in graph_by_file.items()}
        text_by_file[TOPOLOGY_FILE] = _render(topology_element)
        texts_by_host[host.name] = text_by_file
    assumption_lines = (
        f"{', '.join(hosts)}: {assumption}" for assumption, hosts in hosts_by_assumption.items()
    )
    return NcclFiles(texts_by_host, rings, (*assumption_lines, *_describe_relays(lab, rings)))


@dataclass(frozen=True, slots=True)
class _HostView:
    """Content of the files of a host: numbers of its NICs, PCI paths, GPUs, and descriptions of the assumptions."""

    host: LabHost
    nccl_numbers: tuple[int, ...]
    """Number in NCCL of each NIC of the lab file."""
    paths: tuple[PciPath, ...]
    gpu_paths: tuple[PciPath, ...]
    """PCI paths of the GPUs; empty if NCCL has to find them itself."""
    gpu_count: int
    processor: Mapping[str, str]
    affinity_by_numa: Mapping[str, str]
    assumptions: tuple[str, ...]

    @classmethod
    def create(cls, host: LabHost, hardware: HostHardware | None, reason: str) -> _HostView:
        gpu_count = host.gpus or 1
        order_assumption = "NCCL numbers its NICs in the order of the lab file"
        gpus_assumption = f"it has {format_count(gpu_count, 'GPU')}, at addresses that NCCL finds itself"
        cpu_assumption = "its processor is an x86_64 of AMD"
        if hardware is None:
            bus_assumption = "its NICs are attached to the processor, without PCI addresses"
            assumption = (
                f"{reason}: assumed that {order_assumption}, {bus_assumption}, {gpus_assumption}, "
                f"and {cpu_assumption}"
            )
            nccl_numbers = tuple(range(len(host.nics)))
            return cls(
                host,
                nccl_numbers,
                ((),) * len(nccl_numbers),
                (),
                gpu_count,
                _ASSUMED_PROCESSOR,
                {},
                (assumption,),
            )
        assumptions = []
        missing_nics = [nic.name for nic in host.nics if nic.name not in hardware.nics]
        if missing_nics:
            assumptions.append(f"no interface {', '.join(missing_nics)}: assumed that {order_assumption}")
            nccl_numbers = tuple(range(len(host.nics)))
        else:
            # NCCL numbers sockets in the order of getifaddrs: by kernel index.
            names_by_index = sorted(nic.name for nic in host.nics)
            names_by_index.sort(key=lambda name: hardware.nics[name].index)
            nccl_numbers = tuple(names_by_index.index(nic.name) for nic in host.nics)
        paths = tuple(hardware.nics[nic.name].path if nic.name in hardware.nics else () for nic in host.nics)
        names_without_pci = [
            nic.name
            for nic, path in zip(host.nics, paths, strict=True)
            if not path and nic.name not in missing_nics
        ]
        if names_without_pci:
            problem = "has no PCI device" if len(names_without_pci) == 1 else "have no PCI device"
            assumptions.append(
                f"{', '.join(names_without_pci)} {problem}: attached to the processor, as NCCL assumes"
            )
        gpu_paths = hardware.gpus
        if host.gpus is None and gpu_paths:
            gpu_count = len(gpu_paths)
        elif len(gpu_paths) != gpu_count:
            source = "the lab file says" if host.gpus else "the lab file does not say how many, so"
            observation = (
                f"the host shows {format_count(len(gpu_paths), 'GPU')} of NVIDIA, {source} {gpu_count}"
            )
            assumptions.append(f"{observation}: assumed that {gpus_assumption}")
            gpu_paths = ()
        if not hardware.processor:
            assumptions.append(f"NCCL does not know its processor: assumed that {cpu_assumption}")
        processor = hardware.processor or _ASSUMED_PROCESSOR
        return cls(
            host,
            nccl_numbers,
            paths,
            gpu_paths,
            gpu_count,
            processor,
            hardware.affinity_by_numa,
            tuple(assumptions),
        )

    def find_path_type(self, gpu: int, nic: int) -> str:
        """Return NCCL's name for the path between a GPU and a NIC: `SYS`, the longest, if either is unknown."""
        if gpu >= len(self.gpu_paths) or not self.paths[nic]:
            return "SYS"
        gpu_path, nic_path = self.gpu_paths[gpu], self.paths[nic]
        if {device.address for device in gpu_path[:-1]} & {device.address for device in nic_path[:-1]}:
            return "PXB"
        return "PHB" if gpu_path[-1].numa == nic_path[-1].numa else "SYS"


def _describe_relays(lab: Lab, rings: Sequence[NcclRing]) -> Iterator[str]:
    for ring in rings:
        hops = sorted({hop for channel in ring.channels for hop in channel.relayed_hops})
        names = ", ".join(f"{lab.hosts[source].name} -> {lab.hosts[target].name}" for source, target in hops)
        if hops:
            yield (
                f"{ring.graph_file_name}: hops with no links of their own, on NICs of a route or another channel:"
                f" {names}"
            )


Element = tuple[str, Mapping[str, str], Sequence["Element"]]
"""Name, attributes, and the elements inside."""


def _check_size(host: str, file_kind: FileKind, element: Element) -> None:
    """Raise `HostError` for a file that has more elements than NCCL reads."""
    elements = [element]
    for parent in elements:  # the loop extends this list
        elements += parent[2]
    for count, limit, noun in (
        (len(elements), MAX_ELEMENT_COUNT_BY_FILE[file_kind], "elements"),
        (
            max(len(counted_element[2]) for counted_element in elements),
            MAX_CHILD_COUNT,
            "GPUs or NICs side by side",
        ),
    ):
        if count > limit:
            raise HostError(
                f"{host}: {count} {noun} in its NCCL {file_kind}, but NCCL reads {limit}: "
                "give fewer GPUs or NICs in the lab file",
                host=host,
            )


def _render(element: Element, depth: int = 0) -> str:
    name, attributes, children = element
    start = f"{'  ' * depth}<{name}" + "".join(f' {key}="{value}"' for key, value in attributes.items())
    if not children:
        return f"{start}/>\n"
    return f"{start}>\n{''.join(_render(child, depth + 1) for child in children)}{'  ' * depth}</{name}>\n"


def _build_topology(view: _HostView, speed_mbps: int) -> Element:
    """Return the `system` element: a `cpu` for each NUMA node, with the PCI tree below it."""
    device_by_address: dict[str, PciDevice] = {}
    child_addresses_by_parent: dict[str, set[str]] = defaultdict(set)
    leaves_by_address: dict[str, list[Element]] = defaultdict(list)
    root_addresses_by_numa: dict[str, set[str]] = defaultdict(set)
    numa_nodes = {path[0].numa for path in (*view.paths, *view.gpu_paths) if path}
    first_numa = min(numa_nodes, key=lambda numa: (int(numa) < 0, int(numa)), default="0")
    nets_without_pci: list[Element] = []

    def add_leaf(path: PciPath, leaf: Element) -> None:
        root_addresses_by_numa[path[0].numa].add(path[0].address)
        for parent, child in pairwise(path):
            child_addresses_by_parent[parent.address].add(child.address)
        device_by_address.update({device.address: device for device in path})
        leaves_by_address[path[-1].address].append(leaf)

    for nic_index in sorted(range(len(view.nccl_numbers)), key=view.nccl_numbers.__getitem__):
        attributes = {
            "name": view.host.nics[nic_index].name,
            "dev": str(view.nccl_numbers[nic_index]),
            "speed": str(speed_mbps),
        }
        net_element: Element = ("net", attributes, ())
        if view.paths[nic_index]:
            add_leaf(view.paths[nic_index], net_element)
        else:
            nets_without_pci.append(net_element)
    for gpu, path in enumerate(view.gpu_paths):
        add_leaf(path, ("gpu", {"dev": str(gpu)}, ()))

    def make_pci_element(address: str) -> Element:
        net_elements = [leaf for leaf in leaves_by_address[address] if leaf[0] == "net"]
        child_elements = [leaf for leaf in leaves_by_address[address] if leaf[0] == "gpu"]
        child_elements += [("nic", {}, net_elements)] if net_elements else []
        child_elements += [make_pci_element(child) for child in sorted(child_addresses_by_parent[address])]
        return ("pci", {"busid": address, **device_by_address[address].attributes}, child_elements)

    def make_cpu_element(numa: str) -> Element:
        child_elements = [make_pci_element(address) for address in sorted(root_addresses_by_numa[numa])]
        if nets_without_pci and numa == first_numa:
            child_elements.append(("nic", {}, nets_without_pci))
        mask = view.affinity_by_numa.get(numa)
        return (
            "cpu",
            {"numaid": numa, **({"affinity": mask} if mask else {}), **view.processor},
            child_elements,
        )

    return (
        "system",
        {"version": "1"},
        [make_cpu_element(numa) for numa in sorted(numa_nodes | {first_numa}, key=int)],
    )


def _order_gpus(host: LabHost, gpu_count: int, entry_nic: int, exit_nic: int) -> tuple[int, ...]:
    """Return all GPUs of a host. The first is beside the entry NIC, the last beside the exit NIC."""
    first_gpu, last_gpu = (
        min(host.nics[entry_nic].gpu, gpu_count - 1),
        min(host.nics[exit_nic].gpu, gpu_count - 1),
    )
    middle_gpus = [gpu for gpu in range(gpu_count) if gpu not in (first_gpu, last_gpu)]
    return (first_gpu, *middle_gpus, *((last_gpu,) if last_gpu != first_gpu else ()))


def _build_graphs(view: _HostView, ring: NcclRing, node: int, rate_mbps: float) -> Element:
    """Return the `graphs` element: a ring and a tree with the same channels.

    NCCL uses only as many channels as the smaller graph has.
    """
    nic_pairs = [channel.nics[node] for channel in ring.channels]
    gpu_orders = [
        _order_gpus(view.host, view.gpu_count, entry_nic, exit_nic) for entry_nic, exit_nic in nic_pairs
    ]
    channel_elements: list[Element] = []
    longest_path_index = 0
    for (entry_nic, exit_nic), gpu_order in zip(nic_pairs, gpu_orders, strict=True):
        gpu_elements: Iterable[Element] = (("gpu", {"dev": hex(gpu)}, ()) for gpu in gpu_order)
        net_elements = [("net", {"dev": hex(view.nccl_numbers[nic])}, ()) for nic in (entry_nic, exit_nic)]
        channel_elements.append(("channel", {}, [net_elements[0], *gpu_elements, net_elements[1]]))
        path_types = (
            view.find_path_type(gpu_order[0], entry_nic),
            view.find_path_type(gpu_order[-1], exit_nic),
        )
        longest_path_index = max(longest_path_index, *(_PATH_NAMES.index(path) for path in path_types))
    speed_text = f"{rate_mbps / 8000:.6g}"
    crosses_nics = any(entry_nic != exit_nic for entry_nic, exit_nic in nic_pairs)

    def make_graph_element(graph_id: int, pattern: int) -> Element:
        attributes = {
            "id": str(graph_id),
            "pattern": str(pattern),
            "crossnic": str(int(crosses_nics)),
            "nchannels": str(len(channel_elements)),
            "speedintra": speed_text,
            "speedinter": speed_text,
            "latencyinter": "0",
            "typeintra": "LOC" if view.gpu_count == 1 else "SYS",
            "typeinter": _PATH_NAMES[longest_path_index],
            "samechannels": str(int(len(set(gpu_orders)) == 1)),
        }
        return ("graph", attributes, channel_elements)

    return (
        "graphs",
        {"version": "1"},
        [make_graph_element(0, RING_PATTERN), make_graph_element(1, TREE_PATTERN)],
    )


def make_variables(folder: str, rings: Sequence[NcclRing]) -> dict[str, str]:
    """Return the NCCL variables of a host whose files are in a folder, with the graph of the first ring."""
    return {name: f"{folder}/{file}" for name, file in _name_files(rings).items()} | NCCL_SETTINGS


def _name_files(rings: Sequence[NcclRing]) -> dict[str, str]:
    return {"NCCL_TOPO_FILE": TOPOLOGY_FILE, "NCCL_GRAPH_FILE": rings[0].graph_file_name}


def render_environment(
    variables: Mapping[str, str], folder: str, host: str, rings: Sequence[NcclRing]
) -> str:
    """Return `variables` and NCCL's variables of a host as lines for a POSIX shell.

    `folder` contains a folder for each host. A file that a POSIX shell sources cannot find its own path, so the paths
    begin with `$TESTBED_NCCL`, or with `folder` if that is unset. The last line prints an error if the files are
    missing.
    """
    folder_text = f"${{TESTBED_NCCL:-{shlex.quote(folder)}}}"
    lines = [
        f"{name}={folder_text}/{host}/{file}; export {name}\n" for name, file in _name_files(rings).items()
    ]
    check_line = (
        '[ -r "$NCCL_TOPO_FILE" ] || '
        'echo "$NCCL_TOPO_FILE cannot be read: set TESTBED_NCCL to the folder that contains '
        f'{host}/env.sh" >&2\n'
    )
    return render_shell({**variables, **NCCL_SETTINGS}) + "".join(lines) + check_line
