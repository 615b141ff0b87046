"""The wiring document of a lab, which is the input of `python -m sim.lab`. The folder `sim/lab` has its schema."""

from __future__ import annotations

from typing import Any, Literal

from lightbed.children import make_module_command
from ocs_drivers.families import find_twin_family
from testbed.lab.checks import DEFAULT_PORT_BY_PROTOCOL, Endpoint, parse_endpoint
from testbed.lab.model import FibreEnd, Lab, LabBoard, LabBoardPort, LabHost, LabSwitch, SwitchTwin

HostsMode = Literal["kernel", "model"]
LAB_CONTROL_PORT = 7000
BOARD_PREFIX = 24
"""Prefix length of the address of a simulated board, which hosts reach by a separate route."""


def compute_burst_kib(rate_mbps: float) -> int:
    """Return the burst size of a link in KiB: about 10 ms of its rate, but at least 66 (a segment) and at most 128.

    >>> compute_burst_kib(100), compute_burst_kib(50), compute_burst_kib(1000)
    (128, 66, 128)
    """
    return max(66, min(128, round(1.28 * rate_mbps)))


def make_wiring_document(lab: Lab, *, hosts: HostsMode = "kernel", public_key: str = "") -> dict[str, Any]:
    """Return the lab as the document that `python -m sim.lab` reads."""
    document: dict[str, Any] = {
        "version": 1,
        "lab": lab.name,
        "hosts_mode": hosts,
        "management": str(lab.management),
        "control": f"{lab.management.network_address + 1}:{LAB_CONTROL_PORT}",
        "link": {
            "rate_mbps": lab.link.rate_mbps,
            "represents_gbps": lab.link.represents_gbps,
            "mtu": lab.link.mtu,
            "burst_kb": compute_burst_kib(lab.link.rate_mbps),
            "transmit_power_dbm": lab.link.transmit_power_dbm,
        },
        "switches": [_make_switch_entry(lab, switch) for switch in lab.switches],
        "hosts": [_make_host_entry(host) for host in lab.hosts],
        **({"boards": [_make_board_entry(board) for board in lab.boards]} if lab.boards else {}),
    }
    return document | ({"authorized_key": public_key} if public_key else {})


def _make_switch_entry(lab: Lab, switch: LabSwitch) -> dict[str, Any]:
    twin = lab.twins[switch.name]
    switch_endpoint = parse_endpoint(switch.address)
    assert switch_endpoint is not None  # checked when the lab was loaded
    return {
        "name": switch.name,
        "kind": find_twin_family(switch_endpoint.protocol),
        "inputs": switch.input_count,
        "outputs": switch.output_count,
        **_make_frontends(switch_endpoint, twin),
        "control": f"{switch_endpoint.host}:{twin.control_port}",
        **({} if twin.switch_time_s is None else {"switch_time_s": twin.switch_time_s}),
        "speed": twin.speed,
        "options": dict(twin.options),
        "boot_mode": twin.boot_mode,
        "insertion_loss_db": switch.insertion_loss_db,
    }


def _make_frontends(switch_endpoint: Endpoint, twin: SwitchTwin) -> dict[str, Any]:
    """Return the frontends of a twin with their addresses.

    A Polatis has a frontend for each of its protocols. Any other twin has only the protocol that the lab file names.
    """
    if switch_endpoint.protocol not in DEFAULT_PORT_BY_PROTOCOL:
        return {"frontends": {switch_endpoint.protocol: f"{switch_endpoint.host}:{switch_endpoint.port}"}}
    port_by_protocol = {**DEFAULT_PORT_BY_PROTOCOL, "polatis+tl1": twin.tl1_port}
    if switch_endpoint.port is not None:
        port_by_protocol[switch_endpoint.protocol] = switch_endpoint.port
    return {
        protocol.rpartition("+")[2]: f"{switch_endpoint.host}:{port}"
        for protocol, port in port_by_protocol.items()
    }


def _make_host_entry(host: LabHost) -> dict[str, Any]:
    return {
        "name": host.name,
        "management": str(host.management),
        "ssh_port": host.ssh_port,
        "address": str(host.address),
        "nics": [
            {
                "name": nic.name,
                "address": str(nic.address),
                "transmit": _make_fibre_entry(nic.transmit),
                "receive": _make_fibre_entry(nic.receive),
            }
            for nic in host.nics
        ],
    }


def _make_board_entry(board: LabBoard) -> dict[str, Any]:
    ports = [
        {
            "name": port.name,
            "transmit": _make_fibre_entry(port.transmit),
            "receive": _make_fibre_entry(port.receive),
            **({"command": make_board_command(board, port)} if board.program else {}),
        }
        for port in board.ports
    ]
    return {"name": board.name, "ports": ports}


def make_board_command(board: LabBoard, port: LabBoardPort) -> list[str]:
    """Return the command that serves the board's program at a port. `{namespace}` is a placeholder for `sim.lab`."""
    settings = f"address={port.address}/{BOARD_PREFIX}&mac={port.mac}&port={port.port}"
    files = [str(file) for file in board.program]
    options = ["--nic", f"verilator://{port.name}?{settings}", "--namespace", "{namespace}"]
    return make_module_command("lightning.cli", "serve", *files, *options, "--json")


def _make_fibre_entry(fibre: FibreEnd) -> dict[str, Any]:
    return {"switch": fibre.switch, "port": fibre.port, "loss_db": fibre.loss_db}
