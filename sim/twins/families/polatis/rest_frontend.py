"""The switch's RESTCONF: cross-connects, ports, powers and the product, as resources under /api/data.

Nodes and the statuses of `PUT` and `POST` are those that public clients show; the rest follows RFC 8040
(RESTCONF) and RFC 7951 (numbers with a point are strings in JSON). An answer comes when the light is there.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sim.twins.families.polatis.rest_syntax import (
    YANG_JSON,
    body_of,
    error_document,
    only_entry,
    pairs_in,
    refusal,
    whole_number,
)
from sim.twins.frontends.http_server import HttpAnswer, HttpRefusal, HttpRequest, Route, json_answer
from sim.twins.switch.device import Change, SwitchDevice
from sim.twins.switch.matrix import Connections, Refused

_DATA = "/api/data"
_PAIRS = "optical-switch:cross-connects"
_PORTS = "optical-switch:port-config"
_POWERS = "optical-switch:opm-power"
_PRODUCT = "optical-switch:product-information"
_STATUSES = {"ENABLED": False, "DISABLED": True}


class RestFrontend:
    """Executes requests on a device. One for all clients.

    The ETag of the cross-connects changes with every change of them, whoever made it, and a request with
    `If-Match` is done only while it holds (assumption: units send an ETag; nobody has shown what they do with
    `If-Match`). `post_vanishes_s` (0 for never) takes away again what was POSTed, as on the unit of one lab.
    """

    def __init__(
        self, device: SwitchDevice, *, product: Mapping[str, str], post_vanishes_s: float = 0.0
    ) -> None:
        self._device = device
        self._matrix = device.matrix
        self._product = dict(product)
        self._post_vanishes_s = post_vanishes_s
        self._changes = 0
        device.listen(self._note_change)

    def routes(self) -> Sequence[Route]:
        """Return everything it answers to."""
        whole, one = f"{_DATA}/{_PAIRS}", rf"{_DATA}/{_PAIRS}/pair=(\d{{1,6}})(?:,(\d{{1,6}}))?"
        ports, port = rf"{_DATA}/{_PORTS}(?:/port)?", rf"{_DATA}/{_PORTS}/port=(\d{{1,6}})"
        table: tuple[tuple[str, str, Callable[[HttpRequest], Any]], ...] = (
            ("GET", whole, lambda _: self._pairs()),
            ("PUT", whole, self._put_all),
            ("POST", whole, self._post),
            ("GET", one, self._pair),
            ("PUT", one, self._put_pair),
            ("DELETE", one, self._delete_pair),
            (
                "GET",
                ports,
                lambda _: self._list(_PORTS, [self._port_entry(port) for port in self._matrix.ports]),
            ),
            ("GET", port, lambda request: self._port(whole_number(request.captured[0]))),
            ("PUT", port, self._put_port),
            ("GET", rf"{_DATA}/{_POWERS}(?:/port)?", lambda _: self._powers()),
            ("GET", f"{_DATA}/{_PRODUCT}", lambda _: _document(_PRODUCT, self._product)),
        )
        return [Route(method, pattern, self._translating(act)) for method, pattern, act in table]

    def _translating(self, act: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
        """Return the handler, with the switch's refusals in the words of RESTCONF."""

        async def handle(request: HttpRequest) -> HttpAnswer:
            try:
                answer = act(request)
                return answer if isinstance(answer, HttpAnswer) else await answer
            except Refused as refused:
                raise refusal(refused) from None

        return handle

    # -- cross-connects

    @property
    def _etag(self) -> str:
        digest = zlib.crc32(repr(sorted(self._matrix.connections.items())).encode())
        return f'"{self._changes:x}-{digest:08x}"'

    def _note_change(self, change: Change) -> None:
        del change
        self._changes += 1

    def _pairs(self) -> HttpAnswer:
        return _document(_PAIRS, {"pair": _entries(self._matrix.connections)}, etag=self._etag)

    def _pair(self, request: HttpRequest) -> HttpAnswer:
        source, output = self._circuit(request)
        return _document("optical-switch:pair", _entries({source: output}), etag=self._etag)

    async def _put_all(self, request: HttpRequest) -> HttpAnswer:
        pairs = pairs_in(body_of(request, _PAIRS))
        self._compare(request)
        inputs, outputs = [source for source, _ in pairs], [output for _, output in pairs]
        return await self._change(lambda: self._matrix.only(inputs, outputs), 204, whole=True)

    async def _put_pair(self, request: HttpRequest) -> HttpAnswer:
        named = whole_number(request.captured[0])
        ((source, output),) = pairs_in({"pair": body_of(request, "optical-switch:pair")}, exactly=1)
        if source != named:
            raise HttpRefusal(400, f"the body is about ingress {source}, the path about {named}")
        self._compare(request)
        there = source in self._matrix.connections
        return await self._change(lambda: self._with(source, output), 204 if there else 201)

    def _with(self, source: int, output: int) -> Connections:
        """Return the connections with this pair, in place of the one that its input has."""
        holder = self._matrix.peer(output)
        mine = holder in {None, source}
        return self._matrix.added([source], [output], "replace" if mine else None)

    async def _post(self, request: HttpRequest) -> HttpAnswer:
        ((source, output),) = pairs_in({"pair": body_of(request, "optical-switch:pair")}, exactly=1)
        if source in self._matrix.connections:
            raise HttpRefusal(409, error_document("data-exists", f"ingress {source} has a pair"))
        self._compare(request)
        answer = await self._change(lambda: self._matrix.added([source], [output]), 201)
        if self._post_vanishes_s:
            self._device.start(self._vanish(source, output))
        return answer

    async def _vanish(self, source: int, output: int) -> None:
        await self._device.clock.sleep(self._post_vanishes_s)
        if self._matrix.connections.get(source) == output:
            self._device.change(self._matrix.without([source]))

    async def _delete_pair(self, request: HttpRequest) -> HttpAnswer:
        source, _ = self._circuit(request)
        self._compare(request)
        return await self._change(lambda: self._matrix.without([source]), 204)

    def _circuit(self, request: HttpRequest) -> tuple[int, int]:
        source = whole_number(request.captured[0])
        self._matrix.check_input(source)
        output = self._matrix.connections.get(source)
        named = request.captured[1]
        if output is None or (named and whole_number(named) != output):
            raise HttpRefusal(404, error_document("invalid-value", "no such pair"))
        return source, output

    def _compare(self, request: HttpRequest) -> None:
        """Go on only while the cross-connects are as the client has seen them."""
        wanted = request.headers.get("if-match", "*")
        if wanted != "*" and self._etag not in {tag.strip() for tag in wanted.split(",")}:
            raise HttpRefusal(412, error_document("operation-failed", "the cross-connects have changed"))

    async def _change(
        self, after: Callable[[], Connections], status: int, *, whole: bool = False
    ) -> HttpAnswer:
        """Change the configuration and wait for the light, unless a fault swallows the request."""
        connections = after()
        if not self._device.faults.take_dropped_command():
            motion = self._device.change(connections, whole=whole)
            if motion:
                await asyncio.wait({motion})  # a client that leaves meanwhile does not stop the mirrors
        return HttpAnswer(status, headers=(("ETag", self._etag),))

    # -- ports

    def _port(self, port: int) -> HttpAnswer:
        self._matrix.check_port(port)
        return _document("optical-switch:port", [self._port_entry(port)])

    def _port_entry(self, port: int) -> dict[str, Any]:
        status = {"E": "ENABLED", "D": "DISABLED", "F": "FAILED"}[self._matrix.state(port)]
        entry = {"port-id": port, "status": status, "label": self._device.labels.get(port, "")}
        peer = self._matrix.peer(port)
        return entry if peer is None else {**entry, "peer-port": peer}

    def _put_port(self, request: HttpRequest) -> HttpAnswer:
        port = whole_number(request.captured[0])
        self._matrix.check_port(port)
        entry = only_entry(body_of(request, "optical-switch:port"))
        status = entry.get("status", "ENABLED")
        if not isinstance(status, str) or status not in _STATUSES:
            raise HttpRefusal(400, error_document("invalid-value", f"no status {status!r}"))
        if not self._device.faults.take_dropped_command():
            self._device.labels[port] = str(entry.get("label", ""))
            self._device.set_disabled({port}, disabled=_STATUSES[status])
        return HttpAnswer(204)

    def _powers(self) -> HttpAnswer:
        return self._list(
            _POWERS,
            [
                {"port-id": port, "power": f"{self._device.power_dbm(port):.2f}"}
                for port in self._matrix.ports
            ],
        )

    def _list(self, name: str, entries: Sequence[Mapping[str, Any]]) -> HttpAnswer:
        return _document(name, {"port": entries})


def _entries(connections: Mapping[int, int]) -> list[dict[str, int]]:
    return [{"ingress": source, "egress": output} for source, output in connections.items()]


def _document(name: str, content: Any, *, etag: str = "") -> HttpAnswer:
    headers = [("ETag", etag)] if etag else []
    return json_answer({name: content}, content_type=YANG_JSON, headers=headers)
