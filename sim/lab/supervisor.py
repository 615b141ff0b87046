"""The supervisor of a simulated lab: starts everything, and takes it down in whatever way the lab ends.

The management network is a bridge in a namespace of its own, with a link to the root namespace. The bridge has the
addresses of the switch twins and a port for every host, and the machine itself has the first address. In the
machine's own network only the interface of this link is visible.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path
from typing import Any

from sim.lab.boards import BoardTwin, build_boards
from sim.lab.claims import Claim, Holder, find_overlapping_claim, find_user, make_subnet_claim_name
from sim.lab.inventory import LabNames, dismantle, remove_debris
from sim.lab.model import Address, Document, LabError, SwitchDocument
from sim.models.clock import RealClock, ScaledClock
from sim.twins.families import make_twin
from sim.twins.hosts import netns
from sim.twins.hosts.interfaces import InterfaceWatch
from sim.twins.hosts.keys import make_keys, make_ssh_files
from sim.twins.hosts.own_root import check_device_nodes, make_root_script, parse_mounts, probe_own_root
from sim.twins.hosts.redirects import Fabric, make_far_ends
from sim.twins.hosts.spec import HostSpec
from sim.twins.hosts.transceivers.command import make_ethtool_script, make_transceiver_verb
from sim.twins.hosts.twin import (
    MANAGEMENT_LINK,
    HostTwin,
    build_network,
    find_tools,
    make_boot_script,
    make_etc_files,
)
from sim.twins.plant import Plant, Renderer, make_plant_verbs
from sim.twins.switch.settings import SettingError, TwinSettings
from sim.twins.switch.twin import SwitchTwin
from sim.twins.wire.control import ControlServer

_BRIDGE = "br0"
_IPV6_OFF = {f"ipv6/conf/{scope}/disable_ipv6": 1 for scope in ("all", "default")}


@dataclass(frozen=True, slots=True)
class RunningLab:
    """A running lab. `shared_root_reason` is the reason why hosts share the root file system of the machine, or empty.

    `boards` maps each board to its ports that have a process, each with the document of its NIC.
    """

    document: Document
    lab_id: str
    start_duration_s: float
    shared_root_reason: str = ""
    boards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def make_ready_line(self) -> dict[str, Any]:
        """Return the content of the line that the supervisor prints when the lab is ready."""
        document = self.document
        control_address_by_switch = {switch.name: str(switch.control_address) for switch in document.switches}
        return {
            "ready": True,
            "simulated": True,
            "lab": document.lab_name,
            "lab_id": self.lab_id,
            "hosts": document.hosts_mode,
            "shared_root": self.shared_root_reason,
            "pid": os.getpid(),
            "subnet": str(document.subnet),
            "control": {**control_address_by_switch, "plant": str(document.control_address)},
            "boards": self.boards,
            "seconds": round(self.start_duration_s, 3),
        }


async def start_lab(document: Document, stack: AsyncExitStack) -> RunningLab:
    """Start the whole lab; push its cleanup onto `stack` step by step, so that cleanup also works if this raises.

    Raise `LabError` or `KernelFault`, each with code and hint.
    """
    start_s = time.monotonic()
    has_kernel_hosts = document.hosts_mode == "kernel"
    tools = _check_kernel_hosts(document) if has_kernel_hosts else {}
    remove_debris()
    lab_id = _claim_lab(document, stack)
    names = LabNames(lab_id)
    renderers: list[Renderer] = []
    shared_root_reason = ""
    specs: list[HostSpec] = []
    twin_by_label: dict[str, BoardTwin] = {}
    if has_kernel_hosts:
        # Before anything is created, so that a failure half way is cleaned up, too.
        stack.callback(dismantle, lab_id)
        specs, fabric = _build_networks(document, names)
        renderers.append(fabric)
        # The boards get ready while the hosts boot.
        twin_by_label = await _start_boards(document, names, tools, stack)
        shared_root_reason = await _start_hosts(specs, document, tools, stack)
    plant = await _start_devices(
        document, names.management_namespace if has_kernel_hosts else None, renderers, stack
    )
    for spec in specs:
        interface_watch = InterfaceWatch(spec.namespace, spec.name, spec.nics, plant.update_interfaces)
        stack.callback(interface_watch.close)
    board_nics = await _light_boards(document, twin_by_label, plant, stack)
    return RunningLab(document, lab_id, time.monotonic() - start_s, shared_root_reason, board_nics)


def _check_kernel_hosts(document: Document) -> dict[str, str]:
    """Return the paths of the programs that kernel hosts need, by name.

    Raise `LabError` without root or an authorized key, or if a program is missing.
    """
    if os.geteuid() != 0:
        raise LabError(
            "hosts in kernel namespaces need root",
            hint="Run as root, or choose the flow model (--hosts model)",
            code="not_root",
        )
    if not document.authorized_key:
        raise LabError(
            "wiring document: authorized_key is missing, but login to the hosts needs a key",
            hint="Put an OpenSSH public key there",
            code="document",
        )
    return find_tools()


def _claim_lab(document: Document, stack: AsyncExitStack) -> str:
    """Claim a new lab id and the subnet, and return the id; raise `LabError` if any part of the subnet is in use."""
    lab_id = f"lb{secrets.token_hex(3)}"
    holder = Holder(
        os.getpid(), document.lab_name, str(document.subnet), document.link.rate_mbps, find_user()
    )
    for name in (lab_id, make_subnet_claim_name(document.subnet)):
        claim = Claim.try_acquire(name)
        if claim is None:
            raise make_subnet_taken_error(document.subnet, "another lab uses it")
        stack.callback(claim.release)
        claim.write(holder)
    if document.hosts_mode == "kernel":
        check_subnet_free(document.subnet)
    if overlapping_subnet := find_overlapping_claim(document.subnet):
        raise make_subnet_taken_error(document.subnet, f"another lab uses {overlapping_subnet}")
    return lab_id


def _build_networks(document: Document, names: LabNames) -> tuple[list[HostSpec], Fabric]:
    """Create the namespaces, the management network, a dark fabric and the interfaces of the hosts."""
    specs = [
        HostSpec(
            name=host.name,
            namespace=names.get_host_namespace(host.name),
            address=IPv4Interface(f"{host.management_address.host}/{document.subnet.prefixlen}"),
            ssh_port=host.management_address.port,
            nics=host.nic_names,
            fabric_addresses=host.fabric_addresses,
        )
        for host in document.hosts
    ]
    board_ports = {
        board.name: (names.get_host_namespace(board.name), [port.name for port in board.ports])
        for board in document.boards
    }
    namespaces = [*(spec.namespace for spec in specs), *(namespace for namespace, _ in board_ports.values())]
    netns.add_namespaces([names.management_namespace, names.fabric_namespace, *namespaces])
    build_management_network(document, names)
    for namespace, _ in board_ports.values():  # before their ports exist, as in the fabric
        netns.set_sysctls(namespace, _IPV6_OFF)
    nics = {spec.name: (spec.namespace, spec.nics) for spec in specs} | board_ports
    fabric = Fabric(names.fabric_namespace, make_far_ends(nics))
    fabric.build(document.link)
    build_boards(document.boards, names.get_host_namespace)
    for spec in specs:
        build_network(spec, document.link)
    return specs, fabric


async def _start_boards(
    document: Document, names: LabNames, tools: Mapping[str, str], stack: AsyncExitStack
) -> dict[str, BoardTwin]:
    """Start the processes of all ports that have one, and return them by label, `board1/port1`."""
    twin_by_label: dict[str, BoardTwin] = {}

    async def stop() -> None:
        await asyncio.gather(*(twin.stop() for twin in twin_by_label.values()))

    stack.push_async_callback(stop)
    for board in document.boards:
        for port in board.ports:
            if port.command:
                label = f"{board.name}/{port.name}"
                twin_by_label[label] = await BoardTwin.start(
                    label, port.command, names.get_host_namespace(board.name), tools
                )
    return twin_by_label


async def _light_boards(
    document: Document, twin_by_label: Mapping[str, BoardTwin], plant: Plant, stack: AsyncExitStack
) -> dict[str, dict[str, Any]]:
    """Return the documents of the NICs by board and port, once all are ready; ports without a process are dark."""
    has_process_by_label = {
        f"{board.name}/{port.name}": bool(port.command) for board in document.boards for port in board.ports
    }
    if has_process_by_label:
        plant.update_interfaces(has_process_by_label)
    nics = await asyncio.gather(*(twin.await_ready() for twin in twin_by_label.values()))

    async def watch(label: str, twin: BoardTwin) -> None:
        await twin.await_end()
        plant.update_interfaces({label: False})

    for label, twin in twin_by_label.items():
        stack.callback(asyncio.create_task(watch(label, twin)).cancel)
    nic_by_label = dict(zip(twin_by_label, nics, strict=True))
    return {
        board.name: {
            port.name: nic_by_label[label]
            for port in board.ports
            if (label := f"{board.name}/{port.name}") in nic_by_label
        }
        for board in document.boards
    }


async def _start_hosts(
    specs: Sequence[HostSpec], document: Document, tools: dict[str, str], stack: AsyncExitStack
) -> str:
    """Boot all hosts in parallel; raise the first failure after all have started or failed.

    Return the reason why they share the root file system of the machine, or "" if each has its own.
    """
    passwd_text = Path("/etc/passwd").read_text("utf-8")
    shell_path = shutil.which("bash") or pwd.getpwuid(0).pw_shell
    keys = make_keys([spec.name for spec in specs], tools)
    mounts = parse_mounts(Path("/proc/self/mountinfo").read_text("utf-8"))
    check_device_nodes()
    shared_root_reason = probe_own_root(mounts, tools)
    own_root_script = () if shared_root_reason else make_root_script(mounts)

    control_address = document.control_address

    async def boot(spec: HostSpec) -> None:
        etc_files = make_etc_files(spec, specs, passwd_text, shell_path)
        ssh_files = make_ssh_files(spec, specs, keys, document.authorized_key)
        ethtool_script = make_ethtool_script(
            spec.name, spec.nics, str(control_address.host), control_address.port
        )
        script = make_boot_script(
            spec, etc_files, ssh_files, tools, own_root_script, {"ethtool": ethtool_script}
        )
        host = await HostTwin.start(spec, script, tools)
        stack.push_async_callback(host.stop)

    outcomes = await asyncio.gather(*(boot(spec) for spec in specs), return_exceptions=True)
    for outcome in outcomes:
        if outcome is not None:
            raise outcome
    return shared_root_reason


async def _start_devices(
    document: Document, namespace: str | None, renderers: Sequence[Renderer], stack: AsyncExitStack
) -> Plant:
    """Start the plant with its control socket, and the switch twins, on the addresses of the document."""
    plant = Plant(document.raw_document, renderers)
    control_server = ControlServer(
        {**make_plant_verbs(plant), **make_transceiver_verb(plant, document.represents_gbps)}
    )
    await control_server.serve(_listen(document, namespace, document.control_address))
    stack.push_async_callback(control_server.close)
    for switch in document.switches:
        twin = make_switch_twin(switch, plant)
        addresses = {"control": switch.control_address, **list_addresses(twin, switch)}
        await twin.serve({name: _listen(document, namespace, address) for name, address in addresses.items()})
        stack.push_async_callback(twin.close)
    return plant


def _listen(document: Document, namespace: str | None, address: Address) -> socket.socket:
    """Return a socket on an address of the document: on the bridge, or on the root side for the machine's address.

    Without namespaces an address in use means that another lab uses the (loopback) subnet: raise `LabError`.
    """
    listener_namespace = None if address.host == document.root_address else namespace
    try:
        return netns.bind_in_namespace(listener_namespace, str(address.host), address.port)
    except netns.KernelFault as error:
        if document.hosts_mode == "model" and error.code == "address_in_use":
            raise make_subnet_taken_error(document.subnet, error.what) from error
        raise


def make_switch_twin(switch: SwitchDocument, plant: Plant) -> SwitchTwin:
    """Return the twin of an entry, which does not serve yet. Raise `LabError` for settings that do not fit it."""
    settings = TwinSettings(
        switch.name,
        switch.input_count,
        switch.output_count,
        plant=plant,
        clock=RealClock() if switch.speed == 1.0 else ScaledClock(switch.speed),
        switch_time_s=switch.switch_time_s,
        boot_mode=switch.boot_mode,
        user=switch.user,
        password=switch.password,
        options=switch.options,
    )
    try:
        return make_twin(switch.family, settings)
    except SettingError as error:
        raise _make_twin_error(switch, str(error)) from None


def list_addresses(twin: SwitchTwin, switch: SwitchDocument) -> dict[str, Address]:
    """Return the addresses by name of the frontend. Raise `LabError` for a scheme that the twin does not serve."""
    name_by_scheme = {twin.frontends[name].scheme: name for name in twin.socket_frontends}
    for scheme in switch.frontends:
        if scheme not in name_by_scheme:
            raise _make_twin_error(switch, f"it does not support {scheme}, only {', '.join(name_by_scheme)}")
    return {name_by_scheme[scheme]: address for scheme, address in switch.frontends.items()}


def _make_twin_error(switch: SwitchDocument, problem: str) -> LabError:
    return LabError(
        f"the simulated switch {switch.name}: {problem}", hint="Correct its entry", code="document"
    )


def build_management_network(document: Document, names: LabNames) -> None:
    """Create the bridge with the addresses of the twins, a port for each host, and the link to this machine."""
    netns.set_sysctls(names.management_namespace, _IPV6_OFF)
    netns.run_batch("ip", _make_bridge_commands(document, names), names.management_namespace)
    root_link, address = names.root_link, f"{document.root_address}/{document.subnet.prefixlen}"
    lines = [
        f"link add {root_link} type veth peer name uplink netns {names.management_namespace}",
        f"addr add {address} dev {root_link}",
    ]
    netns.run_batch("ip", lines)
    netns.write_sysctl(f"ipv6/conf/{root_link}/disable_ipv6", 1)
    netns.run_batch("ip", [f"link set {root_link} up"])
    netns.run_batch("ip", [f"link set uplink master {_BRIDGE} up"], names.management_namespace)


def _make_bridge_commands(document: Document, names: LabNames) -> list[str]:
    lines = ["link set lo up", f"link add {_BRIDGE} type bridge stp_state 0 forward_delay 0"]
    prefix_length = document.subnet.prefixlen
    lines += [f"addr add {address}/{prefix_length} dev {_BRIDGE}" for address in document.twin_addresses]
    for index, host in enumerate(document.hosts):
        lines.append(
            f"link add m{index} type veth peer name {MANAGEMENT_LINK} netns {names.get_host_namespace(host.name)}"
        )
        lines.append(f"link set m{index} master {_BRIDGE} up")
    return [*lines, f"link set {_BRIDGE} up"]


def check_subnet_free(subnet: IPv4Network) -> None:
    """Raise `LabError` with code `subnet_taken` if an address or route of this machine overlaps the subnet."""
    for interface, prefix in _find_addresses_in_use():
        if prefix.overlaps(subnet):
            raise make_subnet_taken_error(subnet, f"{interface} uses {prefix}")


def make_subnet_taken_error(subnet: IPv4Network, reason: str) -> LabError:
    """Return the error of a subnet that is in use; `reason` names its user."""
    return LabError(
        f"the subnet {subnet} is taken: {reason}",
        hint="Give the lab another management subnet, or stop what uses this one",
        code="subnet_taken",
    )


def _find_addresses_in_use() -> list[tuple[str, IPv4Network]]:
    """Return the IPv4 addresses and routes of this network namespace with their interfaces, without default routes."""
    addresses = [
        (link["ifname"], f"{entry['local']}/{entry['prefixlen']}")
        for link in _run_ip("addr", "show")
        for entry in link.get("addr_info", ())
    ]
    routes = [
        (route.get("dev", "a route"), route["dst"])
        for route in _run_ip("route", "show", "table", "all")
        if route["dst"] != "default"
    ]
    return [(interface, IPv4Network(prefix, strict=False)) for interface, prefix in [*addresses, *routes]]


def _run_ip(*words: str) -> list[dict[str, Any]]:
    result = subprocess.run(
        ["ip", "-4", "-j", *words], capture_output=True, text=True, check=False, timeout=10
    )
    if result.returncode != 0:
        raise netns.KernelFault(f"`ip {' '.join(words)}` failed: {result.stderr.strip()}")
    return [entry for entry in json.loads(result.stdout or "[]") if entry]
