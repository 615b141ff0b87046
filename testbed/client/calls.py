"""Requests, parsers of responses, and errors that the synchronous and the asynchronous client share.

This module sends nothing. Functions such as `list_labs` return a `Call`, which a client sends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx

from testbed.client.documents import Run
from testbed.errors import TestbedError

T = TypeVar("T")
TIMEOUT = httpx.Timeout(30.0, connect=10.0)
STREAM_TIMEOUT = httpx.Timeout(30.0, connect=10.0, read=45.0)
"""Timeouts of a stream of events. The read timeout exceeds the 15 s between pings."""
RETRY_PAUSES_S = (0.1, 2.0)
"""Shortest and longest pause before reconnecting a stream, in seconds."""


class ServiceUnreachable(TestbedError, code="service.unreachable", who="device"):
    """The URL is not one of a service, the service does not answer, or this release cannot parse its answer."""


class NotThroughService(TestbedError, code="service.here", who="user"):
    """The command or the option works only locally."""


class ServiceRefused(TestbedError, code="service", who="user"):
    """The service refused a request; its problem document is `problem`, which also gives `code` and `who`."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        self.problem = dict(problem)
        self.status = int(problem.get("status", 0))
        self.code = str(problem.get("code", self.code))
        vars(self)["who"] = problem.get("who", self.who)  # set per instance, because the service decides
        super().__init__(str(problem.get("detail", "the service refused")))


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and the function that parses its response."""

    method: str
    path: str
    parse: Callable[[Any], T]
    params: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_document: bool = True

    def make_arguments(self) -> dict[str, Any]:
        """Return the arguments of `httpx.Client.request`."""
        keyword_arguments: dict[str, Any] = {
            "method": self.method,
            "url": self.path,
            "headers": dict(self.headers),
        }
        keyword_arguments["params"] = {name: value for name, value in self.params.items() if value}
        return keyword_arguments | ({"json": self.body} if self.body is not None else {})

    def parse_answer(self, response: httpx.Response) -> T:
        """Return the parsed answer of a response. Raises `ServiceRefused` and `ServiceUnreachable`."""
        check_response(response)
        try:
            return self.parse(response.json() if self.is_document else response.content)
        except (ValueError, KeyError, TypeError) as error:
            problem = (
                f"{response.url.copy_with(query=None)} answered what this release does not know ({error!r})"
            )
            raise ServiceUnreachable(f"{problem}; does `testbed serve` run there?") from error


def check_response(response: httpx.Response) -> None:
    """Raise `ServiceRefused` for a problem document, and `ServiceUnreachable` for any other error response."""
    if response.is_success:
        return
    if response.headers.get("content-type", "").startswith("application/problem+json"):
        raise ServiceRefused(response.json())
    problem = f"{response.url.copy_with(query=None)} answered {response.status_code}"
    raise ServiceUnreachable(
        f"{problem}, but no problem document of a lightbed service: check for a proxy in between"
    )


def make_client_arguments(url: str | None, token: str | None, verify: Any) -> dict[str, Any]:
    """Return the arguments of `httpx.Client` or `AsyncClient`. A missing URL or token comes from the environment.

    Raises `ServiceUnreachable` for a missing or invalid URL.
    """
    url = url or os.environ.get("LIGHTBED_SERVER", "")
    token = token if token is not None else os.environ.get("LIGHTBED_TOKEN", "")
    if not url.startswith(("http://", "https://")):
        raise ServiceUnreachable(f"{url!r} is not the URL of a service (example: http://127.0.0.1:8080)")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return {"base_url": url, "headers": headers, "timeout": TIMEOUT, "verify": verify}


def make_unreachable_error(url: object, error: Exception) -> ServiceUnreachable:
    """Return the error for a service that does not answer."""
    return ServiceUnreachable(f"the service {url} does not answer ({error}); start it with `testbed serve`")


def list_labs() -> Call[list[dict[str, Any]]]:
    """Return the call that lists the labs."""
    return Call("GET", "/v1/labs", lambda reply: list(reply["labs"]))


def read_lab_document(lab: str, document: str = "") -> Call[dict[str, Any]]:
    """Return the call that reads a lab or a document of it: `hosts`, `switches`, `topology`, `leases`, `history`."""
    return Call("GET", _make_lab_path(lab) + (f"/{document}" if document else ""), dict)


def submit(lab: str, command: str, idempotency_key: str, why: str, options: Mapping[str, Any]) -> Call[Run]:
    """Return the call that submits a run. The service executes calls of one `idempotency_key` only once."""
    body = {"lab": lab, "command": command, **({"why": why} if why else {})}
    body |= {name: value for name, value in options.items() if value is not None}
    headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
    return Call("POST", "/v1/runs", Run.from_document, body=body, headers=headers)


def read_run(run_id: str) -> Call[Run]:
    """Return the call that reads a run."""
    return Call("GET", f"/v1/runs/{quote(run_id, safe='')}", Run.from_document)


def read_file(run_id: str, name: str) -> Call[bytes]:
    """Return the call that fetches a file that the command of a run wrote."""
    path = f"/v1/runs/{quote(run_id, safe='')}/files/{quote(name, safe='')}"
    return Call("GET", path, bytes, is_document=False)


def list_runs(lab: str, state: str, limit: int) -> Call[list[Run]]:
    """Return the call that lists runs."""
    params = {"lab": lab, "state": state, "limit": limit}
    return Call("GET", "/v1/runs", lambda reply: [Run.from_document(run) for run in reply["runs"]], params)


def cancel(run_id: str) -> Call[Run]:
    """Return the call that cancels a run."""
    return Call("POST", f"/v1/runs/{quote(run_id, safe='')}/cancel", Run.from_document)


def request_lease(lab: str, body: Mapping[str, Any]) -> Call[dict[str, Any]]:
    """Return the call that requests a lease."""
    return Call("POST", f"{_make_lab_path(lab)}/leases", dict, body=dict(body))


def release_lease(lab: str, lease: str) -> Call[dict[str, Any]]:
    """Return the call that releases a lease, whatever its state."""
    return Call(
        "DELETE", f"{_make_lab_path(lab)}/leases/{quote(lease, safe='')}", dict, headers={"If-Match": "*"}
    )


def extend_lease(lab: str, lease: str, ttl_s: float | None) -> Call[dict[str, Any]]:
    """Return the call that extends a lease, so that it ends in `ttl_s` seconds.

    The default is the duration that was requested first.
    """
    path = f"{_make_lab_path(lab)}/leases/{quote(lease, safe='')}"
    body = {} if ttl_s is None else {"ttl_s": ttl_s}
    return Call("PATCH", path, dict, body=body, headers={"If-Match": "*"})


def stop(lab: str, reason: str) -> Call[dict[str, Any]]:
    """Return the call that stops a lab: its service then refuses changes of the lab."""
    return Call("PUT", f"{_make_lab_path(lab)}/stop", dict, body={"reason": reason or "asked for"})


def release_stop(lab: str) -> Call[dict[str, Any]]:
    """Return the call that allows changes of a stopped lab again."""
    return Call("DELETE", f"{_make_lab_path(lab)}/stop", dict)


def _make_lab_path(lab: str) -> str:
    return f"/v1/labs/{quote(lab, safe='')}"


def make_stream_arguments(lab: str, run_id: str, kind: str, last_event_number: int | None) -> dict[str, Any]:
    """Return the arguments of `httpx.Client.stream` for events."""
    params = {name: value for name, value in (("lab", lab), ("run", run_id), ("kind", kind)) if value}
    headers = {"Accept": "text/event-stream"} | (
        {} if last_event_number is None else {"Last-Event-ID": str(last_event_number)}
    )
    return {
        "method": "GET",
        "url": "/v1/events",
        "params": params,
        "headers": headers,
        "timeout": STREAM_TIMEOUT,
    }
