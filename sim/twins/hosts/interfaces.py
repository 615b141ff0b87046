"""Observation of hosts' interfaces. A NIC that is administratively down sends no light.

A netlink socket in the network namespace of the host receives every change from the kernel. Nothing runs on the host.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping

from sim.twins.hosts import netns

# <linux/rtnetlink.h>, <linux/if_link.h>, <linux/if.h>
_RTMGRP_LINK = 1
_RTM_NEWLINK = 16
_IFLA_IFNAME = 3
_IFF_UP = 1
_HEADER = struct.Struct("=IHHII")
_LINK = struct.Struct("=BxHiII")
_ATTRIBUTE = struct.Struct("=HH")
_BUFFER_BYTES = 1 << 20

OnChange = Callable[[Mapping[str, bool]], None]


def parse_interface_states(data: bytes) -> Iterator[tuple[str, bool]]:
    """Yield the name and administrative state (True if up) of every interface in a netlink datagram.

    Skip messages of other types, and a truncated message at the end.
    """
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, message_type, *_ = _HEADER.unpack_from(data, offset)
        if length < _HEADER.size or offset + length > len(data):
            return
        if message_type == _RTM_NEWLINK and length >= _HEADER.size + _LINK.size:
            _, _, _, flags, _ = _LINK.unpack_from(data, offset + _HEADER.size)
            name = _parse_name(data[offset + _HEADER.size + _LINK.size : offset + length])
            if name:
                yield name, bool(flags & _IFF_UP)
        offset += -(-length // 4) * 4


def _parse_name(attributes: bytes) -> str:
    offset = 0
    while offset + _ATTRIBUTE.size <= len(attributes):
        length, attribute_type = _ATTRIBUTE.unpack_from(attributes, offset)
        if length < _ATTRIBUTE.size:
            return ""
        if attribute_type == _IFLA_IFNAME:
            return (
                attributes[offset + _ATTRIBUTE.size : offset + length].rstrip(b"\0").decode(errors="replace")
            )
        offset += -(-length // 4) * 4
    return ""


class InterfaceWatch:
    """An observer of the NICs of one host. It calls `on_change` with the new states of NICs that were set up or down.

    Keys are `host/nic`. One call contains all changes that arrive together. The observer uses the running event loop
    until `close`. It assumes that all NICs are up at the start.
    """

    def __init__(self, namespace: str, host: str, nics: Iterable[str], on_change: OnChange) -> None:
        self._labels = {nic: f"{host}/{nic}" for nic in nics}
        self._states: dict[str, bool] = {}
        self._on_change = on_change
        self._socket = netns.call_in_namespace(namespace, _open_link_socket)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._read_updates)

    def close(self) -> None:
        """Stop the observation."""
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _read_updates(self) -> None:
        updates: dict[str, bool] = {}
        while True:
            try:
                data = self._socket.recv(_BUFFER_BYTES)
            except (
                OSError
            ):  # no more data, or the buffer overflowed; later messages contain the full state again
                break
            updates |= {
                self._labels[nic]: is_up for nic, is_up in parse_interface_states(data) if nic in self._labels
            }
        changed_nics = {nic: is_up for nic, is_up in updates.items() if self._states.get(nic, True) != is_up}
        if changed_nics:
            self._states |= changed_nics
            self._on_change(changed_nics)


def _open_link_socket() -> socket.socket:
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    sock.bind((0, _RTMGRP_LINK))
    return sock
