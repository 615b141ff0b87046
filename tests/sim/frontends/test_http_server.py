"""The HTTP half of a simulated switch, driven by bytes."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from typing import Any

import pytest
from libraries import skip_without

skip_without("h11")

from sim.models.clock import VirtualClock
from sim.twins.frontends.http_server import HttpAnswer, HttpServer, Route, make_json_answer
from sim.twins.wire.line import Line, LineFaults, Transcript

ADMIN = "Authorization: Basic " + b64encode(b"admin:root").decode()
READER = "Authorization: Basic " + b64encode(b"viewer:root").decode()
STRANGER = "Authorization: Basic " + b64encode(b"admin:no").decode()


async def put(request: Any) -> HttpAnswer:
    return make_json_answer({"heard": request.parse_json(), "by": request.user}, 201)


ROUTES = [
    Route(
        "GET",
        r"/ports/(\d+)",
        lambda request: make_json_answer([request.captured_groups[0], dict(request.query)]),
    ),
    Route("PUT", r"/ports/(\d+)", put),
    Route("DELETE", r"/ports/(\d+)", lambda _: HttpAnswer(204)),
    Route("HEAD", r"/ports", lambda _: HttpAnswer(200, b"12345")),
]


class Writer:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.data = b""
        self.transport = self
        self._closed = False

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        return

    def close(self) -> None:
        self._closed = True

    abort = close

    def is_closing(self) -> bool:
        return self._closed

    async def wait_closed(self) -> None:
        return


def serve(*requests: bytes, faults: LineFaults | None = None, **options: Any) -> str:
    """Return what a client hears who sends these and leaves."""
    server = HttpServer(ROUTES, **{"accounts": {"admin": "root", "viewer": "root"}, **options})
    return serve_with(server, *requests, faults=faults)


def serve_with(server: HttpServer, *requests: bytes, faults: LineFaults | None = None) -> str:
    async def run() -> str:
        clock, writer, reader = VirtualClock(), Writer(), asyncio.StreamReader()
        line = Line(
            "rest",
            1,
            (reader, writer),
            faults=faults or LineFaults(),
            transcript=Transcript(clock),
            clock=clock,
        )
        for request in requests:
            reader.feed_data(request)
        reader.feed_eof()
        try:
            await server.serve(line)
        except ConnectionError:
            assert writer.is_closing()
        return writer.data.decode()

    return asyncio.run(run())


def request(method: str, target: str, *headers: str, body: str = "") -> bytes:
    head = [f"{method} {target} HTTP/1.1", "Host: h", *headers]
    head += [f"Content-Length: {len(body)}"] if body else []
    return ("\r\n".join([*head, "", ""]) + body).encode()


def statuses(heard: str) -> list[int]:
    return [int(status) for status in re.findall(r"HTTP/1\.1 (\d{3})", heard)]


def test_a_request_is_answered_by_its_route():
    heard = serve(request("GET", "/ports/7?id=detail&x=a%20b", ADMIN))
    assert heard.startswith("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
    assert heard.endswith('\r\n\r\n["7", {"id": "detail", "x": "a b"}]')


def test_one_connection_carries_many_requests():
    three = request("GET", "/ports/1", ADMIN) + request("DELETE", "/ports/1", ADMIN)
    heard = serve(three, request("PUT", "/ports/2", ADMIN, body='{"a": 1}'))
    assert statuses(heard) == [200, 204, 201]
    assert heard.endswith('{"heard": {"a": 1}, "by": "admin"}')


def test_however_a_request_is_cut_it_is_the_same():
    whole = request("PUT", "/ports/2", ADMIN, body='{"a": 1}')
    pieces = [bytes([byte]) for byte in whole]
    assert serve(*pieces) == serve(whole)


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (request("GET", "/nowhere", ADMIN), 404),
        (request("POST", "/ports/1", ADMIN), 405),
        (request("GET", "/ports/1"), 401),
        (request("GET", "/ports/1", STRANGER), 401),
        (request("GET", "/ports/1", "Authorization: Basic %%%"), 401),
        (request("GET", "/ports/1", "Authorization: Bearer x"), 401),
        (request("PUT", "/ports/1", ADMIN, body="{"), 400),
        (b"\x00\x01\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
    ],
)
def test_what_cannot_be_answered_is_refused(asked, status):
    assert statuses(serve(asked)) == [status]


def test_after_noise_nothing_more_is_heard():
    assert statuses(serve(b"\x00\r\n\r\n", request("GET", "/ports/1", ADMIN))) == [400]


def test_a_405_names_what_is_allowed():
    assert "allow: delete, get, put\r\n" in serve(request("POST", "/ports/1", ADMIN)).lower()


def test_a_401_says_how_to_log_in():
    assert 'www-authenticate: basic realm="switch"' in serve(request("GET", "/ports/1")).lower()


def test_an_account_that_may_only_read():
    asked = (request("GET", "/ports/1", READER), request("DELETE", "/ports/1", READER))
    assert statuses(serve(*asked, read_only_users={"viewer"})) == [200, 403]


def test_without_accounts_everybody_may():
    assert statuses(serve(request("DELETE", "/ports/1"), accounts=None)) == [204]


def test_a_client_that_wants_the_end_gets_it():
    asked = request("GET", "/ports/1", ADMIN, "Connection: close") + request("GET", "/ports/1", ADMIN)
    assert statuses(serve(asked)) == [200]


def test_an_answer_to_head_has_no_body():
    heard = serve(request("HEAD", "/ports", ADMIN))
    assert heard.endswith("\r\n\r\n")
    assert "Content-Length: 5" in heard


def test_too_long_a_body_is_refused():
    head = f"PUT /ports/1 HTTP/1.1\r\nHost: h\r\n{ADMIN}\r\nContent-Length: 9000000\r\n\r\n".encode()
    assert statuses(serve(head + b"x" * 5_000_000)) == [413]


def test_a_login_hands_out_a_cookie_that_stands_for_it():
    server = HttpServer(ROUTES, accounts={"admin": "root"}, cookie_name="SID")
    heard = serve_with(server, request("GET", "/ports/1", ADMIN))
    cookie = re.search(r"Set-Cookie: (SID=\w+); Path=/", heard)[1]
    with_cookie = request("GET", "/ports/1", f"Cookie: other=1; {cookie}")
    assert statuses(serve_with(server, with_cookie)) == [200]
    assert server.expire_sessions() == 1
    stale = request("GET", "/ports/1", ADMIN, f"Cookie: {cookie}")
    assert statuses(serve_with(server, stale)) == [401]
    assert statuses(serve_with(server, request("GET", "/ports/1", ADMIN))) == [200]


def test_faults_of_the_line_reach_into_an_answer():
    asked = request("GET", "/ports/1", ADMIN)
    assert serve(asked, faults=LineFaults(close_after_bytes=12)) == "HTTP/1.1 200"
    assert serve(asked, faults=LineFaults(close_after_commands=1)) == ""
    assert statuses(serve(asked + asked, faults=LineFaults(close_after_commands=2))) == [200]
