"""A Calient over REST: any change is one bulk deletion and one bulk addition.

Every item of a bulk has a result of its own, also under HTTP 200: each is looked at, and what failed is told pair
by pair. Replies are slow (other clients wait 15 s), hence few requests.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from ocs_drivers.calient import rest_words
from ocs_drivers.calient.names import Circuit, Names, Pair, parse_circuit_name
from ocs_drivers.calient.switch import CalientSwitch, States
from ocs_drivers.contract import Guard
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import DeviceError, OcsError, PermissionDenied, PortBusy
from ocs_drivers.http_session import HttpSession
from ocs_drivers.model import Capabilities, Identity, Step
from ocs_drivers.timing import SYSTEM_CLOCK, Clock
from ocs_drivers.transport import Transport

GROUP = "SYSTEM"
_CIRCUITS, _PORTS = "/rest/crossconnects/", "/rest/ports/?id=summary"
_NOT_THERE = "404"


class CalientRest(CalientSwitch):
    """One Calient over REST, on any transport; `open` before use."""

    def __init__(
        self,
        address: str,
        transport: Transport,
        *,
        credentials: Credentials,
        timeout_s: float,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._session = HttpSession(
            transport, device=address, credentials=credentials, timeout_s=timeout_s, clock=clock
        )
        super().__init__(address, self._session, timeout_s=timeout_s, clock=clock)

    def _discover(self) -> tuple[Identity, Capabilities]:
        version = self._session.get_json("/rest/info/?id=restversion", dict).get("restversion", "")
        self._names = Names(tuple(self._ask_ports()))
        node = self._node()
        identity = Identity(
            "Calient",
            str(node.get("chassistype", "")),
            str(node.get("serialnumber", "")),
            str(node.get("swpackage", f"REST {version}")),
        )
        size = len(self._names)
        return identity, Capabilities(
            size, size, bulk_add=True, power_monitor=True, login=True, switch_time_s=(0.2, 10.0)
        )

    def _node(self) -> dict[str, Any]:
        """Who it is, where it tells (assumption: `/rest/node/`); empty where it does not."""
        try:
            return self._session.get_json("/rest/node/", dict)
        except DeviceError as refusal:
            if refusal.device_code != _NOT_THERE:
                raise
            return {}

    def _ask_circuits(self) -> list[Circuit]:
        return self._session.get_json(f"{_CIRCUITS}?id=list", rest_words.decode_circuits)

    def _ask_ports(self) -> States:
        return self._session.get_json(_PORTS, rest_words.decode_ports)

    def _ask_powers(self) -> Mapping[str, tuple[float | None, float | None]]:
        return self._session.get_json(_PORTS, rest_words.decode_powers)

    # -- changing

    def _perform(self, step: Step, guard: Guard) -> None:
        if step.kind == "replace":
            raise self._unsupported("the whole configuration at once")
        pairs = list(step.pairs.items())
        if step.kind == "remove":
            self._delete({self._name_of(pair) for pair in pairs}, guard)
            return
        leftovers = {c.name for pair in pairs for c in self._in_the_way(pair)}
        if leftovers:
            self._delete(leftovers, guard)
            guard()
        self._bulk("badd", [self._item(pair) for pair in pairs], guard)

    def _in_the_way(self, pair: Pair) -> list[Circuit]:
        """Provisioned circuits on the input, this very one included: adding makes it anew."""
        booked = self._seen.of(pair)
        own = [booked] if booked is not None and booked.state == "provisioned" else []
        return [*own, *self._seen.in_the_way(pair, device=self.address)]

    def _name_of(self, pair: Pair) -> str:
        circuit = self._seen.of(pair)
        return circuit.name if circuit else ">".join(self._names.one_way(pair))

    def _item(self, pair: Pair) -> dict[str, str]:
        source, target = self._names.one_way(pair)
        return {"in": source, "out": target, "group": GROUP, "conn": f"{source}>{target}", "dir": "uni"}

    def _delete(self, names: Collection[str], guard: Guard) -> None:
        self._bulk("bdel", [{"conn": name} for name in sorted(names)], guard)

    def _bulk(self, what: str, items: Sequence[Mapping[str, str]], guard: Guard) -> None:
        """One bulk request. Raises what the items that failed mean."""
        target = f"{_CIRCUITS}?id={quote(what)}"
        try:
            reply = self._session.send_json(
                "POST",
                target,
                items,
                timeout_s=self._timeout_s + self.capabilities.switch_time_s[1],
                before_resending=guard,
            )
        except PermissionDenied as denied:
            denied.cure = "This account may only read over REST: use another, or calient+tl1."
            raise denied.locate(device=self.address) from None
        if reply.status != 200:
            raise self._session.refusal(reply, f"POST {target}")
        results = rest_words.decode_results(reply.json(), len(items))
        failed = {item["conn"]: why for item, why in zip(items, results, strict=True) if why}
        if failed:
            raise self._failure(failed, f"POST {target}")

    def _failure(self, failed: Mapping[str, str], sent: str) -> OcsError:
        why = "; ".join(f"{name}: {text}" for name, text in failed.items())
        ports = sorted({port for name in failed for pair in self._pairs_of(name) for port in pair})
        if any("Invalid Connection" in text for text in failed.values()):
            return PortBusy(
                f"the device says that ports are in use: {why}",
                device=self.address,
                ports=ports,
                sent=sent,
                cure="Read the switch: somebody else made or booked a circuit there.",
            )
        return DeviceError(
            f"{len(failed)} connections failed: {why}",
            device_code="0",
            device=self.address,
            ports=ports,
            sent=sent,
        )

    def _pairs_of(self, name: str) -> frozenset[Pair]:
        source, target, two_way = parse_circuit_name(name)
        return self._names.pairs(Circuit(source, target, two_way, "made", lit=True))
