"""Slow clients shut nobody else out: their requests have a time limit, and they make room for others."""

from __future__ import annotations

import contextlib
import queue
import resource
import socket
import ssl
import subprocess
import threading
from http.client import HTTPConnection
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("uvicorn")
skip_without("httptools")

import uvicorn

from lightbed.http_server import MIN_LIFETIME_S, Acceptor, HeadAsGet, Limits, Server

pytestmark = [pytest.mark.socket]
HALF_HEADER = b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: "
HALF_BODY = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc"
WHOLE = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LARGE = 50_000_000
"""Bytes: more than the buffers of sockets take."""
QUICK = Limits(header_s=0.3, body_s=0.3, body_bytes_per_s=1e6)


async def app(scope, receive, send):
    """Read the body; answer with it, or at /endless without an end, at /large with more than sockets hold."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message.get("body", b""), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while scope["path"] == "/endless":
        await send({"type": "http.response.body", "body": b"on ", "more_body": True})
        if (await receive())["type"] == "http.disconnect":
            return
    text = bytes(LARGE) if scope["path"] == "/large" else body or b"hello"
    await send({"type": "http.response.body", "body": text})


@pytest.fixture
def serve():
    """Return a function that serves the app with some limits, and returns the port."""
    with contextlib.ExitStack() as stack:

        def start(limits=QUICK, app=app, **options):
            listening = socket.create_server(("127.0.0.1", 0), backlog=512)
            ready = threading.Event()
            config = uvicorn.Config(HeadAsGet(app), lifespan="off", log_config=None, loop="uvloop", **options)
            server = Server(config, ready.set, limits)
            thread = threading.Thread(target=server.run, args=([listening],))

            def stop():
                server.should_exit = True
                thread.join(10)
                assert not thread.is_alive()

            thread.start()
            stack.callback(stop)
            assert ready.wait(10)
            return listening.getsockname()[1]

        yield start


@pytest.fixture
def connect():
    """Return a function that connects and sends something."""
    with contextlib.ExitStack() as stack:

        def open_connection(port, text=b""):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            connection.sendall(text)
            return connection

        yield open_connection


def read_all(connection):
    """Return what comes until the server closes the connection."""
    text = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            text += part
    return text


def read_until(connection, part):
    """Read until this part has come: an answer may come in pieces."""
    text = b""
    while part not in text:
        more = connection.recv(65536)
        assert more, text
        text += more


def ask(port, method="GET", path="/", body=None):
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@pytest.mark.parametrize("sent", [HALF_HEADER, HALF_BODY], ids=["header", "body"])
def test_half_a_request_is_answered_with_408_in_time(serve, connect, sent):
    assert read_all(connect(serve(), sent)).startswith(b"HTTP/1.1 408 ")


def test_a_connection_on_which_nothing_is_said_is_closed_in_silence(serve, connect):
    assert read_all(connect(serve())) == b""


def test_the_next_request_of_a_connection_has_its_own_time(serve, connect):
    connection = connect(serve(), WHOLE)
    read_until(connection, b"hello")
    connection.sendall(HALF_HEADER)
    assert read_all(connection).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_comes_steadily_may_take_long(serve, connect):
    port = serve(Limits(header_s=0.3, body_s=0.3, body_bytes_per_s=10.0))
    connection = connect(port, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 60\r\n\r\n" + b"a" * 30)
    slow = connect(port, HALF_BODY)
    assert read_all(slow).startswith(b"HTTP/1.1 408 ")  # three bytes give it 0.6 s, thirty give the other 3.3
    connection.sendall(b"a" * 30)
    read_until(connection, b"a" * 60)


def test_an_answer_that_nobody_takes_is_given_up(serve, connect, monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(Acceptor, "forget", lambda _acceptor, _client: ended.set())
    connection = connect(serve(Limits(answer_s=0.3)), b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
    assert ended.wait(10)
    assert len(read_all(connection)) < LARGE


def test_of_one_address_the_oldest_unfinished_makes_room(serve, connect):
    port = serve(Limits(header_s=60, connections_per_address=4))
    half = [connect(port, HALF_HEADER) for _ in range(4)]
    streams = [connect(port, b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n") for _ in range(6)]
    for stream in streams:  # whole requests do not count
        read_until(stream, b"on ")
    threading.Event().wait(MIN_LIFETIME_S)
    connect(port, HALF_HEADER)
    assert read_all(half[0]).startswith(b"HTTP/1.1 503 ")
    half[1].settimeout(0.05)
    with pytest.raises(TimeoutError):
        half[1].recv(1)


@pytest.fixture
def few_descriptors():
    """Leave this process forty descriptors for connections."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/dev/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 400, before[1]))
    yield Limits(header_s=60, body_s=60, connections_per_address=10_000, spare_descriptors=360)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    "sent", [b"", HALF_HEADER, HALF_BODY, WHOLE], ids=["silent", "header", "body", "idle"]
)
def test_where_descriptors_run_short_the_oldest_makes_room(serve, connect, few_descriptors, sent):
    port = serve(few_descriptors)
    oldest = connect(port, sent)
    ask(port)  # its answer comes after the server has read what the oldest sent
    for _ in range(99):
        connect(port, sent)
    assert [ask(port)[0] for _ in range(20)] == [200] * 20
    assert read_all(oldest).startswith(
        b"" if not sent else b"HTTP/1.1 200" if sent == WHOLE else b"HTTP/1.1 503"
    )


def test_where_all_are_being_answered_a_new_connection_is_refused(serve, connect, few_descriptors):
    port = serve(few_descriptors)
    streams = [connect(port, b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n") for _ in range(60)]
    statuses = [stream.recv(65536).split()[1] for stream in streams]
    served = statuses.index(b"503")
    assert 16 <= served <= 40
    assert statuses == [b"200"] * served + [b"503"] * (60 - served)


@pytest.mark.process
def test_a_handshake_that_does_not_end_makes_room_too(serve, connect, few_descriptors, tmp_path):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-nodes",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
    ]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    port = serve(few_descriptors, ssl_certfile=certificate, ssl_keyfile=key)
    crowd = [connect(port) for _ in range(100)]
    trusted = ssl.create_default_context(cafile=certificate)
    for _ in range(10):
        with trusted.wrap_socket(connect(port), server_hostname="localhost") as connection:
            connection.sendall(WHOLE)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert read_all(crowd[0]) == b""


@pytest.mark.parametrize("path", ["/", "/endless", "/large"])
def test_head_is_answered_as_get_without_the_body(serve, path):
    assert ask(serve(), "HEAD", path) == (200, b"")


def test_a_connection_is_used_again_after_head(serve, connect):
    connection = connect(serve(), b"HEAD /endless HTTP/1.1\r\nHost: a\r\n\r\n")
    assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    connection.sendall(WHOLE)
    read_until(connection, b"hello")


def test_a_connection_that_is_idle_makes_room_before_one_whose_request_is_on_its_way(
    serve, connect, few_descriptors
):
    port = serve(few_descriptors)
    upload = connect(port, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 60\r\n\r\n" + b"a" * 30)
    idle = [connect(port, WHOLE) for _ in range(60)]
    assert [ask(port)[0] for _ in range(5)] == [200] * 5
    upload.sendall(b"a" * 30)
    read_until(upload, b"a" * 60)
    assert read_all(idle[0]).startswith(b"HTTP/1.1 200 ")


def test_a_line_break_does_not_keep_an_idle_connection(serve, connect):
    connection = connect(serve(timeout_keep_alive=1), WHOLE)
    read_until(connection, b"hello")
    connection.sendall(b"\r\n")
    assert read_all(connection) == b""


def test_a_burst_of_one_address_is_thinned_out(serve, connect):
    port = serve(Limits(header_s=60, connections_per_address=4))
    crowd = [connect(port, HALF_HEADER) for _ in range(20)]
    assert [read_all(connection)[9:12] for connection in crowd[:16]] == [b"503"] * 16
    crowd[17].settimeout(0.05)
    with pytest.raises(TimeoutError):
        crowd[17].recv(1)


def test_requests_that_follow_one_another_at_once_are_all_answered(serve, connect):
    connection = connect(serve(), WHOLE * 3 + b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert read_all(connection).count(b"hello") == 4


def test_half_a_request_behind_another_does_not_end_the_answer_to_the_first(serve, connect):
    connection = connect(serve(), b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n" + HALF_HEADER)
    half = connect(serve(), HALF_HEADER)
    assert read_all(half).startswith(b"HTTP/1.1 408 ")
    assert b"408" not in connection.recv(65536)
    connection.settimeout(0.05)
    with pytest.raises(TimeoutError):
        connection.recv(1)


def test_what_is_left_after_the_answer_to_head_is_done(serve):
    done = queue.SimpleQueue()

    async def with_a_task_behind(scope, receive, send):
        await app(scope, receive, send)
        done.put(scope["method"])

    port = serve(app=with_a_task_behind)
    assert ask(port, "HEAD") == (200, b"")
    assert done.get(timeout=60) == "GET"  # it is done after the answer
