"""`python -m sim.twins polatis`: one ready line, an address for each way in, an end with its standard input."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from needs import needs

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[3]


def start(*options):
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "sim.twins", "polatis", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )


@pytest.fixture
@needs("process")
def process():
    with start("--size", "16x32", "--clock", "virtual", "--name", "ocs7") as child:
        yield child
        child.kill()


def ask(address, line):
    host, _, port = address.rpartition("/")[2].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10.0) as connection:
        connection.sendall(line.encode() + b"\n")
        with connection.makefile("rb") as stream:
            return stream.readline().decode().rstrip("\r\n")


@pytest.mark.socket
def test_it_serves_until_its_input_closes(process):
    ready = json.loads(process.stdout.readline())
    assert (ready.pop("ready"), ready.pop("simulated"), ready.pop("family")) == (True, True, "polatis")
    assert sorted(ready) == ["control", "rest", "scpi", "serial", "tl1"]
    assert Path(ready["serial"].partition("://")[2].partition("?")[0]).is_char_device()
    assert ask(ready["scpi"], "*IDN?").startswith("Polatis,I-OST-16x32-LU1-DMHNS-801,SIM")
    assert json.loads(ask(ready["control"], '{"do": "advance", "seconds": 2}')) == {"ok": True, "now_s": 2.0}
    with socket.create_connection(
        ("127.0.0.1", int(ready["tl1"].rpartition(":")[2])), timeout=10.0
    ) as client:
        process.stdin.close()
        assert process.wait(60) == 0
        assert client.recv(1) == b""
    assert process.stdout.read() == b""
    assert process.stderr.read() == b""
    assert not Path(ready["serial"].partition("://")[2].partition("?")[0]).parent.exists()


def test_it_ends_on_sigterm(process):
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert process.stderr.read() == b""


@pytest.mark.socket
def test_a_taken_address_is_said_in_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken, start("--port", _port(taken)) as child:
        output, complaint = child.communicate(timeout=60)
    assert (child.returncode, output) == (1, b"")
    assert complaint.startswith(b"cannot serve: ")
    assert complaint.count(b"\n") == 1


def _port(sock):
    return f"scpi={sock.getsockname()[1]}"


def test_a_bad_number_is_a_usage_error():
    with start("--size", "many") as child:
        assert b"--size" in child.communicate(timeout=60)[1]
    assert child.returncode == 2
