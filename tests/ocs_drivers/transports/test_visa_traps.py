"""The quirks of PyVISA-py on raw sockets, each as a regression test against a real TCP socket.

The numbers are those of `ocs_drivers.transports.visa`.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from unittest import mock

import pytest
from libraries import skip_without

from ocs_drivers import CrossConnects, open_switch
from ocs_drivers.engine.device_lock import make_lock_path
from ocs_drivers.errors import (
    ConnectError,
    ConnectionLost,
    ProtocolDesync,
    SwitchHeld,
    Timeout,
)

pytestmark = pytest.mark.socket

skip_without("pyvisa_py")

READ = b":oxc:swit:conn:stat?"
NEVER_S = 600
"""A timeout that outlasts any test: what returns has not waited for it."""


def address_of(peer) -> str:
    return f"polatis+scpi://127.0.0.1:{peer.port}"


def disconnect(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def say_nothing(connection: socket.socket) -> None:
    """Keep the connection and its owner waiting until the client leaves."""
    while connection.recv(4096):
        pass


def test_trap_1_both_terminations_are_set(peer, lines):
    with open_switch(address_of(peer(lines()))) as switch:
        resource = switch._session._transport._resource
        assert (resource.read_termination, resource.write_termination) == ("\n", "\n")


def test_trap_1_an_answer_that_arrived_is_not_a_timeout(peer, lines):
    for ending in (b"\r\n", b"\n", b"\r"):
        with open_switch(address_of(peer(lines({READ: b"(@1),(@25)" + ending}))), timeout_s=5) as switch:
            assert switch.read().connections == CrossConnects({1: 25})


def test_trap_2_a_refused_port_is_found_out_at_open():
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # and does not listen
        port = reserved.getsockname()[1]
        with pytest.raises(ConnectError, match=f"127.0.0.1:{port}"):
            open_switch(f"polatis+scpi://127.0.0.1:{port}", timeout_s=NEVER_S)


def test_trap_2_a_port_that_disconnects_is_found_out_at_open(peer):
    with pytest.raises(ConnectError, match="the device closed the connection before it identified itself"):
        open_switch(address_of(peer(disconnect)), timeout_s=NEVER_S)


def test_trap_3_a_closed_peer_is_a_lost_connection_at_once_and_costs_no_cpu(peer, lines):
    served = peer(lines({b":oxc:swit:port:stat?": disconnect, READ: disconnect}))
    with open_switch(address_of(served), timeout_s=NEVER_S) as switch:
        cpu_started = time.thread_time()
        with pytest.raises(ConnectionLost):
            switch.ports()
        assert time.thread_time() - cpu_started < 0.5


def test_trap_3_a_closed_peer_while_we_wait_does_not_spin(peer, lines):
    release = threading.Event()

    def late_disconnect(connection: socket.socket) -> None:
        release.wait(20)
        disconnect(connection)

    with open_switch(address_of(peer(lines({READ: late_disconnect}))), timeout_s=NEVER_S) as switch:
        threading.Timer(0.3, release.set).start()
        cpu_started = time.thread_time()
        with pytest.raises(ConnectionLost):
            switch._session.ask(READ.decode(), str)
        assert time.thread_time() - cpu_started < 0.1


def test_trap_4_a_late_answer_reaches_nobody(peer, lines):
    released = threading.Event()
    answers = iter([b"(@1),(@25)\r\n", b"(@2),(@26)\r\n"])

    def answer(connection: socket.socket) -> None:
        text = next(answers)
        if text.startswith(b"(@1)"):
            released.wait(20)
        connection.sendall(text)

    served = peer(lines({READ: answer}))
    with open_switch(address_of(served), timeout_s=20) as switch:
        with mock.patch.object(switch._session, "_timeout_s", 0.3), pytest.raises(Timeout):
            switch.read()
        released.set()
        assert switch.read().connections == CrossConnects({2: 26})
    assert len(served.connections) == 2


def test_trap_5_another_process_that_writes_is_named(twin):
    hold = (
        "import sys; from ocs_drivers.engine.device_lock import DeviceLock\n"
        f"with DeviceLock({twin.scpi!r}): print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder, open_switch(twin.scpi) as switch:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(SwitchHeld, match=f"process {holder.pid}") as caught:
            switch.connect({1: 9})
        assert caught.value.pid == holder.pid
        assert switch.read().connections == CrossConnects()  # reading is allowed
        assert str(holder.pid) in make_lock_path(twin.scpi).read_text()
        holder.kill()
        holder.wait(60)
        assert switch.connect({1: 9}).complete  # a dead holder holds nothing


def test_trap_6_threads_get_their_own_answers(peer, lines):
    def echo(number: int) -> bytes:
        return b":oxc:swit:conn:port? %d" % number

    served = peer(lines({echo(n): b'"%d"\r\n' % n for n in range(2000)}))
    wrong: list[int] = []
    with open_switch(address_of(served)) as switch:

        def ask(first: int) -> None:
            wrong.extend(
                number
                for number in range(first, 2000, 4)
                if switch._session.ask(echo(number).decode(), str) != f'"{number}"'
            )

        threads = [threading.Thread(target=ask, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    assert sum(b"conn:port?" in command for command in served._serve.asked) == 2000


def test_trap_7_an_answer_in_two_pieces_is_not_returned_late(peer, lines):
    sent_at: list[float] = []

    def in_pieces(connection: socket.socket) -> None:
        connection.sendall(b"(@1,2),")
        threading.Event().wait(0.03)
        sent_at.append(time.monotonic())
        connection.sendall(b"(@25,26)\r\n")

    late: list[float] = []
    with open_switch(address_of(peer(lines({READ: in_pieces})))) as switch:
        for _ in range(9):
            assert switch.read().connections == CrossConnects({1: 25, 2: 26})
            late.append(time.monotonic() - sent_at[-1])
    assert min(late) < 0.02  # a driver that waits does so every time, a busy machine does not


def test_a_silent_device_is_a_timeout_at_the_deadline(peer):
    started = time.monotonic()
    with pytest.raises(Timeout, match=r"no answer within 0\.3 s"):
        open_switch(address_of(peer(say_nothing)), timeout_s=0.3)
    assert time.monotonic() - started >= 0.3


@pytest.mark.parametrize("garbage", [b"\x00\xff\xfe#\r\n", b"HTTP/1.1 400 Bad Request\r\n", b'"half\r\n'])
def test_garbage_closes_the_line_and_a_read_asks_again(peer, lines, garbage):
    answers = iter([garbage, b"(@),(@)\r\n"])
    served = peer(lines({READ: lambda connection: connection.sendall(next(answers))}))
    with open_switch(address_of(served)) as switch:
        assert switch.read().connections == CrossConnects()
    assert len(served.connections) == 2


def test_nothing_but_garbage_is_a_desync(peer, lines):
    served = peer(lines({READ: b"HTTP/1.1 400 Bad Request\r\n"}))
    with open_switch(address_of(served)) as switch:
        with pytest.raises(ProtocolDesync) as caught:
            switch.read()
        assert caught.value.device == switch.address
        assert caught.value.sent == READ.decode()
    assert len(served.connections) == 3


def test_more_answers_than_questions_are_a_desync(peer, lines):
    with (
        open_switch(address_of(peer(lines({READ: b"(@),(@)\r\n(@1),(@25)\r\n"})))) as switch,
        pytest.raises(ProtocolDesync, match="more replies than queries"),
    ):
        switch.read()


def test_bytes_nobody_asked_for_are_not_taken_for_an_answer(peer, lines):
    answers = iter([b"(@1),(@25)\r\n", b"(@2),(@26)\r\n"])
    served = peer(lines({READ: lambda connection: connection.sendall(next(answers))}))
    with open_switch(address_of(served)) as switch:
        assert switch.read().connections == CrossConnects({1: 25})
        served.connections[0].sendall(b"(@3),(@27)\r\n")
        assert switch.read().connections == CrossConnects({2: 26})
    assert len(served.connections) == 2


def test_a_device_that_disconnected_while_idle_is_read_again(peer, lines):
    served = peer(lines({READ: b"(@1),(@25)\r\n"}))
    with open_switch(address_of(served)) as switch:
        disconnect(served.connections[0])
        assert switch.read().connections == CrossConnects({1: 25})
    assert len(served.connections) == 2
