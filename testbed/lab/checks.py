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

from lightbed.wording import format_count
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
    location: Location


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
            location: Location = ("hosts", i, "nics", k)
            user = f"{host.name}/{nic.name}"
            if nic.transmit:
                yield _Use(user, "transmit", nic.transmit, (*location, "transmit"))
            if nic.receive:
                yield _Use(user, "receive", nic.receive, (*location, "receive"))
    for i, board in enumerate(schema.boards):
        for k, port in enumerate(board.ports):
            location, user = ("boards", i, "ports", k), f"{board.name}/{port.name}"
            yield _Use(user, "transmit", port.transmit, (*location, "transmit"))
            yield _Use(user, "receive", port.receive, (*location, "receive"))


def check_wired(document: Document, schema: LabSchema) -> None:
    """Check that both fibres of every NIC that is not `unused` are given. Raises `LabFileError`."""
    for i, host in enumerate(schema.hosts):
        for k, nic in enumerate(host.nics):
            missing = [direction for direction in ("transmit", "receive") if getattr(nic, direction) is None]
            if missing and nic.unused is None:
                problem = (
                    f"'{missing[0]}' is missing in 'hosts[{i}].nics[{k}]': the end of this fibre is unknown"
                )
                hint = f"add it, or run `testbed discover {document.path} -o WIRED.yaml` to find all missing ones"
                raise document.error(("hosts", i, "nics", k), problem, hint)


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
    for subject, name, location in interfaces:
        if not re.fullmatch(r"[a-z][a-z0-9]*", name):
            hint = f"use lower-case letters and digits, like {'nic1' if location[0] == 'hosts' else 'port1'}"
            raise document.error(location, f"{subject} cannot be simulated under this name", hint)
    named_parts: list[tuple[str, str, Location]] = [
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
    for subject, name, location in [*named_parts, *interfaces]:
        if name in _RESERVED[str(location[-3])]:
            raise document.error(
                location, f"{subject} has a name that the simulation itself uses", "rename it"
            )


def _check_boards(document: Document, schema: LabSchema) -> None:
    """Check that real boards have an address, that simulated boards have only a program, and that MACs are unique."""
    for i, board in enumerate(schema.boards):
        for key in ("address", "bitstream"):
            if schema.simulated and getattr(board, key) is not None:
                problem = f"board '{board.name}' has '{key}', but the lab is simulated"
                raise document.error(
                    ("boards", i, key), problem, f"remove '{key}': a simulated board has none"
                )
        if not schema.simulated and board.address is None:
            problem = f"'address' is missing in 'boards[{i}]'"
            raise document.error(
                ("boards", i), problem, "add where its registers are, like pynq://0xA0000000"
            )
    macs: list[tuple[str, Location]] = [
        (get_mac(port), ("boards", i, "ports", k, "mac"))
        for i, board in enumerate(schema.boards)
        for k, port in enumerate(board.ports)
    ]
    _check_unique(document, "MAC address", macs)


def get_mac(port: BoardPortSchema) -> str:
    """Return the MAC address of a board's port: from the file, or else 02:00 and the bytes of its IPv4 address."""
    return port.mac or f"02:00:{port.address.packed.hex(':')}"


def _check_gpus(document: Document, schema: LabSchema) -> None:
    """Check that the GPU of every NIC exists, and that NICs and GPUs divide evenly if a NIC names no GPU."""
    for i, host in enumerate(schema.hosts):
        gpus, nics = host.gpus or 1, len(host.nics)
        for k, nic in enumerate(host.nics):
            if nic.gpu is not None and nic.gpu >= gpus:
                gpu_count = format_count(gpus, "GPU")
                problem = f"{host.name}/{nic.name} is beside GPU {nic.gpu}, but the host has {gpu_count}"
                hint = f"number them from 0 to {gpus - 1}, or correct 'gpus' of the host"
                raise document.error(("hosts", i, "nics", k, "gpu"), problem, hint)
        if gpus % nics and nics % gpus and any(nic.gpu is None for nic in host.nics):
            problem = f"the {nics} NICs of '{host.name}' cannot be divided evenly among {gpus} GPUs"
            raise document.error(("hosts", i, "gpus"), problem, "give each NIC the 'gpu' beside it")


def assign_gpus(host: HostSchema) -> tuple[int, ...]:
    """Return the number of the GPU beside each NIC: from the file, or else by dividing the NICs evenly in order."""
    gpus, nics = host.gpus or 1, len(host.nics)
    return tuple(k * gpus // nics if nic.gpu is None else nic.gpu for k, nic in enumerate(host.nics))


def _check_unique(document: Document, kind: str, names: Iterable[tuple[str, Location]]) -> None:
    first_locations: dict[str, Location] = {}
    for name, location in names:
        if name in first_locations:
            usage = f"already used on line {document.line(first_locations[name])}"
            raise document.error(location, f"{kind} '{name}' appears twice ({usage})", "rename one of them")
        first_locations[name] = location


def _check_switches(document: Document, schema: LabSchema) -> None:
    for i, switch in enumerate(schema.switches):
        location: Location = ("switches", i, "address")
        endpoint = parse_endpoint(switch.address)
        if endpoint is None:
            problem = f"'{switch.address}' is not the address of a switch"
            raise document.error(location, problem, "write it like polatis+scpi://10.99.0.2:5025")
        if endpoint.port is not None and not 1 <= endpoint.port <= 65535:
            raise document.error(location, f"{endpoint.port} is not a TCP port", "use one from 1 to 65535")
        if schema.simulated and endpoint.language not in list_lab_schemes():
            problem = f"no simulated switch of a lab supports '{endpoint.language}'"
            schemes = ", ".join(list_lab_schemes())
            raise document.error(location, problem, f"use one of {schemes}; or 'simulated: false'")
        if schema.simulated and endpoint.port is None and endpoint.language not in LANGUAGE_PORTS:
            problem = f"the simulated switch '{switch.name}' has no TCP port"
            raise document.error(location, problem, f"write {endpoint.language}://{endpoint.host}:PORT")
        if schema.simulated and _parse_numeric(switch.address) is None:
            problem = f"the simulated switch '{switch.name}' has no numeric address"
            raise document.error(location, problem, f"give it an address inside {schema.management}")
        if switch.twin and not schema.simulated:
            problem = f"switch '{switch.name}' of a real lab has a twin"
            raise document.error(("switches", i, "twin"), problem, "remove 'twin' or set 'simulated: true'")
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
            problem = f"'{key}' of a twin is {port}, which is also the port of {owners[port]}"
            raise document.error(("switches", index, "twin", key), problem, "choose another port")
        owners[port] = f"'{key}'"


def _check_switches_exist(document: Document, schema: LabSchema, uses: Iterable[_Use]) -> None:
    names = list(_index_switches(schema))
    for use in uses:
        if use.fibre.switch not in names:
            similar_names = difflib.get_close_matches(use.fibre.switch, names, n=1) or names
            fibre = f"the {use.direction} fibre of {use.user}"
            problem = f"{fibre} ends at switch '{use.fibre.switch}', which does not exist"
            raise document.error(
                use.location, problem, f"name a switch of this file ({', '.join(similar_names)})"
            )


def _check_enough_ports(document: Document, schema: LabSchema, uses: Iterable[_Use]) -> None:
    fibre_counts = Counter((use.fibre.switch, use.direction) for use in uses)
    for i, switch in enumerate(schema.switches):
        _check_count(document, i, switch.name, "input", switch.inputs, fibre_counts[switch.name, "transmit"])
        _check_count(document, i, switch.name, "output", switch.outputs, fibre_counts[switch.name, "receive"])


def _check_count(document: Document, index: int, switch: str, side: str, ports: int, fibres: int) -> None:
    if fibres > ports:
        problem = f"too few ports: {fibres} fibres end in the {ports} {side}s of switch '{switch}'"
        hint = f"give '{switch}' {fibres} {side}s or more, or move NICs to another switch"
        raise document.error(("switches", index, f"{side}s"), problem, hint)


def _check_side(document: Document, switch: SwitchSchema, use: _Use) -> None:
    """Check that a transmit fibre ends at an input, 1..N, and a receive fibre at an output, N+1..N+M."""
    port, last_port = use.fibre.number, switch.inputs + switch.outputs
    inputs, outputs = f"1..{switch.inputs}", f"{switch.inputs + 1}..{last_port}"
    if not 1 <= port <= last_port:
        fibre = f"the {use.direction} fibre of {use.user}"
        problem = f"{fibre} ends at port {port}, which switch '{switch.name}' does not have"
        raise document.error(use.location, problem, f"inputs are {inputs}, outputs are {outputs}")
    if use.direction == "transmit" and port > switch.inputs:
        problem = f"the transmit fibre of {use.user} ends in output {port} of switch '{switch.name}'"
        raise document.error(use.location, problem, f"a transmitter connects to an input, {inputs}")
    if use.direction == "receive" and port <= switch.inputs:
        problem = f"the receive fibre of {use.user} comes from input {port} of switch '{switch.name}'"
        raise document.error(use.location, problem, f"a receiver connects to an output, {outputs}")


def _check_ports_unique(document: Document, uses: Iterable[_Use]) -> None:
    first_uses: dict[tuple[str, int], _Use] = {}
    for use in uses:
        key = (use.fibre.switch, use.fibre.number)
        if key in first_uses:
            earlier_use = first_uses[key]
            problem = (
                f"port {key[1]} of switch '{key[0]}' is used twice: by {earlier_use.user} ({earlier_use.direction}, "
                f"line {document.line(earlier_use.location)}) and by {use.user} ({use.direction})"
            )
            raise document.error(use.location, problem, "check which fibre ends there, and correct the other")
        first_uses[key] = use


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
    for address, owner, location, is_management in _find_addresses(schema):
        if address in owners:
            earlier_owner, earlier_location = owners[address]
            earlier_text = f"{earlier_owner}, line {document.line(earlier_location)}"
            problem = f"{owner} has the address {address} of {earlier_text}"
            raise document.error(location, problem, "give each its own address")
        owners[address] = (owner, location)
        is_switch = location[0] == "switches"
        if is_management and (schema.simulated or not is_switch):
            _check_management_address(document, schema, address, owner, location)
        if not is_management:
            _check_data_address(document, schema, address, owner, location)


def _check_management_address(
    document: Document, schema: LabSchema, address: IPv4Address, owner: str, location: Location
) -> None:
    network = schema.management
    if address not in network:
        problem = f"{owner} has {address}, outside the management network {network}"
        raise document.error(
            location, problem, f"choose an address inside {network}, or correct 'management'"
        )
    if address in (network.network_address, network.broadcast_address):
        problem = f"{owner} has {address}, which is not a host address of {network}"
        raise document.error(location, problem, f"choose another address inside {network}")
    if schema.simulated and address == network.network_address + 1:
        problem = f"{owner} has {address}, which the simulation itself uses"
        raise document.error(location, problem, f"choose another address inside {network}")


def _check_data_address(
    document: Document, schema: LabSchema, address: IPv4Address, owner: str, location: Location
) -> None:
    if address in schema.management:
        problem = f"{owner} has {address}, inside the management network {schema.management}"
        raise document.error(location, problem, "links and nodes need addresses in a network of their own")
    if schema.simulated and location[0] == "boards" and address.packed[-1] in (0, 255):
        problem = f"{owner} has {address}, which is not a host address of the /24 of a simulated board"
        raise document.error(location, problem, "choose an address that ends in 1 to 254")
    if address.is_loopback or address.is_multicast or address.is_unspecified or address.is_link_local:
        problem = f"{owner} has {address}, which cannot be routed"
        raise document.error(location, problem, "choose an address like 10.100.1.1")
