"""The probe: its frames, how a whole lab is probed, and the ping that tells hops."""

from __future__ import annotations

import json
import struct
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")

from testbed.errors import HostError
from testbed.lab.hosts.fleet import CommandResult
from testbed.lab.hosts.probe import Frame, NicReport, probe_links
from testbed.lab.hosts.reachability import ping_all
from testbed.lab.inventory import parse_lab
from testbed.node import ping, probe

MAC = bytes.fromhex("020000000001")
labels = st.from_regex(r"[a-z][a-z0-9-]{0,30}", fullmatch=True)


@given(labels, labels, st.integers(0, 2**63))
def test_a_frame_names_its_sender(host, nic, epoch):
    frame = probe.encode_frame(MAC, host, nic, epoch)
    assert len(frame) >= 60
    assert frame[:14] == b"\xff" * 6 + MAC + b"\x88\xb5"
    assert probe.decode_frame(frame) == (host, nic, epoch)
    assert probe.decode_frame(frame + b"\0" * 40) == (host, nic, epoch), "padding on the way"


@given(st.binary(max_size=200))
def test_other_frames_are_nobodys(payload):
    assert probe.decode_frame(b"\0" * 14 + payload) is None


@given(st.one_of(st.none(), st.integers(), st.text(), st.lists(st.integers(), max_size=4)))
def test_our_magic_before_something_else_is_nobodys(payload):
    assert probe.decode_frame(b"\0" * 14 + probe.MAGIC + json.dumps(payload).encode()) is None


def test_an_echo_request_has_a_right_checksum():
    request = ping.make_echo_request(17, 4)
    assert request[:2] == b"\x08\x00"
    assert ping.compute_checksum(request) == 0
    assert struct.unpack_from("!HH", request, 4) == (17, 4)


@given(
    ttl=st.integers(0, 255),
    sequence=st.integers(0, 65535),
    number=st.integers(0, 65535),
    options=st.integers(0, 10),
)
def test_a_reply_gives_sequence_ttl_and_round(ttl, sequence, number, options):
    header = bytes([0x45 + options]) + b"\0" * 7 + bytes([ttl]) + b"\0" * (11 + 4 * options)
    request = ping.make_echo_request(17, sequence, number)
    reply = b"\0" + request[1:]
    assert ping.read_reply(header + reply, 17) == (sequence, ttl, number)
    assert ping.read_reply(header + reply, 18) is None
    assert ping.read_reply(header + request, 17) is None


@given(st.binary(max_size=60))
def test_a_damaged_packet_is_no_reply_and_no_crash(packet):
    reply = ping.read_reply(packet, 17)
    assert reply is None or len(packet) >= 28


@pytest.fixture
def lab(small_lab_text):
    return parse_lab(small_lab_text(2, 1), "x.yaml")


NOT_ROOT = {"b": (1, "", "PermissionError: not root")}


class ScriptedHosts:
    """A fleet whose hosts say what a test has them say, step by step. Stands for SSH."""

    def __init__(self, lab, script):
        self.hosts = lab.hosts
        self.script = script
        self.said = []
        self.closed = False
        self.step = "started"
        self.running = ()

    def put(self, files, hosts=None):
        self.files = files
        return "private"

    def run(self, commands, *, stdin=None, timeout_s=30.0):
        self.commands = commands
        return {host: CommandResult(host, *self.script[host]) for host in commands}

    @contextmanager
    def start(self, commands):
        self.commands = commands
        yield self

    def send(self, text, host=None):
        self.said.append(text)
        self.step = "told"

    def close_input(self):
        self.step = "closed"

    def read_lines(self, timeout_s):
        lines, self.script[self.step] = self.script.get(self.step, []), []
        yield from lines

    def wait(self, timeout_s):
        return {
            host: CommandResult(host, *ended) for host, ended in self.script.get("ended", NOT_ROOT).items()
        }


def say(event, **details):
    return json.dumps({"event": event, **details})


def heard(carrier, *frames):
    return say(
        "heard",
        nics={"nic1": {"carrier": carrier, "sent": 3, "frames": frames, "counters": {"rx_packets": 5}}},
    )


def test_nobody_speaks_before_all_listen_and_nobody_stops_before_all_spoke(lab):
    fleet = ScriptedHosts(
        lab,
        {
            "started": [("b", "motd: welcome"), ("a", say("ready")), ("b", say("ready"))],
            "told": [("a", say("sent")), ("b", say("sent"))],
            "closed": [("b", heard(True, ["a", "nic1", 7])), ("a", heard(False))],
        },
    )
    result = probe_links(fleet, lab, 7, window_s=0.0)
    assert fleet.said == ["go\n"]
    assert result.epoch == 7
    assert result.nics == {
        ("a", "nic1"): NicReport(False, 3, (), {"rx_packets": 5}),
        ("b", "nic1"): NicReport(True, 3, (Frame("a", "nic1", 7),), {"rx_packets": 5}),
    }
    assert fleet.commands["a"].endswith(" -IS private/probe.py --host a --epoch 7 nic1")


def test_a_host_that_is_not_ready_is_named_with_its_last_words(lab):
    fleet = ScriptedHosts(lab, {"started": [("a", say("ready"))]})
    with pytest.raises(
        HostError, match=r"not 'ready' on b \(PermissionError: not root\); it needs root"
    ) as caught:
        probe_links(fleet, lab, 7, window_s=0.0)
    assert caught.value.host == "b"
    assert fleet.said == [], "without all hosts nobody is told to go"


def test_what_many_hosts_say_alike_is_told_once(lab):
    lacking = {"a": (127, "", "python: not found\n"), "b": (127, "", "python: not found\n")}
    fleet = ScriptedHosts(lab, {"started": [], "ended": lacking})
    with pytest.raises(HostError, match=r"not 'ready' on a, b \(python: not found\); it needs root"):
        probe_links(fleet, lab, 7, window_s=0.0)


def test_hops_are_read_from_the_ttl_of_the_reply_and_what_does_not_pass(lab):
    way = {"ttl": 62, "seconds": 0.001, "sent": 25, "received": 23, "large": False, "tcp": False}
    fleet = ScriptedHosts(
        lab,
        {
            "started": [("b", say("ready")), ("a", say("ready"))],
            "told": [
                ("a", say("ways", ways={"10.100.2.100": way}, listens=["10.100.1.100"])),
                ("b", say("ways", ways={"10.100.1.100": None}, listens=["10.100.2.100"])),
            ],
        },
    )
    reached = ping_all(fleet, mtu=9000, count=25)
    assert " --bind 10.100.1.100 --size 8972 --port " in fleet.commands["a"]
    assert fleet.said == ["go\n"]
    assert (reached.loss_by_pair, reached.small_only_pairs) == ({("a", "b"): (2, 25)}, {("a", "b")})
    assert reached.pairs_without_tcp == {("a", "b")}
    assert reached.hop_count_by_pair == {("b", "a"): 3}
    assert reached.answered_pairs == {("a", "b")}
    assert reached.longest_answer_s == 0.001
    assert reached.missing_pairs == (("b", "a"),)
    assert not reached.is_complete


def test_a_host_that_cannot_ping_is_named(lab):
    fleet = ScriptedHosts(lab, {"started": [("a", say("ready"))]})
    with pytest.raises(HostError, match=r"ping of all pairs is not 'ready' on b \(PermissionError") as caught:
        ping_all(fleet)
    assert list(caught.value.reasons) == ["b"]
