"""A network device of this machine as the wire of a simulated NIC: programs reach it through the kernel.

A TAP device leads to this machine; any other existing Ethernet interface leads to the network connected to it.

    with open_tap("nic0", IPv4Interface("10.77.0.2/24"), namespace="lab") as tap:
        serve_tap(nic, tap, stop)

Linux only, with the privilege to make network devices (CAP_NET_ADMIN; CAP_SYS_ADMIN to enter a namespace).
"""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import os
import re
import select
import socket
import struct
import threading
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from fpga.errors import FpgaError
from fpga.smartnic.frames import compute_checksum

if TYPE_CHECKING:
    from fpga.smartnic.simulator import SmartNic

Result = TypeVar("Result")

MIN_FRAME_BYTES = 60
"""Minimum size of a frame on a wire, without its check: network cards pad shorter ones."""
_MAX_FRAME_BYTES = 1518
_BURST_FRAMES = 64
"""Largest number of frames waiting in front of the NIC. More frames wait in the kernel, which may drop them."""
_CYCLES_PER_POLL = 2_000
"""NIC cycles between two polls of the device."""

_TUN, _NAMESPACES = Path("/dev/net/tun"), Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_SIOCGIFCONF, _SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8912, 0x8913, 0x8914, 0x1
_SIOCETHTOOL, _ETHTOOL_GDRVINFO = 0x8946, 0x3
_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, _PACKET_AUXDATA, _PROMISCUOUS = 263, 1, 8, 1
_ETH_P_ALL, _ARPHRD_ETHER, _CHECKSUM_NOT_READY = 3, 1, 0x8
_AUXILIARY_BYTES = socket.CMSG_SPACE(20)
"""Size of a message with a `tpacket_auxdata`, whose first word tells whether the checksum is complete."""
_NAME_BYTES = 15
_ADDRESS_ENTRY = struct.Struct("16s2xH4s16x")
"""An entry of SIOCGIFCONF: name, port, IPv4 address."""


class TapError(FpgaError, code="fpga.tap"):
    """A TAP device cannot be opened."""


class StopSignal(Protocol):
    """Something whose file becomes readable when serving should end, such as a socket or a pipe."""

    def fileno(self) -> int:
        """Return the file descriptor."""
        ...


class Tap:
    """An open TAP device for whole Ethernet frames. Calls do not block. As a context manager it closes itself."""

    device_kind = "TAP device"

    def __init__(self, file_descriptor: int, interface: str) -> None:
        self.interface = interface
        self._file = file_descriptor

    def fileno(self) -> int:
        """Return the file descriptor, which is readable when the host has sent a frame."""
        return self._file

    def read(self) -> bytes | None:
        """Return the next frame from the host, padded to 60 bytes; None if there is none. Raise TapError."""
        try:
            return os.read(self._file, _MAX_FRAME_BYTES).ljust(MIN_FRAME_BYTES, b"\0")
        except BlockingIOError:
            return None
        except OSError as error:
            raise self._make_loss_error(error) from error

    def write(self, frame: bytes) -> None:
        """Give a frame to the host, which drops it if the device is down. Raise TapError."""
        try:
            os.write(self._file, frame)
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EAGAIN, errno.ENOBUFS, errno.EINVAL):
                raise self._make_loss_error(error) from error

    def close(self) -> None:
        """Close the device, which disappears if it was made by opening it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make_loss_error(self, error: OSError) -> TapError:
        return TapError(f"the {self.device_kind} {self.interface} is gone ({os.strerror(error.errno or 0)}).")


class PacketWire(Tap):
    """An Ethernet interface that is not a TAP device, by a packet socket: it carries all frames that arrive there."""

    device_kind = "interface"

    def __init__(self, packet_socket: socket.socket, interface: str) -> None:
        super().__init__(packet_socket.fileno(), interface)
        self._wire = packet_socket

    def read(self) -> bytes | None:
        """Return the next frame that arrived, padded to 60 bytes; None if there is none. Raise TapError."""
        while True:
            try:
                frame, extras, flags, sender = self._wire.recvmsg(_MAX_FRAME_BYTES, _AUXILIARY_BYTES)
            except BlockingIOError:
                return None
            except OSError as error:
                self._check_exists(error)
                return None
            if sender[2] == socket.PACKET_OUTGOING or flags & socket.MSG_TRUNC:
                continue  # skips frames of this machine's kernel, and frames larger than the NIC takes
            if any(struct.unpack_from("=I", data)[0] & _CHECKSUM_NOT_READY for _, _, data in extras):
                frame = fill_checksum(frame)
            return frame.ljust(MIN_FRAME_BYTES, b"\0")

    def write(self, frame: bytes) -> None:
        """Send a frame, which is lost if the interface is down or has no carrier. Raise TapError."""
        try:
            self._wire.send(frame)
        except OSError as error:
            self._check_exists(error)

    def close(self) -> None:
        """Close the socket; the interface stays."""
        self._file = -1
        self._wire.close()

    def _check_exists(self, error: OSError) -> None:
        """Raise TapError unless the interface exists: the socket does not tell whether it is down or gone."""
        try:
            fcntl.ioctl(self._wire, _SIOCGIFFLAGS, struct.pack("16sH22x", self.interface.encode(), 0))
        except OSError:
            raise self._make_loss_error(error) from error


def fill_checksum(frame: bytes) -> bytes:
    """Return a frame with its UDP checksum, which kernels leave to the network card; return other frames unchanged."""
    if len(frame) < 34 or frame[12:14] != b"\x08\x00" or frame[23] != socket.IPPROTO_UDP:
        return frame
    start = 14 + 4 * (frame[14] & 0xF)
    end = 14 + int.from_bytes(frame[16:18], "big")
    segment = bytearray(frame[start:end])
    if len(segment) < 8:
        return frame
    segment[6:8] = bytes(2)
    pseudo_header = frame[26:34] + struct.pack("!HH", socket.IPPROTO_UDP, len(segment))
    segment[6:8] = struct.pack("!H", compute_checksum(pseudo_header + segment) or 0xFFFF)
    return frame[:start] + bytes(segment) + frame[end:]


def open_tap(interface: str, address: IPv4Interface, namespace: str | None = None) -> Tap:
    """Open a TAP device that leads to `address`, and set it up; create the device unless it exists.

    Unless the host has an address in the subnet, it gets the last one that is not the NIC's. An
    interface that exists and is not a TAP device is left as it is: its frames go to the NIC and to the kernel.
    Raise TapError: no privilege, no such namespace, a name that is not valid, a device that another program has open or
    that is not up, or a subnet without room for two.
    """
    if not re.fullmatch(r"[^\s/%:]+", interface) or interface in (".", ".."):
        raise TapError(f"{interface!r} is not a name for a network device.")
    if len(interface.encode()) > _NAME_BYTES:
        raise TapError(
            f"{interface!r} is too long: the name of a network device has up to {_NAME_BYTES} bytes."
        )
    new_host_address = find_host_address(address)
    try:
        return call_in_namespace(namespace, lambda: _open_device(interface, address, new_host_address))
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        if error.errno in (errno.EPERM, errno.EACCES):
            reason += ": it takes root, or CAP_NET_ADMIN"
        raise TapError(f"cannot set up the TAP device {interface}: {reason}.") from error


def call_in_namespace(namespace: str | None, function: Callable[[], Result]) -> Result:
    """Return the result of `function` in a network namespace (None: the current one). Its sockets stay there.

    Pass on its exceptions. Raise TapError if there is no such namespace, or no privilege to enter it.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        # Only this thread enters the namespace, and it stays there until it ends.
        try:
            if namespace is not None:
                _enter_namespace(namespace)
            results.append(function())
        except BaseException as error:  # noqa: BLE001  # raised in the other thread
            errors.append(error)

    thread = threading.Thread(target=run, name="network-namespace")
    thread.start()
    thread.join()
    for error in errors:
        raise error
    return results[0]


def find_host_address(address: IPv4Interface) -> IPv4Address:
    """Return the last host address of the subnet that is not the NIC's.

    >>> find_host_address(IPv4Interface("10.77.0.2/24"))
    IPv4Address('10.77.0.254')
    >>> find_host_address(IPv4Interface("10.77.0.254/24"))
    IPv4Address('10.77.0.253')
    """
    subnet = address.network
    if subnet.prefixlen > 30:
        raise TapError(f"{subnet} has no room for the NIC and this host. Use a prefix of at most 30 bits.")
    if address.ip in (subnet.network_address, subnet.broadcast_address):
        raise TapError(f"{address.ip} is not the address of a host in {subnet}.")
    highest_host = subnet.broadcast_address - 1
    return highest_host - 1 if highest_host == address.ip else highest_host


def _enter_namespace(namespace: str) -> None:
    """Move this thread into a named network namespace."""
    if not namespace or "/" in namespace or namespace in (".", ".."):
        raise TapError(f"{namespace!r} is not a name of a network namespace.")
    try:
        file_descriptor = os.open(_NAMESPACES / namespace, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise TapError(f"network namespace {namespace} does not exist.") from error
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if library.setns(file_descriptor, _CLONE_NEWNET) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise TapError(f"cannot enter the network namespace {namespace}: {reason}.")
    finally:
        os.close(file_descriptor)


def _open_device(interface: str, address: IPv4Interface, new_host_address: IPv4Address) -> Tap:
    if any(name == interface for _, name in socket.if_nameindex()) and not _is_tap(interface):
        return _open_wire(interface)
    try:
        file_descriptor = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise TapError(f"{_TUN} does not exist: this kernel has no TAP devices.") from error
    try:
        request = struct.pack("16sH22x", interface.encode(), _IFF_TAP | _IFF_NO_PI)
        try:
            fcntl.ioctl(file_descriptor, _TUNSETIFF, request)
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise TapError(f"another program has the TAP device {interface} open.") from error
            if error.errno == errno.EINVAL:
                raise TapError(f"{interface} exists, and is a TUN device.") from error
            raise
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control_socket:
            if not any(host_address in address.network for host_address in _read_addresses(control_socket)):
                _add_address(interface, IPv4Interface(f"{new_host_address}/{address.network.prefixlen}"))
            answer = fcntl.ioctl(control_socket, _SIOCGIFFLAGS, struct.pack("16sH22x", interface.encode(), 0))
            flags = struct.unpack_from("16xH", answer)[0]
            fcntl.ioctl(
                control_socket, _SIOCSIFFLAGS, struct.pack("16sH22x", interface.encode(), flags | _IFF_UP)
            )
    except BaseException:
        os.close(file_descriptor)
        raise
    return Tap(file_descriptor, interface)


def _is_tap(interface: str) -> bool:
    """Return whether a device is a TAP or TUN device, which has a driver of that name."""
    answer = array.array("B", struct.pack("=I192x", _ETHTOOL_GDRVINFO))
    request = struct.pack("16sP16x", interface.encode(), answer.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control_socket:
        try:
            fcntl.ioctl(control_socket, _SIOCETHTOOL, request)
        except OSError:
            return False  # a device without a driver
    return answer.tobytes()[4:36].rstrip(b"\0") == b"tun"


def _open_wire(interface: str) -> PacketWire:
    packet_socket = socket.socket(
        socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, 0
    )
    try:
        packet_socket.bind((interface, _ETH_P_ALL))
        if packet_socket.getsockname()[3] != _ARPHRD_ETHER:
            raise TapError(f"{interface} exists, and is not an Ethernet interface.")
        answer = fcntl.ioctl(packet_socket, _SIOCGIFFLAGS, struct.pack("16sH22x", interface.encode(), 0))
        if not struct.unpack_from("16xH", answer)[0] & _IFF_UP:
            raise TapError(f"the interface {interface} is down. Set it up with `ip link set {interface} up`.")
        packet_socket.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        membership = struct.pack("iHH8x", socket.if_nametoindex(interface), _PROMISCUOUS, 0)
        packet_socket.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
    except BaseException:
        packet_socket.close()
        raise
    return PacketWire(packet_socket, interface)


def _read_addresses(control_socket: socket.socket) -> list[IPv4Address]:
    """Return the IPv4 addresses of all devices in the namespace of this thread."""
    entries = array.array("B", bytes(1024 * _ADDRESS_ENTRY.size))
    pointer, size = entries.buffer_info()
    answer = fcntl.ioctl(control_socket, _SIOCGIFCONF, struct.pack("i4xP", size, pointer))
    table_bytes = entries.tobytes()[: struct.unpack_from("i", answer)[0]]
    return [IPv4Address(address) for _, _, address in _ADDRESS_ENTRY.iter_unpack(table_bytes)]


def _add_address(interface: str, address: IPv4Interface) -> None:
    """Add an address to a device of the namespace of this thread, beside its other addresses. Raise OSError."""
    family, length = socket.AF_INET, address.network.prefixlen
    local_address, broadcast = address.ip.packed, address.network.broadcast_address.packed
    body = struct.pack("=BBBBI", family, length, 0, 0, socket.if_nametoindex(interface))
    for kind, value in (
        (1, local_address),
        (2, local_address),
        (4, broadcast),
    ):  # IFA_ADDRESS, IFA_LOCAL, IFA_BROADCAST
        body += struct.pack("=HH4s", 8, kind, value)
    new_address, request, acknowledge_flag, create_flag, exclusive_flag = 20, 0x1, 0x4, 0x400, 0x200
    flags = request | acknowledge_flag | create_flag | exclusive_flag
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink_socket:
        netlink_socket.send(struct.pack("=IHHII", 16 + len(body), new_address, flags, 1, 0) + body)
        code = struct.unpack_from("=i", netlink_socket.recv(4096), 16)[0]
    if code:
        raise OSError(-code, os.strerror(-code))


def serve_tap(nic: SmartNic, tap: Tap, stop: StopSignal) -> None:
    """Carry frames between the device and the NIC until `stop` is readable.

    This sleeps while no frame comes. Time in the NIC passes only while it has work. Raise TapError if the device
    disappears, and SmartNicError if the NIC breaks a rule.
    """
    poll = select.poll()
    poll.register(tap, select.POLLIN)
    poll.register(stop, select.POLLIN)
    is_idle = True
    while True:
        events = dict(poll.poll(None if is_idle else 0))
        if stop.fileno() in events:
            return
        if tap.fileno() in events:
            while nic.waiting_frame_count < _BURST_FRAMES and (frame := tap.read()) is not None:
                nic.send(frame)
        is_idle = nic.run_until_idle(_CYCLES_PER_POLL)
        for _, frame in nic.receive():
            tap.write(frame)
        nic.list_arrivals()
