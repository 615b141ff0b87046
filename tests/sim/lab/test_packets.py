"""Effects of the control socket of the plant on packets: read off raw frames in the hosts' own networks."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("jsonschema")

from sim.twins.hosts import netns

pytestmark = pytest.mark.kernel

EVERYTHING = 0x0003
PROBE = b"\xff" * 6 + b"\x02" + b"\0" * 5 + b"\x88\xb5"
HOSTS = "abc"
# a/nic1 and b/nic1 hear each other, c/nic1 hears itself.
CIRCUITS = ":oxc:swit:conn:only (@1,3,5),(@9,7,11)"


class Ears:
    """A raw socket on nic1 of every host: sends on one, listens on all."""

    def __init__(self, lab_id):
        self.taps = {host: netns.call_in_namespace(f"{lab_id}-{host}", self._tap) for host in HOSTS}

    def _tap(self):
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERYTHING))
        tap.bind(("nic1", EVERYTHING))
        tap.setblocking(False)
        return tap

    def who_hears(self, sender, expected, patience_s=5.0):
        """Return hosts that a frame from `sender` reaches: waits for those expected, then looks once more."""
        mark = f"{sender} at {time.monotonic_ns()}".encode()
        self.taps[sender].send((PROBE + mark).ljust(60, b"\0"))
        heard, deadline_s = set(), time.monotonic() + patience_s
        while not set(expected) <= heard and time.monotonic() < deadline_s:
            heard |= self._look(mark)
        return "".join(sorted(heard | self._look(mark)))

    def _look(self, mark):
        return {host for host, tap in self.taps.items() if any(mark in frame for frame in self._frames(tap))}

    def _frames(self, tap):
        while True:
            try:
                frame, (_, _, kind, *_) = tap.recvfrom(2048)
            except BlockingIOError:
                return
            if kind != socket.PACKET_OUTGOING:
                yield frame

    def close(self):
        for tap in self.taps.values():
            tap.close()


@pytest.fixture
def ears(lab):
    lab.scpi(CIRCUITS)
    made = Ears(lab.lab_id)
    yield made
    made.close()


def test_swapped_fibres_carry_each_others_packets_until_they_are_put_right(lab, ears):
    fibres = ["b/nic1:receive", "c/nic1:receive"]
    assert [ears.who_hears(*path) for path in ("ab", "ba", "cc")] == ["b", "a", "c"]
    assert lab.control("plant", {"do": "swap", "fibres": fibres})["ok"]
    assert [ears.who_hears(*path) for path in ("ac", "ba", "cb")] == ["c", "a", "b"]
    assert lab.control("plant", {"do": "truth"})["faults"]["swapped"] == [fibres]
    assert lab.control("plant", {"do": "unswap"})["ok"]
    assert [ears.who_hears(*path) for path in ("ab", "ba", "cc")] == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("fault", "repair"),
    [
        ({"do": "cut", "fibre": "a/nic1:transmit"}, {"do": "uncut", "fibre": "a/nic1:transmit"}),
        ({"do": "laser", "nic": "a/nic1", "on": False}, {"do": "laser", "nic": "a/nic1", "on": True}),
        (
            {"do": "loss", "fibre": "b/nic1:receive", "loss_db": 30},
            {"do": "loss", "fibre": "b/nic1:receive", "loss_db": 0},
        ),
    ],
    ids=["cut", "laser", "loss"],
)
def test_without_enough_light_the_receiver_is_down_and_the_other_paths_are_not(lab, ears, fault, repair):
    assert lab.control("plant", fault)["ok"]
    try:
        assert [lab.carrier(host)[0] for host in HOSTS] == ["1", "0", "1"]
        assert ears.who_hears("a", "") == ""
        assert ears.who_hears("c", "c") == "c"
    finally:
        assert lab.control("plant", repair)["ok"]
    assert [lab.carrier(host)[0] for host in HOSTS] == ["1", "1", "1"]
    assert ears.who_hears("a", "b") == "b"


def test_a_little_loss_is_no_matter(lab, ears):
    assert lab.control("plant", {"do": "loss", "fibre": "b/nic1:receive", "loss_db": 5})["ok"]
    assert ears.who_hears("a", "b") == "b"
    assert lab.control("plant", {"do": "loss", "fibre": "b/nic1:receive", "loss_db": 0})["ok"]


def test_the_fabric_itself_says_nothing(lab):
    """No address of its own on any lit far end, so no announcement that no host has sent."""

    def addresses():
        return Path("/proc/thread-self/net/if_inet6").read_text().split()

    lab.scpi(CIRCUITS)
    assert "nic1" in netns.call_in_namespace(f"{lab.lab_id}-a", addresses)
    assert netns.call_in_namespace(f"{lab.lab_id}-fab", addresses) == []
    assert netns.call_in_namespace(f"{lab.lab_id}-mgmt", addresses) == []
