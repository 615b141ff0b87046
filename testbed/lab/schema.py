"""The schema of a lab file: its keys, their types and defaults. `testbed.lab.checks` compares keys with each other.

Pydantic finds errors, and `read_schema` reports them with line and hint.
"""

from __future__ import annotations

import difflib
import re
from datetime import date
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from testbed.errors import LabFileError
from testbed.lab.document import Document, Location

DEFAULT_FIBRE_LOSS_DB = 0.3


def _check_name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", text):
        raise ValueError(f"{text!r} is not a name of at most 31 lower-case letters, digits and '-'")
    return text


def _check_interface(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]{0,14}", text):
        raise ValueError(f"{text!r} is not an interface name of the kernel (at most 15 letters and digits)")
    return text


def _check_user(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}", text):
        raise ValueError(f"{text!r} is not a user name of at most 32 letters, digits and '_.-'")
    return text


def _check_path(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError(f"{text!r} is not a path of one or more printable characters")
    return text


def _parse_address(value: object) -> IPv4Address:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not an IPv4 address like 10.99.0.11")  # noqa: TRY004, pydantic's protocol
    return IPv4Address(value)


def _parse_network(value: object) -> IPv4Network:
    if not isinstance(value, str) or "/" not in value:
        raise ValueError(f"{value!r} is not an IPv4 network like 10.99.0.0/24")
    return IPv4Network(value)


def _expand_fibre(value: object) -> object:
    """Expand the short form `ocs1:17` to `{port: 'ocs1:17'}`."""
    return {"port": value} if isinstance(value, str) else value


def _check_mac(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", text):
        raise ValueError(f"{text!r} is not a MAC address of lower-case hexadecimal digits")
    if int(text[:2], 16) & 1 or text == "00:00:00:00:00:00":
        raise ValueError(f"{text!r} is a multicast or all-zero MAC address")
    return text


def _wrap_in_list(value: object) -> object:
    """Wrap a single file in a list."""
    return [value] if isinstance(value, str) else value


def _check_switch_port(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}:[0-9]{1,6}", text):
        raise ValueError(f"{text!r} is not SWITCH:PORT like 'ocs1:17'")
    return text


Name = Annotated[str, AfterValidator(_check_name)]
Interface = Annotated[str, AfterValidator(_check_interface)]
User = Annotated[str, AfterValidator(_check_user)]
PathText = Annotated[str, AfterValidator(_check_path)]
Address = Annotated[IPv4Address, BeforeValidator(_parse_address)]
Network = Annotated[IPv4Network, BeforeValidator(_parse_network)]
Mac = Annotated[str, AfterValidator(_check_mac)]
Decibels = Annotated[float, Field(ge=0)]
TcpPort = Annotated[int, Field(ge=1, le=65535)]
UdpPort = TcpPort


class Schema(BaseModel):
    """Base of all schemas: no unknown keys, no silent conversions, no infinite numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class FibreSchema(Schema):
    """The end of a fibre, and its loss."""

    port: Annotated[str, AfterValidator(_check_switch_port)]
    loss_db: Decibels = DEFAULT_FIBRE_LOSS_DB

    @property
    def switch(self) -> str:
        """The switch at which the fibre ends."""
        return self.port.rpartition(":")[0]

    @property
    def number(self) -> int:
        """The port, in the switch's own numbers."""
        return int(self.port.rpartition(":")[2])


Fibre = Annotated[FibreSchema, BeforeValidator(_expand_fibre)]


class NicSchema(Schema):
    """One interface. Fibres may be missing if it is `unused`, or if their ends are not known yet.

    `unused` is the reason to leave the interface out of every topology. `gpu` is the number of the nearest GPU, from 0.
    """

    name: Interface
    address: Address
    gpu: Annotated[int, Field(ge=0)] | None = None
    transmit: Fibre | None = None
    receive: Fibre | None = None
    unused: str | None = None


class SshSchema(Schema):
    """SSH access to all hosts; each host may override user, port and Python."""

    user: User | None = None
    port: TcpPort | None = None
    python: PathText | None = None
    key: PathText | None = None


class HostSshSchema(Schema):
    """SSH access to one host, where it differs from the other hosts."""

    user: User | None = None
    port: TcpPort | None = None
    python: PathText | None = None


class HostSchema(Schema):
    """One host. Its NICs are divided evenly among `gpus` GPUs in their order, except where a NIC states its `gpu`."""

    name: Name
    management: Address
    address: Address
    gpus: Annotated[int, Field(ge=1, le=1024)] | None = None
    nics: Annotated[list[NicSchema], Field(min_length=1)]
    server: Name | None = None
    ssh: HostSshSchema = HostSshSchema()


class TwinSchema(Schema):
    """Behaviour of the simulated switch. The default of `switch_time_s` is the switching time of its family."""

    tl1_port: TcpPort = 3082
    control_port: TcpPort = 7025
    switch_time_s: Annotated[float, Field(ge=0, le=3600)] | None = None
    speed: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    options: dict[str, str] = {}
    boot_mode: Literal["DARK", "RESTORE", "AUTOSAVE"] = "DARK"


class SwitchSchema(Schema):
    """One optical switch."""

    name: Name
    address: str
    inputs: Annotated[int, Field(ge=1, le=100_000)]
    outputs: Annotated[int, Field(ge=1, le=100_000)]
    insertion_loss_db: Decibels = 1.2
    twin: TwinSchema | None = None


class LinkSchema(Schema):
    """Properties of every link."""

    rate_mbps: Annotated[float, Field(gt=0)]
    represents_gbps: Annotated[float, Field(gt=0)] | None = None
    mtu: Annotated[int, Field(ge=576, le=9216)] = 9000
    transmit_power_dbm: Annotated[float, Field(ge=-60, le=30)] = 0.0
    fit_rate: bool = False


class BoardPortSchema(Schema):
    """One port of a board. The default of `mac` is 02:00 followed by the four bytes of `address`."""

    name: Interface
    address: Address
    mac: Mac | None = None
    port: UdpPort = 8500
    transmit: Fibre
    receive: Fibre


class BoardSchema(Schema):
    """A smartNIC. `address` locates the registers of a real board, `program` is the program of a simulated board."""

    name: Name
    address: Annotated[str, Field(min_length=1)] | None = None
    program: Annotated[list[PathText], BeforeValidator(_wrap_in_list), Field(min_length=1)] | None = None
    bitstream: PathText | None = None
    ports: Annotated[list[BoardPortSchema], Field(min_length=1)]


class LabSchema(Schema):
    """The whole file."""

    name: Name
    simulated: bool = False
    management: Network
    link: LinkSchema
    switches: Annotated[list[SwitchSchema], Field(min_length=1)]
    ssh: SshSchema = SshSchema()
    hosts: Annotated[list[HostSchema], Field(min_length=1)]
    boards: list[BoardSchema] = []


_SCHEMA_BY_LOCATION: dict[tuple[str, ...], type[Schema]] = {
    (): LabSchema,
    ("link",): LinkSchema,
    ("switches",): SwitchSchema,
    ("switches", "twin"): TwinSchema,
    ("ssh",): SshSchema,
    ("hosts",): HostSchema,
    ("hosts", "ssh"): HostSshSchema,
    ("hosts", "nics"): NicSchema,
    ("hosts", "nics", "transmit"): FibreSchema,
    ("hosts", "nics", "receive"): FibreSchema,
    ("boards",): BoardSchema,
    ("boards", "ports"): BoardPortSchema,
    ("boards", "ports", "transmit"): FibreSchema,
    ("boards", "ports", "receive"): FibreSchema,
}


def read_schema(document: Document) -> LabSchema:
    """Return the document as a `LabSchema`. Raises `LabFileError` for the first error."""
    try:
        return LabSchema.model_validate(document.data)
    except ValidationError as error:
        # Report an unknown key first, because a misspelt key is also a missing one. Otherwise, go from top to bottom.
        details = min(
            error.errors(),
            key=lambda detail: (detail["type"] != "extra_forbidden", document.find_line(detail["loc"])),
        )
        raise _make_schema_error(document, details) from None


def _make_schema_error(document: Document, details: ErrorDetails) -> LabFileError:
    location, kind = details["loc"], details["type"]
    key = location[-1] if location else ""
    if kind == "extra_forbidden":
        similar_keys = difflib.get_close_matches(str(location[-1]), _list_keys(location), n=1, cutoff=0.5)
        suggestion = f", did you mean '{similar_keys[0]}'?" if similar_keys else ""
        return document.make_error(
            location, f"unknown key '{key}'{suggestion}", f"allowed here: {', '.join(_list_keys(location))}"
        )
    if kind == "missing":
        parent_text = f" in '{_join_dots(location[:-1])}'" if location[:-1] else ""
        return document.make_error(location, f"'{key}' is missing{parent_text}", f"add '{key}: ...'")
    problem = _describe_error(details)
    return document.make_error(location, f"'{_join_dots(location)}': {problem}", _make_hint(details))


def _describe_error(details: ErrorDetails) -> str:
    """Return the expected kind of value, and the actual value if it fits on a line."""
    message, value = details["msg"].removeprefix("Value error, "), details["input"]
    if value is None:
        return "there is no value"
    if details["type"] in _MAPPING_TYPES:
        message = "input should be a mapping of keys to values"
    elif details["type"] == "too_short":
        return "the list is empty"
    elif isinstance(value, str) and details["type"] == "value_error" and repr(value) not in message:
        message = f"{value!r}: {message}"  # `ipaddress` may quote only a part of an address
    message = message[:1].lower() + message[1:] if message.startswith("Input") else message
    if details["type"] == "value_error" or not isinstance(value, str | int | float | bool | date):
        return message
    hint = " (put it in quotes to make it text)" if details["type"] == "string_type" else ""
    value_text = str(value) if isinstance(value, date) else repr(value)
    return f"{message}, not {value_text}{hint}"


_MAPPING_TYPES = ("model_type", "model_attributes_type", "dict_type")
_HINT_BY_ERROR_TYPE = {
    "bool_type": "write true or false, without quotes",
    "float_type": "write a number like 0.3, without quotes and without a unit",
    "finite_number": "write a number like 0.3",
    "int_from_float": "write a whole number like 48",
    "int_type": "write a whole number like 48, without quotes",
    "list_type": "write one item per line, each after '- '",
    "literal_error": "write one of these values exactly",
    "string_type": "put the value in quotes",
    "too_short": "list at least one",
    **dict.fromkeys(_MAPPING_TYPES, "write 'key: value' lines under it, or {key: value}"),
}
_HINT_BY_KEY = {
    "address": "write four numbers like 10.100.1.1",
    "mac": "write six pairs of digits in quotes: '02:00:0a:64:14:01'",
    "management": "write four numbers like 10.99.0.11",
    "name": "choose another name",
    **dict.fromkeys(("port", "transmit", "receive"), "write switch and port in quotes: 'ocs1:17'"),
}


def _make_hint(details: ErrorDetails) -> str:
    """Return a hint that shows or describes a valid value."""
    key, kind = str(details["loc"][-1]) if details["loc"] else "", details["type"]
    if details["input"] is None:
        return "write a value after the key, or remove the key"
    if details["loc"] == ("management",):
        return "write a network like 10.99.0.0/24"
    if kind == "value_error" or (kind in _MAPPING_TYPES and key in _HINT_BY_KEY):
        return _HINT_BY_KEY.get(key, "correct the value")
    return _HINT_BY_ERROR_TYPE.get(kind, "choose a value in this range")


def _list_keys(location: Location) -> list[str]:
    schema = _SCHEMA_BY_LOCATION.get(tuple(part for part in location[:-1] if isinstance(part, str)))
    return list(schema.model_fields) if schema else []


def _join_dots(location: Location) -> str:
    """Return a location as text, such as `hosts[2].nics[0].address`; indices start at 0."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")
