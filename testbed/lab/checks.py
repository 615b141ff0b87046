"""Checks of a lab file: unique names and addresses, and a free switch port of the right side for every fibre.

Each check takes the schema and the document (for line numbers) and raises `LabFileError` for the first error.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import AddressValueError, IPv4Address
from typing import Literal, NamedTuple

from lightbed.wording import count_noun
from ocs_drivers.families import list_lab_schemes
from testbed.lab.document import Document, Location
from testbed.lab.schema import BoardPortSchema, FibreSchema, HostSchema, LabSchema, SwitchSchema, TwinSchema

Direction = Literal["transmit", "receive"]

LANGUAGE_PORTS: Mapping[str, int] = {"polatis+scpi": 5025, "polatis+tl1": 3082}
"""Default TCP port of each protocol of a simulated Polatis, which serves both."""

_RESERVED: Mapping[str, tuple[str, ...]] = {
    "hosts": ("fab", "mgmt", "localhost"),
    "nics": ("lo", "mgmt"),
    "boards": ("fab", "mgmt", "localhost"),
    "ports": ("lo",),
    "switches": ("plant",),
}
"""Names that a simulated lab uses for its own namespaces and links, by kind. `sim.lab` refuses them, too."""


class Endpoint(NamedTuple):
    """The parts of a switch address: protocol, host and TCP port (None: the default of the protocol)."""

    language: str
    host: str
    port: int | None


def parse_endpoint(address: str) -> Endpoint | None:
    """Parse `polatis+scpi://host:5025` or `TCPIP0::host::5025::SOCKET`; return None if it is neither.

    >>> parse_endpoint("polatis+tl1://10.99.0.2:3082")
    Endpoint(language='polatis+tl1', host='10.99.0.2', port=3082)
    """
    visa = re.fullmatch(r"(?i)TCPIP\d*::([^:]+)::(\d+)::SOCKET", address)
    if visa:
        return Endpoint("polatis+scpi", visa[1], int(visa[2]))
    url = re.fullmatch(r"([a-z0-9+-]+)://(?:[^@/]*@)?([^:/?@]+)(?::(\d{1,5}))?(?:[/?].*)?", address)
    return Endpoint(url[1], url[2], int(url[3]) if url[3] else None) if url else None


class _Use(NamedTuple):
    """The use of a switch port: `host/nic`, the direction of light, the fibre, and its location in the file."""

    user: str
    direction: Direction
    fibre: FibreSchema
    where: Location


def check(document: Document, schema: LabSchema) -> None:
    """Run every check except `check_wired`, basic checks first. Raises `LabFileError`."""
    _check_names(document, schema)
    _check_simulated_names(document, schema)
    _check_boards(document, schema)
    _check_gpus(document, schema)
    _check_switches(document, schema)
    uses = list(_find_uses(schema))
    _check_switches_exist(document, schema, uses)
    _check_enough_ports(document, schema, uses)
    for use in uses:
        _check_side(document, _index_switches(schema)[use.fibre.switch], use)
    _check_ports_unique(document, uses)
    _check_addresses(document, schema)


def _index_switches(schema: LabSchema) -> dict[str, SwitchSchema]:
    return {switch.name: switch for switch in schema.switches}


def _find_uses(schema: LabSchema) -> Iterator[_Use]:
    for i, host in enumerate(schema.hosts):
        for k, nic in enumerate(host.nics):
            where: Location = ("hosts", i, "nics", k)
            user = f"{host.name}/{nic.name}"
            if nic.transmit:
                yield _Use(user, "transmit", nic.transmit, (*where, "transmit"))
            if nic.receive:
                yield _Use(user, "receive", nic.receive, (*where, "receive"))
    for i, board in enumerate(schema.boards):
        for k, port in enumerate(board.ports):
            where, user = ("boards", i, "ports", k), f"{board.name}/{port.name}"
            yield _Use(user, "transmit", port.transmit, (*where, "transmit"))
            yield _Use(user, "receive", port.receive, (*where, "receive"))


def check_wired(document: Document, schema: LabSchema) -> None:
    """Check that both fibres of every NIC that is not `unused` are given. Raises `LabFileError`."""
    for i, host in enumerate(schema.hosts):
        for k, nic in enumerate(host.nics):
            missing = [way for way in ("transmit", "receive") if getattr(nic, way) is None]
            if missing and nic.unused is None:
                what = (
                    f"'{missing[0]}' is missing in 'hosts[{i}].nics[{k}]': the end of this fibre is unknown"
                )
                hint = f"add it, or run `testbed discover {document.path} -o WIRED.yaml` to find all missing ones"
                raise document.error(("hosts", i, "nics", k), what, hint)


def _check_names(document: Document, schema: LabSchema) -> None:
    switches: list[tuple[str, Location]] = [
        (switch.name, ("switches", i, "name")) for i, switch in enumerate(schema.switches)
    ]
    hosts: list[tuple[str, Location]] = [
        (host.name, ("hosts", i, "name")) for i, host in enumerate(schema.hosts)
    ]
    boards: list[tuple[str, Location]] = [
        (board.name, ("boards", i, "name")) for i, board in enumerate(schema.boards)
    ]
    _check_unique(document, "name", switches + hosts + boards)
    for i, host in enumerate(schema.hosts):
        nics: list[tuple[str, Location]] = [
            (nic.name, ("hosts", i, "nics", k, "name")) for k, nic in enumerate(host.nics)
        ]
        _check_unique(document, f"interface of host '{host.name}'", nics)
    for i, board in enumerate(schema.boards):
        ports: list[tuple[str, Location]] = [
            (port.name, ("boards", i, "ports", k, "name")) for k, port in enumerate(board.ports)
        ]
        _check_unique(document, f"port of board '{board.name}'", ports)


def _check_simulated_names(document: Document, schema: LabSchema) -> None:
    """Check the names that a simulated lab gives to its namespaces and interfaces. A real kernel may differ."""
    if not schema.simulated:
        return
    interfaces: list[tuple[str, str, Location]] = [
        (f"interface '{nic.name}' of host '{host.name}'", nic.name, ("hosts", i, "nics", k, "name"))
        for i, host in enumerate(schema.hosts)
        for k, nic in enumerate(host.nics)
    ]
    interfaces += [
        (f"port '{port.name}' of board '{board.name}'", port.name, ("boards", i, "ports", k, "name"))
        for i, board in enumerate(schema.boards)
        for k, port in enumerate(board.ports)
    ]
    for what, name, where in interfaces:
        if not re.fullmatch(r"[a-z][a-z0-9]*", name):
            hint = f"use lower-case letters and digits, like {'nic1' if where[0] == 'hosts' else 'port1'}"
            raise document.error(where, f"{what} cannot be simulated under this name", hint)
    named: list[tuple[str, str, Location]] = [
        *((f"host '{host.name}'", host.name, ("hosts", i, "name")) for i, host in enumerate(schema.hosts)),
        *(
            (f"board '{board.name}'", board.name, ("boards", i, "name"))
            for i, board in enumerate(schema.boards)
        ),
        *(
            (f"switch '{switch.name}'", switch.name, ("switches", i, "name"))
            for i, switch in enumerate(schema.switches)
        ),
    ]
    for what, name, where in [*named, *interfaces]:
        if name in _RESERVED[str(where[-3])]:
            raise document.error(where, f"{what} has a name that the simulation itself uses", "rename it")


def _check_boards(document: Document, schema: LabSchema) -> None:
    """Check that real boards have an address, that simulated boards have only a program, and that MACs are unique."""
    for i, board in enumerate(schema.boards):
        for key in ("address", "bitstream"):
            if schema.simulated and getattr(board, key) is not None:
                what = f"board '{board.name}' has '{key}', but the lab is simulated"
                raise document.error(("boards", i, key), what, f"remove '{key}': a simulated board has none")
        if not schema.simulated and board.address is None:
            what = f"'address' is missing in 'boards[{i}]'"
            raise document.error(("boards", i), what, "add where its registers are, like pynq://0xA0000000")
    macs: list[tuple[str, Location]] = [
        (mac_of(port), ("boards", i, "ports", k, "mac"))
        for i, board in enumerate(schema.boards)
        for k, port in enumerate(board.ports)
    ]
    _check_unique(document, "MAC address", macs)


def mac_of(port: BoardPortSchema) -> str:
    """Return the MAC address of a board's port: from the file, or else 02:00 and the bytes of its IPv4 address."""
    return port.mac or f"02:00:{port.address.packed.hex(':')}"


def _check_gpus(document: Document, schema: LabSchema) -> None:
    """Check that the GPU of every NIC exists, and that NICs and GPUs divide evenly if a NIC names no GPU."""
    for i, host in enumerate(schema.hosts):
        gpus, nics = host.gpus or 1, len(host.nics)
        for k, nic in enumerate(host.nics):
            if nic.gpu is not None and nic.gpu >= gpus:
                what = f"{host.name}/{nic.name} is beside GPU {nic.gpu}, but the host has {count_noun(gpus, 'GPU')}"
                hint = f"number them from 0 to {gpus - 1}, or correct 'gpus' of the host"
                raise document.error(("hosts", i, "nics", k, "gpu"), what, hint)
        if gpus % nics and nics % gpus and any(nic.gpu is None for nic in host.nics):
            what = f"the {nics} NICs of '{host.name}' cannot be divided evenly among {gpus} GPUs"
            raise document.error(("hosts", i, "gpus"), what, "give each NIC the 'gpu' beside it")


def gpu_numbers(host: HostSchema) -> tuple[int, ...]:
    """Return the number of the GPU beside each NIC: from the file, or else by dividing the NICs evenly in order."""
    gpus, nics = host.gpus or 1, len(host.nics)
    return tuple(k * gpus // nics if nic.gpu is None else nic.gpu for k, nic in enumerate(host.nics))


def _check_unique(document: Document, what: str, names: Iterable[tuple[str, Location]]) -> None:
    first: dict[str, Location] = {}
    for name, where in names:
        if name in first:
            already = f"already used on line {document.line(first[name])}"
            raise document.error(where, f"{what} '{name}' appears twice ({already})", "rename one of them")
        first[name] = where


def _check_switches(document: Document, schema: LabSchema) -> None:
    for i, switch in enumerate(schema.switches):
        where: Location = ("switches", i, "address")
        endpoint = parse_endpoint(switch.address)
        if endpoint is None:
            what = f"'{switch.address}' is not the address of a switch"
            raise document.error(where, what, "write it like polatis+scpi://10.99.0.2:5025")
        if endpoint.port is not None and not 1 <= endpoint.port <= 65535:
            raise document.error(where, f"{endpoint.port} is not a TCP port", "use one from 1 to 65535")
        if schema.simulated and endpoint.language not in list_lab_schemes():
            what = f"no simulated switch of a lab supports '{endpoint.language}'"
            known = ", ".join(list_lab_schemes())
            raise document.error(where, what, f"use one of {known}; or 'simulated: false'")
        if schema.simulated and endpoint.port is None and endpoint.language not in LANGUAGE_PORTS:
            what = f"the simulated switch '{switch.name}' has no TCP port"
            raise document.error(where, what, f"write {endpoint.language}://{endpoint.host}:PORT")
        if schema.simulated and _parse_numeric(switch.address) is None:
            what = f"the simulated switch '{switch.name}' has no numeric address"
            raise document.error(where, what, f"give it an address inside {schema.management}")
        if switch.twin and not schema.simulated:
            what = f"switch '{switch.name}' of a real lab has a twin"
            raise document.error(("switches", i, "twin"), what, "remove 'twin' or set 'simulated: true'")
        if switch.twin:
            _check_twin_ports(document, i, switch.twin, endpoint)


def _check_twin_ports(document: Document, index: int, twin: TwinSchema, endpoint: Endpoint) -> None:
    """Check that the listeners of a twin have different ports, because they share one address."""
    owners = {endpoint.port or 0: "its address"}
    ports = {"tl1_port": twin.tl1_port, "control_port": twin.control_port}
    if endpoint.language != "polatis+scpi" and endpoint.port is not None:
        del ports["tl1_port"]  # the address has this port
    for key, port in ports.items():
        if port in owners:
            what = f"'{key}' of a twin is {port}, which is also the port of {owners[port]}"
            raise document.error(("switches", index, "twin", key), what, "choose another port")
        owners[port] = f"'{key}'"


def _check_switches_exist(document: Document, schema: LabSchema, uses: Iterable[_Use]) -> None:
    names = list(_index_switches(schema))
    for use in uses:
        if use.fibre.switch not in names:
            near = difflib.get_close_matches(use.fibre.switch, names, n=1) or names
            what = f"the {use.direction} fibre of {use.user} ends at switch '{use.fibre.switch}', which does not exist"
            raise document.error(use.where, what, f"name a switch of this file ({', '.join(near)})")


def _check_enough_ports(document: Document, schema: LabSchema, uses: Iterable[_Use]) -> None:
    ends = Counter((use.fibre.switch, use.direction) for use in uses)
    for i, switch in enumerate(schema.switches):
        _check_count(document, i, switch.name, "input", switch.inputs, ends[switch.name, "transmit"])
        _check_count(document, i, switch.name, "output", switch.outputs, ends[switch.name, "receive"])


def _check_count(document: Document, index: int, switch: str, side: str, ports: int, fibres: int) -> None:
    if fibres > ports:
        what = f"too few ports: {fibres} fibres end in the {ports} {side}s of switch '{switch}'"
        hint = f"give '{switch}' {fibres} {side}s or more, or move NICs to another switch"
        raise document.error(("switches", index, f"{side}s"), what, hint)


def _check_side(document: Document, switch: SwitchSchema, use: _Use) -> None:
    """Check that a transmit fibre ends at an input, 1..N, and a receive fibre at an output, N+1..N+M."""
    port, last = use.fibre.number, switch.inputs + switch.outputs
    inputs, outputs = f"1..{switch.inputs}", f"{switch.inputs + 1}..{last}"
    if not 1 <= port <= last:
        fibre = f"the {use.direction} fibre of {use.user}"
        what = f"{fibre} ends at port {port}, which switch '{switch.name}' does not have"
        raise document.error(use.where, what, f"inputs are {inputs}, outputs are {outputs}")
    if use.direction == "transmit" and port > switch.inputs:
        what = f"the transmit fibre of {use.user} ends in output {port} of switch '{switch.name}'"
        raise document.error(use.where, what, f"a transmitter connects to an input, {inputs}")
    if use.direction == "receive" and port <= switch.inputs:
        what = f"the receive fibre of {use.user} comes from input {port} of switch '{switch.name}'"
        raise document.error(use.where, what, f"a receiver connects to an output, {outputs}")


def _check_ports_unique(document: Document, uses: Iterable[_Use]) -> None:
    first: dict[tuple[str, int], _Use] = {}
    for use in uses:
        key = (use.fibre.switch, use.fibre.number)
        if key in first:
            other = first[key]
            what = (
                f"port {key[1]} of switch '{key[0]}' is used twice: by {other.user} ({other.direction}, "
                f"line {document.line(other.where)}) and by {use.user} ({use.direction})"
            )
            raise document.error(use.where, what, "check which fibre ends there, and correct the other")
        first[key] = use


def _find_addresses(schema: LabSchema) -> Iterator[tuple[IPv4Address, str, Location, bool]]:
    """Yield every address with its owner, its location in the file, and whether it is a management address."""
    for i, switch in enumerate(schema.switches):
        address = _parse_numeric(switch.address)
        if address:
            yield address, f"switch '{switch.name}'", ("switches", i, "address"), True
    for i, host in enumerate(schema.hosts):
        yield host.management, f"host '{host.name}' (management)", ("hosts", i, "management"), True
        yield host.address, f"host '{host.name}'", ("hosts", i, "address"), False
        for k, nic in enumerate(host.nics):
            yield nic.address, f"{host.name}/{nic.name}", ("hosts", i, "nics", k, "address"), False
    for i, board in enumerate(schema.boards):
        for k, port in enumerate(board.ports):
            yield port.address, f"{board.name}/{port.name}", ("boards", i, "ports", k, "address"), False


def _parse_numeric(address: str) -> IPv4Address | None:
    endpoint = parse_endpoint(address)
    try:
        return IPv4Address(endpoint.host) if endpoint else None
    except AddressValueError:
        return None


def _check_addresses(document: Document, schema: LabSchema) -> None:
    owners: dict[IPv4Address, tuple[str, Location]] = {}
    for address, owner, where, is_management in _find_addresses(schema):
        if address in owners:
            other, first = owners[address]
            already = f"{other}, line {document.line(first)}"
            what = f"{owner} has the address {address} of {already}"
            raise document.error(where, what, "give each its own address")
        owners[address] = (owner, where)
        is_switch = where[0] == "switches"
        if is_management and (schema.simulated or not is_switch):
            _check_management_address(document, schema, address, owner, where)
        if not is_management:
            _check_data_address(document, schema, address, owner, where)


def _check_management_address(
    document: Document, schema: LabSchema, address: IPv4Address, owner: str, where: Location
) -> None:
    network = schema.management
    if address not in network:
        what = f"{owner} has {address}, outside the management network {network}"
        raise document.error(where, what, f"choose an address inside {network}, or correct 'management'")
    if address in (network.network_address, network.broadcast_address):
        what = f"{owner} has {address}, which is not a host address of {network}"
        raise document.error(where, what, f"choose another address inside {network}")
    if schema.simulated and address == network.network_address + 1:
        what = f"{owner} has {address}, which the simulation itself uses"
        raise document.error(where, what, f"choose another address inside {network}")


def _check_data_address(
    document: Document, schema: LabSchema, address: IPv4Address, owner: str, where: Location
) -> None:
    if address in schema.management:
        what = f"{owner} has {address}, inside the management network {schema.management}"
        raise document.error(where, what, "links and nodes need addresses in a network of their own")
    if schema.simulated and where[0] == "boards" and address.packed[-1] in (0, 255):
        what = f"{owner} has {address}, which is not a host address of the /24 of a simulated board"
        raise document.error(where, what, "choose an address that ends in 1 to 254")
    if address.is_loopback or address.is_multicast or address.is_unspecified or address.is_link_local:
        what = f"{owner} has {address}, which cannot be routed"
        raise document.error(where, what, "choose an address like 10.100.1.1")
