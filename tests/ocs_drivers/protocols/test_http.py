"""HTTP as a client of a switch: the bytes, and what a session does when the other side misbehaves."""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from libraries import skip_without

skip_without("h11")

from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import (
    ConnectError,
    ConnectionLost,
    DeviceError,
    LoginFailed,
    PermissionDenied,
    ProtocolDesync,
    SessionExpired,
    Timeout,
    Unsupported,
)
from ocs_drivers.protocols import http
from ocs_drivers.protocols.http import CookieJar, HttpConnection, Request, make_basic_authorization
from ocs_drivers.protocols.http_session import HttpSession
from ocs_drivers.timing import Deadline
from ocs_drivers.transports.transport import make_connection_lost, make_timeout

pytestmark = pytest.mark.codec

DEVICE = "calient+rest://10.0.0.3:8008"


def reply(status: int, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Because", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def get() -> Request:
    return Request("GET", "/x", (("Host", "h"),))


# -- the bytes


def test_a_request_with_a_body_says_how_long_it_is():
    sent = HttpConnection().encode_request(
        Request("PUT", "/api/data/x", (("Host", "10.0.0.3:8008"),), b'{"a":1}')
    )
    assert sent == b'PUT /api/data/x HTTP/1.1\r\nHost: 10.0.0.3:8008\r\nContent-Length: 7\r\n\r\n{"a":1}'


def test_a_post_without_a_body_says_so_and_a_get_does_not():
    assert b"Content-Length: 0" in HttpConnection().encode_request(Request("POST", "/x", (("Host", "h"),)))
    assert b"Content-Length" not in HttpConnection().encode_request(get())


def test_without_h11_the_hint_is_named(monkeypatch):
    http._import_h11.cache_clear()
    monkeypatch.setitem(sys.modules, "h11", None)
    with pytest.raises(Unsupported, match=r"install the extra \[rest\] of lightbed"):
        http.HttpConnection()


def test_a_chunked_reply_is_joined():
    connection = HttpConnection()
    connection.encode_request(get())
    head = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nETag: "7"\r\n\r\n'
    found = connection.feed(head + b"3\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n")
    assert (found.status, found.json(), found.headers["etag"], found.reason) == (200, [1, 2], '"7"', "OK")
    assert connection.is_reusable


def test_an_interim_reply_is_not_the_answer():
    connection = HttpConnection()
    connection.encode_request(get())
    assert connection.feed(b"HTTP/1.1 102 Processing\r\n\r\n") is None
    assert connection.feed(reply(204)).status == 204


def test_a_reply_that_ends_with_the_connection_is_whole_only_then():
    connection = HttpConnection()
    connection.encode_request(get())
    assert connection.feed(b"HTTP/1.0 200 OK\r\n\r\n[1,2]") is None
    assert connection.feed(b"").json() == [1, 2]
    assert not connection.is_reusable


@pytest.mark.parametrize(
    "noise",
    [
        b"#",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000,
    ],
)
def test_what_is_not_http_is_a_desync_at_once(noise):
    connection = HttpConnection()
    connection.encode_request(get())
    with pytest.raises(ProtocolDesync):
        connection.feed(noise)


def test_more_bytes_than_the_reply_has_are_a_desync():
    connection = HttpConnection()
    connection.encode_request(get())
    with pytest.raises(ProtocolDesync, match="bytes after the end of the reply"):
        connection.feed(reply(204) + reply(200, b"[]"))


def test_a_device_that_disconnects_though_nobody_asked_is_a_desync():
    with pytest.raises(ProtocolDesync, match="ended before the reply"):
        HttpConnection().feed(b"")


def test_a_reason_may_hold_any_bytes():
    connection = HttpConnection()
    connection.encode_request(get())
    found = connection.feed(b"HTTP/1.1 204 Nichts \xfcbrig\r\n\r\n")
    assert (found.status, found.reason) == (204, "Nichts \xfcbrig")


def test_an_endless_body_is_a_desync():
    connection = HttpConnection(longest_body_bytes=1000)
    connection.encode_request(get())
    connection.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    with pytest.raises(ProtocolDesync, match="more than 1000 bytes"):
        for _ in range(10):
            connection.feed(b"80\r\n" + b"x" * 128 + b"\r\n")


REPLIES = [
    reply(200, b'{"a": [1, 2]}', 'ETag: "5"'),
    reply(204),
    reply(409, b"in use"),
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n[42]\r\n0\r\n\r\n",
]


@given(st.sampled_from(REPLIES), st.lists(st.integers(1, 200), max_size=8))
def test_however_the_bytes_are_split_the_reply_is_the_same(data, cuts):
    whole, split = HttpConnection(), HttpConnection()
    whole.encode_request(get())
    split.encode_request(get())
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    found = [split.feed(data[a:b]) for a, b in pairwise(edges)]
    assert found[:-1] == [None] * (len(found) - 1)
    assert found[-1] == whole.feed(data)


def test_any_bytes_give_a_reply_or_a_desync():
    met: Counter[str] = Counter()
    start = st.sampled_from([b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 204 No\r\n\r\n", b"HTTP", b""])
    tail = st.sampled_from([b"Content-Length: 3\r\n\r\nabc", b"\r\n\r\n", b"X: y\r\n", b"junk"])

    @given(st.tuples(start, st.lists(st.one_of(tail, st.binary(max_size=12)), max_size=6)))
    def feed(drawn: tuple[bytes, list[bytes]]) -> None:
        pieces = [drawn[0], *drawn[1]]
        connection = HttpConnection()
        connection.encode_request(get())
        for piece in pieces:
            try:
                found = connection.feed(piece) if piece else None
            except ProtocolDesync:
                met["desync"] += 1
                return
            if found is not None:
                met["reply"] += 1
                return
        met["more"] += 1

    feed()
    assert met["desync"] >= 10
    assert met["reply"] >= 1
    assert met["more"] >= 1


@given(st.text(st.characters(exclude_characters=";,=\x00\r\n", codec="ascii"), min_size=1), st.booleans())
def test_a_cookie_is_kept_until_it_is_taken_back(value, by_age):
    jar = CookieJar()
    jar.store(f"SID={value.strip() or 'x'}; Path=/; Secure")
    assert jar
    jar.store("SID=x; Max-Age=0" if by_age else "SID=")
    assert not jar
    assert tuple(jar.headers) == ()


def test_a_jar_holds_a_limited_number_of_cookies():
    jar = CookieJar()
    for number in range(1000):
        jar.store(f"c{number}=1")
    ((_, header),) = jar.headers
    assert header.count("=") == 16


def test_a_user_name_with_a_colon_cannot_log_in():
    with pytest.raises(LoginFailed, match="colon"):
        make_basic_authorization(Credentials("a:b", "c"))


# -- the session


class Hangup:
    """In a script: the device closes the connection here."""


class Silence:
    """In a script: no answer."""


class ScriptedLine:
    """A transport whose answers come from a list, one for each request that was sent."""

    def __init__(self, *answers: bytes | type | Callable[[bytes], bytes]) -> None:
        self.answers = list(answers)
        self.sent: list[bytes] = []
        self.opened = 0
        self.is_open = False
        self.waits = False
        self._inbox: list[bytes | type] = []

    def open(self, timeout_s: float) -> None:
        self.opened += 1
        self.is_open = True
        self.waits = False
        self._inbox = []

    def close(self) -> None:
        self.is_open = False

    def has_input(self) -> bool:
        return self.waits

    def send(self, data: bytes, deadline: Deadline) -> None:
        self.sent.append(data)
        answer = self.answers.pop(0)
        self._inbox = [answer(data) if callable(answer) and not isinstance(answer, type) else answer]

    def receive(self, deadline: Deadline) -> bytes:
        data = self._inbox.pop(0) if self._inbox else Silence
        if data is Hangup:
            raise make_connection_lost(DEVICE, "the device closed the connection")
        if data is Silence:
            raise make_timeout(DEVICE, deadline)
        assert isinstance(data, bytes)
        return data


def session_on(line: ScriptedLine, **options: object) -> HttpSession:
    session = HttpSession(
        line, device=DEVICE, credentials=Credentials("admin", "s3cret"), timeout_s=1, **options
    )
    session.open()
    return session


def test_requests_share_a_connection_and_say_host_and_who_we_are():
    line = ScriptedLine(reply(200, b"[1]"), reply(200, b"[2]"))
    session = session_on(line)
    assert [session.get_json("/x", list), session.get_json("/y", list)] == [[1], [2]]
    assert line.opened == session.connection_count == 1
    for sent in line.sent:
        assert b"Host: 10.0.0.3:8008\r\n" in sent
        assert b"Authorization: Basic YWRtaW46czNjcmV0\r\n" in sent


def test_a_server_that_closes_after_each_answer_gets_a_connection_for_each():
    line = ScriptedLine(reply(200, b"[1]", "Connection: close"), reply(204))
    session = session_on(line)
    session.get_json("/x", list)
    assert not line.is_open
    assert session.request("PUT", "/x", b"1").status == 204
    assert line.opened == 2


def test_a_connection_that_was_closed_meanwhile_is_replaced_before_a_write():
    line = ScriptedLine(reply(200, b"[1]"), reply(204))
    session = session_on(line)
    session.get_json("/x", list)
    line.waits = True  # the end of the connection, or bytes nobody asked for
    assert session.request("PUT", "/x", b"1").status == 204
    assert (line.opened, len(line.sent)) == (2, 2)


def test_a_read_that_met_a_disconnect_is_asked_again():
    line = ScriptedLine(reply(204), Hangup, reply(200, b"[1]"))
    session = session_on(line)
    session.request("GET", "/")
    assert session.get_json("/x", list) == [1]
    assert line.opened == 2


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH"])
def test_a_write_that_met_a_disconnect_is_never_sent_again(method):
    line = ScriptedLine(reply(204), Hangup)
    session = session_on(line)
    session.request("GET", "/")
    with pytest.raises(ConnectionLost) as caught:
        session.request(method, "/x", b"1")
    assert len(line.sent) == 2
    assert (caught.value.device, caught.value.sent) == (DEVICE, f"{method} /x")


def test_a_post_that_only_asks_may_be_sent_again_when_the_caller_says_so():
    line = ScriptedLine(reply(204), Hangup, reply(200, b"1"))
    session = session_on(line)
    session.request("GET", "/")
    assert session.request("POST", "/x?id=list", b"", is_read=True).json() == 1


def test_a_device_that_disconnects_before_its_first_answer_is_no_such_device():
    with pytest.raises(ConnectError, match="before its first answer"):
        session_on(ScriptedLine(Hangup)).request("GET", "/x")


def test_silence_ends_at_the_deadline_and_the_line_is_closed():
    line = ScriptedLine(Silence)
    with pytest.raises(Timeout, match="no answer within 1 s"):
        session_on(line).request("GET", "/x")
    assert not line.is_open


def test_noise_is_a_desync_and_the_line_is_closed():
    line = ScriptedLine(b"%%%%")
    with pytest.raises(ProtocolDesync, match="not HTTP") as caught:
        session_on(line).request("GET", "/x")
    assert not line.is_open
    assert caught.value.received == "%%%%"


def test_a_body_that_is_not_json_is_a_desync():
    line = ScriptedLine(reply(200, b"<html>"))
    with pytest.raises(ProtocolDesync, match="not JSON") as caught:
        session_on(line).get_json("/x", list)
    assert caught.value.received == "<html>"
    assert not line.is_open


def test_a_refusal_leaves_the_connection_and_carries_the_status():
    line = ScriptedLine(reply(404, b"no such thing"), reply(409, b"in use"))
    session = session_on(line)
    with pytest.raises(DeviceError, match="404 Because") as caught:
        session.get_json("/x", list)
    assert (caught.value.device_code, caught.value.received) == ("404", "no such thing")
    assert session.send_json("PUT", "/x", {}).status == 409  # what it means is the driver's business
    assert line.opened == 1


def test_a_redirect_is_not_followed():
    line = ScriptedLine(reply(302, b"", "Location: http://elsewhere/"))
    with pytest.raises(DeviceError, match="302"):
        session_on(line).get_json("/x", list)


def test_a_wrong_password_fails_once():
    line = ScriptedLine(reply(401))
    with pytest.raises(LoginFailed) as caught:
        session_on(line).request("GET", "/x")
    assert "s3cret" not in str(caught.value)
    assert len(line.sent) == 1


def test_a_user_who_may_not_write_gets_its_own_error():
    line = ScriptedLine(reply(403, b"read-only user"))
    with pytest.raises(PermissionDenied, match="read-only user"):
        session_on(line).send_json("PUT", "/x", {})


def test_the_cookie_of_a_login_comes_along():
    line = ScriptedLine(reply(200, b"1", "Set-Cookie: JSESSIONID=7; Path=/rest"), reply(200, b"2"))
    session = session_on(line)
    session.request("GET", "/x")
    session.request("GET", "/x")
    assert b"Cookie" not in line.sent[0]
    assert b"Cookie: JSESSIONID=7\r\n" in line.sent[1]


def logged_in(*more: bytes) -> tuple[ScriptedLine, HttpSession]:
    line = ScriptedLine(reply(200, b"1", "Set-Cookie: SID=7"), *more)
    session = session_on(line)
    session.request("GET", "/x")
    return line, session


def test_a_session_that_has_expired_is_renewed_once_and_the_guard_is_asked():
    asked: list[int] = []
    line, session = logged_in(reply(401), reply(204))
    answer = session.send_json("PUT", "/x", {}, before_resending=lambda: asked.append(1))
    assert (answer.status, asked) == (204, [1])
    assert b"Cookie" in line.sent[1]
    assert b"Cookie" not in line.sent[2]


def test_a_guard_that_refuses_stops_the_second_write():
    def refuse() -> None:
        raise RuntimeError("no longer ours")

    line, session = logged_in(reply(401))
    with pytest.raises(RuntimeError, match="no longer ours"):
        session.send_json("PUT", "/x", {}, before_resending=refuse)
    assert len(line.sent) == 2


def test_a_login_that_cannot_be_renewed_is_expired():
    line, session = logged_in(reply(401), reply(401))
    with pytest.raises(SessionExpired):
        session.request("GET", "/x")
    assert len(line.sent) == 3


def test_a_closed_session_sends_nothing():
    line = ScriptedLine()
    session = session_on(line)
    session.close()
    with pytest.raises(ConnectionLost, match="open the switch first"):
        session.request("GET", "/x")
    assert line.sent == []


def test_the_log_shows_requests_and_answers_but_no_login(caplog):
    line = ScriptedLine(reply(200, b'{"a":1}', "Set-Cookie: SID=verysecret"))
    with caplog.at_level(logging.DEBUG, "ocs_drivers.wire"):
        session_on(line).send_json("PUT", "/x", {"b": 2})
    logged = [record.getMessage() for record in caplog.records]
    assert logged == [f'{DEVICE} > PUT /x {{"b":2}}', f"{DEVICE} < 200 Because", f'{DEVICE} < {{"a":1}}']


def test_documents_are_sent_compactly_with_their_type():
    line = ScriptedLine(reply(204))
    session_on(line).send_json("PUT", "/x", {"a": [1, 2]}, content_type="application/yang-data+json")
    assert line.sent[0].endswith(b'\r\n\r\n{"a":[1,2]}')
    assert b"Content-Type: application/yang-data+json\r\n" in line.sent[0]
    assert json.loads(line.sent[0].partition(b"\r\n\r\n")[2]) == {"a": [1, 2]}
