"""Both transports against real sockets: every wait ends, and every end has its own error."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time

import pytest

from ocs_drivers.errors import ConnectError, ConnectionLost, Timeout, Unsupported
from ocs_drivers.timing import Deadline
from ocs_drivers.transports.transport import SocketTransport


@pytest.fixture(params=["socket", "visa"])
def transport(request):
    """Make transports of either kind, and close them."""
    if request.param == "visa":
        pytest.importorskip("pyvisa_py")
    made = []

    def make(port: int):
        from ocs_drivers.transports.visa import VisaTransport

        kind = {"socket": SocketTransport, "visa": VisaTransport}[request.param]
        made.append(kind("127.0.0.1", port, device="test://device"))
        return made[-1]

    yield make
    for one in made:
        one.close()


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


@pytest.mark.socket
def test_what_is_sent_comes_back_whole(transport, peer):
    line = transport(peer(echo).port)
    line.open(5)
    data = bytes(range(256)) * 1000
    deadline = Deadline(20)
    sender = threading.Thread(target=line.send, args=(data, deadline))
    sender.start()
    received = b""
    while len(received) < len(data):
        received += line.receive(deadline)
    sender.join(60)
    assert received == data
    assert not line.has_input()


@pytest.mark.socket
def test_nobody_there_is_a_connect_error(transport):
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # and does not listen
        line = transport(reserved.getsockname()[1])
        with pytest.raises(ConnectError, match="cannot connect"):
            line.open(5)
    assert not line.is_open


@pytest.mark.socket
def test_a_host_that_answers_nothing_is_a_connect_error_in_time(transport):
    """A full backlog: the kernel drops what would be the next connection."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = full.getsockname()[1]
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        started = time.monotonic()
        with pytest.raises(ConnectError):
            transport(port).open(0.3)
        assert time.monotonic() - started < 60  # the kernel itself tries for two minutes


@pytest.mark.socket
def test_silence_is_a_timeout(transport, peer):
    line = transport(peer(echo).port)
    line.open(5)
    started = time.monotonic()
    with pytest.raises(Timeout, match=r"within 0\.1 s"):
        line.receive(Deadline(0.1))
    assert time.monotonic() - started >= 0.1


@pytest.mark.socket
def test_a_disconnect_is_lost(transport, peer):
    line = transport(peer(lambda connection: connection.shutdown(socket.SHUT_RDWR)).port)
    line.open(5)
    with pytest.raises(ConnectionLost, match="closed the connection"):
        line.receive(Deadline(10))
    assert line.has_input()  # a closed connection can be read without waiting


@pytest.mark.socket
def test_writing_to_who_disconnected_is_lost(transport, peer):
    line = transport(peer(lambda connection: connection.shutdown(socket.SHUT_RDWR)).port)
    line.open(5)
    with pytest.raises(ConnectionLost):
        for _ in range(1000):
            line.send(b"x" * 65536, Deadline(10))


@pytest.mark.socket
def test_who_does_not_read_is_a_timeout(transport, peer):
    release = threading.Event()
    line = transport(peer(lambda _: release.wait(20)).port)
    line.open(5)
    with pytest.raises(Timeout):  # before the peer gives up
        line.send(b"x" * (1 << 25), Deadline(0.3))
    release.set()


@pytest.mark.socket
def test_a_closed_transport_says_so(transport, peer):
    line = transport(peer(echo).port)
    line.close()
    for use in (lambda: line.send(b"x", Deadline(1)), lambda: line.receive(Deadline(1)), line.has_input):
        with pytest.raises(ConnectionLost, match="it is closed"):
            use()
    line.open(5)
    line.close()
    line.close()
    assert not line.is_open


def test_a_deadline_counts_down_and_stays_at_zero():
    assert 59 < Deadline(60).remaining_s() <= 60
    assert Deadline(0).remaining_s() == 0
    assert Deadline(-1).remaining_s() == 0


def test_without_pyvisa_the_hint_is_named(monkeypatch):
    from ocs_drivers.transports import visa

    monkeypatch.setitem(sys.modules, "pyvisa", None)
    with pytest.raises(Unsupported, match=r"the extra \[visa\] of lightbed"):
        visa.VisaTransport("127.0.0.1", 1, device="test://device").open(1)
