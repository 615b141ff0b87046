"""Parser of wiring documents.

The schema is `wiring.schema.json`. This module also checks rules that a schema cannot express: addresses are in the
management network, names and ports are unique. Every error names the path in the document, such as
`hosts[3].nics[0].transmit.port`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match

from sim.lab.model import (
    Address,
    BoardDocument,
    BoardPortDocument,
    Document,
    DocumentPath,
    HostDocument,
    LabError,
    SwitchDocument,
)
from sim.twins.families import FAMILIES
from sim.twins.hosts.redirects import LinkShape
from sim.twins.hosts.twin import MANAGEMENT_LINK

_RESERVED_HOSTS = ("fab", "mgmt", "localhost")
_RESERVED_NICS = ("lo", MANAGEMENT_LINK)
_CONTROL_PORT = 7000
_DEFAULT_GBPS = 25.0
_ETHERNET_HEADER_BYTES = 14
_MAX_PREFIX_LENGTH = 29
_POLATIS_SWITCH_TIME_S = 0.02


def parse_document(text: str) -> Document:
    """Parse and check a JSON document. Raise `LabError` with code `document` if it is not valid."""
    try:
        raw_document = json.loads(text)
    except json.JSONDecodeError as error:
        raise _make_document_error(
            (), f"not JSON: {error}", "Send one JSON object that follows the schema"
        ) from error
    _check_schema(raw_document)
    document = _build_document(raw_document)
    _check_names(document)
    _check_fibres(raw_document)
    _check_addresses(document)
    frame_bytes = document.link.mtu + _ETHERNET_HEADER_BYTES
    if document.link.burst_kb * 1024 < frame_bytes:  # a token bucket never passes a larger frame
        hint = f"Use at least {-(-frame_bytes // 1024)}, or a smaller mtu"
        raise _make_document_error(
            ("link", "burst_kb"),
            f"{document.link.burst_kb} KiB do not hold a frame of {frame_bytes} bytes",
            hint,
        )
    return document


def _make_document_error(location: DocumentPath, problem: str, hint: str) -> LabError:
    return LabError(f"wiring document: {_format_path(location)}: {problem}", hint=hint, code="document")


def _format_path(location: DocumentPath) -> str:
    """Format a path.

    >>> _format_path(("hosts", 3, "nics", 0, "name"))
    'hosts[3].nics[0].name'
    """
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.lstrip(".") or "(top)"


def _check_schema(raw_document: object) -> None:
    schema = json.loads(resources.files("sim.lab").joinpath("wiring.schema.json").read_text("utf-8"))
    error: ValidationError | None = best_match(Draft202012Validator(schema).iter_errors(raw_document))
    if error is not None:
        raise _make_document_error(
            tuple(error.absolute_path), error.message, "See sim/lab/wiring.schema.json"
        )


def _parse_address(text: str, *location: str | int) -> Address:
    """Parse an address such as `10.99.0.2:5025`; `location` is its path in the document, for errors."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise _make_document_error(
            location, f"{text!r} is not an address", "Write host:port, like 10.99.0.2:5025"
        )
    return Address(_parse_ip(host, *location), int(port))


def _parse_ip(text: str, *location: str | int) -> IPv4Address:
    try:
        return IPv4Address(text)
    except AddressValueError as error:
        raise _make_document_error(
            location, f"{text!r} is not an IPv4 address", "Write four numbers, like 10.99.0.2"
        ) from error


def _parse_subnet(text: str) -> IPv4Network:
    hint = "Write a subnet, like 10.99.0.0/24"
    try:
        subnet = IPv4Network(text)
    except ValueError as error:
        raise _make_document_error(("management",), f"{text!r}: {error}", hint) from error
    if subnet.prefixlen > _MAX_PREFIX_LENGTH:
        raise _make_document_error(
            ("management",), f"{text} is too small for a lab", f"{hint}, of at most {_MAX_PREFIX_LENGTH} bits"
        )
    return subnet


def _build_document(raw_document: Mapping[str, Any]) -> Document:
    subnet = _parse_subnet(raw_document["management"])
    default_control = f"{subnet[1]}:{_CONTROL_PORT}"
    link = raw_document["link"]
    return Document(
        lab_name=raw_document["lab"],
        hosts_mode=raw_document["hosts_mode"],
        subnet=subnet,
        control_address=_parse_address(raw_document.get("control", default_control), "control"),
        link=LinkShape(
            link["rate_mbps"], link["mtu"], link.get("burst_kb", 128), link.get("latency_ms", 50.0)
        ),
        represents_gbps=link.get("represents_gbps", _DEFAULT_GBPS),
        authorized_key=raw_document.get("authorized_key", ""),
        switches=tuple(_parse_switch(index, entry) for index, entry in enumerate(raw_document["switches"])),
        hosts=tuple(_parse_host(index, entry) for index, entry in enumerate(raw_document["hosts"])),
        boards=tuple(_parse_board(entry) for entry in raw_document.get("boards", ())),
        raw_document=raw_document,
    )


def _parse_switch(index: int, entry: Mapping[str, Any]) -> SwitchDocument:
    family = entry["kind"]
    if family not in FAMILIES:
        hint = f"Name one of {', '.join(FAMILIES)}"
        raise _make_document_error(
            ("switches", index, "kind"), f"there is no simulated switch family {family!r}", hint
        )
    address_by_scheme = {
        scheme: _parse_address(text, *location)
        for scheme, text, location in _find_frontends(entry, ("switches", index))
    }
    return SwitchDocument(
        name=entry["name"],
        family=family,
        input_count=entry["inputs"],
        output_count=entry["outputs"],
        frontends=address_by_scheme,
        control_address=_parse_address(entry["control"], "switches", index, "control"),
        switch_time_s=entry.get("switch_time_s", _POLATIS_SWITCH_TIME_S if family == "polatis" else None),
        speed=entry.get("speed", 1.0),
        options=entry.get("options", {}),
        boot_mode=entry.get("boot_mode", "DARK"),
        user=entry.get("user"),
        password=entry.get("password"),
    )


def _find_frontends(
    entry: Mapping[str, Any], entry_location: DocumentPath
) -> Iterator[tuple[str, str, DocumentPath]]:
    """Yield the scheme, address and path of every frontend; a Polatis has the keys `scpi` and `tl1`."""
    for key in ("scpi", "tl1"):
        if key in entry:
            yield f"polatis+{key}", entry[key], (*entry_location, key)
    for scheme, text in entry.get("frontends", {}).items():
        yield scheme, text, (*entry_location, "frontends", scheme)


def _parse_host(index: int, entry: Mapping[str, Any]) -> HostDocument:
    address = Address(_parse_ip(entry["management"], "hosts", index, "management"), entry["ssh_port"])
    nics = tuple(nic["name"] for nic in entry["nics"])
    return HostDocument(entry["name"], address, nics, tuple(_find_fabric_names(index, entry)))


def _parse_board(entry: Mapping[str, Any]) -> BoardDocument:
    ports = (BoardPortDocument(port["name"], tuple(port.get("command", ()))) for port in entry["ports"])
    return BoardDocument(entry["name"], tuple(ports))


def _find_fabric_names(index: int, entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the fabric addresses of a host with their names: `a.fabric`, `nic1.a.fabric`."""
    name = f"{entry['name']}.fabric"
    if "address" in entry:
        yield str(_parse_ip(entry["address"], "hosts", index, "address")), name
    for nic_index, nic in enumerate(entry["nics"]):
        if "address" in nic:
            location = ("hosts", index, "nics", nic_index, "address")
            yield str(_parse_ip(nic["address"], *location)), f"{nic['name']}.{name}"


def _check_unique(entries: Iterable[tuple[DocumentPath, object]], noun: str) -> None:
    """Raise `LabError` for a second use of a thing; the error names both paths."""
    location_by_entry: dict[object, DocumentPath] = {}
    for location, entry in entries:
        if entry in location_by_entry:
            raise _make_document_error(
                location,
                f"{noun} {entry} is already used at {_format_path(location_by_entry[entry])}",
                "Use it once",
            )
        location_by_entry[entry] = location


def _check_names(document: Document) -> None:
    host_names = [(("hosts", index, "name"), host.name) for index, host in enumerate(document.hosts)]
    board_names = [(("boards", index, "name"), board.name) for index, board in enumerate(document.boards)]
    _check_unique([*host_names, *board_names], "host")
    _check_unique(
        ((("switches", index, "name"), switch.name) for index, switch in enumerate(document.switches)),
        "switch",
    )
    for index, host in enumerate(document.hosts):
        _check_unique(
            (
                (("hosts", index, "nics", nic_index, "name"), nic)
                for nic_index, nic in enumerate(host.nic_names)
            ),
            "NIC",
        )
        for nic_index, nic in enumerate(host.nic_names):
            _check_not_reserved(("hosts", index, "nics", nic_index, "name"), nic, _RESERVED_NICS)
    for index, board in enumerate(document.boards):
        port_names = [
            (("boards", index, "ports", port_index, "name"), port.name)
            for port_index, port in enumerate(board.ports)
        ]
        _check_unique(port_names, "port")
        for port_location, name in port_names:
            _check_not_reserved(port_location, name, ("lo",))
    for location, name in [*host_names, *board_names]:
        _check_not_reserved(location, name, _RESERVED_HOSTS)
    for index, switch in enumerate(document.switches):
        _check_not_reserved(("switches", index, "name"), switch.name, ("plant",))


def _check_not_reserved(location: DocumentPath, name: str, reserved_names: Iterable[str]) -> None:
    if name in reserved_names:
        raise _make_document_error(location, f"the lab itself uses the name {name}", "Use another name")


def _find_fibres(raw_document: Mapping[str, Any]) -> Iterator[tuple[DocumentPath, str, Mapping[str, Any]]]:
    for host_index, host in enumerate(raw_document["hosts"]):
        for nic_index, nic in enumerate(host["nics"]):
            for direction in ("transmit", "receive"):
                yield ("hosts", host_index, "nics", nic_index, direction), direction, nic[direction]
    for board_index, board in enumerate(raw_document.get("boards", ())):
        for port_index, port in enumerate(board["ports"]):
            for direction in ("transmit", "receive"):
                yield ("boards", board_index, "ports", port_index, direction), direction, port[direction]


def _check_fibres(raw_document: Mapping[str, Any]) -> None:
    """Raise `LabError` unless transmit fibres use input ports and receive fibres output ports, one fibre per port."""
    ports_by_switch = {
        entry["name"]: {
            "transmit": range(1, entry["inputs"] + 1),
            "receive": range(entry["inputs"] + 1, entry["inputs"] + entry["outputs"] + 1),
        }
        for entry in raw_document["switches"]
    }
    for location, direction, fibre in _find_fibres(raw_document):
        name, port = fibre["switch"], fibre["port"]
        if name not in ports_by_switch:
            raise _make_document_error(
                (*location, "switch"),
                f"there is no switch {name}",
                f"Name one of {', '.join(ports_by_switch)}",
            )
        valid_ports = ports_by_switch[name][direction]
        if port not in valid_ports:
            hint = (
                f"A {direction} fibre goes to ports {valid_ports.start} to {valid_ports.stop - 1} of {name}"
            )
            raise _make_document_error(
                (*location, "port"), f"port {port} of {name} is not for {direction} fibres", hint
            )
    _check_unique(
        (
            (location, f"{fibre['switch']}:{fibre['port']}")
            for location, _, fibre in _find_fibres(raw_document)
        ),
        "port",
    )


def _check_addresses(document: Document) -> None:
    """Raise `LabError` unless all addresses are distinct device addresses of the management network.

    Frontends may share an IP address if their ports differ, but not with a host.
    """
    listener_addresses: list[tuple[DocumentPath, Address]] = [(("control",), document.control_address)]
    for index, switch in enumerate(document.switches):
        entry = document.raw_document["switches"][index]
        listener_addresses += [
            (location, switch.frontends[scheme])
            for scheme, _, location in _find_frontends(entry, ("switches", index))
        ]
        listener_addresses.append((("switches", index, "control"), switch.control_address))
    host_ips = [
        (("hosts", index, "management"), host.management_address.host)
        for index, host in enumerate(document.hosts)
    ]
    for location, ip in [*((location, address.host) for location, address in listener_addresses), *host_ips]:
        if ip not in document.subnet:
            raise _make_document_error(
                location, f"{ip} is outside {document.subnet}", "Use an address of `management`"
            )
        if ip in (document.subnet.network_address, document.subnet.broadcast_address):
            hint = f"Use {document.subnet[1]} to {document.subnet[-2]}"
            raise _make_document_error(
                location, f"{ip} is the network or broadcast address of {document.subnet}, not a device", hint
            )
    _check_unique(listener_addresses, "address")
    location_by_ip = {address.host: location for location, address in listener_addresses} | {
        document.root_address: ("management",)
    }
    _check_unique([*((location, ip) for ip, location in location_by_ip.items()), *host_ips], "address")
