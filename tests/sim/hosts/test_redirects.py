"""The fabric: light as kernel redirects. Pure planning first, then raw frames between real namespaces."""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import subprocess
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import needs

from sim.twins.hosts import netns
from sim.twins.hosts.redirects import Fabric, LinkShape, make_far_ends, render_changes

NICS = [f"{host}/nic{at}" for host in "abc" for at in (1, 2)]
LINK_OF = {nic: f"f{at}" for at, nic in enumerate(NICS)}


def light(pairs):
    """Receiver to transmitter, each used once: a random injective partial map."""
    receivers, transmitters, count = pairs
    return dict(list(zip(receivers, transmitters, strict=True))[:count])


lights = st.tuples(st.permutations(NICS), st.permutations(NICS), st.integers(0, len(NICS))).map(light)


class ScriptedKernel:
    """Knows of far ends up and filters only what the commands themselves say."""

    def __init__(self):
        self.up, self.target = set(), {}

    def run(self, command):
        match command.split():
            case ["link", "set", link, "up"]:
                self.up.add(link)
            case ["link", "set", link, "down"]:
                self.up.remove(link)
            case ["filter", "del", "dev", link, *_]:
                del self.target[link]
            case ["filter", "replace", "dev", link, *_, "dev", target]:
                self.target[link] = target
            case _:
                raise AssertionError(command)


@pytest.mark.slow
def test_any_change_of_light_leaves_exactly_the_new_redirects_and_carriers():
    seen = {"moved": 0, "kept": 0, "gone": 0}

    @settings(max_examples=100)
    @given(before=lights, after=lights)
    def check(before, after):
        kernel = ScriptedKernel()
        for old, new in (({}, before), (before, after)):
            rendering = render_changes(old, new, LINK_OF)
            for command in (*rendering.down_commands, *rendering.filter_commands, *rendering.up_commands):
                kernel.run(command)
            assert kernel.up == {LINK_OF[receiver] for receiver in new}
            assert kernel.target == {LINK_OF[tx]: LINK_OF[rx] for rx, tx in new.items()}
        seen["kept"] += any(after.get(receiver) == tx for receiver, tx in before.items())
        seen["moved"] += any(receiver in after and after[receiver] != tx for receiver, tx in before.items())
        seen["gone"] += any(receiver not in after for receiver in before)

    check()
    assert min(seen.values()) >= 15, seen


def test_what_stays_lit_is_not_touched():
    kept = {"b/nic1": "a/nic1"}
    rendering = render_changes(kept, {**kept, "a/nic1": "b/nic1"}, LINK_OF)
    assert rendering.down_commands == ()
    assert rendering.up_commands == ("link set f0 up",)
    assert [line.split()[3] for line in rendering.filter_commands] == ["f2"]


def test_far_ends_are_named_by_place_and_numbered_away_from_the_hosts_own_numbers():
    ends = make_far_ends({"spine-with-a-long-name": ("x-0", ["nic1", "nic2"]), "b": ("x-1", ["nic1"])})
    assert [(end.nic, end.link_name, end.link_index) for end in ends] == [
        ("spine-with-a-long-name/nic1", "h0n0", 1001),
        ("spine-with-a-long-name/nic2", "h0n1", 1002),
        ("b/nic1", "h1n0", 1003),
    ]


# ---------------------------------------------------------------------------------------- in the kernel

ETHERTYPES = {"IPv4": 0x0800, "IPv6": 0x86DD, "ARP": 0x0806, "LLDP": 0x88CC, "probe": 0x88B5}
LLDP_MULTICAST = bytes.fromhex("0180c200000e")
BROADCAST = b"\xff" * 6
ANY = 0x0003


class Bench:
    """Three hosts with two NICs each, without SSH servers, on one dark fabric."""

    def __init__(self):
        self.prefix = f"tf{os.getpid()}"
        self.namespaces = {host: f"{self.prefix}-{host}" for host in "abc"}
        ends = make_far_ends({host: (name, ["nic1", "nic2"]) for host, name in self.namespaces.items()})
        self.fabric = Fabric(f"{self.prefix}-fab", ends)
        self.light = {}
        self.sockets = {}

    def build(self):
        netns.add_namespaces([*self.namespaces.values(), self.fabric.namespace])
        self.fabric.build(LinkShape(rate_mbps=100, mtu=9000))
        for host, name in self.namespaces.items():
            netns.set_sysctls(name, {"ipv6/conf/all/disable_ipv6": 1})
            netns.run_batch("ip", [f"link set {nic} up" for nic in ("nic1", "nic2")], name)
            for nic in ("nic1", "nic2"):
                self.sockets[f"{host}/{nic}"] = netns.call_in_namespace(name, lambda nic=nic: self._tap(nic))

    def _tap(self, nic):
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ANY))
        tap.bind((nic, ANY))
        tap.setblocking(False)
        return tap

    def shine(self, light):
        self.fabric.render(self.light, light)
        self.light = light

    def carrier(self, nic):
        host, name = nic.split("/")
        command = ["ip", "-n", self.namespaces[host], "-j", "link", "show", name]
        return "LOWER_UP" in json.loads(subprocess.check_output(command))[0]["flags"]

    def send(self, nic, ethertype, payload, destination=BROADCAST):
        frame = destination + b"\x02" + b"\x00" * 5 + struct.pack("!H", ethertype) + payload
        try:
            self.sockets[nic].send(frame.ljust(60, b"\0"))
        except OSError:
            return False  # ENETDOWN: no carrier
        return True

    def heard(self, payload, expected, patience_s=3.0):
        """Return NICs that receive a frame with this payload: waits for `expected`, then looks once more."""
        found = set()
        deadline = time.monotonic() + patience_s
        while not expected <= found and time.monotonic() < deadline:
            found |= self._look(payload)
        return found | self._look(payload)

    def _look(self, payload):
        return {nic for nic, tap in self.sockets.items() if self._has(tap, payload)}

    def _has(self, tap, payload):
        hit = False
        while True:
            try:
                data, (_, _, kind, *_) = tap.recvfrom(10000)
            except BlockingIOError:
                return hit
            hit |= payload in data and kind != socket.PACKET_OUTGOING

    def reach(self, payload, ethertype=0x88B5):
        """Send one frame from every NIC and map each to the NICs that heard it."""
        wanted = {
            tx: {rx} for rx, tx in self.light.items() if tx in self.light
        }  # carrier needs light of its own
        heard = {}
        for nic in NICS:
            mark = payload + nic.encode()
            self.send(nic, ethertype, mark)
            heard[nic] = self.heard(mark, wanted.get(nic, set()))
        return heard

    def close(self):
        for tap in self.sockets.values():
            tap.close()
        netns.delete_namespaces([*self.namespaces.values(), self.fabric.namespace])


@pytest.fixture(scope="module")
@needs("process", "socket")
def bench():
    made = Bench()
    try:
        made.build()
        yield made
    finally:
        made.close()


@pytest.fixture
@needs("process")
def dark(bench):
    bench.shine({})
    return bench


RING = {"b/nic1": "a/nic1", "c/nic1": "b/nic1", "a/nic1": "c/nic1"}


@pytest.mark.kernel
def test_in_the_dark_no_nic_has_carrier_and_nothing_is_heard(dark):
    assert [nic for nic in NICS if dark.carrier(nic)] == []
    assert dark.reach(b"dark") == {nic: set() for nic in NICS}


@pytest.mark.kernel
def test_frames_cross_exactly_where_the_light_goes(dark):
    dark.shine(RING)
    assert dark.reach(b"ring") == {
        "a/nic1": {"b/nic1"},
        "b/nic1": {"c/nic1"},
        "c/nic1": {"a/nic1"},
        "a/nic2": set(),
        "b/nic2": set(),
        "c/nic2": set(),
    }


@pytest.mark.kernel
@pytest.mark.parametrize("name", ETHERTYPES)
def test_every_ethertype_passes(dark, name):
    dark.shine({"b/nic1": "a/nic1", "a/nic1": "b/nic1"})
    destination = LLDP_MULTICAST if name == "LLDP" else BROADCAST
    payload = f"type {name}".encode()
    assert dark.send("a/nic1", ETHERTYPES[name], payload, destination)
    assert dark.heard(payload, {"b/nic1"}) == {"b/nic1"}


@pytest.mark.kernel
def test_a_jumbo_frame_passes_whole(dark):
    dark.shine({"b/nic1": "a/nic1", "a/nic1": "b/nic1"})
    payload = b"j" * 8986 + b"end of jumbo"
    assert dark.send("a/nic1", 0x88B5, payload[:8990])
    assert dark.heard(payload[:8990], {"b/nic1"}) == {"b/nic1"}


@pytest.mark.kernel
def test_a_redirect_moved_without_dark_forgets_its_old_target(dark):
    dark.shine(RING)
    dark.shine({"c/nic1": "a/nic1", "b/nic1": "c/nic1", "a/nic1": "b/nic1"})
    heard = dark.reach(b"moved")
    assert [heard[nic] for nic in ("a/nic1", "b/nic1", "c/nic1")] == [{"c/nic1"}, {"a/nic1"}, {"b/nic1"}]


@pytest.mark.kernel
def test_carrier_is_there_exactly_with_light(dark):
    dark.shine(RING)
    assert [nic for nic in NICS if dark.carrier(nic)] == ["a/nic1", "b/nic1", "c/nic1"]
    dark.shine({"b/nic1": "a/nic1"})
    assert [nic for nic in NICS if dark.carrier(nic)] == ["b/nic1"]


@pytest.mark.kernel
def test_a_nic_that_hears_nothing_cannot_send_either(dark):
    """A veth pair differs from glass here; see the module's docstring."""
    dark.shine({"b/nic1": "a/nic1"})
    dark.send("a/nic1", 0x88B5, b"one way")
    dark.send("b/nic1", 0x88B5, b"one way back")
    assert dark._look(b"one way") == set()


@pytest.mark.kernel
def test_a_nic_can_hear_itself(dark):
    dark.shine({"a/nic2": "a/nic2"})
    assert dark.send("a/nic2", 0x88B5, b"loop")
    assert dark.heard(b"loop", {"a/nic2"}) == {"a/nic2"}


@pytest.mark.kernel
def test_a_failed_rendering_can_be_rendered_again(dark):
    """The plant still believes the old light; redirects already placed must not be in the way."""
    dark.fabric.render({}, {"b/nic1": "a/nic1"})
    dark.fabric.render({}, RING)
    dark.light = RING
    assert dark.reach(b"again")["a/nic1"] == {"b/nic1"}


# ------------------------------------------------------------------------------------------ order of packets
MESSAGE = b"x" * (3 * 7 * 8948) + b"y" * 100
"""Segments as long as the MTU, as the kernel joins them, and a last one that is short."""
MESSAGES = 40


@pytest.fixture
@needs("kernel", "process", "socket")
def two_hops():
    """Provide the namespaces of a sender, a forwarder that is slower, and a receiver, their NICs shaped as a lab's."""
    sender, forwarder, receiver = names = [f"th{os.getpid()}-{host}" for host in "sfr"]
    netns.add_namespaces(names)
    try:
        joined = ((sender, "nic1", forwarder, "nic1"), (forwarder, "nic2", receiver, "nic1"))
        netns.run_batch(
            "ip",
            [
                f"link add {a} netns {ours} type veth peer name {b} netns {theirs}"
                for ours, a, theirs, b in joined
            ],
        )
        ends = [(sender, "nic1", "10.9.1.1", 100), (forwarder, "nic1", "10.9.1.2", 100)]
        ends += [(forwarder, "nic2", "10.9.2.1", 50), (receiver, "nic1", "10.9.2.2", 50)]
        for name, nic, address, rate_mbps in ends:
            netns.run_batch(
                "ip", [f"link set {nic} up mtu 9000", f"address add {address}/24 dev {nic}"], name
            )
            netns.run_batch("tc", LinkShape(rate_mbps, 9000).make_queue_commands(nic), name)
        netns.run_batch("ip", ["route add default via 10.9.1.2"], sender)
        netns.run_batch("ip", ["route add default via 10.9.2.1"], receiver)
        netns.set_sysctls(forwarder, {"ipv4/ip_forward": 1})
        yield names
    finally:
        netns.delete_namespaces(names)


def answer_messages(server):
    connection, _ = server.accept()
    with connection:
        for _ in range(MESSAGES):
            left = len(MESSAGE)
            while left:
                left -= len(connection.recv(left))
            connection.sendall(b"k")


@pytest.mark.kernel
def test_no_connection_is_reordered_by_a_nic(two_hops):
    """Short segments that passed the data of their own connection made the sender send again what had arrived."""
    sender, _, receiver = two_hops
    with netns.call_in_namespace(receiver, lambda: socket.create_server(("10.9.2.2", 7))) as server:
        answering = threading.Thread(target=answer_messages, args=(server,))
        answering.start()
        with netns.call_in_namespace(
            sender, lambda: socket.create_connection(("10.9.2.2", 7), 60)
        ) as connection:
            for _ in range(MESSAGES):
                connection.sendall(MESSAGE)
                assert connection.recv(1) == b"k"
        answering.join()

    assert counters_of(sender)["TcpExtTCPSACKReorder"] == 0
    assert counters_of(receiver)["TcpExtTCPOFOQueue"] == 0
    assert acknowledgements_that_passed(receiver) > MESSAGES


def counters_of(namespace):
    text = subprocess.check_output(["ip", "netns", "exec", namespace, "nstat", "-asz"], text=True)
    return {name: int(count) for name, count, *_ in map(str.split, text.splitlines()[1:])}


def acknowledgements_that_passed(namespace):
    shown = subprocess.check_output(["tc", "-n", namespace, "-s", "class", "show", "dev", "nic1"], text=True)
    return int(re.search(r"class htb 2:1 .*\n Sent \d+ bytes (\d+) pkt", shown)[1])
