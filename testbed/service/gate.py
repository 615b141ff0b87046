"""The gate in front of the application: it authenticates and authorises requests before it reads any body."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from testbed.service.access import ANONYMOUS, Identity
from testbed.service.context import Service
from testbed.service.problems import describe_error, make_problem, make_response
from testbed.service.route_table import ROUTES, Route
from testbed.service_errors import NotAllowed, NotAuthenticated, TooManyAttempts
from testbed.storage.audit import AuditEntry, append_entry

log = logging.getLogger(__name__)
MAX_BODY_BYTES = 8 << 20
_TOKEN_CACHE_S = 1.0
"""Time for which a checked token is not checked again."""
MAX_ATTEMPTS, ATTEMPTS_WINDOW_S = 10, 60.0
"""Number of wrong tokens that an address may send within `ATTEMPTS_WINDOW_S`."""
Identify = Callable[[str], Identity]


class Gate:
    """ASGI middleware. It refuses requests with 401, 403, 404, 405, 413 or 429, or adds the identity to the scope."""

    def __init__(self, app: ASGIApp, service: Service, identify: Identify) -> None:
        self._app, self._service, self._identify = app, service, identify
        self._routes_by_pattern = [(compile_path(route.path)[0], route) for route in ROUTES]
        self._cached_identities: dict[str, tuple[float, Identity]] = {}
        self._failed_attempts: dict[str, deque[float]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request to the application, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        matches = [
            (route, match) for pattern, route in self._routes_by_pattern if (match := pattern.match(path))
        ]
        route, lab = next(
            (
                (route, match.groupdict().get("lab", ""))
                for route, match in matches
                if route.method == scope["method"]
            ),
            (None, ""),
        )
        if route is None:
            await self._refuse_path(scope, receive, send, sorted({route.method for route, _ in matches}))
            return
        try:
            scope["lightbed.identity"] = await self._authorise(route, Request(scope), lab)
        except (NotAuthenticated, NotAllowed) as error:
            await make_response(describe_error(error, path))(scope, receive, send)
            return
        await self._forward(scope, receive, send)

    async def _refuse_path(self, scope: Scope, receive: Receive, send: Send, allowed: list[str]) -> None:
        status, subject = (405, "method") if allowed else (404, "path")
        detail = f"there is no such {subject}; /openapi.json lists what there is"
        document = make_problem(status, "service.unknown", "user", detail, scope["path"])
        response = make_response(document, {"Allow": ", ".join(allowed)} if allowed else None)
        await response(scope, receive, send)

    async def _authorise(self, route: Route, request: Request, lab: str) -> Identity:
        """Return the client's identity. Raises `NotAuthenticated` and `NotAllowed`, and audits refused changes."""
        identity = ANONYMOUS
        try:
            header = request.headers.get("authorization", "")
            if header:
                identity = await self._identify_client(header, request.client.host if request.client else "")
            elif route.role is not None and not (self._service.is_open and route.is_read_only):
                raise NotAuthenticated("this needs a token: Authorization: Bearer TOKEN (LIGHTBED_TOKEN)")
            if route.role is not None:
                identity.check(route.role, route.scope, lab)
        except (NotAuthenticated, NotAllowed) as error:
            if not route.is_read_only:
                await asyncio.to_thread(self._record_refusal, route, identity, lab, error)
            raise
        return identity

    async def _identify_client(self, header: str, address: str) -> Identity:
        scheme, _, token_text = header.partition(" ")
        if scheme.lower() != "bearer":
            raise NotAuthenticated("this service requires tokens: Authorization: Bearer TOKEN")
        identified_at_s, identity = self._cached_identities.get(token_text, (-1e9, ANONYMOUS))
        if time.monotonic() - identified_at_s > _TOKEN_CACHE_S:
            # Wrong guesses from an address must not lock out its valid tokens.
            if token_text not in self._cached_identities:
                self._check_attempts(address)
            try:
                identity = await asyncio.to_thread(self._identify, token_text.strip())
            except NotAuthenticated:
                self._failed_attempts.setdefault(address, deque(maxlen=MAX_ATTEMPTS)).append(time.monotonic())
                raise
            if len(self._cached_identities) > 1000:
                self._cached_identities.clear()
            self._cached_identities[token_text] = (time.monotonic(), identity)
        return identity

    def _check_attempts(self, address: str) -> None:
        """Raise `TooManyAttempts` if the address has sent `MAX_ATTEMPTS` wrong tokens in `ATTEMPTS_WINDOW_S`."""
        window_start_s = time.monotonic() - ATTEMPTS_WINDOW_S
        if len(self._failed_attempts) > 1000:
            self._failed_attempts = {
                known_address: times_s
                for known_address, times_s in self._failed_attempts.items()
                if times_s[-1] > window_start_s
            }
        times_s = self._failed_attempts.get(address)
        if times_s and len(times_s) == MAX_ATTEMPTS and times_s[0] > window_start_s:
            raise TooManyAttempts(
                f"{MAX_ATTEMPTS} tokens from {address} were not valid: try again in a minute"
            )

    def _record_refusal(
        self, route: Route, identity: Identity, lab: str, error: NotAuthenticated | NotAllowed
    ) -> None:
        try:
            with self._service.database.open_transaction() as connection:
                append_entry(
                    connection,
                    AuditEntry(
                        identity, f"{route.method} {route.path}", lab, outcome=f"refused: {error.code}"
                    ),
                )
        except Exception:
            log.exception("a refusal could not be written into the audit log")

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request whose body may have at most `MAX_BODY_BYTES`."""
        received_byte_count = 0

        async def receive_limited() -> Message:
            nonlocal received_byte_count
            message = await receive()
            received_byte_count += len(message.get("body", b""))
            if received_byte_count > MAX_BODY_BYTES:
                raise HTTPException(413, f"a body may have at most {MAX_BODY_BYTES >> 20} MiB")
            return message

        await self._app(scope, receive_limited, send)
