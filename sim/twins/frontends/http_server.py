r"""The REST half of a simulated switch: HTTP/1.1 over a `Line`, on `h11` (extra `sim`).

    server = HttpServer(
        [Route("GET", r"/rest/ports/(\d+)", lambda request: json_answer(port_document(int(request.captured[0]))))],
        accounts={"admin": "root"},
    )
    Frontend("calient+rest", server.serve)

One server for all clients of a frontend. Every fault of `Line` applies: a line may break within an answer.
"""

from __future__ import annotations

import binascii
import json
import re
import secrets
from base64 import b64decode
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from inspect import isawaitable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from sim.twins.wire.line import Line

LONGEST_BODY_BYTES = 1 << 22

_READS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request as a handler sees it: `captured` are the groups of the route, `query` is decoded."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    captured: tuple[str, ...] = ()
    user: str = ""

    def json(self) -> Any:
        """Return the body as JSON. Raises `HttpRefusal` (400) when it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise HttpRefusal(400, f"not JSON: {error}") from None


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Answer of a handler."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class HttpRefusal(Exception):
    """A handler refuses: a status, a text or a JSON document that says why, and headers."""

    def __init__(self, status: int, why: Any = "", headers: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(f"{status}: {why}")
        self.status = status
        self.why = why
        self.headers = tuple(headers)

    def answer(self) -> HttpAnswer:
        """Return the answer that carries it."""
        if isinstance(self.why, str):
            return HttpAnswer(self.status, self.why.encode(), (("Content-Type", "text/plain"), *self.headers))
        return json_answer(self.why, self.status, headers=self.headers)


def json_answer(
    document: Any,
    status: int = 200,
    *,
    content_type: str = "application/json",
    headers: Iterable[tuple[str, str]] = (),
) -> HttpAnswer:
    """Return a JSON document as an answer.

    >>> json_answer({"port": 1}).body
    b'{"port": 1}'
    """
    return HttpAnswer(status, json.dumps(document).encode(), (("Content-Type", content_type), *headers))


Handler = Callable[[HttpRequest], HttpAnswer | Awaitable[HttpAnswer]]


@dataclass(frozen=True, slots=True)
class Route:
    """A method and a pattern of the whole path (a regular expression), and what answers there."""

    method: str
    pattern: str
    handler: Handler


class HttpServer:
    """Answers requests by a table of routes, after asking who is there.

    `accounts` maps users to passwords for Basic authentication (None: everybody may); those in `read_only`
    may only read (403). With a `cookie` name, a login hands out a session cookie that stands for it;
    `expire_sessions` makes all of them stale, and a stale cookie is answered with 401 whatever else is sent
    (assumption: the vendors say nothing about it, and this is what a client finds hardest).
    """

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        accounts: Mapping[str, str] | None = None,
        read_only: Collection[str] = (),
        cookie: str | None = None,
        realm: str = "switch",
    ) -> None:
        self._routes = [(route, re.compile(route.pattern)) for route in routes]
        self._accounts = accounts
        self._read_only = frozenset(read_only)
        self._cookie = cookie
        self._realm = realm
        self._sessions: dict[str, str] = {}

    def expire_sessions(self) -> int:
        """Forget all logins that a cookie stands for; gives their number."""
        count = len(self._sessions)
        self._sessions.clear()
        return count

    async def serve(self, line: Line) -> None:
        """Serve one client until it leaves or asks for the end."""
        connection = _ServerConnection()
        while (request := await connection.next_request(line)) is not None:
            await line.respond(lambda request=request: connection.answer(request, self.answer))  # type: ignore[misc]
            if not connection.goes_on():
                break

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Return the answer to one request, refusals included."""
        try:
            user, headers = self._authenticate(request)
            if request.method not in _READS and user in self._read_only:
                raise HttpRefusal(403, f"user {user} may only read")
            handler, captured = self._find(request)
            decoded = tuple(unquote(group or "") for group in captured)
            answering = handler(replace(request, captured=decoded, user=user))
            answer = await answering if isawaitable(answering) else answering
        except HttpRefusal as refusal:
            return refusal.answer()
        return HttpAnswer(answer.status, answer.body, (*answer.headers, *headers))

    def _find(self, request: HttpRequest) -> tuple[Handler, tuple[str, ...]]:
        allowed: list[str] = []
        for route, pattern in self._routes:
            found = pattern.fullmatch(request.path)
            if found and route.method == request.method:
                return route.handler, found.groups()
            allowed += [route.method] if found else []
        if allowed:
            raise HttpRefusal(405, "no such method here", [("Allow", ", ".join(sorted(set(allowed))))])
        raise HttpRefusal(404, f"nothing at {request.path}")

    def _authenticate(self, request: HttpRequest) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Return the client's account, and the headers that a login adds to the answer."""
        if self._accounts is None:
            return "", ()
        cookie = self._cookie_of(request)
        if cookie is not None:
            if cookie not in self._sessions:
                raise self._stranger("the session has expired")
            return self._sessions[cookie], ()
        user = self._basic(request)
        if self._cookie is None:
            return user, ()
        token = secrets.token_hex(16)
        self._sessions[token] = user
        return user, (("Set-Cookie", f"{self._cookie}={token}; Path=/; HttpOnly"),)

    def _cookie_of(self, request: HttpRequest) -> str | None:
        for pair in request.headers.get("cookie", "").split(";"):
            name, _, value = pair.strip().partition("=")
            if self._cookie is not None and name == self._cookie:
                return value
        return None

    def _basic(self, request: HttpRequest) -> str:
        scheme, _, coded = request.headers.get("authorization", "").partition(" ")
        try:
            user, _, password = b64decode(coded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            user = password = ""
        assert self._accounts is not None  # or nobody is asked
        if scheme.lower() != "basic" or self._accounts.get(user) != password:
            raise self._stranger("user name and password, please")
        return user

    def _stranger(self, why: str) -> HttpRefusal:
        return HttpRefusal(401, why, [("WWW-Authenticate", f'Basic realm="{self._realm}"')])


class _ServerConnection:
    """One client's connection: bytes to requests and answers to bytes."""

    def __init__(self) -> None:
        import h11

        self._h11 = h11
        self._connection = h11.Connection(h11.SERVER)
        self._too_bad: HttpAnswer | None = None

    async def next_request(self, line: Line) -> HttpRequest | None:
        """Return the next complete request; None when the client has left."""
        head: Any = None
        body = bytearray()
        while True:
            try:
                event = self._connection.next_event()
            except self._h11.RemoteProtocolError as error:
                return self._make_refusal(error.error_status_hint, "this is not HTTP")
            if event is self._h11.NEED_DATA:
                self._connection.receive_data(await line.read())
            elif isinstance(event, self._h11.ConnectionClosed):
                return None
            elif isinstance(event, self._h11.EndOfMessage):
                return _request(head, bytes(body))
            elif isinstance(event, self._h11.Request):
                head = event
            elif isinstance(event, self._h11.Data):
                body += event.data
                if len(body) > LONGEST_BODY_BYTES:
                    return self._make_refusal(413, "too much")

    def _make_refusal(self, status: int, why: str) -> HttpRequest:
        """Return a request that nobody answers but the connection itself, before it ends."""
        self._too_bad = HttpRefusal(status, why, [("Connection", "close")]).answer()
        return HttpRequest("", "")

    async def answer(
        self, request: HttpRequest, respond: Callable[[HttpRequest], Awaitable[HttpAnswer]]
    ) -> bytes:
        """Return the bytes of the answer to one request."""
        answer = self._too_bad or await respond(request)
        h11 = self._h11
        headers = list(answer.headers)
        if answer.status != 204:
            headers.append(("Content-Length", str(len(answer.body))))
        head = h11.Response(
            status_code=answer.status,
            reason=HTTPStatus(answer.status).phrase.encode(),
            headers=headers,
        )
        body = b"" if request.method == "HEAD" else answer.body
        events = [head, h11.Data(data=body), h11.EndOfMessage()]
        return b"".join(self._connection.send(event) or b"" for event in events)

    def goes_on(self) -> bool:
        """Return True if another request may follow."""
        try:
            self._connection.start_next_cycle()
        except self._h11.LocalProtocolError:
            return False
        return True


def _request(head: Any, body: bytes) -> HttpRequest:
    target = urlsplit(head.target.decode("ascii", "replace"))
    return HttpRequest(
        method=head.method.decode(),
        path=target.path,
        query=dict(parse_qsl(target.query, keep_blank_values=True)),
        headers={name.decode(): value.decode("latin-1") for name, value in head.headers},
        body=body,
    )
