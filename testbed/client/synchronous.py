"""The synchronous client of the service."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

import httpx

from testbed.client import calls
from testbed.client.calls import Call
from testbed.client.documents import Event, EventParser, Run

T = TypeVar("T")


def connect(
    url: str | None = None, token: str | None = None, *, verify: Any = True, retry_s: float = 30.0
) -> Client:
    """Return a client of a service. It does not connect yet.

    `verify` is passed to httpx, which checks certificates. If the service stops answering, a stream tries to reconnect
    for `retry_s` seconds. Raises `ServiceUnreachable` for an invalid URL.
    """
    return Client(httpx.Client(**calls.make_client_arguments(url, token, verify)), retry_s)


class Client:
    """A client of a service, and a context manager. Methods raise `ServiceRefused` and `ServiceUnreachable`."""

    def __init__(self, http: httpx.Client, retry_s: float = 30.0) -> None:
        self._http, self._retry_s = http, retry_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def call(self, request: Call[T]) -> T:
        """Send a request and return its answer."""
        try:
            response = self._http.request(**request.make_arguments())
        except httpx.TransportError as error:
            raise calls.make_unreachable_error(self._http.base_url, error) from error
        return request.parse_answer(response)

    def list_labs(self) -> list[dict[str, Any]]:
        """Return the labs."""
        return self.call(calls.list_labs())

    def lab(self, name: str) -> Lab:
        """Return one lab."""
        return Lab(self, name)

    def submit(self, lab: str, command: str, *, key: str = "", why: str = "", **options: Any) -> Run:
        """Submit a run of a command. A repeated request with the same `key` returns the same run."""
        return self.call(calls.submit(lab, command, key, why, options))

    def read_run(self, run_id: str) -> Run:
        """Return the current state of a run."""
        return self.call(calls.read_run(run_id))

    def read_file(self, run_id: str, name: str) -> bytes:
        """Return a file that the command of a run wrote: `change.json`, `lab.yaml` or `report.html`."""
        return self.call(calls.read_file(run_id, name))

    def list_runs(self, lab: str = "", state: str = "", limit: int = 100) -> list[Run]:
        """Return runs, newest first."""
        return self.call(calls.list_runs(lab, state, limit))

    def cancel(self, run_id: str) -> Run:
        """Withdraw a waiting run, or stop a running one after its current step."""
        return self.call(calls.cancel(run_id))

    def wait(self, run: Run | str) -> Run:
        """Wait until a run has ended, and return it."""
        run_id = run if isinstance(run, str) else run.id
        for event in self.events(run=run_id, kind="run"):
            if event.kind == "snapshot" and event.document["runs"]:
                continue
            current_run = self.read_run(run_id)
            if current_run.has_ended:
                return current_run
        raise AssertionError("a stream of events does not end")

    def events(
        self, *, lab: str = "", run: str = "", kind: str = "", after: int | None = None
    ) -> Iterator[Event]:
        """Yield events as they happen, each once.

        The stream starts with a snapshot, or with the first event after number `after`. It ends only when closed. If
        the service stops answering, the stream reconnects and continues after the last event. It raises
        `ServiceUnreachable` after `retry_s` seconds without contact.
        """
        parser, pause_s, last_contact_s = EventParser(after), calls.RETRY_PAUSES_S[0], time.monotonic()
        while True:
            try:
                with self._http.stream(
                    **calls.make_stream_arguments(lab, run, kind, parser.last_number)
                ) as response:
                    if response.is_error:
                        response.read()
                    calls.check_response(response)
                    parser = EventParser(parser.last_number)
                    for chunk in response.iter_raw():
                        yield from parser.feed(chunk)
                        pause_s, last_contact_s = calls.RETRY_PAUSES_S[0], time.monotonic()
            except httpx.TransportError as error:
                if time.monotonic() - last_contact_s > self._retry_s:
                    raise calls.make_unreachable_error(self._http.base_url, error) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, calls.RETRY_PAUSES_S[1])


class Lab:
    """One lab of a service."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self.name = client, name

    def read_state(self) -> dict[str, Any]:
        """Return the lab and its current state."""
        return self._client.call(calls.read_lab_document(self.name))

    def read(self, document: str) -> dict[str, Any]:
        """Return one document of the lab.

        `document` is `hosts`, `switches`, `topology`, `topologies`, `history`, `operations`, `findings`, `drift` or
        `leases`.
        """
        return self._client.call(calls.read_lab_document(self.name, document))

    def submit(self, command: str, *, key: str = "", why: str = "", **options: Any) -> Run:
        """Submit a run of a command on this lab."""
        return self._client.submit(self.name, command, key=key, why=why, **options)

    def run(self, command: str, *, key: str = "", why: str = "", **options: Any) -> Run:
        """Submit a run, wait until it has ended, and return it."""
        return self._client.wait(self.submit(command, key=key, why=why, **options))

    def request_lease(self, resources: Sequence[str] = (), **options: Any) -> Mapping[str, Any]:
        """Request parts of the lab, all or nothing. Options are `ttl_s`, `priority`, `allowed` and `reason`."""
        return self._client.call(calls.request_lease(self.name, {"resources": list(resources), **options}))

    def extend_lease(self, lease: str, ttl_s: float | None = None) -> Mapping[str, Any]:
        """Extend a lease, so that it ends in `ttl_s` seconds. The default is the duration that was requested first."""
        return self._client.call(calls.extend_lease(self.name, lease, ttl_s))

    def release_lease(self, lease: str) -> Mapping[str, Any]:
        """Release a lease."""
        return self._client.call(calls.release_lease(self.name, lease))

    def stop(self, reason: str = "") -> Mapping[str, Any]:
        """Stop the lab, so that nobody can send anything to its devices."""
        return self._client.call(calls.stop(self.name, reason))

    def release_stop(self) -> Mapping[str, Any]:
        """Allow changes of the lab again."""
        return self._client.call(calls.release_stop(self.name))
