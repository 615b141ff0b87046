"""Netlink's news of interfaces, by the layout of <linux/netlink.h>, <linux/rtnetlink.h> and <linux/if_link.h>."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from sim.twins.hosts.interfaces import parse_interface_states


def message(name, *, up, kind=16):
    """nlmsghdr (length, type, flags, sequence, port), ifinfomsg (family, type, index, flags, change), IFLA_IFNAME."""
    word = name.encode() + b"\0"
    attribute = struct.pack("=HH", 4 + len(word), 3) + word
    mtu = struct.pack("=HHI", 8, 4, 9000)
    body = struct.pack("=BxHiII", 0, 1, 5, 0x1002 | up, 1) + mtu + attribute
    data = struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body
    return data + b"\0" * (-len(data) % 4)


def test_every_interface_of_a_datagram_is_told():
    data = message("nic1", up=False) + message("nic12", up=True)
    assert list(parse_interface_states(data)) == [("nic1", False), ("nic12", True)]


def test_other_messages_are_left_out():
    assert list(parse_interface_states(message("nic1", up=True, kind=17) + message("nic2", up=True))) == [
        ("nic2", True)
    ]


@given(st.integers(0, 200), st.binary(max_size=64))
def test_a_datagram_that_is_cut_or_wrong_raises_nothing(length, noise):
    data = message("nic1", up=True) + message("nic2", up=False)
    assert {name for name, _ in parse_interface_states(data[:length])} <= {"nic1", "nic2"}
    list(parse_interface_states(noise))
