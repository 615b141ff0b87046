"""The REST of a Calient: circuits one by one and in bulk, ports, the node.

Every item of a change is answered by itself, `status` "1" for done and "0" for failed, under HTTP 200 either way.
Adding provisions and activates in one. `/rest/node/` is our assumption: nobody has shown where the serial number is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl

from sim.twins.families.calient.circuits import Circuit, CircuitConfiguration
from sim.twins.frontends.http_server import HttpAnswer, HttpRefusal, HttpRequest, Route, json_answer
from sim.twins.switch.device import SwitchDevice
from sim.twins.switch.fault_list import Fault
from sim.twins.switch.matrix import Refused
from sim.twins.wire.control import Request

_CROSSCONNECTS, _PORTS = r"/rest/crossconnects/?", r"/rest/ports/?"
_LONGEST_BULK = 2048

Item = dict[str, str]


class RestFrontend:
    """Executes requests on a device. One for all clients.

    What nobody has published: whether a change is answered only when the mirrors have arrived (`waits`), and whether
    the summary of the ports tells as much as their details (`full_summary`).
    """

    def __init__(
        self,
        device: SwitchDevice,
        configuration: CircuitConfiguration,
        *,
        serial: str,
        waits: bool = True,
        full_summary: bool = True,
    ) -> None:
        self._waits = waits
        self._full_summary = full_summary
        self._device = device
        self._configuration = configuration
        self._names = configuration.names
        self._serial = serial
        self._failing_item = 0
        self._denied = False

    def routes(self) -> Sequence[Route]:
        """Return everything it answers to."""
        return [
            Route("GET", r"/rest/info/?", lambda _: json_answer({"restversion": "2.1"})),
            Route("GET", r"/rest/node/?", lambda _: json_answer(self._node())),
            Route("GET", _CROSSCONNECTS, self._get_circuits),
            Route("POST", _CROSSCONNECTS, self._post_circuits),
            Route("DELETE", _CROSSCONNECTS, self._delete_circuit),
            Route("GET", _PORTS, self._get_ports),
        ]

    def faults(self) -> dict[str, Fault]:
        """Return faults for the fault board: the k-th item of the next bulk fails; the account may only read."""
        return {
            "fail_item": Fault(self._set_failing, lambda _: self._set_failing(None), main="item"),
            "deny_writes": Fault(lambda _: self._deny(denied=True), lambda _: self._deny(denied=False)),
        }

    def _set_failing(self, request: Request | None) -> None:
        self._failing_item = request.whole("item", 1) if request else 0

    def _deny(self, *, denied: bool) -> None:
        self._denied = denied

    # -- reading

    def _node(self) -> dict[str, str]:
        return {
            "name": self._device.name,
            "serialnumber": self._serial,
            "swpackage": "6.0-3",
            "chassistype": f"S{self._names.ports}",
        }

    def _get_circuits(self, request: HttpRequest) -> HttpAnswer:
        wanted = request.query.get("id", "list")
        if wanted == "list":
            return json_answer([self._circuit(circuit) for circuit in self._configuration.circuits()])
        if wanted == "detail":
            try:
                return json_answer([self._circuit(self._configuration.find(request.query.get("conn", "")))])
            except Refused:
                return json_answer([])
        raise HttpRefusal(400, f"no id {wanted[:40]!r}")

    def _circuit(self, circuit: Circuit) -> dict[str, Any]:
        name = self._configuration.name(circuit)
        halves = {f"half{n}": self._half(circuit, *ends) for n, ends in enumerate(circuit.ends(), 1)}
        halves.setdefault("half2", {})
        direction = "bi" if circuit.two_way else "uni"
        return {"name": name, "group": circuit.group, "dir": direction, "band": "O", **halves}

    def _half(self, circuit: Circuit, port_in: int, port_out: int) -> dict[str, str]:
        output = port_out + self._names.ports
        admin, operational, capability = self._configuration.states(circuit, [(port_in, output)])
        powers = (self._power(port_in), self._power(output))
        return {
            "conn": f"{self._names.name(port_in)}>{self._names.name(port_out)}",
            "inp": powers[0],
            "outp": powers[1],
            "loss": "NONE" if "NONE" in powers else f"{float(powers[0]) - float(powers[1]):.1f}",
            "alarm": "CL",
            "as": admin,
            "os": operational,
            "oc": capability,
            "state": "ACT" if circuit.active else "PRO",
        }

    def _get_ports(self, request: HttpRequest) -> HttpAnswer:
        wanted = request.query.get("id", "summary")
        if wanted == "summary":
            tell = self._port if self._full_summary else self._short
            return json_answer([tell(number) for number in range(1, self._names.ports + 1)])
        if wanted != "detail":
            raise HttpRefusal(400, f"no id {wanted[:40]!r}")
        try:
            return json_answer(self._port(self._names.number(request.query.get("port", ""))))
        except Refused as refused:
            raise HttpRefusal(404, str(refused)) from None

    def _short(self, number: int) -> dict[str, str]:
        return {"port": self._names.name(number), "inalias": self._configuration.label(number)}

    def _port(self, number: int) -> dict[str, str]:
        output = number + self._names.ports
        document = {
            **self._short(number),
            "inpower": self._power(number),
            "outpower": self._power(output),
            "inowner": "",
            "inopt": "",
        }
        for side, port in (("in", number), ("out", output)):
            admin, operational, capability = self._configuration.fibre_states(port)
            document |= {f"{side}as": admin, f"{side}os": operational, f"{side}oc": capability}
            circuit = self._configuration.on(port)
            document[f"{side}circuit"] = self._configuration.name(circuit) if circuit else ""
        return document

    def _power(self, number: int) -> str:
        dbm = self._configuration.power_dbm(number)
        return "NONE" if dbm is None else f"{dbm:.1f}"

    # -- changing

    async def _post_circuits(self, request: HttpRequest) -> HttpAnswer:
        form = _form(request)
        wanted = request.query.get("id") or form.get("id", "")
        if wanted == "badd":
            return await self._bulk(request, self._add)
        if wanted == "bdel":
            return await self._bulk(request, self._remove)
        if wanted == "add":
            return await self._each([form or request.json()], self._add)
        if wanted == "deleteall":
            names = [
                {"conn": self._configuration.name(circuit)} for circuit in self._configuration.circuits()
            ]
            return await self._each(names, self._remove)
        if wanted in {"activate", "deactivate"}:
            act = self._configuration.activate if wanted == "activate" else self._configuration.deactivate
            named = [{"conn": request.query.get("conn") or form.get("conn", "")}]
            return await self._each(named, lambda item: act(self._configuration.find(item.get("conn", ""))))
        raise HttpRefusal(400, f"no id {wanted[:40]!r}")

    async def _delete_circuit(self, request: HttpRequest) -> HttpAnswer:
        return await self._each([{"conn": request.query.get("conn", "")}], self._remove)

    async def _bulk(self, request: HttpRequest, act: Callable[[Item], None]) -> HttpAnswer:
        items = request.json()
        if not isinstance(items, list) or len(items) > _LONGEST_BULK:
            raise HttpRefusal(400, "a list of connections is needed")
        failing, self._failing_item = self._failing_item, 0
        return await self._each(items, act, failing=failing)

    async def _each(self, items: list[Item], act: Callable[[Item], None], *, failing: int = 0) -> HttpAnswer:
        """Do the items one by one, whatever becomes of each, and answer in the same order."""
        if self._denied:
            self._device.faults.fired["deny_writes"] += 1
            raise HttpRefusal(403, "this account may only read")
        if not all(isinstance(item, dict) for item in items):
            raise HttpRefusal(400, "a connection is an object")
        if self._device.faults.take_dropped_command():
            return json_answer([_done() for _ in items])
        results = [self._one(item, act, fails=number == failing) for number, item in enumerate(items, 1)]
        if self._waits:
            await self._device.wait_idle()
        return json_answer(results)

    def _one(self, item: Item, act: Callable[[Item], None], *, fails: bool) -> dict[str, str]:
        if fails:
            self._device.faults.fired["fail_item"] += 1
            return _failed("Failed", "the connection could not be aligned")
        try:
            act(item)
        except Refused as refused:
            return _failed("Failed", self._configuration.describe(refused))
        return _done()

    def _add(self, item: Item) -> None:
        source, target = (self._names.number(str(item.get(end, ""))) for end in ("in", "out"))
        two_way = item.get("dir", "uni") == "bi"
        circuit = self._configuration.provision(
            source, target, two_way=two_way, group=str(item.get("group", ""))
        )
        try:
            self._configuration.activate(circuit)
        except Refused:
            self._configuration.delete(circuit)
            raise

    def _remove(self, item: Item) -> None:
        self._configuration.delete(self._configuration.find(str(item.get("conn", ""))))


def _form(request: HttpRequest) -> Item:
    """Return the fields of a form; none where the body is something else."""
    if "urlencoded" not in request.headers.get("content-type", ""):
        return {}
    return dict(parse_qsl(request.body.decode("latin-1")))


def _done() -> dict[str, str]:
    return {"status": "1", "msg": "Success", "description": ""}


def _failed(message: str, description: str) -> dict[str, str]:
    return {"status": "0", "msg": message, "description": description}
