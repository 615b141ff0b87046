"""Models on a simulated smartNIC behind a TAP device. The NIC's RTL answers the packets, not software.

The address `verilator://TAP?address=10.77.0.2/24&mac=02:00:00:00:00:02&port=8500` names the device and the NIC. Models
have the numbers 0, 1, ... in their order. docs/reference/serving.md lists the keys.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Interface
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from fpga.errors import FpgaError
from lightning.errors import AddressError, OutOfRange, ServingError, UnknownKey, UnknownScheme
from lightning.serving.packets.codec import (
    DecodedAnswer,
    Kind,
    Packet,
    decode_answer,
    parse,
    serialise,
)
from lightning.serving.repository import check_name, read_model

if TYPE_CHECKING:
    from fpga.smartnic.program import NicProgram
    from fpga.smartnic.request_trace import RequestTrace
    from fpga.smartnic.simulator import Settings, SmartNic
    from fpga.smartnic.tap import StopSignal
    from lightning.compiler import CompiledModel

SCHEME = "verilator"
EXAMPLE_ADDRESS = "verilator://nic0?address=10.77.0.2/24"
DEFAULT_PORT = 8500
_ADDRESS_KEYS = ("address", "mac", "port", "delay", "shift", "noise", "seed", "latency_ns", "preamble")
_CYCLE_NS = 4
"""Cycle of the NIC's clock of 250 MHz."""
_RANGE_BY_KEY = {
    "port": (1, 65535),
    "delay": (0, 15),
    "shift": (0, 15),
    "noise": (0, 1),
    "seed": (0, 2**32 - 1),
    "latency_ns": (0, 255 * _CYCLE_NS),
    "preamble": (1, 255),
}


@dataclass(frozen=True)
class NicAddress:
    """A smartNIC: its TAP device, its addresses, and settings of its optics and memory. None selects the default."""

    interface: str
    address: IPv4Interface
    mac: str
    port: int = DEFAULT_PORT
    seed: int = 0
    noise: bool | None = None
    delay: int | None = None
    shift: int | None = None
    preamble: int | None = None
    latency_ns: int | None = None

    def __str__(self) -> str:
        return f"udp://{self.address.ip}:{self.port} on {self.interface}"


def parse_address(text: str, seed: int = 0) -> NicAddress:
    """Return the NIC at an address. `seed` is the seed of the optics unless the address has one.

    Raise `AddressError` (`UnknownScheme`), `UnknownKey` or `OutOfRange` for an invalid address.

    >>> parse_address("verilator://nic0?address=10.77.0.2/24").mac
    '02:00:0a:4d:00:02'
    """
    try:
        parts = urlsplit(text)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise AddressError(f"{text!r} is not an address of a NIC", hint=f"Write {EXAMPLE_ADDRESS}") from error
    if parts.scheme != SCHEME:
        raise UnknownScheme(f"{text!r} is not an address of a simulated NIC", hint=f"Write {EXAMPLE_ADDRESS}")
    if not parts.netloc or parts.path.strip("/") or parts.fragment:
        raise AddressError(f"{text!r} does not name one TAP device", hint=f"Write {EXAMPLE_ADDRESS}")
    text_by_key: dict[str, str] = {}
    for key, value in pairs:
        if key not in _ADDRESS_KEYS:
            raise UnknownKey(f"a NIC has no key {key!r}", hint=f"Choose {', '.join(_ADDRESS_KEYS)}")
        if key in text_by_key:
            raise AddressError(f"{key} is given twice", hint="Leave one of them out")
        text_by_key[key] = value
    if "address" not in text_by_key:
        raise AddressError(f"{text!r} gives the NIC no IPv4 address", hint=f"Write {EXAMPLE_ADDRESS}")
    address = _parse_interface(text_by_key["address"])
    numbers = {key: _parse_number(key, text_by_key[key]) for key in _RANGE_BY_KEY if key in text_by_key}
    noise = numbers.pop("noise", None)
    if "seed" not in numbers:
        numbers["seed"] = seed
        _check_range("seed", seed)
    return NicAddress(
        parts.netloc,
        address,
        _parse_mac(text_by_key.get("mac", "02:00:" + address.ip.packed.hex(":"))),
        noise=None if noise is None else bool(noise),
        **numbers,
    )


def _parse_interface(text: str) -> IPv4Interface:
    try:
        address = IPv4Interface(text)
    except ValueError as error:
        raise AddressError(
            f"{text!r} is not an IPv4 address with a prefix", hint="Write for example 10.77.0.2/24"
        ) from error
    subnet = address.network
    if subnet.prefixlen > 30:
        raise AddressError(
            f"{text} has no room for the NIC and this host",
            hint="Use a prefix of at most 30 bits, such as /24",
        )
    if address.ip in (subnet.network_address, subnet.broadcast_address) or address.ip.is_multicast:
        raise AddressError(
            f"{address.ip} is not the address of a host in {subnet}", hint=f"Write {EXAMPLE_ADDRESS}"
        )
    return address


def _parse_mac(text: str) -> str:
    octets = text.lower().split(":")
    if len(octets) != 6 or not all(
        len(octet_text) == 2 and set(octet_text) <= set("0123456789abcdef") for octet_text in octets
    ):
        raise AddressError(f"{text!r} is not a MAC address", hint="Write for example 02:00:00:00:00:02")
    if int(octets[0], 16) & 1 or set(octets) == {"00"}:
        raise AddressError(
            f"{text} is a multicast or all-zero MAC address", hint="Write for example 02:00:00:00:00:02"
        )
    return ":".join(octets)


def _parse_number(key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise AddressError(f"{key} {text!r} is not an integer", hint=f"Write for example {key}=1")
    return _check_range(key, int(text))


def _check_range(key: str, value: int) -> int:
    lowest, highest = _RANGE_BY_KEY[key]
    if not lowest <= value <= highest:
        raise OutOfRange(f"{key} {value} is out of range", hint=f"Choose {lowest} to {highest}")
    return value


@dataclass(frozen=True)
class NicModelFile:
    """A model that the NIC serves, and its file."""

    name: str
    number: int
    file: Path

    @property
    def document(self) -> dict[str, Any]:
        """The model's entry in the ready line."""
        return {"name": self.name, "number": self.number, "file": str(self.file)}


def load_program(files: Mapping[str, Path]) -> tuple[NicProgram, list[NicModelFile]]:
    """Return the program of the models in `files` (by name), and the models with their numbers.

    Raise the errors of files and of the compiler, and `ServingError` if the models do not fit in the NIC.
    """
    from fpga.smartnic.program import NicProgram
    from lightning.compiler.smartnic import make_nic_model

    models = []
    for name, path in files.items():
        check_name(name)
        models.append(make_nic_model(read_model(path)[0], name))
    with _translate_errors():
        program = NicProgram(tuple(models))
    return program, [NicModelFile(name, number, path) for number, (name, path) in enumerate(files.items())]


def make_nic(program: NicProgram, nic_address: NicAddress, *, noise: bool = False) -> SmartNic:
    """Return a simulated NIC with a program. The caller must close it.

    The first call builds the simulator, which takes a minute. Raise `ServingError` if a tool is missing or fails.
    """
    from fpga.smartnic.simulator import SmartNic

    with _translate_errors():
        nic = SmartNic(_make_settings(nic_address, noise=noise))
        nic.load(program)
        return nic


def serve_nic(
    nic: SmartNic,
    nic_address: NicAddress,
    namespace: str | None,
    report_ready: Callable[[], None],
    stop: StopSignal,
) -> dict[str, int]:
    """Serve on a simulated NIC until `stop` is readable, and return its counters.

    Call `report_ready` when the NIC can be reached. Raise `ServingError` if the TAP device cannot be opened.
    """
    from fpga.smartnic.tap import open_tap, serve_tap

    with _translate_errors():
        with open_tap(nic_address.interface, nic_address.address, namespace) as tap:
            report_ready()
            serve_tap(nic, tap, stop)
        return nic.read_counters()


def trace_model(compiled: CompiledModel, name: str, image: bytes) -> RequestTrace:
    """Return the trace of one request on a simulated NIC. Raise the errors of `make_nic_model`, and `ServingError`."""
    from fpga.smartnic.program import NicProgram
    from fpga.smartnic.request_trace import trace_request
    from fpga.smartnic.simulator import SmartNic
    from lightning.compiler.smartnic import make_nic_model

    program = NicProgram((make_nic_model(compiled, name),))
    with _translate_errors(), closing(SmartNic()) as nic:
        nic.load(program)
        return trace_request(nic, make_request(nic.settings, image))


def make_request(settings: Settings, image: bytes) -> bytes:
    """Return the frame of a request for model 0 of a NIC with these settings."""
    from fpga.smartnic.frames import Endpoint, make_datagram

    client = Endpoint("02:00:00:00:00:01", "10.77.0.1", DEFAULT_PORT)
    packet = serialise(Packet(Kind.REQUEST, 0, 0, image))
    return make_datagram(packet, client, Endpoint(settings.mac, settings.address, settings.port))


def decode_request_answer(request_trace: RequestTrace) -> DecodedAnswer:
    """Return the answer to a request. Raise `PacketError` for a refusal."""
    from fpga.smartnic.frames import get_payload

    return decode_answer(parse(get_payload(request_trace.answer)).payload)


def _make_settings(nic_address: NicAddress, *, noise: bool) -> Settings:
    from fpga.photonic_mac.network import Optics
    from fpga.smartnic.simulator import Settings

    optics = {
        "delay": nic_address.delay,
        "shift": nic_address.shift,
        "seed": nic_address.seed,
        "noise": noise,
    }
    latency_cycles = None if nic_address.latency_ns is None else -(-nic_address.latency_ns // _CYCLE_NS)
    other_settings = {"preamble": nic_address.preamble, "memory_latency": latency_cycles}
    return Settings(
        mac=nic_address.mac,
        address=str(nic_address.address.ip),
        port=nic_address.port,
        optics=Optics(**_drop_none(optics)),
        **_drop_none(other_settings),
    )


def _drop_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Convert errors of the hardware flow and of the NIC to `ServingError`, with the same text."""
    try:
        yield
    except FpgaError as error:
        message, _, hint = str(error).partition(" Hint: ")
        raise ServingError(message.rstrip("."), hint=hint.rstrip(".")) from error


@contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGTERM, so that an interrupted build removes its files. Main thread only."""
    previous_handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


@contextmanager
def stop_on_signals(signals: Sequence[int] = (signal.SIGINT, signal.SIGTERM)) -> Iterator[socket.socket]:
    """Yield a socket that becomes readable when one of the signals arrives. Main thread only."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("only the main thread can wait for signals; call stop_on_signals there")
    receiver, sender = socket.socketpair()
    with receiver, sender:
        sender.setblocking(False)
        previous_descriptor = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        previous_handlers = {number: signal.signal(number, lambda *_: None) for number in signals}
        try:
            yield receiver
        finally:
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(previous_descriptor)
