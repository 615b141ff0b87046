"""The context of a request handler: the service, the client's identity, and the request."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from starlette.responses import JSONResponse, Response

from testbed.commands.declare import Role
from testbed.service.access import Identity
from testbed.service.events import EventLog, Feed
from testbed.service.labs import LabView, find_lab
from testbed.service.metrics import SwitchMetrics
from testbed.service.runs import RunStore
from testbed.service.workers import Workers
from testbed.service_errors import NotFound
from testbed.storage.audit import AuditEntry, append_entry
from testbed.storage.database import Database
from testbed.storage.tokens import TokenStore


class TokenAuthority(TokenStore):
    """The tokens in a database, which identify clients."""

    def identify(self, text: str, now: datetime | None = None) -> Identity:
        """Return the identity of a token. Raises `NotAuthenticated`, whose message contains no part of a secret."""
        token = self.authenticate(text, now)
        return Identity(token.name, cast("Role", token.role), frozenset(token.scopes), frozenset(token.labs))


@dataclass
class Service:
    """The state of a service: its labs, database, workers and feed of events."""

    database: Database
    runs_dir: Path
    labs: tuple[LabView, ...]
    runs: RunStore
    tokens: TokenAuthority
    workers: Workers
    feed: Feed
    is_open: bool = True
    lock_by_lab: dict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))
    switch_metrics_by_lab: dict[str, SwitchMetrics] = field(
        default_factory=lambda: defaultdict(SwitchMetrics)
    )

    @property
    def event_log(self) -> EventLog:
        """Event log in the database."""
        return EventLog(self.database)

    def get_lab(self, name: str) -> LabView:
        """Return a lab by name. Raises `NotFound`."""
        view = find_lab(self.labs, name)
        if view is None:
            raise NotFound(
                f"the service has no lab {name!r}; it has {', '.join(view.lab.name for view in self.labs)}"
            )
        return view


@dataclass(frozen=True, slots=True)
class RequestContext:
    """A request, with its service and the identity of its client."""

    service: Service
    identity: Identity
    request: Request

    def get_lab(self, name: str) -> LabView:
        """Return a lab that the client may see. Raises `NotFound` and `NotAllowed`."""
        self.identity.check_lab(name)
        return self.service.get_lab(name)

    def audit(
        self, action: str, lab: str, *, reason: str = "", plan: str = "", outcome: str = "accepted"
    ) -> None:
        """Write a line into the audit log. Call it before the change that it records."""
        with self.service.database.open_transaction() as connection:
            append_entry(connection, AuditEntry(self.identity, action, lab, reason, plan, outcome))


def make_context(request: Request) -> RequestContext:
    """Return the context of a request."""
    return RequestContext(request.app.state.service, request.scope["lightbed.identity"], request)


CallerContext = Annotated[RequestContext, Depends(make_context)]


def make_answer(
    document: Any, status: int = 200, *, etag: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    """Return a JSON response, with `etag` as its ETag."""
    all_headers = dict(headers or {}) | ({"ETag": etag} if etag else {})
    return JSONResponse(document, status, all_headers)
