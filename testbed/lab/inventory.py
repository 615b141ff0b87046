"""Lab files: conversion from text to `Lab` and back, and relocation to another management network.

A simulated lab differs from a real one only by `simulated: true` and by what answers at its addresses.
"""

from __future__ import annotations

import os
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import yaml

from testbed.lab.checks import assign_gpus, check, check_wired, get_mac, parse_endpoint
from testbed.lab.document import Document, parse_document, read_document
from testbed.lab.model import (
    UNKNOWN_FIBRE,
    FibreEnd,
    Lab,
    LabBoard,
    LabBoardPort,
    LabHost,
    LabNic,
    LabSwitch,
    LinkClass,
    SwitchTwin,
)
from testbed.lab.schema import BoardSchema, FibreSchema, HostSchema, LabSchema, read_schema

DEFAULT_PYTHON = "python3"


def get_state_directory() -> Path:
    """Return the directory of this user's state: `$XDG_STATE_HOME/lightbed`, by default `~/.local/state/lightbed`."""
    configured = os.environ.get("XDG_STATE_HOME", "")
    base = Path(configured) if configured.startswith("/") else Path.home() / ".local" / "state"
    return base / "lightbed"


def get_default_key_path() -> Path:
    """Return the path of the SSH client key for lab files that name none."""
    return get_state_directory() / "id_ed25519"


def load_lab(path: str | Path) -> Lab:
    """Read a lab file. Raises `LabFileError` for the first error, with the text `file:line: problem; hint`."""
    return _make_lab(read_document(Path(path)))


def load_bare_lab(path: str | Path) -> Lab:
    """Read a lab file. Missing fibres become `UNKNOWN_FIBRE`, and unused NICs are listed like others."""
    return _make_lab(read_document(Path(path)), is_bare=True)


def parse_lab(text: str, path: str | Path) -> Lab:
    """Parse a lab file. `path` names the file in errors and anchors relative paths. Raises `LabFileError`."""
    return _make_lab(parse_document(Path(path), text))


def _make_lab(document: Document, *, is_bare: bool = False) -> Lab:
    schema = read_schema(document)
    check(document, schema)
    if not is_bare:
        check_wired(document, schema)
    link = schema.link
    represents_gbps = link.represents_gbps or link.rate_mbps / 1000
    return Lab(
        name=schema.name,
        path=document.path,
        simulated=schema.simulated,
        management=schema.management,
        hosts=tuple(_make_host(schema, host, document.path, is_bare=is_bare) for host in schema.hosts),
        switches=tuple(
            LabSwitch(switch.name, switch.address, switch.inputs, switch.outputs, switch.insertion_loss_db)
            for switch in schema.switches
        ),
        twins={
            switch.name: SwitchTwin(**switch.twin.model_dump()) if switch.twin else SwitchTwin()
            for switch in schema.switches
            if schema.simulated
        },
        link=LinkClass(link.rate_mbps, represents_gbps, link.mtu, link.transmit_power_dbm, link.fit_rate),
        ssh_key=_find_key_path(schema, document.path),
        boards=tuple(_make_board(board, document.path) for board in schema.boards),
        revision=document.revision,
    )


def _find_key_path(schema: LabSchema, lab_path: Path) -> Path:
    key = schema.ssh.key
    if not key:
        return get_default_key_path()
    return Path(_anchor_path(os.path.expanduser(key), lab_path))  # noqa: PTH111


def _make_host(schema: LabSchema, host: HostSchema, lab_path: Path, *, is_bare: bool) -> LabHost:
    nics = [
        LabNic(nic.name, nic.address, _make_fibre_end(nic.transmit), _make_fibre_end(nic.receive), gpu)
        for nic, gpu in zip(host.nics, assign_gpus(host), strict=True)
    ]
    unused_flags = [nic.unused is not None and not is_bare for nic in host.nics]
    return LabHost(
        name=host.name,
        management=host.management,
        address=host.address,
        nics=tuple(nic for nic, unused in zip(nics, unused_flags, strict=True) if not unused),
        python=_anchor_path(host.ssh.python or schema.ssh.python or DEFAULT_PYTHON, lab_path),
        user=host.ssh.user or schema.ssh.user or "root",
        ssh_port=host.ssh.port or schema.ssh.port or 22,
        unused_nics=tuple(nic for nic, unused in zip(nics, unused_flags, strict=True) if unused),
        server=host.server or "",
        gpus=host.gpus,
    )


def _make_board(board: BoardSchema, lab_path: Path) -> LabBoard:
    return LabBoard(
        name=board.name,
        address=board.address or "",
        program=tuple(_anchor_file(file, lab_path) for file in board.program or ()),
        bitstream=_anchor_file(board.bitstream, lab_path) if board.bitstream else None,
        ports=tuple(
            LabBoardPort(
                port.name,
                port.address,
                get_mac(port),
                port.port,
                _make_fibre_end(port.transmit),
                _make_fibre_end(port.receive),
            )
            for port in board.ports
        ),
    )


def _anchor_file(file: str, lab_path: Path) -> Path:
    return Path(os.path.normpath(lab_path.absolute().parent / file))


def _make_fibre_end(fibre: FibreSchema | None) -> FibreEnd:
    return FibreEnd(fibre.switch, fibre.number, fibre.loss_db) if fibre else UNKNOWN_FIBRE


def _anchor_path(path_text: str, lab_path: Path) -> str:
    """Return a program as an absolute path, resolved from the folder of the lab file; a bare name is unchanged.

    Symbolic links stay, because Python recognises a virtual environment by the path of its interpreter.
    """
    if "/" not in path_text:
        return path_text
    return os.path.normpath(lab_path.absolute().parent / path_text)


def relocate(lab: Lab, subnet: IPv4Network) -> Lab:
    """Return a simulated lab with every management address moved to the same offset in another network.

    Raises `ValueError` for a real lab, whose addresses are fixed, and for a smaller network.
    """
    if not lab.simulated:
        raise ValueError(f"lab '{lab.name}' is real: its addresses cannot be changed")
    if subnet.prefixlen > lab.management.prefixlen:
        raise ValueError(f"{subnet} is smaller than the management network {lab.management}")
    return replace(
        lab,
        management=subnet,
        hosts=tuple(
            replace(host, management=_move_address(lab, host.management, subnet)) for host in lab.hosts
        ),
        switches=tuple(
            replace(switch, address=_move_switch_address(lab, switch, subnet)) for switch in lab.switches
        ),
    )


def fix_link_rate(lab: Lab, rate_mbps: float) -> Lab:
    """Return the lab with links of a fixed rate; the rate that they represent is unchanged."""
    return replace(lab, link=replace(lab.link, rate_mbps=rate_mbps, fit_rate=False))


def _move_address(lab: Lab, address: IPv4Address, subnet: IPv4Network) -> IPv4Address:
    return subnet.network_address + (int(address) - int(lab.management.network_address))


def _move_switch_address(lab: Lab, switch: LabSwitch, subnet: IPv4Network) -> str:
    endpoint = parse_endpoint(switch.address)
    assert endpoint is not None  # checked when the lab was loaded
    moved_address = _move_address(lab, IPv4Address(endpoint.host), subnet)
    return switch.address.replace(endpoint.host, str(moved_address), 1)


def render_lab(lab: Lab) -> str:
    """Return the lab as YAML text that `parse_lab` reads back as an equal `Lab`; paths are absolute."""
    document = {
        "name": lab.name,
        "simulated": lab.simulated,
        "management": str(lab.management),
        "link": {
            "rate_mbps": lab.link.rate_mbps,
            "represents_gbps": lab.link.represents_gbps,
            "mtu": lab.link.mtu,
            "transmit_power_dbm": lab.link.transmit_power_dbm,
            **({"fit_rate": True} if lab.link.fit_rate else {}),
        },
        "switches": [_render_switch(lab, switch) for switch in lab.switches],
        "ssh": _render_ssh(lab),
        "hosts": [_render_host(lab, host) for host in lab.hosts],
        **({"boards": [_render_board(board) for board in lab.boards]} if lab.boards else {}),
    }
    text: str = yaml.safe_dump(document, sort_keys=False, width=110, allow_unicode=True)
    return text


def _render_switch(lab: Lab, switch: LabSwitch) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": switch.name,
        "address": switch.address,
        "inputs": switch.input_count,
        "outputs": switch.output_count,
        "insertion_loss_db": switch.insertion_loss_db,
    }
    if switch.name in lab.twins:
        twin = lab.twins[switch.name]
        entry["twin"] = {
            "tl1_port": twin.tl1_port,
            "control_port": twin.control_port,
            **({} if twin.switch_time_s is None else {"switch_time_s": twin.switch_time_s}),
            **({} if twin.speed == 1.0 else {"speed": twin.speed}),
            **({"options": dict(twin.options)} if twin.options else {}),
            "boot_mode": twin.boot_mode,
        }
    return entry


def _render_ssh(lab: Lab) -> dict[str, Any]:
    first_host = lab.hosts[0]
    entry: dict[str, Any] = {
        "user": first_host.user,
        "port": first_host.ssh_port,
        "python": first_host.python,
    }
    if lab.ssh_key != get_default_key_path():
        entry["key"] = str(lab.ssh_key)
    return entry


def _render_host(lab: Lab, host: LabHost) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": host.name,
        "management": str(host.management),
        "address": str(host.address),
        "nics": [
            *(_render_nic(nic) for nic in host.nics),
            *(_render_nic(nic) | {"unused": f"as in {lab.path.name}"} for nic in host.unused_nics),
        ],
    }
    if host.server:
        entry["server"] = host.server
    if host.gpus is not None:
        entry["gpus"] = host.gpus
        for nic_entry, nic in zip(entry["nics"], (*host.nics, *host.unused_nics), strict=True):
            nic_entry["gpu"] = nic.gpu
    host_access = {"user": host.user, "port": host.ssh_port, "python": host.python}
    common_access = _render_ssh(lab)
    differing_access = {key: value for key, value in host_access.items() if value != common_access[key]}
    return entry | ({"ssh": differing_access} if differing_access else {})


def _render_nic(nic: LabNic) -> dict[str, Any]:
    return {"name": nic.name, "address": str(nic.address), **_render_fibres(nic)}


def _render_fibres(nic: LabNic | LabBoardPort) -> dict[str, Any]:
    return {
        direction: {"port": f"{fibre.switch}:{fibre.port}", "loss_db": fibre.loss_db}
        for direction, fibre in (("transmit", nic.transmit), ("receive", nic.receive))
        if fibre != UNKNOWN_FIBRE
    }


def _render_board(board: LabBoard) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": board.name}
    if board.address:
        entry["address"] = board.address
    if board.program:
        entry["program"] = [str(file) for file in board.program]
    if board.bitstream:
        entry["bitstream"] = str(board.bitstream)
    entry["ports"] = [
        {
            "name": port.name,
            "address": str(port.address),
            "mac": port.mac,
            "port": port.port,
            **_render_fibres(port),
        }
        for port in board.ports
    ]
    return entry
