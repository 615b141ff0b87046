"""Client side of HTTP/1.1, without any I/O, based on `h11` (extra `rest`).

`HttpConnection` encodes requests and decodes replies from chunks of any size. Bytes that are not HTTP, or a body that
is too long, raise `ProtocolDesync`. `CookieJar` keeps a login.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from lightbed.wording import describe_extra
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import LoginFailed, ProtocolDesync, Unsupported

LONGEST_BODY_BYTES = 1 << 24
"""Maximum size of a body; far above the largest table of any switch."""

MAX_DOCUMENT_DEPTH = 16
"""Maximum nesting of a JSON document; Python could not print a very deep document in an error message."""

JSON_TYPE = "application/json"

_REPLY_PREFIX = b"HTTP/1."
_MAX_COOKIES = 16
_MAX_BYTES_SHOWN = 80

Headers = Iterable[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `Content-Length` is added when it is sent."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None

    @property
    def line(self) -> str:
        """Method and target, for messages and logs."""
        return f"{self.method} {self.target}"

    def with_headers(self, *headers: tuple[str, str]) -> Request:
        """Return the same request with these headers before its own."""
        return replace(self, headers=(*headers, *self.headers))


@dataclass(frozen=True, slots=True)
class HttpReply:
    """One complete reply. `headers` are keyed by lower-case name; of a repeated header the last one counts."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    reason: str = ""

    @property
    def text(self) -> str:
        """The body as text, for messages."""
        return self.body.decode("utf-8", "replace").strip()

    def json(self) -> Any:
        """Return the body as JSON. Raise `ProtocolDesync` if it is not JSON, or nested too deeply."""
        try:
            return _check_depth(json.loads(self.body))
        except (ValueError, RecursionError) as error:
            raise ProtocolDesync(
                f"the body of the reply is not JSON: {error}", received=self.text[:_MAX_BYTES_SHOWN]
            ) from None


def _check_depth(document: Any) -> Any:
    """Return the document. Raise `ValueError` if it is nested more than `MAX_DOCUMENT_DEPTH` levels deep."""
    nodes = [document]
    for _ in range(MAX_DOCUMENT_DEPTH):
        nodes = [child for item in nodes for child in _list_children(item)]
    if nodes:
        raise ValueError(f"it is nested more than {MAX_DOCUMENT_DEPTH} levels deep")
    return document


def _list_children(item: Any) -> Iterable[Any]:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list) else ()


class CookieJar:
    """Cookies of one device. Paths and domains are ignored, because the device has one login."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    @property
    def headers(self) -> Headers:
        """The `Cookie` header, or no header without cookies.

        >>> jar = CookieJar()
        >>> jar.store("JSESSIONID=1A2B; Path=/rest; HttpOnly")
        >>> jar.headers
        (('Cookie', 'JSESSIONID=1A2B'),)
        """
        pairs = "; ".join(f"{name}={value}" for name, value in self._values.items())
        return (("Cookie", pairs),) if pairs else ()

    def store(self, set_cookie: str) -> None:
        """Store the cookie of a `Set-Cookie` header; an empty value or `Max-Age=0` deletes it."""
        pair, *attributes = [part.strip() for part in set_cookie.split(";")]
        name, _, value = pair.partition("=")
        self._values.pop(name, None)
        is_deleted = not value or any(attribute.lower() == "max-age=0" for attribute in attributes)
        if name and not is_deleted and len(self._values) < _MAX_COOKIES:
            self._values[name] = value

    def clear(self) -> None:
        """Delete all cookies, and with them the login."""
        self._values.clear()


def make_basic_authorization(credentials: Credentials) -> tuple[str, str]:
    """Return the header of HTTP Basic authentication (RFC 7617).

    >>> make_basic_authorization(Credentials("admin", "root"))
    ('Authorization', 'Basic YWRtaW46cm9vdA==')

    Raises `LoginFailed` for a user name with a colon.
    """
    if ":" in credentials.user:
        raise LoginFailed(
            "HTTP Basic authentication cannot carry a user name with a colon",
            hint="Use another account.",
        )
    return (
        "Authorization",
        f"Basic {b64encode(f'{credentials.user}:{credentials.password}'.encode()).decode()}",
    )


class HttpConnection:
    """Client side of one connection. For each request, call `encode_request`, then `feed` until it returns a reply."""

    def __init__(self, *, longest_body_bytes: int = LONGEST_BODY_BYTES) -> None:
        h11 = _import_h11()
        self._h11 = h11
        self._connection = h11.Connection(h11.CLIENT)
        self._longest_body_bytes = longest_body_bytes
        self._head: Any = None
        self._body = bytearray()
        self._first_bytes = b""

    def encode_request(self, request: Request) -> bytes:
        """Return the bytes of one request, whose headers must include Host."""
        h11, body = self._h11, request.body
        headers = list(request.headers)
        if body is not None or request.method in {"POST", "PUT", "PATCH"}:
            headers.append(("Content-Length", str(len(body or b""))))
        self._head, self._body, self._first_bytes = None, bytearray(), b""
        events = [h11.Request(method=request.method, target=request.target, headers=headers)]
        events += [h11.Data(data=body)] if body else []
        return b"".join(self._connection.send(event) or b"" for event in (*events, h11.EndOfMessage()))

    def feed(self, data: bytes) -> HttpReply | None:
        """Return the reply if these bytes complete it, else None; `b""` means that the device closed the connection."""
        self._check_http(data)
        try:
            self._connection.receive_data(data)
            while True:
                event = self._connection.next_event()
                if event is self._h11.NEED_DATA or event is self._h11.PAUSED:
                    return None
                if isinstance(event, self._h11.EndOfMessage):
                    return self._finish()
                self._process_event(event)
        except self._h11.RemoteProtocolError as error:
            raise _make_desync(f"the answer is not HTTP: {error}", data) from None

    def _check_http(self, data: bytes) -> None:
        """Raise `ProtocolDesync` for bytes that are not HTTP, without waiting for a line end as h11 does."""
        if len(self._first_bytes) < len(_REPLY_PREFIX):
            self._first_bytes += data[: len(_REPLY_PREFIX) - len(self._first_bytes)]
            if not _REPLY_PREFIX.startswith(self._first_bytes):
                raise _make_desync("the answer is not HTTP/1", data)

    @property
    def is_reusable(self) -> bool:
        """True if another request may follow on this connection; read it once after each reply."""
        try:
            self._connection.start_next_cycle()
        except self._h11.LocalProtocolError:
            return False
        return True

    def _process_event(self, event: Any) -> None:
        if isinstance(event, self._h11.Response):
            self._head = event
        elif isinstance(event, self._h11.Data):
            self._body += event.data
            if len(self._body) > self._longest_body_bytes:
                raise _make_desync(
                    f"the reply has a body of more than {self._longest_body_bytes} bytes", bytes(self._body)
                )
        elif isinstance(event, self._h11.ConnectionClosed):
            raise _make_desync("the connection ended before the reply was complete", b"")

    def _finish(self) -> HttpReply:
        surplus_bytes, _ = self._connection.trailing_data
        if surplus_bytes:
            raise _make_desync("the device sent bytes after the end of the reply", surplus_bytes)
        return HttpReply(
            self._head.status_code, bytes(self._body), dict(self.headers), self._head.reason.decode("latin-1")
        )

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """All headers of the last reply, including repeated headers; names in lower case."""
        return tuple((name.decode(), value.decode("latin-1")) for name, value in self._head.headers)


@cache
def _import_h11() -> Any:
    try:
        import h11
    except ImportError as error:
        raise Unsupported("h11 is not installed", hint=f"To use it, {describe_extra('rest')}.") from error
    return h11


def _make_desync(problem: str, received: bytes) -> ProtocolDesync:
    text = received[:_MAX_BYTES_SHOWN].decode("ascii", "backslashreplace")
    return ProtocolDesync(
        problem, received=text, hint="Check that this port serves the switch's REST interface."
    )
