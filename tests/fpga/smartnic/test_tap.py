"""The TAP device of the simulated NIC, in a network namespace of the test; the lane `kernel` has the privilege."""

import os
import socket
import subprocess
import threading
from contextlib import closing
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path

import pytest
from needs import needs

from fpga.smartnic import tap as tap_module
from fpga.smartnic.simulator import SmartNic, SmartNicError
from fpga.smartnic.tap import Tap, TapError, call_in_namespace, open_tap, serve_tap

HERE = Path(__file__).resolve().parent
NIC = IPv4Interface("10.77.0.2/24")
WAIT_S = 20


def sh(command):
    return subprocess.run(command.split(), check=True, capture_output=True, text=True).stdout


@pytest.fixture
@needs("kernel")
def namespace():
    name = f"tap{os.getpid()}"
    sh(f"ip netns add {name}")
    yield name
    sh(f"ip netns del {name}")


@pytest.fixture(scope="module")
@needs("hdl")
def nic():
    pytest.importorskip("lark", reason="needs lark: pip install 'lightbed[fpga]'")
    from fpga.hdl import explain_missing

    if reason := explain_missing("verilator", "make", "g++"):
        pytest.skip(reason)
    from fpga.hdl.design import make_block_design

    text = (HERE / "echo_nic.sv").read_text("ascii")
    design = make_block_design("echo_nic", texts_by_name={"echo_nic": text})
    with closing(SmartNic(design=design, optimise_flag="-O1")) as nic:
        yield nic


class Served:
    """A NIC behind a TAP device, in a thread."""

    def __init__(self, nic, tap):
        self._ear, self._mouth = socket.socketpair()
        self.error = None
        self._thread = threading.Thread(target=self._run, args=(nic, tap))
        self._thread.start()

    def _run(self, nic, tap):
        try:
            serve_tap(nic, tap, self._ear)
        except (TapError, SmartNicError) as error:
            self.error = error

    def join(self):
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        self._ear.close()
        self._mouth.close()

    def stop(self):
        self._mouth.send(b"x")
        self.join()


def client(namespace):
    def connect():
        ends = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        ends.settimeout(WAIT_S)
        ends.connect((str(NIC.ip), 8500))
        return ends

    return call_in_namespace(namespace, connect)


def teach(namespace):
    """Tell the kernel the MAC of the stand-in, which does not answer ARP."""
    sh(f"ip -n {namespace} neigh replace {NIC.ip} lladdr 02:00:0a:4d:00:02 dev nic0")


def addresses(namespace, device="nic0"):
    return [line.split()[3] for line in sh(f"ip -n {namespace} -4 -o addr show dev {device}").splitlines()]


def test_datagrams_go_through_and_back(namespace, nic):
    with open_tap("nic0", NIC, namespace) as tap:
        served = Served(nic, tap)
        teach(namespace)
        before = nic.read_counters()["answered"]
        with client(namespace) as ends:
            for size in (1, 17, 18, 19, 500, 1472):
                ends.send(bytes([size & 255]) * size)
                assert ends.recv(4096) == bytes([size & 255]) * size
            for number in range(300):  # more than wait in front of the NIC
                ends.send(f"datagram {number}".encode())
            assert [ends.recv(4096) for _ in range(300)] == [f"datagram {n}".encode() for n in range(300)]
        served.stop()
        assert served.error is None
        assert nic.read_counters()["answered"] - before == 306
    assert "nic0" not in sh(f"ip -n {namespace} -br link")


class CountingNic:
    """A NIC that sends every frame back, and counts the turns that it is given."""

    def __init__(self):
        self.waiting_frame_count, self.turns, self.frames = 0, 0, []

    def send(self, frame):
        self.frames.append(frame)

    def run_until_idle(self, _cycles):
        self.turns += 1
        return True

    def receive(self):
        frames, self.frames = [(0, frame) for frame in self.frames], []
        return frames

    def list_arrivals(self):
        return []


def test_an_idle_nic_gets_a_turn_for_a_frame_and_none_without():
    host, wire = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    mouth, ear = socket.socketpair()
    wire.setblocking(False)
    counting = CountingNic()
    with host, mouth, ear:
        tap = Tap(wire.detach(), "nic0")
        thread = threading.Thread(target=serve_tap, args=(counting, tap, ear))
        thread.start()
        for number in range(5):
            host.send(bytes([number]) * 60)
            assert host.recv(100) == bytes([number]) * 60
        mouth.send(b"x")
        thread.join(WAIT_S)
        assert not thread.is_alive()
        tap.close()
    assert counting.turns == 5


def test_the_host_gets_an_address_unless_it_has_one(namespace):
    with open_tap("nic0", NIC, namespace):
        assert addresses(namespace) == ["10.77.0.254/24"]
        sh(f"ip -n {namespace} addr add 10.77.0.1/24 dev nic0")
        assert addresses(namespace) == ["10.77.0.254/24", "10.77.0.1/24"]
        with open_tap("nic1", IPv4Interface("10.77.0.3/24"), namespace):
            assert addresses(namespace, "nic1") == []
        with open_tap("nic2", IPv4Interface("10.78.0.254/24"), namespace):
            assert addresses(namespace, "nic2") == ["10.78.0.253/24"]


def test_a_device_that_exists_stays_and_keeps_its_address(namespace):
    sh(f"ip -n {namespace} tuntap add dev nic0 mode tap")
    sh(f"ip -n {namespace} addr add 192.0.2.1/24 dev nic0")
    for _ in range(2):
        with open_tap("nic0", NIC, namespace):
            assert addresses(namespace) == ["192.0.2.1/24", "10.77.0.254/24"]
            assert "UP" in sh(f"ip -n {namespace} -br link show dev nic0")
    assert "nic0" in sh(f"ip -n {namespace} -br link")


def test_a_device_in_use_is_refused(namespace):
    with open_tap("nic0", NIC, namespace):
        with pytest.raises(TapError, match="another program has the TAP device nic0 open"):
            open_tap("nic0", NIC, namespace)
        with pytest.raises(TapError, match="lo exists, and is not an Ethernet interface"):
            open_tap("lo", NIC, namespace)


def test_a_namespace_that_is_not_there(namespace):
    with pytest.raises(TapError, match="network namespace nowhere does not exist"):
        open_tap("nic0", NIC, "nowhere")
    with pytest.raises(TapError, match=r"'\.\./run' is not a name of a network namespace"):
        open_tap("nic0", NIC, "../run")
    assert "nic0" not in sh("ip -br link")


def test_a_device_that_is_deleted_ends_serving(namespace, nic):
    sh(f"ip -n {namespace} tuntap add dev nic0 mode tap")
    with open_tap("nic0", NIC, namespace) as tap:
        served = Served(nic, tap)
        sh(f"ip -n {namespace} link del nic0")
        served.join()
        assert "the TAP device nic0 is gone" in str(served.error)


@pytest.fixture
def wire(namespace):
    """Return the two ends of a veth pair: `port1` in the namespace, and `nic1`, where the client is, in another."""
    other = f"{namespace}c"
    sh(f"ip netns add {other}")
    try:
        sh(f"ip -n {namespace} link add port1 type veth peer name nic1 netns {other}")
        sh(f"ip -n {namespace} link set port1 up")
        sh(f"ip -n {other} addr add 10.77.0.1/24 dev nic1")
        sh(f"ip -n {other} link set nic1 up")
        sh(f"ip -n {other} neigh replace {NIC.ip} lladdr 02:00:0a:4d:00:02 dev nic1")
        yield other
    finally:
        sh(f"ip netns del {other}")


def test_an_interface_that_exists_is_a_wire(namespace, wire, nic):
    before = sh(f"ip -n {namespace} addr show dev port1")
    with open_tap("port1", NIC, namespace) as tap:
        served = Served(nic, tap)
        with client(wire) as ends:  # its checksums are not complete: a veth pair leaves them to the receiver
            for size in (1, 17, 18, 19, 500, 1472):
                ends.send(bytes([size & 255]) * size)
                assert ends.recv(4096) == bytes([size & 255]) * size
        served.stop()
        assert served.error is None
    assert sh(f"ip -n {namespace} addr show dev port1") == before


def test_frames_of_this_side_and_large_ones_stay_outside(namespace, wire):
    with open_tap("port1", NIC, namespace) as tap:
        for command in (
            f"-n {namespace} addr add 10.77.0.9/24 dev port1",
            f"-n {wire} link set nic1 mtu 9000",
        ):
            sh(f"ip {command}")
        sh(f"ip -n {namespace} link set port1 mtu 9000")
        sh(f"ip -n {namespace} neigh replace 10.77.0.1 lladdr 02:00:00:00:00:01 dev port1")

        def send():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ends:
                ends.sendto(b"out", ("10.77.0.1", 8500))

        call_in_namespace(namespace, send)
        with client(wire) as ends:
            ends.send(bytes(4000))
            ends.send(b"last")
        frames = []
        while not any(b"last" in frame for frame in frames):
            frame = tap.read()
            frames += [frame] if frame is not None else []
        assert not any(b"out" in frame or len(frame) > 1518 for frame in frames)


def test_an_interface_that_is_down_is_refused_and_one_that_goes_down_is_waited_for(namespace, wire):
    sh(f"ip -n {namespace} link set port1 down")
    with pytest.raises(TapError, match=r"the interface port1 is down. Set it up with `ip link set port1 up`"):
        open_tap("port1", NIC, namespace)
    sh(f"ip -n {namespace} link set port1 up")
    with open_tap("port1", NIC, namespace) as tap:
        sh(f"ip -n {namespace} link set port1 down")
        tap.write(bytes(60))
        assert tap.read() is None
        sh(f"ip -n {namespace} link del port1")
        with pytest.raises(TapError, match="the interface port1 is gone"):
            [tap.write(bytes(60)), tap.read()]


@pytest.mark.parametrize(
    ("payload", "checksum"),
    [("", "d2a5"), ("00", "d2a3"), ("0102", "d19f"), ("d2a1", "ffff")],
)
def test_a_checksum_is_filled_in(payload, checksum):
    """By hand without payload: 0a4d+0001+0a4d+0002, +0011+0008, +0fa0+08fc+0008 = 2d5a; its inverse is d2a5."""
    data = bytes.fromhex(payload)
    length = 8 + len(data)
    header = bytes.fromhex("4500") + (20 + length).to_bytes(2, "big") + bytes.fromhex("0000400040110000")
    ends = bytes.fromhex("0a4d00010a4d0002")
    udp = bytes.fromhex("0fa0") + bytes.fromhex("08fc") + length.to_bytes(2, "big") + bytes.fromhex("1234")
    frame = bytes(12) + b"\x08\x00" + header + ends + udp + data + b"padding"
    filled = tap_module.fill_checksum(frame)
    assert filled[40:42].hex() == checksum
    assert filled[:40] + frame[40:42] + filled[42:] == frame


@pytest.mark.parametrize(
    ("interface", "address", "reason"),
    [
        ("n" * 16, NIC, "too long: the name of a network device has up to 15 bytes"),
        ("", NIC, "is not a name for a network device"),
        ("a b", NIC, "is not a name for a network device"),
        ("nic%d", NIC, "is not a name for a network device"),
        ("..", NIC, "is not a name for a network device"),
        ("nic0", IPv4Interface("10.0.0.1/31"), "has no room"),
        ("nic0", IPv4Interface("10.0.0.255/24"), "not the address of a host"),
    ],
)
def test_names_and_addresses_that_are_not_valid(interface, address, reason):
    with pytest.raises(TapError, match=reason):
        open_tap(interface, address)


def test_without_privilege(monkeypatch, tmp_path):
    monkeypatch.setattr(tap_module, "_TUN", tmp_path / "tun")
    with pytest.raises(TapError, match="this kernel has no TAP devices"):
        open_tap("nic0", NIC)

    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(tap_module.os, "open", refuse)
    with pytest.raises(
        TapError, match=r"cannot set up the TAP device nic0: .*it takes root, or CAP_NET_ADMIN"
    ):
        open_tap("nic0", NIC)


@pytest.mark.parametrize(
    ("address", "host"),
    [("10.77.0.2/24", "10.77.0.254"), ("10.77.0.254/24", "10.77.0.253"), ("192.0.2.1/30", "192.0.2.2")],
)
def test_the_side_of_the_host(address, host):
    assert tap_module.find_host_address(IPv4Interface(address)) == IPv4Address(host)
