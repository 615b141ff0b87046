"""Many datagrams per system call, with the kernel's reception time of each (Linux).

This calls `recvmmsg` and `sendmmsg` of the C library on preallocated arrays. The calls do not wait, and they keep the
global interpreter lock. Releasing and reacquiring the lock would take longer than the call, and up to 5 ms if
another thread computes.
"""

from __future__ import annotations

import ctypes
import errno
import socket
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import ServingError

SLOT_BYTES = 2048
"""Bytes reserved for a datagram. A longer datagram is truncated, so it has less payload than its header says."""

ADDRESS_BYTES = 16
"""Bytes of struct sockaddr_in."""
RECEIVE_BUFFER_BYTES = 4 << 20
"""Bytes of receive buffer requested for a socket. The kernel grants no more than its limit."""

# SO_TIMESTAMPNS and SO_RXQ_OVFL of asm-generic/socket.h, for which Python has no names.
_TIMESTAMP_OPTION = 35
_OVERRUN_OPTION = 40
_CONTROL_BYTES = 64

MESSAGE_DTYPE = np.dtype(
    {
        "names": ["name", "name_length", "vectors", "vector_count", "control", "control_length", "length"],
        "formats": ["u8", "u4", "u8", "u8", "u8", "u8", "u4"],
        "offsets": [0, 8, 16, 24, 32, 40, 56],
        "itemsize": 64,
    }
)
"""struct mmsghdr of 64-bit Linux: recvmmsg(2), recvmsg(2)."""
VECTOR_DTYPE = np.dtype([("base", "u8"), ("length", "u8")])
"""struct iovec."""

# Control messages, cmsg(3): the time (struct timespec), and after the first loss also the number of lost datagrams.
_CONTROL_DTYPE = np.dtype(
    {
        "names": ["time", "overruns"],
        "formats": [("i8", 2), "u4"],
        "offsets": [16, 48],
        "itemsize": _CONTROL_BYTES,
    }
)


def load_system_library() -> Any:
    """Return the C library, whose calls keep the interpreter lock.

    Raise `ServingError` if it lacks `recvmmsg` or `sendmmsg`, or on a 32-bit system.
    """
    library = ctypes.PyDLL(None, use_errno=True)
    if (
        not all(hasattr(library, name) for name in ("recvmmsg", "sendmmsg"))
        or ctypes.sizeof(ctypes.c_void_p) != 8
    ):
        raise ServingError(
            "this system has no recvmmsg and sendmmsg",
            hint="Serve packets on 64-bit Linux, or serve over HTTP",
        )
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    library.recvmmsg.argtypes = (ctypes.c_int, pointer, ctypes.c_uint, ctypes.c_int, pointer)
    library.sendmmsg.argtypes = (ctypes.c_int, pointer, ctypes.c_uint, ctypes.c_int)
    library.sendto.argtypes = (ctypes.c_int, pointer, size, ctypes.c_int, pointer, ctypes.c_uint)
    library.sendto.restype = ctypes.c_ssize_t
    return library


def find_memory_address(array: npt.NDArray[Any]) -> int:
    """Return the memory address of an array."""
    return int(array.ctypes.data)


class Inbox:
    """Slots for datagrams of an IPv4 socket, filled many at a time.

    After `receive` has returned n, slots 0..n - 1 hold datagrams; slot i begins at byte `i * SLOT_BYTES` of `buffer`.
    """

    def __init__(self, receiver: socket.socket, slot_count: int = 32) -> None:
        self.library = load_system_library()
        self.file_descriptor = receiver.fileno()
        self.slot_count = slot_count
        self.is_peer_unreachable = False
        """True if the last `receive` failed because no process receives at the connected address."""
        self.slot_bytes = np.zeros((slot_count, SLOT_BYTES), np.uint8)
        self.buffer = self.slot_bytes.data.cast("B")
        self.sender_addresses = np.zeros((slot_count, ADDRESS_BYTES), np.uint8)
        self._controls = np.zeros(slot_count, _CONTROL_DTYPE)
        self._vectors = np.zeros(slot_count, VECTOR_DTYPE)
        self._messages = np.zeros(slot_count, MESSAGE_DTYPE)
        self.datagram_sizes = self._messages["length"]
        """(slots,) size of each datagram."""
        self.arrival_times = self._controls["time"]
        """(slots, 2) reception time by the kernel: seconds and nanoseconds of the wall clock."""
        # Each message points to its own slot of every buffer.
        slot_indices = np.arange(self.slot_count, dtype=np.uint64)
        self._vectors["base"] = find_memory_address(self.slot_bytes) + slot_indices * SLOT_BYTES
        self._vectors["length"] = SLOT_BYTES
        self._messages["name"] = find_memory_address(self.sender_addresses) + slot_indices * ADDRESS_BYTES
        self._messages["vectors"] = find_memory_address(self._vectors) + slot_indices * VECTOR_DTYPE.itemsize
        self._messages["vector_count"] = 1
        self._messages["control"] = find_memory_address(self._controls) + slot_indices * _CONTROL_BYTES
        self._reset_capacities(self.slot_count)
        self._messages_address = find_memory_address(self._messages)
        receiver.setblocking(False)
        for option in (_TIMESTAMP_OPTION, _OVERRUN_OPTION):
            receiver.setsockopt(socket.SOL_SOCKET, option, 1)

    def _reset_capacities(self, slot_count: int) -> None:
        # The kernel overwrites these capacities with the lengths that it used.
        self._messages["name_length"][:slot_count] = ADDRESS_BYTES
        self._messages["control_length"][:slot_count] = _CONTROL_BYTES

    def receive(self) -> int:
        """Receive pending datagrams into the first slots, and return their number.

        This never waits.
        """
        count: int = self.library.recvmmsg(
            self.file_descriptor, self._messages_address, self.slot_count, socket.MSG_DONTWAIT, None
        )
        if count <= 0:
            self.is_peer_unreachable = ctypes.get_errno() == errno.ECONNREFUSED
            return 0
        self._reset_capacities(count)
        return count

    def get_sender(self, slot: int) -> bytes:
        """Return the address of the sender of a datagram, for `send`."""
        return bytes(self.sender_addresses[slot])

    def send(self, datagram: bytes, address: bytes) -> bool:
        """Send a datagram and return whether the kernel accepted it. Any thread may call this."""
        sent_bytes: int = self.library.sendto(
            self.file_descriptor, datagram, len(datagram), socket.MSG_DONTWAIT, address, ADDRESS_BYTES
        )
        return sent_bytes == len(datagram)

    def get_length(self, slot: int) -> int:
        """Return the size of a datagram."""
        return int(self.datagram_sizes[slot])

    def list_lengths(self, slot_count: int) -> list[int]:
        """Return the sizes of the first datagrams."""
        datagram_sizes: list[int] = self.datagram_sizes[:slot_count].tolist()
        return datagram_sizes

    def get_arrival_ns(self, slot: int) -> int:
        """Return the time at which the kernel received a datagram, in nanoseconds of the wall clock."""
        seconds, nanoseconds = self.arrival_times[slot].tolist()
        return int(seconds * 1_000_000_000 + nanoseconds)

    def count_overruns(self, slot_count: int) -> int:
        """Return the number of datagrams, modulo 2^32, that the kernel has discarded because the buffer was full."""
        return int(self._controls["overruns"][:slot_count].max())
