r"""HTTP/1.1 server of a simulated switch, over a `Line`, with `h11` (extra `sim`).

    server = HttpServer(
        [Route("GET", r"/rest/ports/(\d+)", answer_port_request)],
        accounts={"admin": "root"},
    )
    Frontend("calient+rest", server.serve)

One server serves all clients of a frontend. All faults of `Line` apply, so a connection may break within an answer.
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

MAX_BODY_BYTES = 1 << 22

_READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request for a handler. `captured_groups` holds the decoded groups of the route's pattern."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    captured_groups: tuple[str, ...] = ()
    user: str = ""

    def parse_json(self) -> Any:
        """Return the body as JSON. Raise `HttpRefusal` (400) if it is not JSON, or nested too deeply."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise HttpRefusal(400, f"not JSON: {error}") from None


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Answer of a handler: status, body and additional headers."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class HttpRefusal(Exception):
    """Refusal by a handler: a status, an explanation `reason` (text or JSON document), and headers."""

    def __init__(self, status: int, reason: Any = "", headers: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(f"{status}: {reason}")
        self.status = status
        self.reason = reason
        self.headers = tuple(headers)

    def make_answer(self) -> HttpAnswer:
        """Return the refusal as an answer: plain text, or JSON if `reason` is not a string."""
        if isinstance(self.reason, str):
            return HttpAnswer(
                self.status, self.reason.encode(), (("Content-Type", "text/plain"), *self.headers)
            )
        return make_json_answer(self.reason, self.status, headers=self.headers)


def make_json_answer(
    document: Any,
    status: int = 200,
    *,
    content_type: str = "application/json",
    headers: Iterable[tuple[str, str]] = (),
) -> HttpAnswer:
    """Return an answer with a JSON document.

    >>> make_json_answer({"port": 1}).body
    b'{"port": 1}'
    """
    return HttpAnswer(status, json.dumps(document).encode(), (("Content-Type", content_type), *headers))


Handler = Callable[[HttpRequest], HttpAnswer | Awaitable[HttpAnswer]]


@dataclass(frozen=True, slots=True)
class Route:
    """A method, a regular expression for the whole path, and the handler of matching requests."""

    method: str
    pattern: str
    handler: Handler


class HttpServer:
    """A server that authenticates each request, and answers it with the handler of its route.

    `accounts` maps users to passwords for Basic authentication; None disables authentication. Users in
    `read_only_users` get status 403 for methods other than GET, HEAD and OPTIONS. With a `cookie_name`, a login returns
    a session cookie, which replaces the password in later requests. After `expire_sessions`, a request with an old
    cookie gets status 401, even if it has a valid password. Vendors do not document this; the assumption is the hardest
    case for a client.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        accounts: Mapping[str, str] | None = None,
        read_only_users: Collection[str] = (),
        cookie_name: str | None = None,
        realm: str = "switch",
    ) -> None:
        self._routes = [(route, re.compile(route.pattern)) for route in routes]
        self._accounts = accounts
        self._read_only_users = frozenset(read_only_users)
        self._cookie_name = cookie_name
        self._realm = realm
        self._sessions: dict[str, str] = {}

    def expire_sessions(self) -> int:
        """Invalidate all session cookies, and return their number."""
        count = len(self._sessions)
        self._sessions.clear()
        return count

    async def serve(self, client: Line) -> None:
        """Serve one client until it disconnects, asks to close the connection, or violates HTTP."""
        connection = _ServerConnection()
        while (request := await connection.next_request(client)) is not None:
            await client.respond(lambda request=request: connection.answer(request, self.answer))  # type: ignore[misc]
            if not connection.prepare_next_request():
                break

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Return the answer to one request. A refusal by the handler becomes an answer."""
        try:
            user, headers = self._authenticate(request)
            if request.method not in _READ_METHODS and user in self._read_only_users:
                raise HttpRefusal(403, f"user {user} may only read")
            handler, path_groups = self._find_route(request)
            decoded_groups = tuple(unquote(group or "") for group in path_groups)
            pending_answer = handler(replace(request, captured_groups=decoded_groups, user=user))
            answer = await pending_answer if isawaitable(pending_answer) else pending_answer
        except HttpRefusal as refusal:
            return refusal.make_answer()
        return HttpAnswer(answer.status, answer.body, (*answer.headers, *headers))

    def _find_route(self, request: HttpRequest) -> tuple[Handler, tuple[str, ...]]:
        allowed_methods: list[str] = []
        for route, pattern in self._routes:
            match = pattern.fullmatch(request.path)
            if match and route.method == request.method:
                return route.handler, match.groups()
            allowed_methods += [route.method] if match else []
        if allowed_methods:
            raise HttpRefusal(
                405, "no such method here", [("Allow", ", ".join(sorted(set(allowed_methods))))]
            )
        raise HttpRefusal(404, f"nothing at {request.path}")

    def _authenticate(self, request: HttpRequest) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Return the user, and the headers that a new login adds to the answer.

        Raise `HttpRefusal` (401) for an expired cookie or a wrong password.
        """
        if self._accounts is None:
            return "", ()
        cookie = self._read_cookie(request)
        if cookie is not None:
            if cookie not in self._sessions:
                raise self._make_challenge("the session has expired")
            return self._sessions[cookie], ()
        user = self._check_password(request)
        if self._cookie_name is None:
            return user, ()
        token = secrets.token_hex(16)
        self._sessions[token] = user
        return user, (("Set-Cookie", f"{self._cookie_name}={token}; Path=/; HttpOnly"),)

    def _read_cookie(self, request: HttpRequest) -> str | None:
        for pair in request.headers.get("cookie", "").split(";"):
            name, _, value = pair.strip().partition("=")
            if self._cookie_name is not None and name == self._cookie_name:
                return value
        return None

    def _check_password(self, request: HttpRequest) -> str:
        scheme, _, coded_credentials = request.headers.get("authorization", "").partition(" ")
        try:
            user, _, password = b64decode(coded_credentials, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            user = password = ""
        assert self._accounts is not None  # `_authenticate` returns early without accounts
        if scheme.lower() != "basic" or self._accounts.get(user) != password:
            raise self._make_challenge("user name and password, please")
        return user

    def _make_challenge(self, reason: str) -> HttpRefusal:
        return HttpRefusal(401, reason, [("WWW-Authenticate", f'Basic realm="{self._realm}"')])


class _ServerConnection:
    """The HTTP connection of one client. It converts bytes to requests, and answers to bytes."""

    def __init__(self) -> None:
        import h11

        self._h11 = h11
        self._connection = h11.Connection(h11.SERVER)
        self._rejection: HttpAnswer | None = None

    async def next_request(self, client: Line) -> HttpRequest | None:
        """Return the next complete request, or None if the client has disconnected.

        If the HTTP is invalid or the body too long, return a placeholder that `answer` refuses.
        """
        head: Any = None
        body = bytearray()
        while True:
            try:
                event = self._connection.next_event()
            except self._h11.RemoteProtocolError as error:
                return self._make_refusal(error.error_status_hint, "this is not HTTP")
            if event is self._h11.NEED_DATA:
                self._connection.receive_data(await client.read())
            elif isinstance(event, self._h11.ConnectionClosed):
                return None
            elif isinstance(event, self._h11.EndOfMessage):
                return _make_request(head, bytes(body))
            elif isinstance(event, self._h11.Request):
                head = event
            elif isinstance(event, self._h11.Data):
                body += event.data
                if len(body) > MAX_BODY_BYTES:
                    return self._make_refusal(413, "too much")

    def _make_refusal(self, status: int, reason: str) -> HttpRequest:
        """Store a refusal for `answer`, and return an empty request. The connection closes after the answer."""
        self._rejection = HttpRefusal(status, reason, [("Connection", "close")]).make_answer()
        return HttpRequest("", "")

    async def answer(
        self, request: HttpRequest, make_answer: Callable[[HttpRequest], Awaitable[HttpAnswer]]
    ) -> bytes:
        """Return the encoded answer to one request: the stored refusal, or else the answer of `make_answer`."""
        answer = self._rejection or await make_answer(request)
        h11 = self._h11
        headers = list(answer.headers)
        if answer.status != 204:  # RFC 9110, 8.6: no Content-Length with 204
            headers.append(("Content-Length", str(len(answer.body))))
        head = h11.Response(
            status_code=answer.status,
            reason=HTTPStatus(answer.status).phrase.encode(),
            headers=headers,
        )
        body = b"" if request.method == "HEAD" else answer.body
        events = [head, h11.Data(data=body), h11.EndOfMessage()]
        return b"".join(self._connection.send(event) or b"" for event in events)

    def prepare_next_request(self) -> bool:
        """Prepare the connection for the next request. Return False if the connection must close."""
        try:
            self._connection.start_next_cycle()
        except self._h11.LocalProtocolError:
            return False
        return True


def _make_request(head: Any, body: bytes) -> HttpRequest:
    target = urlsplit(head.target.decode("ascii", "replace"))
    return HttpRequest(
        method=head.method.decode(),
        path=target.path,
        query=dict(parse_qsl(target.query, keep_blank_values=True)),
        headers={name.decode(): value.decode("latin-1") for name, value in head.headers},
        body=body,
    )
