"""The switch's RESTCONF: cross-connects, ports, powers, attenuators and the product, as resources under /api/data.

Nodes and the statuses of `PUT` and `POST` are those that public clients show, with and without the module before their
names; the rest follows RFC 8040 (RESTCONF) and RFC 7951 (numbers with a point are strings in JSON). Bodies and answers
are JSON or XML. An answer comes when the light is there.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sim.twins.families.polatis.attenuators import LEVEL_RANGE_DB, MODES, Attenuators, AttenuatorSetting
from sim.twins.families.polatis.rest_syntax import (
    Media,
    Reply,
    body_of,
    entries_in,
    error_document,
    media_of_answer,
    only_entry,
    pairs_in,
    refusal,
    whole_number,
)
from sim.twins.frontends.http_server import HttpAnswer, HttpRefusal, HttpRequest, Route
from sim.twins.switch.device import Change, SwitchDevice
from sim.twins.switch.matrix import Connections, Pair, Refused

_DATA = "/api/data/(?:optical-switch:)?"
_PAIRS = "optical-switch:cross-connects"
_PAIR = "optical-switch:pair"
_PRODUCT = "optical-switch:product-information"
_ROOT = {"ietf-restconf:restconf": {"data": "", "operations": ""}}
PORTS = "optical-switch:port-config"
POWERS = "optical-switch:opm-power"
ATTENUATORS = "optical-switch:voa"
ENTRY = "optical-switch:port"

_MODE = "VOA_MODE_"
_STATUSES = {"ENABLED": False, "DISABLED": True}

Entry = Mapping[str, Any]


class RestFrontend:
    """Executes requests on a device. One for all clients.

    The ETag of the cross-connects changes with every change of them, whoever made it, and a request with
    `If-Match` is done only while it holds (assumption: units send an ETag; nobody has shown what they do with
    `If-Match`). `post_vanishes_s` (0 for never) takes away again what was POSTed, as on the unit of one lab.

    `default` is the medium for a client that names none: one parses XML then. With `tells_nothing_by_204`, a read of
    cross-connects that finds none is answered so, as one client expects.
    """

    def __init__(
        self,
        device: SwitchDevice,
        *,
        product: Mapping[str, str],
        attenuators: Attenuators,
        post_vanishes_s: float = 0.0,
        default: Media = "xml",
        tells_nothing_by_204: bool = True,
    ) -> None:
        self._device = device
        self._matrix = device.matrix
        self._product = dict(product)
        self._ports = PortResources(device, attenuators)
        self._post_vanishes_s = post_vanishes_s
        self._default: Media = default
        self._tells_nothing_by_204 = tells_nothing_by_204
        self._changes = 0
        device.listen(self._note_change)

    def routes(self) -> Sequence[Route]:
        """Return everything it answers to."""
        whole, every = f"{_DATA}cross-connects", f"{_DATA}cross-connects/pair"
        one = rf"{every}=(\d{{1,6}})(?:,(\d{{1,6}}))?"
        ports, powers, attenuators = (
            rf"{_DATA}{node}(/port(?:=(\d{{1,6}}))?)?" for node in ("port-config", "opm-power", "voa")
        )
        table: tuple[tuple[str, str, Callable[[HttpRequest], Any]], ...] = (
            ("GET", "/api", lambda _: Reply(200, _ROOT)),
            ("GET", whole, lambda _: self._pairs({_PAIRS: {"pair": _entries(self._matrix.connections)}})),
            ("GET", every, lambda _: self._pairs({_PAIR: _entries(self._matrix.connections)})),
            ("PUT", whole, self._put_all),
            ("POST", whole, self._post),
            ("PATCH", f"{whole}(?:/pair)?", self._patch),
            ("DELETE", f"{whole}(?:/pair)?", self._delete_all),
            ("GET", one, self._pair),
            ("PUT", one, self._put_pair),
            ("DELETE", one, self._delete_pair),
            ("GET", ports, self._ports.get_settings),
            ("PUT", rf"{_DATA}port-config(/port=(\d{{1,6}}))", self._ports.put_settings),
            ("PATCH", ports, self._ports.patch_settings),
            ("GET", powers, self._ports.get_powers),
            ("GET", attenuators, self._ports.get_attenuators),
            ("PATCH", attenuators, self._ports.patch_attenuators),
            ("GET", f"{_DATA}product-information", lambda _: Reply(200, {_PRODUCT: self._product})),
        )
        return [Route(method, pattern, self._translating(act)) for method, pattern, act in table]

    def _translating(self, act: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
        """Return the handler, with the switch's refusals in the words of RESTCONF, and all in the client's medium."""

        async def handle(request: HttpRequest) -> HttpAnswer:
            media = media_of_answer(request, self._default)
            try:
                reply = act(request)
                return (reply if isinstance(reply, Reply) else await reply).answer(media)
            except Refused as refused:
                why = refusal(refused)
            except HttpRefusal as refused:
                why = refused
            if isinstance(why.why, str):
                raise why
            return Reply(why.status, why.why, why.headers).answer(media)

        return handle

    # -- cross-connects

    @property
    def _etag(self) -> str:
        """Tag without quotes and of three numbers, as in a capture; the first counts changes."""
        return f"{self._changes}-{len(self._matrix.connections)}-{self._matrix.inputs}"

    def _note_change(self, change: Change) -> None:
        del change
        self._changes += 1

    def _tag(self, status: int, document: Mapping[str, Any] | None = None) -> Reply:
        return Reply(status, document, (("ETag", self._etag),))

    def _pairs(self, document: Mapping[str, Any]) -> Reply:
        if not self._matrix.connections and self._tells_nothing_by_204:
            return self._tag(204)
        return self._tag(200, document)

    def _pair(self, request: HttpRequest) -> Reply:
        try:
            source, output = self._circuit(request)
        except HttpRefusal:
            if self._tells_nothing_by_204:
                return self._tag(204)
            raise
        return self._tag(200, {_PAIR: _entries({source: output})[0]})

    async def _put_all(self, request: HttpRequest) -> Reply:
        pairs = pairs_in(body_of(request, _PAIRS))
        self._compare(request)
        inputs, outputs = [source for source, _ in pairs], [output for _, output in pairs]
        return await self._change(lambda: self._matrix.only(inputs, outputs), 204, whole=True)

    async def _put_pair(self, request: HttpRequest) -> Reply:
        named = whole_number(request.captured[0])
        ((source, output),) = pairs_in(body_of(request, _PAIR), exactly=1)
        if source != named:
            raise HttpRefusal(
                400, error_document("invalid-value", f"the body is about ingress {source}, not {named}")
            )
        self._compare(request)
        there = source in self._matrix.connections
        return await self._change(lambda: self._with([(source, output)]), 204 if there else 201)

    async def _patch(self, request: HttpRequest) -> Reply:
        pairs = pairs_in(body_of(request, _PAIRS, _PAIR))
        self._compare(request)
        return await self._change(lambda: self._with(pairs), 204)

    def _with(self, pairs: Sequence[Pair]) -> Connections:
        """Return the connections with these pairs, in place of those that their inputs have."""
        inputs, outputs = [source for source, _ in pairs], [output for _, output in pairs]
        mine = all(self._matrix.peer(output) in {None, *inputs} for output in outputs)
        return self._matrix.add(inputs, outputs, "replace" if mine else None)

    async def _post(self, request: HttpRequest) -> Reply:
        ((source, output),) = pairs_in(body_of(request, _PAIR), exactly=1)
        if source in self._matrix.connections:
            raise HttpRefusal(409, error_document("data-exists", f"ingress {source} has a pair"))
        self._compare(request)
        reply = await self._change(lambda: self._matrix.add([source], [output]), 201)
        if self._post_vanishes_s:
            self._device.start(self._vanish(source, output))
        return reply

    async def _vanish(self, source: int, output: int) -> None:
        await self._device.clock.sleep(self._post_vanishes_s)
        if self._matrix.connections.get(source) == output:
            self._device.change(self._matrix.without([source]))

    async def _delete_all(self, request: HttpRequest) -> Reply:
        self._compare(request)
        return await self._change(self._matrix.empty, 204, whole=True)

    async def _delete_pair(self, request: HttpRequest) -> Reply:
        source, _ = self._circuit(request)
        self._compare(request)
        return await self._change(lambda: self._matrix.without([source]), 204)

    def _circuit(self, request: HttpRequest) -> Pair:
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

    async def _change(self, after: Callable[[], Connections], status: int, *, whole: bool = False) -> Reply:
        """Change the configuration and wait for the light, unless a fault swallows the request."""
        connections = after()
        if not self._device.faults.take_dropped_command():
            motion = self._device.change(connections, whole=whole)
            if motion:
                await asyncio.wait({motion})  # a client that leaves meanwhile does not stop the mirrors
        return self._tag(status)


def _entries(connections: Mapping[int, int]) -> list[dict[str, int]]:
    return [{"ingress": source, "egress": output} for source, output in connections.items()]


class PortResources:
    """Reads and changes of single ports, for all clients."""

    def __init__(self, device: SwitchDevice, attenuators: Attenuators) -> None:
        self._device = device
        self._matrix = device.matrix
        self._attenuators = attenuators

    # -- reading

    def show(
        self, name: str, show: Callable[[int], Entry], ports: Iterable[int], request: HttpRequest
    ) -> Reply:
        """Return the entries of a list: in its container, bare, or one alone, as the path asks."""
        below, port = (*request.captured, "", "")[:2]
        if port:
            number = whole_number(port)
            self._matrix.check_port(number)
            if number not in ports:
                raise HttpRefusal(404, error_document("invalid-value", f"port {number} has no {name}"))
            return Reply(200, {ENTRY: show(number)})
        entries = [show(number) for number in ports]
        return Reply(200, {ENTRY: entries} if below else {name: {"port": entries}})

    def get_settings(self, request: HttpRequest) -> Reply:
        """Return states, labels and peers."""
        return self.show(PORTS, self._settings, self._matrix.ports, request)

    def get_powers(self, request: HttpRequest) -> Reply:
        """Return readings, as strings (RFC 7951)."""
        return self.show(
            POWERS,
            lambda port: {"port-id": port, "power": f"{self._device.power_dbm(port):.2f}"},
            self._matrix.ports,
            request,
        )

    def get_attenuators(self, request: HttpRequest) -> Reply:
        """Return settings of attenuators, which outputs have."""
        return self.show(ATTENUATORS, self._attenuator, self._outputs, request)

    @property
    def _outputs(self) -> range:
        return self._matrix.ports[self._matrix.inputs :]

    def _settings(self, port: int) -> Entry:
        status = {"E": "ENABLED", "D": "DISABLED", "F": "FAILED"}[self._matrix.state(port)]
        peer = self._matrix.peer(port)
        label = self._device.labels.get(port, "")
        return {"port-id": port, "status": status, "label": label, "peer-port": "" if peer is None else peer}

    def _attenuator(self, port: int) -> Entry:
        setting = self._attenuators.setting(port)
        entry: dict[str, Any] = {"port-id": port, "atten-mode": f"{_MODE}{setting.mode}"}
        if setting.mode != "NONE":
            entry["atten-level"] = f"{setting.level:.2f}"
        return {**entry, "reference-port": setting.reference} if setting.reference else entry

    # -- changing

    def put_settings(self, request: HttpRequest) -> Reply:
        """Replace the settings of one port."""
        port = self._find_port(request)
        entry = {"status": "ENABLED", "label": "", **only_entry(body_of(request, ENTRY))}
        return self._apply([self._change_settings(port, entry)])

    def patch_settings(self, request: HttpRequest) -> Reply:
        """Change what a request names of ports, and leave the rest."""
        return self._apply([self._change_settings(*found) for found in self._entries(request, PORTS)])

    def patch_attenuators(self, request: HttpRequest) -> Reply:
        """Set the attenuators that a request names."""
        return self._apply([self._change_attenuator(*found) for found in self._entries(request, ATTENUATORS)])

    def _apply(self, changes: Iterable[Callable[[], None]]) -> Reply:
        """Make changes that have all been checked, unless a fault swallows the request."""
        if not self._device.faults.take_dropped_command():
            for change in changes:
                change()
        return Reply(204)

    def _find_port(self, request: HttpRequest) -> int:
        port = whole_number(request.captured[1])
        self._matrix.check_port(port)
        return port

    def _entries(self, request: HttpRequest, name: str) -> list[tuple[int, Entry]]:
        """Return the ports that a request is about, by its path or by the entries themselves."""
        entries = entries_in(body_of(request, name, ENTRY), "port")
        if request.captured[1]:
            return [(self._find_port(request), only_entry(entries))]
        ports = [whole_number(entry.get("port-id")) for entry in entries]
        for port in ports:
            self._matrix.check_port(port)
        return list(zip(ports, entries, strict=True))

    def _change_settings(self, port: int, entry: Entry) -> Callable[[], None]:
        status = entry.get("status")
        if status is not None and (not isinstance(status, str) or status not in _STATUSES):
            raise HttpRefusal(400, error_document("invalid-value", f"no status {status!r}"))

        def change() -> None:
            if "label" in entry:
                self._device.labels[port] = str(entry["label"])
            if status is not None:
                self._device.set_disabled({port}, disabled=_STATUSES[status])

        return change

    def _change_attenuator(self, port: int, entry: Entry) -> Callable[[], None]:
        if port not in self._outputs:
            raise HttpRefusal(400, error_document("invalid-value", f"port {port} has no attenuator"))
        mode = str(entry.get("atten-mode", "")).removeprefix(_MODE)
        if mode not in MODES:
            raise HttpRefusal(400, error_document("invalid-value", f"no mode {entry.get('atten-mode')!r}"))
        setting = AttenuatorSetting()
        if mode != "NONE":
            reference = whole_number(entry.get("reference-port") or 0)
            if reference:
                self._matrix.check_port(reference)
            setting = AttenuatorSetting(mode, _level(entry.get("atten-level")), reference)
        return lambda: self._attenuators.set([port], setting)


def _level(value: Any) -> float:
    """Return a level, which is a number or, as RFC 7951 has it, a string (400 if neither or out of range)."""
    try:
        level = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        level = math.nan
    if not abs(level) <= LEVEL_RANGE_DB:
        raise HttpRefusal(400, error_document("invalid-value", f"no level {value!r}"))
    return level
