"""`lightning serve --nic`: its address, what it refuses, and a NIC that programs talk to (lane kernel)."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from ipaddress import IPv4Interface
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from libraries import skip_without

skip_without("typer", reason="needs lightbed[kit]")

from lightning.cli import run_app
from lightning.cli.serve import _print_nic_ready as say
from lightning.compiler import Options, load_or_compile, save_model
from lightning.errors import AddressError, LightningError, OutOfRange, UnknownKey, UnknownScheme
from lightning.serving.nic import NicAddress, NicModelFile, load_program, parse_address, stop_on_signals
from lightning.serving.packets import Kind, decode_answer, parse, serialise, split

ROOT = Path(__file__).parents[3]
NIC = "verilator://nic0?address=10.77.0.2/24"
TIMEOUT_S = 100


@pytest.fixture
def folder(tmp_path):
    """With two networks, of 64 and 20 numbers."""
    random = np.random.default_rng(1)
    np.savez(tmp_path / "digits.npz", w1=random.normal(size=(16, 64)), w2=random.normal(size=(10, 16)))
    np.savez(tmp_path / "small.npz", w1=random.normal(size=(3, 20)))
    save_model(
        load_or_compile(tmp_path / "small.npz", options=Options(scheme="published")), tmp_path / "small.lng"
    )
    return tmp_path


def test_an_address_with_every_key():
    found = parse_address(
        "verilator://tap7?address=192.0.2.9/28&mac=0A:00:00:00:00:FF&port=9000&delay=3&shift=15&noise=1"
        "&seed=77&latency_ns=500&preamble=20",
        seed=5,
    )
    assert found == NicAddress(
        "tap7", IPv4Interface("192.0.2.9/28"), "0a:00:00:00:00:ff", 9000, 77, True, 3, 15, 20, 500
    )


def test_defaults_of_an_address():
    assert parse_address(NIC, seed=5) == NicAddress(
        "nic0", IPv4Interface("10.77.0.2/24"), "02:00:0a:4d:00:02", 8500, 5
    )
    assert str(parse_address("verilator://Nic0?address=10.77.0.2/24")) == "udp://10.77.0.2:8500 on Nic0"


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("nic0", UnknownScheme, "is not an address of a simulated NIC"),
        ("pcie://nic0?address=10.77.0.2/24", UnknownScheme, "is not an address of a simulated NIC"),
        ("verilator://?address=10.77.0.2/24", AddressError, "does not name one TAP device"),
        ("verilator://a/b?address=10.77.0.2/24", AddressError, "does not name one TAP device"),
        ("verilator://nic0", AddressError, "gives the NIC no IPv4 address"),
        ("verilator://nic0?address", AddressError, "is not an address of a NIC"),
        ("verilator://nic0?address=10.77.0.2", AddressError, "has no room for the NIC and this host"),
        ("verilator://nic0?address=10.77.0/24", AddressError, "is not an IPv4 address with a prefix"),
        ("verilator://nic0?address=10.77.0.0/24", AddressError, "is not the address of a host in 10.77.0.0/24"),
        ("verilator://nic0?address=::1/64", AddressError, "is not an IPv4 address with a prefix"),
        (f"{NIC}&address=10.77.0.3/24", AddressError, "address is given twice"),
        (f"{NIC}&mac=02:00:00:00:00", AddressError, "is not a MAC address"),
        (f"{NIC}&mac=ff:ff:ff:ff:ff:ff", AddressError, "is a multicast or all-zero MAC address"),
        (f"{NIC}&port=http", AddressError, "port 'http' is not an integer"),
        (f"{NIC}&port=0", OutOfRange, "port 0 is out of range"),
        (f"{NIC}&delay=16", OutOfRange, "delay 16 is out of range"),
        (f"{NIC}&noise=2", OutOfRange, "noise 2 is out of range"),
        (f"{NIC}&latency_ns=2000", OutOfRange, "latency_ns 2000 is out of range"),
        (f"{NIC}&lanes=4", UnknownKey, "a NIC has no key 'lanes'"),
    ],
)  # fmt: skip
def test_addresses_that_are_refused(text, kind, reason):
    with pytest.raises(kind) as caught:
        parse_address(text)
    assert reason in caught.value.problem
    assert caught.value.hint


def test_a_seed_that_is_too_long_for_the_optics():
    with pytest.raises(OutOfRange, match="seed 4294967296 is out of range"):
        parse_address(NIC, seed=2**32)
    assert parse_address(f"{NIC}&seed=1", seed=2**32).seed == 1


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_refused(text):
    for each in (text, f"verilator://nic0?{text}", f"{NIC}&{text}", f"verilator://{text}"):
        with suppress(LightningError):
            assert parse_address(each).interface


def test_sigterm_interrupts_the_build_of_the_simulator(monkeypatch, capsys, folder):
    """The build then ends its compilers, and removes its files."""

    def build(*_arguments, **_settings):
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the build goes on")

    monkeypatch.setattr("lightning.serving.nic.make_nic", build)
    handler = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert run_app(["serve", str(folder / "digits.npz"), "--nic", NIC, "--json"]) == 130
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert "ready" not in capsys.readouterr().out


def refused(capsys, *words):
    assert run_app(["serve", *map(str, words), "--json"]) == 1
    return json.loads(capsys.readouterr().out)["error"]


@pytest.mark.parametrize(
    "words",
    [
        ["--host", "127.0.0.1"], ["--port", "8080"], ["--udp", "9000"], ["--realtime"], ["--max-body", "64"],
        ["--noise", "per-product"], ["--sigma", "1"], ["--mean", "0"], ["--average", "1"], ["--device", "sim://kit"],
        ["--bus", "fastsim://"], ["--calibrated"],
    ],
)  # fmt: skip
def test_options_without_a_meaning_are_refused(capsys, folder, words):
    found = refused(capsys, folder / "digits.npz", "--nic", NIC, *words)
    assert found["code"] == "config"
    assert f"{words[0]} is given" in found["message"]


def test_fidelities_that_are_refused(capsys, folder):
    model = folder / "digits.npz"
    assert "exact or noisy" in refused(capsys, model, "--nic", NIC, "--fidelity", "datapath")["message"]
    for fidelity, noise in (("exact", 1), ("noisy", 0)):
        found = refused(capsys, model, "--nic", f"{NIC}&noise={noise}", "--fidelity", fidelity)
        assert f"fidelity {fidelity} contradicts noise={noise}" in found["message"]


def test_a_namespace_is_that_of_a_nic(capsys, folder):
    assert refused(capsys, folder / "digits.npz", "--namespace", "lab")["hint"].startswith("Add --nic")


def test_models_that_are_refused(capsys, folder):
    np.savez(folder / "wide.npz", w1=np.ones((10, 1500)))
    assert refused(capsys, folder / "absent.lng", "--nic", NIC)["code"] == "model-file"
    found = refused(capsys, folder / "wide.npz", "--nic", NIC)
    assert found["code"] == "compile"
    assert "1024" in found["message"]
    many = [folder / f"m{number}.npz" for number in range(17)]
    for each in many:
        np.savez(each, w1=np.eye(2))
    found = refused(capsys, *many, "--nic", NIC)
    assert (found["code"], "up to 16 models" in found["message"]) == ("serving", True)
    assert refused(capsys, folder / "small.npz", "--name", "a/b", "--nic", NIC)["code"] == "serving"


def test_models_have_numbers_in_their_order(folder):
    program, models = load_program({"small": folder / "small.lng", "digits": folder / "digits.npz"})
    assert [each.name for each in program.models] == ["small", "digits"]
    assert models == [
        NicModelFile("small", 0, folder / "small.lng"), NicModelFile("digits", 1, folder / "digits.npz")
    ]  # fmt: skip


def test_the_ready_line(capsys):
    models = [NicModelFile("a", 0, Path("a.lng")), NicModelFile("b", 1, Path("b.lng"))]
    say(parse_address(NIC, 3), models, as_json=False)
    say(parse_address(NIC, 3), models, as_json=True)
    text, document = capsys.readouterr().out.splitlines()
    assert text == "ready: a (number 0), b (number 1) at udp://10.77.0.2:8500 on nic0  SIMULATED"
    assert json.loads(document) == {
        "ready": True,
        "nic": {
            "interface": "nic0", "address": "10.77.0.2", "mac": "02:00:0a:4d:00:02", "port": 8500,
            "models": [{"name": "a", "number": 0, "file": "a.lng"}, {"name": "b", "number": 1, "file": "b.lng"}],
        },
        "seed": 3, "pid": os.getpid(), "simulated": True,
    }  # fmt: skip


def test_a_signal_makes_the_socket_readable():
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals() as stop:
        stop.setblocking(False)
        with pytest.raises(BlockingIOError):
            stop.recv(1)
        signal.raise_signal(signal.SIGTERM)
        assert stop.recv(1) == bytes([signal.SIGTERM])
    assert signal.getsignal(signal.SIGTERM) is before


# ------------------------------------------------------------------------------------- kernel
class Serving:
    """The command in a namespace of its own, until the end of a `with`."""

    def __init__(self, stack, *words):
        self.namespace = f"serve{os.getpid()}"
        self._ip("netns", "add", self.namespace)
        stack.callback(self._ip, "netns", "del", self.namespace)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lightning.cli", "serve", *map(str, words), "--namespace", self.namespace, "--json"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        stack.callback(self._end)
        self.ready = json.loads(self.process.stdout.readline())

    def _ip(self, *words):
        subprocess.run(["ip", *words], check=True, capture_output=True, timeout=TIMEOUT_S)

    def _end(self):
        self.process.kill()
        self.process.communicate()

    def stop(self, number):
        self.process.send_signal(number)
        printed, _ = self.process.communicate(timeout=TIMEOUT_S)
        assert self.process.returncode == 0
        return json.loads(printed)["counters"]

    def client(self):
        from fpga.smartnic.tap import call_in_namespace

        ends = call_in_namespace(self.namespace, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        ends.settimeout(TIMEOUT_S)
        ends.connect(("10.77.0.2", 8500))
        return ends

    def ping(self):
        command = ["ip", "netns", "exec", self.namespace, "ping", "-c", "1", "-W", "20", "10.77.0.2"]
        return subprocess.run(command, capture_output=True, check=False, timeout=TIMEOUT_S).returncode


def ask(ends, model, number, image):
    (packet,) = split(Kind.REQUEST, model, number, image.tobytes(), time_us=500_000)
    ends.send(serialise(packet))
    return parse(ends.recv(2048))


@pytest.mark.kernel
@pytest.mark.hdl
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_programs_talk_to_the_nic(folder, number):
    from lightning.execution import open_executor

    pytest.importorskip("lark", reason="needs lark: pip install 'lightbed[fpga]'")
    random = np.random.default_rng(number)
    with ExitStack() as stack:
        serving = Serving(stack, folder / "small.lng", folder / "digits.npz", "--nic", NIC)
        assert serving.ready["nic"]["models"][1] == {
            "name": "digits", "number": 1, "file": str(folder / "digits.npz")
        }  # fmt: skip
        assert serving.ready["simulated"] is True
        ends = stack.enter_context(serving.client())
        models = [load_or_compile(folder / "small.lng")]
        models.append(load_or_compile(folder / "digits.npz"))
        for model, compiled in enumerate(models):
            executor = open_executor(compiled, "exact")
            for request in range(20):
                image = random.integers(0, 256, (20, 64)[model]).astype(np.uint8)
                found = ask(ends, model, request, image)
                assert (found.kind, found.model, found.request) == (
                    Kind.ANSWER,
                    model,
                    request,
                )
                expected = executor.run(image[None])
                answer = decode_answer(found.payload)
                assert answer.scores.tolist() == expected.scores[0].tolist()
                assert answer.class_index == expected.classes[0]
        assert ask(ends, 2, 1, image).code == 2
        assert ask(ends, 0, 1, image).code == 4
        pings = serving.ping() == 0  # not every machine has the program
        counters = serving.stop(number)
        assert (counters["answered"], counters["unknown_model"], counters["refused"]) == (40, 1, 1)
        assert counters["ping"] == pings
        assert counters["arp"] >= 1
        assert counters["corrupt"] == counters["malformed"] == counters["failed"] == 0


@pytest.mark.kernel
@pytest.mark.hdl
def test_a_namespace_that_is_not_there(capsys, folder):
    pytest.importorskip("lark", reason="needs lark: pip install 'lightbed[fpga]'")
    found = refused(capsys, folder / "small.lng", "--nic", NIC, "--namespace", "nowhere")
    assert (found["code"], found["message"]) == ("serving", "network namespace nowhere does not exist")
