"""RESTCONF interface of a Polatis switch: cross-connects, ports, power readings, attenuators and product data.

Resources are under /api/data. Public clients show the names of resources, and the statuses of `PUT` and `POST`. The
module prefix of a name is optional. The rest follows RFC 8040 (RESTCONF) and RFC 7951 (decimal numbers are strings in
JSON). Bodies are JSON or XML. A change is answered after the light has arrived.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sim.twins.families.polatis.attenuators import MAX_LEVEL_DB, MODES, Attenuators, AttenuatorSetting
from sim.twins.families.polatis.rest_syntax import (
    Media,
    Reply,
    choose_media,
    get_single_entry,
    make_error_document,
    make_refusal,
    parse_entries,
    parse_number,
    parse_pairs,
    read_body,
)
from sim.twins.frontends.http_server import HttpAnswer, HttpRefusal, HttpRequest, Route
from sim.twins.switch.device import Change, SwitchDevice
from sim.twins.switch.matrix import Connections, MatrixRefusal, Pair

_DATA_PATH = "/api/data/(?:optical-switch:)?"
_PAIRS_NODE = "optical-switch:cross-connects"
_PAIR_NODE = "optical-switch:pair"
_PRODUCT_NODE = "optical-switch:product-information"
_ROOT_DOCUMENT = {"ietf-restconf:restconf": {"data": "", "operations": ""}}
PORT_CONFIG_NODE = "optical-switch:port-config"
POWER_NODE = "optical-switch:opm-power"
ATTENUATOR_NODE = "optical-switch:voa"
PORT_NODE = "optical-switch:port"

_MODE_PREFIX = "VOA_MODE_"
_IS_DISABLED_BY_STATUS = {"ENABLED": False, "DISABLED": True}

PortEntry = Mapping[str, Any]


class RestFrontend:
    """The RESTCONF interface of one device, shared by all clients.

    The ETag of the cross-connects changes with every change by any client. A request with `If-Match` is executed only
    if its tag is still the current one. This is an assumption: units send an ETag, but `If-Match` is not documented.
    Pairs made with POST disappear after `post_lifetime_s` (never if it is 0), as on the unit of one lab.

    `default_media` is the format of an answer if the client names no format. One public client then expects XML. With
    `answers_empty_with_204`, a read of cross-connects returns status 204 if there are none, as one client expects.
    """

    def __init__(
        self,
        device: SwitchDevice,
        *,
        product: Mapping[str, str],
        attenuators: Attenuators,
        post_lifetime_s: float = 0.0,
        default_media: Media = "xml",
        answers_empty_with_204: bool = True,
    ) -> None:
        self._device = device
        self._matrix = device.matrix
        self._product = dict(product)
        self._ports = PortResources(device, attenuators)
        self._post_lifetime_s = post_lifetime_s
        self._default_media: Media = default_media
        self._answers_empty_with_204 = answers_empty_with_204
        self._change_count = 0
        device.add_listener(self._note_change)

    def make_routes(self) -> Sequence[Route]:
        """Return the routes of the interface."""
        all_pairs_path, pairs_path = f"{_DATA_PATH}cross-connects", f"{_DATA_PATH}cross-connects/pair"
        pair_path = rf"{pairs_path}=(\d{{1,6}})(?:,(\d{{1,6}}))?"
        ports_path, powers_path, attenuators_path = (
            rf"{_DATA_PATH}{node}(/port(?:=(\d{{1,6}}))?)?" for node in ("port-config", "opm-power", "voa")
        )
        table: tuple[tuple[str, str, Callable[[HttpRequest], Any]], ...] = (
            ("GET", "/api", lambda _: Reply(200, _ROOT_DOCUMENT)),
            (
                "GET",
                all_pairs_path,
                lambda _: self._make_pairs_reply(
                    {_PAIRS_NODE: {"pair": _list_pairs(self._matrix.connections)}}
                ),
            ),
            (
                "GET",
                pairs_path,
                lambda _: self._make_pairs_reply({_PAIR_NODE: _list_pairs(self._matrix.connections)}),
            ),
            ("PUT", all_pairs_path, self._put_all_pairs),
            ("POST", all_pairs_path, self._post_pair),
            ("PATCH", f"{all_pairs_path}(?:/pair)?", self._patch_pairs),
            ("DELETE", f"{all_pairs_path}(?:/pair)?", self._delete_all_pairs),
            ("GET", pair_path, self._make_pair_reply),
            ("PUT", pair_path, self._put_pair),
            ("DELETE", pair_path, self._delete_pair),
            ("GET", ports_path, self._ports.get_settings),
            ("PUT", rf"{_DATA_PATH}port-config(/port=(\d{{1,6}}))", self._ports.put_settings),
            ("PATCH", ports_path, self._ports.patch_settings),
            ("GET", powers_path, self._ports.get_powers),
            ("GET", attenuators_path, self._ports.get_attenuators),
            ("PATCH", attenuators_path, self._ports.patch_attenuators),
            ("GET", f"{_DATA_PATH}product-information", lambda _: Reply(200, {_PRODUCT_NODE: self._product})),
        )
        return [Route(method, pattern, self._wrap_handler(handler)) for method, pattern, handler in table]

    def _wrap_handler(self, handler: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
        """Return a handler that encodes replies in the client's format, and refusals as RESTCONF errors."""

        async def handle(request: HttpRequest) -> HttpAnswer:
            media = choose_media(request, self._default_media)
            try:
                reply = handler(request)
                return (reply if isinstance(reply, Reply) else await reply).answer(media)
            except MatrixRefusal as refusal:
                failure = make_refusal(refusal)
            except HttpRefusal as refusal:
                failure = refusal
            if isinstance(failure.reason, str):
                raise failure
            return Reply(failure.status, failure.reason, failure.headers).answer(media)

        return handle

    # -- cross-connects

    @property
    def _etag(self) -> str:
        """Tag of three numbers, without quotes, as in a capture. The first number counts changes."""
        return f"{self._change_count}-{len(self._matrix.connections)}-{self._matrix.input_count}"

    def _note_change(self, change: Change) -> None:
        del change
        self._change_count += 1

    def _make_reply(self, status: int, document: Mapping[str, Any] | None = None) -> Reply:
        return Reply(status, document, (("ETag", self._etag),))

    def _make_pairs_reply(self, document: Mapping[str, Any]) -> Reply:
        if not self._matrix.connections and self._answers_empty_with_204:
            return self._make_reply(204)
        return self._make_reply(200, document)

    def _make_pair_reply(self, request: HttpRequest) -> Reply:
        try:
            source, output = self._find_pair(request)
        except HttpRefusal:
            if self._answers_empty_with_204:
                return self._make_reply(204)
            raise
        return self._make_reply(200, {_PAIR_NODE: _list_pairs({source: output})[0]})

    async def _put_all_pairs(self, request: HttpRequest) -> Reply:
        pairs = parse_pairs(read_body(request, _PAIRS_NODE))
        self._check_etag(request)
        inputs, outputs = [source for source, _ in pairs], [output for _, output in pairs]
        return await self._change_connections(
            lambda: self._matrix.plan_exact_connections(inputs, outputs), 204, is_full_configuration=True
        )

    async def _put_pair(self, request: HttpRequest) -> Reply:
        port_in_path = parse_number(request.captured_groups[0])
        ((source, output),) = parse_pairs(read_body(request, _PAIR_NODE), expected_count=1)
        if source != port_in_path:
            raise HttpRefusal(
                400,
                make_error_document(
                    "invalid-value", f"the body is about ingress {source}, not {port_in_path}"
                ),
            )
        self._check_etag(request)
        has_connection = source in self._matrix.connections
        return await self._change_connections(
            lambda: self._add_pairs([(source, output)]), 204 if has_connection else 201
        )

    async def _patch_pairs(self, request: HttpRequest) -> Reply:
        pairs = parse_pairs(read_body(request, _PAIRS_NODE, _PAIR_NODE))
        self._check_etag(request)
        return await self._change_connections(lambda: self._add_pairs(pairs), 204)

    def _add_pairs(self, pairs: Sequence[Pair]) -> Connections:
        """Return the connections with new pairs, which replace pairs of the same inputs.

        If an output is connected to another input, `Matrix.occupied_policy` applies. Raise `MatrixRefusal`.
        """
        inputs, outputs = [source for source, _ in pairs], [output for _, output in pairs]
        is_replaceable = all(self._matrix.find_peer(output) in {None, *inputs} for output in outputs)
        return self._matrix.plan_connections(inputs, outputs, "replace" if is_replaceable else None)

    async def _post_pair(self, request: HttpRequest) -> Reply:
        ((source, output),) = parse_pairs(read_body(request, _PAIR_NODE), expected_count=1)
        if source in self._matrix.connections:
            raise HttpRefusal(409, make_error_document("data-exists", f"ingress {source} has a pair"))
        self._check_etag(request)
        reply = await self._change_connections(lambda: self._matrix.plan_connections([source], [output]), 201)
        if self._post_lifetime_s:
            self._device.start_motion(self._remove_after_lifetime(source, output))
        return reply

    async def _remove_after_lifetime(self, source: int, output: int) -> None:
        await self._device.clock.sleep(self._post_lifetime_s)
        if self._matrix.connections.get(source) == output:
            self._device.change_connections(self._matrix.plan_removal([source]))

    async def _delete_all_pairs(self, request: HttpRequest) -> Reply:
        self._check_etag(request)
        return await self._change_connections(self._matrix.plan_full_removal, 204, is_full_configuration=True)

    async def _delete_pair(self, request: HttpRequest) -> Reply:
        source, _ = self._find_pair(request)
        self._check_etag(request)
        return await self._change_connections(lambda: self._matrix.plan_removal([source]), 204)

    def _find_pair(self, request: HttpRequest) -> Pair:
        source = parse_number(request.captured_groups[0])
        self._matrix.check_input(source)
        output = self._matrix.connections.get(source)
        output_in_path = request.captured_groups[1]
        if output is None or (output_in_path and parse_number(output_in_path) != output):
            raise HttpRefusal(404, make_error_document("invalid-value", "no such pair"))
        return source, output

    def _check_etag(self, request: HttpRequest) -> None:
        """Raise `HttpRefusal` (412) if the request has an `If-Match` that does not match the current tag."""
        tags = request.headers.get("if-match", "*")
        if tags != "*" and self._etag not in {tag.strip() for tag in tags.split(",")}:
            raise HttpRefusal(412, make_error_document("operation-failed", "the cross-connects have changed"))

    async def _change_connections(
        self, make_connections: Callable[[], Connections], status: int, *, is_full_configuration: bool = False
    ) -> Reply:
        """Change the configuration and wait for the light, unless the fault `drop_command` discards the request.

        `make_connections` returns the new connections, or raises `MatrixRefusal`. It is called even if the request is
        then discarded.
        """
        connections = make_connections()
        if not self._device.faults.must_drop_command():
            motion = self._device.change_connections(connections, is_full_configuration=is_full_configuration)
            if motion:
                await asyncio.wait({motion})  # a client that disconnects meanwhile does not stop the mirrors
        return self._make_reply(status)


def _list_pairs(connections: Mapping[int, int]) -> list[dict[str, int]]:
    return [{"ingress": source, "egress": output} for source, output in connections.items()]


class PortResources:
    """Settings, power readings and attenuators of ports, shared by all clients."""

    def __init__(self, device: SwitchDevice, attenuators: Attenuators) -> None:
        self._device = device
        self._matrix = device.matrix
        self._attenuators = attenuators

    # -- reads

    def make_entries_reply(
        self, name: str, make_entry: Callable[[int], PortEntry], ports: Iterable[int], request: HttpRequest
    ) -> Reply:
        """Return the entries of `ports` in the form of the path: a list in a container, a bare list, or one entry."""
        port_path, port = (*request.captured_groups, "", "")[:2]
        if port:
            number = parse_number(port)
            self._matrix.check_port(number)
            if number not in ports:
                raise HttpRefusal(404, make_error_document("invalid-value", f"port {number} has no {name}"))
            return Reply(200, {PORT_NODE: make_entry(number)})
        entries = [make_entry(number) for number in ports]
        return Reply(200, {PORT_NODE: entries} if port_path else {name: {"port": entries}})

    def get_settings(self, request: HttpRequest) -> Reply:
        """Return states, labels and peers of ports."""
        return self.make_entries_reply(PORT_CONFIG_NODE, self._describe_settings, self._matrix.ports, request)

    def get_powers(self, request: HttpRequest) -> Reply:
        """Return power readings in dBm, as strings (RFC 7951)."""
        return self.make_entries_reply(
            POWER_NODE,
            lambda port: {"port-id": port, "power": f"{self._device.read_power_dbm(port):.2f}"},
            self._matrix.ports,
            request,
        )

    def get_attenuators(self, request: HttpRequest) -> Reply:
        """Return the settings of attenuators, which only outputs have."""
        return self.make_entries_reply(ATTENUATOR_NODE, self._describe_attenuator, self._outputs, request)

    @property
    def _outputs(self) -> range:
        return self._matrix.ports[self._matrix.input_count :]

    def _describe_settings(self, port: int) -> PortEntry:
        status = {"E": "ENABLED", "D": "DISABLED", "F": "FAILED"}[self._matrix.get_state(port)]
        peer = self._matrix.find_peer(port)
        label = self._device.labels.get(port, "")
        return {"port-id": port, "status": status, "label": label, "peer-port": "" if peer is None else peer}

    def _describe_attenuator(self, port: int) -> PortEntry:
        setting = self._attenuators.get_setting(port)
        entry: dict[str, Any] = {"port-id": port, "atten-mode": f"{_MODE_PREFIX}{setting.mode}"}
        if setting.mode != "NONE":
            entry["atten-level"] = f"{setting.level:.2f}"
        return {**entry, "reference-port": setting.reference_port} if setting.reference_port else entry

    # -- changes

    def put_settings(self, request: HttpRequest) -> Reply:
        """Replace all settings of one port. A missing field gets its default."""
        port = self._find_port(request)
        entry = {"status": "ENABLED", "label": "", **get_single_entry(read_body(request, PORT_NODE))}
        return self._apply_changes([self._change_settings(port, entry)])

    def patch_settings(self, request: HttpRequest) -> Reply:
        """Change the port settings that a request contains, and keep the others."""
        return self._apply_changes(
            [self._change_settings(*item) for item in self._parse_entries(request, PORT_CONFIG_NODE)]
        )

    def patch_attenuators(self, request: HttpRequest) -> Reply:
        """Set the attenuators that a request contains."""
        return self._apply_changes(
            [self._change_attenuator(*item) for item in self._parse_entries(request, ATTENUATOR_NODE)]
        )

    def _apply_changes(self, changes: Iterable[Callable[[], None]]) -> Reply:
        """Apply checked changes, unless the fault `drop_command` discards the request."""
        if not self._device.faults.must_drop_command():
            for change in changes:
                change()
        return Reply(204)

    def _find_port(self, request: HttpRequest) -> int:
        port = parse_number(request.captured_groups[1])
        self._matrix.check_port(port)
        return port

    def _parse_entries(self, request: HttpRequest, name: str) -> list[tuple[int, PortEntry]]:
        """Return ports and entries of a request. The path names the port; otherwise each entry names its port."""
        entries = parse_entries(read_body(request, name, PORT_NODE), "port")
        if request.captured_groups[1]:
            return [(self._find_port(request), get_single_entry(entries))]
        ports = [parse_number(entry.get("port-id")) for entry in entries]
        for port in ports:
            self._matrix.check_port(port)
        return list(zip(ports, entries, strict=True))

    def _change_settings(self, port: int, entry: PortEntry) -> Callable[[], None]:
        status = entry.get("status")
        if status is not None and (not isinstance(status, str) or status not in _IS_DISABLED_BY_STATUS):
            raise HttpRefusal(400, make_error_document("invalid-value", f"no status {status!r}"))

        def change() -> None:
            if "label" in entry:
                self._device.labels[port] = str(entry["label"])
            if status is not None:
                self._device.set_disabled({port}, is_disabled=_IS_DISABLED_BY_STATUS[status])

        return change

    def _change_attenuator(self, port: int, entry: PortEntry) -> Callable[[], None]:
        if port not in self._outputs:
            raise HttpRefusal(400, make_error_document("invalid-value", f"port {port} has no attenuator"))
        mode = str(entry.get("atten-mode", "")).removeprefix(_MODE_PREFIX)
        if mode not in MODES:
            raise HttpRefusal(
                400, make_error_document("invalid-value", f"no mode {entry.get('atten-mode')!r}")
            )
        setting = AttenuatorSetting()
        if mode != "NONE":
            reference = parse_number(entry.get("reference-port") or 0)
            if reference:
                self._matrix.check_port(reference)
            setting = AttenuatorSetting(mode, _parse_level(entry.get("atten-level")), reference)
        return lambda: self._attenuators.apply_setting([port], setting)


def _parse_level(value: Any) -> float:
    """Return a level from a number, or from a string as in RFC 7951. Raise `HttpRefusal` (400) if it is invalid."""
    try:
        level = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        level = math.nan
    if not abs(level) <= MAX_LEVEL_DB:
        raise HttpRefusal(400, make_error_document("invalid-value", f"no level {value!r}"))
    return level
