"""Checks of a lab file: unique names and addresses, and for every fibre a free input or output of its switch.

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

DEFAULT_PORT_BY_PROTOCOL: Mapping[str, int] = {"polatis+scpi": 5025, "polatis+tl1": 3082}
"""Default TCP port of each protocol of a simulated Polatis, which serves both."""

_RESERVED_NAMES_BY_KIND: Mapping[str, tuple[str, ...]] = {
    "hosts": ("fab", "mgmt", "localhost"),
    "nics": ("lo", "mgmt"),
    "boards": ("fab", "mgmt", "localhost"),
    "ports": ("lo",),
    "switches": ("plant",),
}
"""Names that a simulated lab uses for its own namespaces and links, by kind. `sim.lab` refuses them, too."""


class Endpoint(NamedTuple):
    """The parts of a switch address: protocol, host and TCP port (None: the default of the protocol)."""

    protocol: str
    host: str
    port: int | None


def parse_endpoint(address: str) -> Endpoint | None:
    """Parse `polatis+scpi://host:5025` or `TCPIP0::host::5025::SOCKET`; return None if it is neither.

    >>> parse_endpoint("polatis+tl1://10.99.0.2:3082")
    Endpoint(protocol='polatis+tl1', host='10.99.0.2', port=3082)
    """
    visa_match = re.fullmatch(r"(?i)TCPIP\d*::([^:]+)::(\d+)::SOCKET", address)
    if visa_match:
        return Endpoint("polatis+scpi", visa_match[1], int(visa_match[2]))
    url_match = re.fullmatch(r"([a-z0-9+-]+)://(?:[^@/]*@)?([^:/?@]+)(?::(\d{1,5}))?(?:[/?].*)?", address)
    return (
        Endpoint(url_match[1], url_match[2], int(url_match[3]) if url_match[3] else None)
        if url_match
        else None
    )


class _FibreUse(NamedTuple):
    """The use of a switch port: `host/nic`, the direction of light, the fibre, and the location of the fibre's key."""

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
    uses = list(_find_fibre_uses(schema))
    _check_switches_exist(document, schema, uses)
    _check_enough_ports(document, schema, uses)
    for use in uses:
        _check_side(document, _index_switches(schema)[use.fibre.switch], use)
    _check_ports_unique(document, uses)
    _check_addresses(document, schema)


def _index_switches(schema: LabSchema) -> dict[str, SwitchSchema]:
    return {switch.name: switch for switch in schema.switches}


def _find_fibre_uses(schema: LabSchema) -> Iterator[_FibreUse]:
    for host_index, host in enumerate(schema.hosts):
        for nic_index, nic in enumerate(host.nics):
            location: Location = ("hosts", host_index, "nics", nic_index)
            user = f"{host.name}/{nic.name}"
            if nic.transmit:
                yield _FibreUse(user, "transmit", nic.transmit, (*location, "transmit"))
            if nic.receive:
                yield _FibreUse(user, "receive", nic.receive, (*location, "receive"))
    for board_index, board in enumerate(schema.boards):
        for port_index, port in enumerate(board.ports):
            location, user = ("boards", board_index, "ports", port_index), f"{board.name}/{port.name}"
            yield _FibreUse(user, "transmit", port.transmit, (*location, "transmit"))
            yield _FibreUse(user, "receive", port.receive, (*location, "receive"))


def check_wired(document: Document, schema: LabSchema) -> None:
    """Check that both fibres of every NIC that is not `unused` are given. Raises `LabFileError`."""
    for host_index, host in enumerate(schema.hosts):
        for nic_index, nic in enumerate(host.nics):
            missing_directions = [
                direction for direction in ("transmit", "receive") if getattr(nic, direction) is None
            ]
            if missing_directions and nic.unused is None:
                nic_text = f"'hosts[{host_index}].nics[{nic_index}]'"
                problem = (
                    f"'{missing_directions[0]}' is missing in {nic_text}: the end of this fibre is unknown"
                )
                hint = f"add it, or run `testbed discover {document.path} -o WIRED.yaml` to find all missing ones"
                raise document.make_error(("hosts", host_index, "nics", nic_index), problem, hint)


def _check_names(document: Document, schema: LabSchema) -> None:
    switches: list[tuple[str, Location]] = [
        (switch.name, ("switches", switch_index, "name"))
        for switch_index, switch in enumerate(schema.switches)
    ]
    hosts: list[tuple[str, Location]] = [
        (host.name, ("hosts", host_index, "name")) for host_index, host in enumerate(schema.hosts)
    ]
    boards: list[tuple[str, Location]] = [
        (board.name, ("boards", board_index, "name")) for board_index, board in enumerate(schema.boards)
    ]
    _check_unique(document, "name", switches + hosts + boards)
    for host_index, host in enumerate(schema.hosts):
        nics: list[tuple[str, Location]] = [
            (nic.name, ("hosts", host_index, "nics", nic_index, "name"))
            for nic_index, nic in enumerate(host.nics)
        ]
        _check_unique(document, f"interface of host '{host.name}'", nics)
    for board_index, board in enumerate(schema.boards):
        ports: list[tuple[str, Location]] = [
            (port.name, ("boards", board_index, "ports", port_index, "name"))
            for port_index, port in enumerate(board.ports)
        ]
        _check_unique(document, f"port of board '{board.name}'", ports)


def _check_simulated_names(document: Document, schema: LabSchema) -> None:
    """Check the names that a simulated lab gives to its namespaces and interfaces. A real lab may have other names."""
    if not schema.simulated:
        return
    interfaces: list[tuple[str, str, Location]] = [
        (
            f"interface '{nic.name}' of host '{host.name}'",
            nic.name,
            ("hosts", host_index, "nics", nic_index, "name"),
        )
        for host_index, host in enumerate(schema.hosts)
        for nic_index, nic in enumerate(host.nics)
    ]
    interfaces += [
        (
            f"port '{port.name}' of board '{board.name}'",
            port.name,
            ("boards", board_index, "ports", port_index, "name"),
        )
        for board_index, board in enumerate(schema.boards)
        for port_index, port in enumerate(board.ports)
    ]
    for subject, name, location in interfaces:
        if not re.fullmatch(r"[a-z][a-z0-9]*", name):
            hint = f"use lower-case letters and digits, like {'nic1' if location[0] == 'hosts' else 'port1'}"
            raise document.make_error(location, f"{subject} cannot be simulated under this name", hint)
    named_parts: list[tuple[str, str, Location]] = [
        *(
            (f"host '{host.name}'", host.name, ("hosts", host_index, "name"))
            for host_index, host in enumerate(schema.hosts)
        ),
        *(
            (f"board '{board.name}'", board.name, ("boards", board_index, "name"))
            for board_index, board in enumerate(schema.boards)
        ),
        *(
            (f"switch '{switch.name}'", switch.name, ("switches", switch_index, "name"))
            for switch_index, switch in enumerate(schema.switches)
        ),
    ]
    for subject, name, location in [*named_parts, *interfaces]:
        if name in _RESERVED_NAMES_BY_KIND[str(location[-3])]:
            raise document.make_error(
                location, f"{subject} has a name that the simulation itself uses", "rename it"
            )


def _check_boards(document: Document, schema: LabSchema) -> None:
    """Check that real boards have an address, that simulated boards have only a program, and that MACs are unique."""
    for board_index, board in enumerate(schema.boards):
        for key in ("address", "bitstream"):
            if schema.simulated and getattr(board, key) is not None:
                problem = f"board '{board.name}' has '{key}', but the lab is simulated"
                raise document.make_error(
                    ("boards", board_index, key), problem, f"remove '{key}': a simulated board has none"
                )
        if not schema.simulated and board.address is None:
            problem = f"'address' is missing in 'boards[{board_index}]'"
            raise document.make_error(
                ("boards", board_index), problem, "add the address of its registers, like pynq://0xA0000000"
            )
    macs: list[tuple[str, Location]] = [
        (get_mac(port), ("boards", board_index, "ports", port_index, "mac"))
        for board_index, board in enumerate(schema.boards)
        for port_index, port in enumerate(board.ports)
    ]
    _check_unique(document, "MAC address", macs)


def get_mac(port: BoardPortSchema) -> str:
    """Return the MAC address of a board's port: from the file, or else 02:00 and the bytes of its IPv4 address."""
    return port.mac or f"02:00:{port.address.packed.hex(':')}"


def _check_gpus(document: Document, schema: LabSchema) -> None:
    """Check that the GPU of every NIC exists, and that NICs and GPUs divide evenly if a NIC names no GPU."""
    for host_index, host in enumerate(schema.hosts):
        gpu_count, nic_count = host.gpus or 1, len(host.nics)
        for nic_index, nic in enumerate(host.nics):
            if nic.gpu is not None and nic.gpu >= gpu_count:
                gpu_text = format_count(gpu_count, "GPU")
                problem = f"{host.name}/{nic.name} is beside GPU {nic.gpu}, but the host has {gpu_text}"
                hint = f"number them from 0 to {gpu_count - 1}, or correct 'gpus' of the host"
                raise document.make_error(("hosts", host_index, "nics", nic_index, "gpu"), problem, hint)
        if gpu_count % nic_count and nic_count % gpu_count and any(nic.gpu is None for nic in host.nics):
            problem = f"the {nic_count} NICs of '{host.name}' cannot be divided evenly among {gpu_count} GPUs"
            raise document.make_error(
                ("hosts", host_index, "gpus"), problem, "give each NIC the 'gpu' beside it"
            )


def assign_gpus(host: HostSchema) -> tuple[int, ...]:
    """Return the number of the GPU beside each NIC: from the file, or else by dividing the NICs evenly in order."""
    gpu_count, nic_count = host.gpus or 1, len(host.nics)
    return tuple(
        nic_index * gpu_count // nic_count if nic.gpu is None else nic.gpu
        for nic_index, nic in enumerate(host.nics)
    )


def _check_unique(document: Document, kind: str, entries: Iterable[tuple[str, Location]]) -> None:
    location_by_name: dict[str, Location] = {}
    for name, location in entries:
        if name in location_by_name:
            usage = f"already used on line {document.find_line(location_by_name[name])}"
            raise document.make_error(
                location, f"{kind} '{name}' appears twice ({usage})", "rename one of them"
            )
        location_by_name[name] = location


def _check_switches(document: Document, schema: LabSchema) -> None:
    for switch_index, switch in enumerate(schema.switches):
        location: Location = ("switches", switch_index, "address")
        endpoint = parse_endpoint(switch.address)
        if endpoint is None:
            problem = f"'{switch.address}' is not the address of a switch"
            raise document.make_error(location, problem, "write it like polatis+scpi://10.99.0.2:5025")
        if endpoint.port is not None and not 1 <= endpoint.port <= 65535:
            raise document.make_error(
                location, f"{endpoint.port} is not a TCP port", "use one from 1 to 65535"
            )
        if schema.simulated and endpoint.protocol not in list_lab_schemes():
            problem = f"no simulated switch of a lab supports '{endpoint.protocol}'"
            schemes = ", ".join(list_lab_schemes())
            raise document.make_error(location, problem, f"use one of {schemes}; or 'simulated: false'")
        if schema.simulated and endpoint.port is None and endpoint.protocol not in DEFAULT_PORT_BY_PROTOCOL:
            problem = f"the simulated switch '{switch.name}' has no TCP port"
            raise document.make_error(location, problem, f"write {endpoint.protocol}://{endpoint.host}:PORT")
        if schema.simulated and _parse_numeric_host(switch.address) is None:
            problem = f"the simulated switch '{switch.name}' has no numeric address"
            raise document.make_error(location, problem, f"give it an address inside {schema.management}")
        if switch.twin and not schema.simulated:
            problem = f"switch '{switch.name}' of a real lab has a twin"
            raise document.make_error(
                ("switches", switch_index, "twin"), problem, "remove 'twin' or set 'simulated: true'"
            )
        if switch.twin:
            _check_twin_ports(document, switch_index, switch.twin, endpoint)


def _check_twin_ports(document: Document, switch_index: int, twin: TwinSchema, endpoint: Endpoint) -> None:
    """Check that the listeners of a twin have different ports, because they share one address."""
    owner_by_port = {endpoint.port or 0: "its address"}
    port_by_key = {"tl1_port": twin.tl1_port, "control_port": twin.control_port}
    if endpoint.protocol != "polatis+scpi" and endpoint.port is not None:
        del port_by_key["tl1_port"]  # the port in the address replaces `tl1_port`
    for key, port in port_by_key.items():
        if port in owner_by_port:
            problem = f"'{key}' of a twin is {port}, which is also the port of {owner_by_port[port]}"
            raise document.make_error(("switches", switch_index, "twin", key), problem, "choose another port")
        owner_by_port[port] = f"'{key}'"


def _check_switches_exist(document: Document, schema: LabSchema, uses: Iterable[_FibreUse]) -> None:
    names = list(_index_switches(schema))
    for use in uses:
        if use.fibre.switch not in names:
            similar_names = difflib.get_close_matches(use.fibre.switch, names, n=1) or names
            fibre = f"the {use.direction} fibre of {use.user}"
            problem = f"{fibre} ends at switch '{use.fibre.switch}', which does not exist"
            raise document.make_error(
                use.location, problem, f"name a switch of this file ({', '.join(similar_names)})"
            )


def _check_enough_ports(document: Document, schema: LabSchema, uses: Iterable[_FibreUse]) -> None:
    fibre_counts = Counter((use.fibre.switch, use.direction) for use in uses)
    for switch_index, switch in enumerate(schema.switches):
        _check_port_count(
            document, switch_index, switch.name, "input", switch.inputs, fibre_counts[switch.name, "transmit"]
        )
        _check_port_count(
            document,
            switch_index,
            switch.name,
            "output",
            switch.outputs,
            fibre_counts[switch.name, "receive"],
        )


def _check_port_count(
    document: Document, switch_index: int, switch: str, side: str, port_count: int, fibre_count: int
) -> None:
    if fibre_count > port_count:
        problem = f"too few ports: {fibre_count} fibres end in the {port_count} {side}s of switch '{switch}'"
        hint = f"give '{switch}' {fibre_count} {side}s or more, or move NICs to another switch"
        raise document.make_error(("switches", switch_index, f"{side}s"), problem, hint)


def _check_side(document: Document, switch: SwitchSchema, use: _FibreUse) -> None:
    """Check that a transmit fibre ends at an input, 1..N, and a receive fibre at an output, N+1..N+M."""
    port, last_port = use.fibre.number, switch.inputs + switch.outputs
    input_range, output_range = f"1..{switch.inputs}", f"{switch.inputs + 1}..{last_port}"
    if not 1 <= port <= last_port:
        fibre = f"the {use.direction} fibre of {use.user}"
        problem = f"{fibre} ends at port {port}, which switch '{switch.name}' does not have"
        raise document.make_error(
            use.location, problem, f"inputs are {input_range}, outputs are {output_range}"
        )
    if use.direction == "transmit" and port > switch.inputs:
        problem = f"the transmit fibre of {use.user} ends in output {port} of switch '{switch.name}'"
        raise document.make_error(use.location, problem, f"a transmitter connects to an input, {input_range}")
    if use.direction == "receive" and port <= switch.inputs:
        problem = f"the receive fibre of {use.user} comes from input {port} of switch '{switch.name}'"
        raise document.make_error(use.location, problem, f"a receiver connects to an output, {output_range}")


def _check_ports_unique(document: Document, uses: Iterable[_FibreUse]) -> None:
    use_by_port: dict[tuple[str, int], _FibreUse] = {}
    for use in uses:
        port = (use.fibre.switch, use.fibre.number)
        if port in use_by_port:
            earlier_use = use_by_port[port]
            problem = (
                f"port {port[1]} of switch '{port[0]}' is used twice: by {earlier_use.user} ({earlier_use.direction}, "
                f"line {document.find_line(earlier_use.location)}) and by {use.user} ({use.direction})"
            )
            raise document.make_error(
                use.location, problem, "check which fibre ends there, and correct the port of the other fibre"
            )
        use_by_port[port] = use


def _find_addresses(schema: LabSchema) -> Iterator[tuple[IPv4Address, str, Location, bool]]:
    """Yield every address with its owner, its location in the file, and whether it is a management address."""
    for switch_index, switch in enumerate(schema.switches):
        address = _parse_numeric_host(switch.address)
        if address:
            yield address, f"switch '{switch.name}'", ("switches", switch_index, "address"), True
    for host_index, host in enumerate(schema.hosts):
        yield host.management, f"host '{host.name}' (management)", ("hosts", host_index, "management"), True
        yield host.address, f"host '{host.name}'", ("hosts", host_index, "address"), False
        for nic_index, nic in enumerate(host.nics):
            yield (
                nic.address,
                f"{host.name}/{nic.name}",
                ("hosts", host_index, "nics", nic_index, "address"),
                False,
            )
    for board_index, board in enumerate(schema.boards):
        for port_index, port in enumerate(board.ports):
            yield (
                port.address,
                f"{board.name}/{port.name}",
                ("boards", board_index, "ports", port_index, "address"),
                False,
            )


def _parse_numeric_host(address: str) -> IPv4Address | None:
    endpoint = parse_endpoint(address)
    try:
        return IPv4Address(endpoint.host) if endpoint else None
    except AddressValueError:
        return None


def _check_addresses(document: Document, schema: LabSchema) -> None:
    owner_by_address: dict[IPv4Address, tuple[str, Location]] = {}
    for address, owner, location, is_management in _find_addresses(schema):
        if address in owner_by_address:
            earlier_owner, earlier_location = owner_by_address[address]
            earlier_text = f"{earlier_owner}, line {document.find_line(earlier_location)}"
            problem = f"{owner} has the address {address} of {earlier_text}"
            raise document.make_error(location, problem, "give each its own address")
        owner_by_address[address] = (owner, location)
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
        raise document.make_error(
            location, problem, f"choose an address inside {network}, or correct 'management'"
        )
    if address in (network.network_address, network.broadcast_address):
        problem = f"{owner} has {address}, which is not a host address of {network}"
        raise document.make_error(location, problem, f"choose another address inside {network}")
    if schema.simulated and address == network.network_address + 1:
        problem = f"{owner} has {address}, which the simulation itself uses"
        raise document.make_error(location, problem, f"choose another address inside {network}")


def _check_data_address(
    document: Document, schema: LabSchema, address: IPv4Address, owner: str, location: Location
) -> None:
    if address in schema.management:
        problem = f"{owner} has {address}, inside the management network {schema.management}"
        raise document.make_error(
            location, problem, "links and nodes need addresses in a network of their own"
        )
    if schema.simulated and location[0] == "boards" and address.packed[-1] in (0, 255):
        problem = f"{owner} has {address}, but a simulated board has a /24 network, in which this is not a host address"
        raise document.make_error(location, problem, "choose an address that ends in 1 to 254")
    if address.is_loopback or address.is_multicast or address.is_unspecified or address.is_link_local:
        problem = f"{owner} has {address}, which cannot be routed"
        raise document.make_error(location, problem, "choose an address like 10.100.1.1")
