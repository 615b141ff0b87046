"""An HTTP session: one request at a time over any transport, with Basic authentication and a cookie.

    session = HttpSession(transport, device="calient+rest://10.0.0.3", credentials=account, timeout_s=5)
    session.open()
    session.get_json("/rest/crossconnects/?id=list")
    session.send_json("PUT", "/api/data/...", document, before_resending=guard)

A request that changes something is sent again only if the device refused it because the login had expired, and the
caller's guard allows the second request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ocs_drivers.contract import Guard, allow_all
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import (
    ConnectError,
    ConnectionLost,
    DeviceError,
    LoginFailed,
    OcsError,
    PermissionDenied,
    ProtocolDesync,
    SessionExpired,
)
from ocs_drivers.protocols.http import (
    JSON_TYPE,
    LONGEST_BODY_BYTES,
    CookieJar,
    Headers,
    HttpConnection,
    HttpReply,
    Request,
    make_basic_authorization,
)
from ocs_drivers.protocols.session import TransportSession
from ocs_drivers.timing import SYSTEM_CLOCK, Clock, Deadline, make_answer_deadline, record_answer
from ocs_drivers.transports import wire
from ocs_drivers.transports.transport import Transport

_T = TypeVar("_T")

_READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_MAX_TEXT_SHOWN = 200


class HttpSession(TransportSession):
    """Requests and replies on one kept connection; several threads may share it.

    A lock is held over each exchange. Any failure of an exchange closes the connection, so that a late answer
    is never taken for the next one. A connection that the device closed between two requests is replaced. If the
    connection closes during a read, the read is sent once more. The `Host` header names the host of `device`.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        device: str,
        credentials: Credentials | None,
        timeout_s: float,
        clock: Clock = SYSTEM_CLOCK,
        longest_body_bytes: int = LONGEST_BODY_BYTES,
    ) -> None:
        super().__init__(transport, device=device, timeout_s=timeout_s, clock=clock)
        self._credentials = credentials
        self._longest_body_bytes = longest_body_bytes
        self._host = urlsplit(device).netloc or "switch"
        self._http: HttpConnection | None = None
        self._cookies = CookieJar()
        self._has_answered = False
        self._has_login_succeeded = False

    def open(self) -> None:
        """Connect, without a request: the driver's first request logs in."""
        with self._lock:
            self._cookies.clear()
            self._has_answered = self._has_login_succeeded = False
            super().open()

    def request(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Headers = (),
        *,
        is_read: bool | None = None,
        timeout_s: float | None = None,
        before_resending: Guard = allow_all,
    ) -> HttpReply:
        """Send a request and return its reply, with any status except 401 and 403.

        `is_read` allows a second request if the device closed the connection (default: True for GET, HEAD, OPTIONS).
        A 401 to a request with a cookie renews the login once: `before_resending` is called, then the request is sent
        again without the cookie.
        Raises `LoginFailed`, `SessionExpired`, `PermissionDenied` and any `TransportError`.
        """
        request = Request(method, target, tuple(headers), body)
        may_repeat = method in _READ_METHODS if is_read is None else is_read
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        with self._lock, self._close_on_failure(request.line):
            had_login = bool(self._cookies)
            reply = self._ask(request, may_repeat, make_answer_deadline(timeout_s, self._clock))
            if reply.status == 401 and had_login:
                self._cookies.clear()
                before_resending()
                reply = self._ask(request, may_repeat, make_answer_deadline(timeout_s, self._clock))
            record_answer()
            self._check_authorized(reply)
            return reply

    def get(
        self,
        target: str,
        decode: Callable[[HttpReply], _T],
        headers: Headers = (),
        *,
        accept: str = JSON_TYPE,
        statuses: Collection[int] = (200,),
    ) -> _T:
        """Return the decoded resource at `target`. Raise `DeviceError` for a status that is not in `statuses`."""
        reply = self.request("GET", target, headers=(("Accept", accept), *headers))
        command = f"GET {target}"
        with self._close_on_failure(command):
            if reply.status not in statuses:
                raise self.make_refusal(reply, command)
            return decode(reply)

    def get_json(
        self, target: str, decode: Callable[[Any], _T], headers: Headers = (), *, accept: str = JSON_TYPE
    ) -> _T:
        """Return the JSON document at `target`, decoded; raises as `get` does."""
        return self.get(target, lambda reply: decode(reply.json()), headers, accept=accept)

    def send_json(
        self,
        method: str,
        target: str,
        document: Any,
        headers: Headers = (),
        *,
        content_type: str = JSON_TYPE,
        timeout_s: float | None = None,
        before_resending: Guard = allow_all,
    ) -> HttpReply:
        """Send a JSON document once; return the reply, as `request` does."""
        return self.request(
            method,
            target,
            json.dumps(document, separators=(",", ":")).encode(),
            (("Content-Type", content_type), ("Accept", content_type), *headers),
            is_read=False,
            timeout_s=timeout_s,
            before_resending=before_resending,
        )

    def make_refusal(self, reply: HttpReply, sent_request: str) -> DeviceError:
        """Return the error for an unsuccessful reply; its `device_code` is the status."""
        return DeviceError(
            f"the device refused: {reply.status} {reply.reason}".rstrip(),
            device_code=str(reply.status),
            device=self._device,
            sent=sent_request,
            received=reply.text[:_MAX_TEXT_SHOWN],
        )

    def _log_out(self) -> None:
        self._cookies.clear()

    def _start(self) -> None:
        self._http = HttpConnection(longest_body_bytes=self._longest_body_bytes)

    def _ask(self, request: Request, may_repeat: bool, deadline: Deadline) -> HttpReply:
        """Return the reply to a request. If the connection is lost and `may_repeat` is True, reconnect and repeat."""
        try:
            return self._exchange(request, deadline)
        except ConnectionLost as error:
            self._transport.close()
            if not self._has_answered and self._is_in_use:
                raise self._make_connect_error() from error
            if not may_repeat or not self._is_in_use:
                raise
            return self._exchange(request, deadline)

    def _exchange(self, request: Request, deadline: Deadline) -> HttpReply:
        self.make_ready()
        connection = self._http
        assert connection is not None  # set with every new connection
        data = connection.encode_request(
            request.with_headers(("Host", self._host), *self._make_login_headers())
        )
        wire.log_sent(self._device, f"{request.line} {(request.body or b'').decode('utf-8', 'replace')}")
        self._transport.send(data, deadline)
        reply = self._await_reply(connection, deadline)
        wire.log_received(self._device, f"{reply.status} {reply.reason}\n".encode() + reply.body)
        self._finish_exchange(connection)
        return reply

    def _await_reply(self, connection: HttpConnection, deadline: Deadline) -> HttpReply:
        reply: HttpReply | None = None
        while reply is None:
            try:
                data = self._receive(deadline)
            except ConnectionLost:
                reply = _finish_reply_on_close(connection)
                if reply is None:
                    raise
            else:
                reply = connection.feed(data)
        return reply

    def _finish_exchange(self, connection: HttpConnection) -> None:
        """Store the cookies; close the connection unless both sides keep it."""
        self._has_answered = True
        for name, value in connection.headers:
            if name == "set-cookie":
                self._cookies.store(value)
        if not connection.is_reusable:
            self._transport.close()

    def _make_login_headers(self) -> Headers:
        """Return the headers of the login: the account, if there is one, and the cookies."""
        basic = () if self._credentials is None else (make_basic_authorization(self._credentials),)
        return (*basic, *self._cookies.headers)

    def _check_authorized(self, reply: HttpReply) -> None:
        if reply.status == 403:
            raise PermissionDenied(
                "this account lacks permission",
                device=self._device,
                received=reply.text[:_MAX_TEXT_SHOWN],
                hint="Use an account with write access.",
            )
        if reply.status != 401:
            self._has_login_succeeded = True
            return
        hint = "Set LIGHTBED_OCS_USER and LIGHTBED_OCS_PASSWORD, or pass credentials."
        if self._has_login_succeeded:
            raise SessionExpired(
                "the login was lost and could not be renewed", device=self._device, hint=hint
            )
        raise LoginFailed("wrong user name or password", device=self._device, hint=hint)

    def _make_connect_error(self) -> ConnectError:
        return ConnectError(
            "the device closed the connection before its first answer",
            device=self._device,
            hint="Another program may listen on that port, or it may need TLS (?tls=1).",
        )

    @contextmanager
    def _close_on_failure(self, sent_request: str) -> Iterator[None]:
        """Close the connection on an error, unless the reply is a complete refusal; add the request to the error."""
        try:
            yield
        except BaseException as error:
            if not isinstance(error, LoginFailed | SessionExpired | PermissionDenied | DeviceError):
                self._transport.close()
            if isinstance(error, OcsError):
                error.locate(device=self._device, sent=sent_request)
            raise


def _finish_reply_on_close(connection: HttpConnection) -> HttpReply | None:
    """Return the reply of a server that ends a body by closing the connection, or None if it is incomplete."""
    try:
        return connection.feed(b"")
    except ProtocolDesync:
        return None
