"""REST interface of a Calient switch: circuits, ports, and the node.

The answer to a change has HTTP status 200 and one result for each item. The field `status` of a result is "1" for
success and "0" for failure. A bulk request wraps each result in `response`; a single change does not. Adding a circuit
provisions and activates it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl

from sim.twins.families.calient.circuits import Circuit, CircuitConfiguration
from sim.twins.frontends.http_server import HttpAnswer, HttpRefusal, HttpRequest, Route, make_json_answer
from sim.twins.switch.device import SwitchDevice
from sim.twins.switch.fault_list import Fault
from sim.twins.switch.matrix import MatrixRefusal
from sim.twins.wire.control import Request

_CROSSCONNECTS, _PORTS = r"/rest/crossconnects/?", r"/rest/ports/?"
_MAX_BULK_ITEMS = 2048

SOFTWARE_VERSION = "6.0-3"
THRESHOLDS = {
    "inopt": "-17.0",
    "inopth": "13.0",
    "inoptc": "-20.0",
    "outopwdh": "-20.0",
    "outopwct": "-23.0",
}

BulkItem = dict[str, str]


class RestFrontend:
    """The REST interface of one device, shared by all clients.

    Three behaviours are not published. With `waits_for_motion`, a change is answered only after the mirrors have
    stopped. With `has_full_summary`, the summary of the ports has all fields of the details. With `has_nested_results`,
    each result of a bulk request is inside `response`, where the only public client that parses results expects it.
    """

    def __init__(
        self,
        device: SwitchDevice,
        configuration: CircuitConfiguration,
        *,
        serial_number: str,
        waits_for_motion: bool = True,
        has_full_summary: bool = True,
        has_nested_results: bool = True,
    ) -> None:
        self._waits_for_motion = waits_for_motion
        self._has_nested_results = has_nested_results
        self._has_full_summary = has_full_summary
        self._device = device
        self._configuration = configuration
        self._names = configuration.names
        self._serial_number = serial_number
        self._failing_index = 0
        self._denies_writes = False

    def make_routes(self) -> Sequence[Route]:
        """Return the routes of the interface."""
        return [
            Route("GET", r"/rest/info/?", self._get_info),
            Route("GET", r"/rest/node/?", self._get_node),
            Route("GET", _CROSSCONNECTS, self._get_circuits),
            Route("POST", _CROSSCONNECTS, self._post_circuits),
            Route("DELETE", _CROSSCONNECTS, self._delete_circuit),
            Route("GET", _PORTS, self._get_ports),
        ]

    def list_faults(self) -> dict[str, Fault]:
        """Return the faults `fail_item` (an item of the next bulk request fails) and `deny_writes` (status 403)."""
        return {
            "fail_item": Fault(
                self._set_failing_item, lambda _: self._set_failing_item(None), main_field="item"
            ),
            "deny_writes": Fault(
                lambda _: self._set_write_denial(is_denied=True),
                lambda _: self._set_write_denial(is_denied=False),
            ),
        }

    def _set_failing_item(self, request: Request | None) -> None:
        self._failing_index = request.get_integer("item", 1) if request else 0

    def _set_write_denial(self, *, is_denied: bool) -> None:
        self._denies_writes = is_denied

    # -- reads

    def _get_info(self, request: HttpRequest) -> HttpAnswer:
        resource = request.query.get("id", "")
        documents = {"restversion": {"restversion": "2.1"}, "softwareversion": {"version": SOFTWARE_VERSION}}
        if resource not in documents:
            raise _make_unknown_id_refusal(resource)
        return make_json_answer(documents[resource])

    def _get_node(self, request: HttpRequest) -> HttpAnswer:
        """Return the requested `detail` for `id=summary`, as one public client expects."""
        if request.query.get("id", "") != "summary":
            raise _make_unknown_id_refusal(request.query.get("id", ""))
        system = {"serialnumber": self._serial_number, "partnumber": f"S{self._names.port_count}"}
        details = {
            "SYSCFG": system,
            "HARDWARE": {"nodeSysConfigInfo": system},
            "SOFTWARE": [{"version": SOFTWARE_VERSION}],
        }
        detail = request.query.get("detail", "")
        if detail not in details:
            raise HttpRefusal(400, f"no detail {detail[:40]!r}")
        return make_json_answer(details[detail])

    def _get_circuits(self, request: HttpRequest) -> HttpAnswer:
        resource = request.query.get("id", "list")
        if resource == "list":
            return make_json_answer(
                [self._describe_circuit(circuit) for circuit in self._configuration.list_circuits()]
            )
        if resource == "detail":
            try:
                return make_json_answer(
                    [
                        self._describe_circuit(
                            self._configuration.find_circuit_by_name(request.query.get("conn", ""))
                        )
                    ]
                )
            except MatrixRefusal:
                return make_json_answer([])
        raise _make_unknown_id_refusal(resource)

    def _describe_circuit(self, circuit: Circuit) -> dict[str, Any]:
        name = self._configuration.format_name(circuit)
        halves = {
            f"half{n}": self._describe_half(circuit, *ports)
            for n, ports in enumerate(circuit.list_directions(), 1)
        }
        direction = "bi" if circuit.is_two_way else "uni"
        return {"name": name, "group": circuit.group, "dir": direction, "band": "O", **halves}

    def _describe_half(self, circuit: Circuit, port_in: int, port_out: int) -> dict[str, str]:
        output = port_out + self._names.port_count
        admin, operational, capability = self._configuration.describe_circuit_states(
            circuit, [(port_in, output)]
        )
        powers = (self._format_power(port_in), self._format_power(output))
        return {
            "conn": f"{self._names.format_name(port_in)}>{self._names.format_name(port_out)}",
            "inp": powers[0],
            "outp": powers[1],
            "loss": "NONE" if "NONE" in powers else f"{float(powers[0]) - float(powers[1]):.1f}",
            "alarm": "CL",
            "as": admin,
            "os": operational,
            "oc": capability,
            "state": "ACT" if circuit.is_active else "PRO",
        }

    def _get_ports(self, request: HttpRequest) -> HttpAnswer:
        resource = request.query.get("id", "summary")
        if resource == "summary":
            numbers = range(1, self._names.port_count + 1)
            if self._has_full_summary:
                return make_json_answer(
                    [{**self._describe_port(number), **self._summarise_port(number)} for number in numbers]
                )
            return make_json_answer([self._summarise_port(number) for number in numbers])
        if resource != "detail":
            raise _make_unknown_id_refusal(resource)
        try:
            return make_json_answer(
                [self._describe_port(self._names.parse_name(request.query.get("port", "")))]
            )
        except MatrixRefusal as refusal:
            raise HttpRefusal(404, str(refusal)) from None

    def _summarise_port(self, number: int) -> dict[str, str]:
        """Return the fields of a summary row that one public client reads. `power` is the input power (assumption)."""
        circuit = self._configuration.find_circuit(number) or self._configuration.find_circuit(
            number + self._names.port_count
        )
        name = self._configuration.format_name(circuit) if circuit else ""
        return {
            "port": self._names.format_name(number),
            "inalias": self._configuration.get_label(number),
            "outalias": "",
            "conn": name,
            "connid": name,
            "power": self._format_power(number),
        }

    def _describe_port(self, number: int) -> dict[str, str]:
        """Return the fields of one port, with the field names and thresholds of a public capture."""
        document = {"port": self._names.format_name(number), **THRESHOLDS}
        for side, port in (("in", number), ("out", number + self._names.port_count)):
            admin, operational, capability = self._configuration.describe_fibre_states(port)
            circuit = self._configuration.find_circuit(port)
            document |= {
                f"{side}alias": self._configuration.get_label(number) if side == "in" else "",
                f"{side}as": admin,
                f"{side}os": operational,
                f"{side}oc": capability,
                f"{side}owner": self._configuration.find_owner(port),
                f"{side}power": self._format_power(port),
                f"{side}circuit": self._configuration.format_name(circuit) if circuit else "",
            }
        return document

    def _format_power(self, matrix_port: int) -> str:
        dbm = self._configuration.read_power_dbm(matrix_port)
        return "NONE" if dbm is None else f"{dbm:.1f}"

    # -- changes

    async def _post_circuits(self, request: HttpRequest) -> HttpAnswer:
        form = _parse_form(request)
        resource = request.query.get("id") or form.get("id", "")
        if resource == "badd":
            return await self._execute_bulk(request, self._add_circuit)
        if resource == "bdel":
            return await self._execute_bulk(request, self._remove_circuit)
        if resource == "add":
            return await self._execute_items([form or request.parse_json()], self._add_circuit)
        if resource == "deleteall":
            names = [
                {"conn": self._configuration.format_name(circuit)}
                for circuit in self._configuration.list_circuits()
            ]
            return await self._execute_items(names, self._remove_circuit)
        if resource in {"activate", "deactivate"}:
            apply_item = (
                self._configuration.activate if resource == "activate" else self._configuration.deactivate
            )
            items = [{"conn": request.query.get("conn") or form.get("conn", "")}]
            return await self._execute_items(
                items, lambda item: apply_item(self._configuration.find_circuit_by_name(item.get("conn", "")))
            )
        raise _make_unknown_id_refusal(resource)

    async def _delete_circuit(self, request: HttpRequest) -> HttpAnswer:
        return await self._execute_items([{"conn": request.query.get("conn", "")}], self._remove_circuit)

    async def _execute_bulk(self, request: HttpRequest, apply_item: Callable[[BulkItem], None]) -> HttpAnswer:
        items = request.parse_json()
        if not isinstance(items, list) or len(items) > _MAX_BULK_ITEMS:
            raise HttpRefusal(400, "a list of connections is needed")
        failing_index, self._failing_index = self._failing_index, 0
        return await self._execute_items(
            items, apply_item, failing_index=failing_index, has_nested_results=self._has_nested_results
        )

    async def _execute_items(
        self,
        items: list[BulkItem],
        apply_item: Callable[[BulkItem], None],
        *,
        failing_index: int = 0,
        has_nested_results: bool = False,
    ) -> HttpAnswer:
        """Execute all items in turn, even if some fail, and return their results in the same order.

        The fault `fail_item` makes item number `failing_index` fail, counted from 1 (0 for none).
        """
        if self._denies_writes:
            self._device.faults.fire_counts["deny_writes"] += 1
            raise HttpRefusal(403, "this account may only read")
        if not all(isinstance(item, dict) for item in items):
            raise HttpRefusal(400, "a connection is an object")
        if self._device.faults.must_drop_command():
            results = [_make_success() for _ in items]
        else:
            results = [
                self._execute_item(item, apply_item, must_fail=number == failing_index)
                for number, item in enumerate(items, 1)
            ]
            if self._waits_for_motion:
                await self._device.wait_idle()
        return make_json_answer(
            [{"response": result} for result in results] if has_nested_results else results
        )

    def _execute_item(
        self, item: BulkItem, apply_item: Callable[[BulkItem], None], *, must_fail: bool
    ) -> dict[str, str]:
        if must_fail:
            self._device.faults.fire_counts["fail_item"] += 1
            return _make_failure("Failed", "the connection could not be aligned")
        try:
            apply_item(item)
        except MatrixRefusal as refusal:
            return _make_failure("Failed", self._configuration.describe_refusal(refusal))
        return _make_success()

    def _add_circuit(self, item: BulkItem) -> None:
        source, target = (self._names.parse_name(str(item.get(end, ""))) for end in ("in", "out"))
        is_two_way = item.get("dir", "uni") == "bi"
        circuit = self._configuration.provision(
            source, target, is_two_way=is_two_way, group=str(item.get("group", ""))
        )
        try:
            self._configuration.activate(circuit)
        except MatrixRefusal:
            self._configuration.delete(circuit)
            raise

    def _remove_circuit(self, item: BulkItem) -> None:
        self._configuration.delete(self._configuration.find_circuit_by_name(str(item.get("conn", ""))))


def _make_unknown_id_refusal(resource: str) -> HttpRefusal:
    return HttpRefusal(400, f"no id {resource[:40]!r}")


def _parse_form(request: HttpRequest) -> BulkItem:
    """Return the fields of a URL-encoded form, or an empty dict for another type of body."""
    if "urlencoded" not in request.headers.get("content-type", ""):
        return {}
    return dict(parse_qsl(request.body.decode("latin-1")))


def _make_success() -> dict[str, str]:
    return {"status": "1", "msg": "Success", "description": ""}


def _make_failure(message: str, description: str) -> dict[str, str]:
    return {"status": "0", "msg": message, "description": description}
