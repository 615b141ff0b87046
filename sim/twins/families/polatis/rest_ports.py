"""Single ports in the switch's RESTCONF: settings, powers, attenuators.

Nodes are those that public clients show; names of modes are those of one client over NETCONF, whose model is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sim.twins.families.polatis.attenuators import LEVEL_RANGE_DB, MODES, Attenuators, AttenuatorSetting
from sim.twins.families.polatis.rest_syntax import (
    Reply,
    body_of,
    entries_in,
    error_document,
    only_entry,
    whole_number,
)
from sim.twins.frontends.http_server import HttpRefusal, HttpRequest
from sim.twins.switch.device import SwitchDevice

PORTS = "optical-switch:port-config"
POWERS = "optical-switch:opm-power"
ATTENUATORS = "optical-switch:voa"
ENTRY = "optical-switch:port"

_MODE = "VOA_MODE_"
_STATUSES = {"ENABLED": False, "DISABLED": True}

Entry = Mapping[str, Any]


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
        return self.show(POWERS, self._power, self._matrix.ports, request)

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

    def _power(self, port: int) -> Entry:
        return {"port-id": port, "power": f"{self._device.power_dbm(port):.2f}"}

    def _attenuator(self, port: int) -> Entry:
        setting = self._attenuators.setting(port)
        entry: dict[str, Any] = {"port-id": port, "atten-mode": f"{_MODE}{setting.mode}"}
        if setting.mode != "NONE":
            entry["atten-level"] = f"{setting.level:.2f}"
        return {**entry, "reference-port": setting.reference} if setting.reference else entry

    # -- changing

    def put_settings(self, request: HttpRequest) -> Reply:
        """Replace the settings of one port."""
        port = self._named(request)
        entry = {"status": "ENABLED", "label": "", **only_entry(body_of(request, ENTRY))}
        return self._done([self._changed_settings(port, entry)])

    def patch_settings(self, request: HttpRequest) -> Reply:
        """Change what a request names of ports, and leave the rest."""
        return self._done([self._changed_settings(*found) for found in self._entries(request, PORTS)])

    def patch_attenuators(self, request: HttpRequest) -> Reply:
        """Set the attenuators that a request names."""
        return self._done([self._changed_attenuator(*found) for found in self._entries(request, ATTENUATORS)])

    def _done(self, changes: Iterable[Callable[[], None]]) -> Reply:
        """Make changes that have all been checked, unless a fault swallows the request."""
        if not self._device.faults.take_dropped_command():
            for change in changes:
                change()
        return Reply(204)

    def _named(self, request: HttpRequest) -> int:
        port = whole_number(request.captured[1])
        self._matrix.check_port(port)
        return port

    def _entries(self, request: HttpRequest, name: str) -> list[tuple[int, Entry]]:
        """Return the ports that a request is about, by its path or by the entries themselves."""
        entries = entries_in(body_of(request, name, ENTRY), "port")
        if request.captured[1]:
            return [(self._named(request), only_entry(entries))]
        ports = [whole_number(entry.get("port-id")) for entry in entries]
        for port in ports:
            self._matrix.check_port(port)
        return list(zip(ports, entries, strict=True))

    def _changed_settings(self, port: int, entry: Entry) -> Callable[[], None]:
        status = entry.get("status")
        if status is not None and (not isinstance(status, str) or status not in _STATUSES):
            raise HttpRefusal(400, error_document("invalid-value", f"no status {status!r}"))

        def change() -> None:
            if "label" in entry:
                self._device.labels[port] = str(entry["label"])
            if status is not None:
                self._device.set_disabled({port}, disabled=_STATUSES[status])

        return change

    def _changed_attenuator(self, port: int, entry: Entry) -> Callable[[], None]:
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
