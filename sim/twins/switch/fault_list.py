"""Faults that every simulated switch has, set and cleared by name through its control socket.

{"do": "set_fault", "fault": "drop_command", "count": 1}
{"do": "clear_fault", "fault": "all"}
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from inspect import isawaitable
from typing import Protocol

from sim.twins.switch.device import SwitchDevice
from sim.twins.switch.matrix import MatrixRefusal, Pair
from sim.twins.wire.control import Reply, Request, VerbError

Action = Callable[[Request], Awaitable[None] | None]


class ClientLines(Protocol):
    """Operations on the client connections of a twin that faults need."""

    def accept(self) -> None:
        """Accept new clients again."""

    async def refuse(self) -> None:
        """Refuse new clients."""

    def drop_clients(self) -> int:
        """Break all connections, and return their number."""
        ...


@dataclass(frozen=True, slots=True)
class Fault:
    """Actions that set and clear a fault. A command-line value without a field name sets the field `main_field`."""

    set_action: Action
    clear_action: Action
    main_field: str = "count"


class FaultRegistry:
    """All faults of one switch by name."""

    def __init__(
        self,
        device: SwitchDevice,
        *,
        client_lines: ClientLines,
        expire_logins: Callable[[], int],
        family_faults: Mapping[str, Fault] | None = None,
    ) -> None:
        self._faults = device.faults
        self._device = device
        self._client_lines = client_lines
        self._expire_logins = expire_logins
        self._fault_by_name = (
            self._make_line_faults() | self._make_device_faults() | dict(family_faults or {})
        )

    @property
    def faults(self) -> Mapping[str, Fault]:
        """All faults of this device, by name."""
        return self._fault_by_name

    async def set_fault(self, request: Request) -> Reply:
        """Set the fault that `request` names. Raise `VerbError` for an unknown fault or an invalid field."""
        await self._run_action(self._find_fault(request).set_action, request)
        return {}

    async def clear_fault(self, request: Request) -> Reply:
        """Clear the fault that `request` names, or every fault if the name is `all`.

        Raise `VerbError` for an unknown fault or an invalid field.
        """
        clears_all = request.get_text("fault") == "all"
        for fault in self._fault_by_name.values() if clears_all else [self._find_fault(request)]:
            await self._run_action(fault.clear_action, Request({}) if clears_all else request)
        return {}

    def _find_fault(self, request: Request) -> Fault:
        name = request.get_text("fault")
        if name not in self._fault_by_name:
            raise VerbError(
                f"unknown fault {name!r}; this device knows: {', '.join(sorted(self._fault_by_name))}"
            )
        return self._fault_by_name[name]

    async def _run_action(self, action: Action, request: Request) -> None:
        try:
            pending = action(request)
            if isawaitable(pending):
                await pending
        except MatrixRefusal as refusal:
            raise VerbError(str(refusal)) from None

    # -- faults of connections and logins

    def _make_line_faults(self) -> dict[str, Fault]:
        return {
            "garbage": self._make_counter("garbage_replies"),
            "delay_reply": Fault(
                lambda request: self._set_reply_delay(request.get_number("seconds")),
                lambda _: self._set_reply_delay(0.0),
                main_field="seconds",
            ),
            "close_connection": Fault(
                self._set_connection_close,
                lambda _: self._clear_connection_close(),
                main_field="after_commands",
            ),
            "refuse": Fault(lambda _: self._client_lines.refuse(), lambda _: self._client_lines.accept()),
            "max_sessions": Fault(
                lambda request: self._limit_sessions(request.get_integer("count")),
                lambda _: self._limit_sessions(None),
            ),
            "half_open": Fault(
                lambda _: setattr(self._faults, "is_half_open", True),
                lambda _: setattr(self._faults, "is_half_open", False),
            ),
            "expire_session": Fault(lambda _: self._expire_sessions(), lambda _: None),
        }

    def _make_counter(self, name: str) -> Fault:
        return Fault(
            lambda request: setattr(self._faults, name, request.get_integer("count", 1)),
            lambda _: setattr(self._faults, name, 0),
        )

    def _set_reply_delay(self, seconds: float) -> None:
        self._faults.reply_delay_s = seconds

    def _set_connection_close(self, request: Request) -> None:
        if "after_commands" in request:
            self._faults.close_after_commands = request.get_integer("after_commands")
            self._faults.close_executes = request.get_flag("executed", default=True)
        elif "after_bytes" in request:
            self._faults.close_after_bytes = request.get_integer("after_bytes")
        else:
            self._faults.fire_counts["close_connection"] += self._client_lines.drop_clients()

    def _clear_connection_close(self) -> None:
        self._faults.close_after_commands = None
        self._faults.close_after_bytes = None

    def _limit_sessions(self, count: int | None) -> None:
        self._faults.max_sessions = count

    def _expire_sessions(self) -> None:
        if self._expire_logins():
            self._faults.fire_counts["expire_session"] += 1

    # -- faults of changes, mirrors and ports

    def _make_device_faults(self) -> dict[str, Fault]:
        matrix = self._device.matrix
        return {
            "drop_command": self._make_counter("dropped_commands"),
            "fail_port": self._make_port_fault(matrix.failed_ports),
            "lock_port": self._make_port_fault(matrix.locked_ports),
            "disable_port": self._make_port_fault(matrix.disabled_ports),
            # A pair that is already connected stays connected.
            "stuck": Fault(
                lambda request: self._faults.stuck_pairs.add(request.get_pair("pair")),
                lambda request: _remove_pair(self._faults.stuck_pairs, request),
                main_field="pair",
            ),
            "lossy": Fault(self._set_loss, self._clear_loss, main_field="pair"),
            "dark_input": self._make_port_fault(self._faults.dark_inputs),
            "swap_fibres": Fault(self._swap_fibres, lambda _: self._unswap_fibres(), main_field="pair"),
        }

    def _make_port_fault(self, ports: set[int]) -> Fault:
        def add(request: Request) -> None:
            port = request.get_integer("port")
            self._device.matrix.check_port(port)
            ports.add(port)
            self._device.report_light()

        def remove(request: Request) -> None:
            if "port" in request:
                ports.discard(request.get_integer("port"))
            else:
                ports.clear()
            self._device.report_light()

        return Fault(add, remove, main_field="port")

    def _swap_fibres(self, request: Request) -> None:
        first, second = request.get_pair("pair")
        for port in (first, second):
            self._device.matrix.check_input(port)
        if first == second:
            raise VerbError("swapping needs two different inputs")
        for port in (first, second):  # first undo earlier swaps with a third input
            self._faults.swapped_inputs.pop(self._faults.swapped_inputs.pop(port, port), None)
        self._faults.swapped_inputs.update({first: second, second: first})
        self._faults.fire_counts["swap_fibres"] += 1
        self._device.report_light()

    def _unswap_fibres(self) -> None:
        self._faults.swapped_inputs.clear()
        self._device.report_light()

    def _set_loss(self, request: Request) -> None:
        self._faults.extra_loss_db[request.get_pair("pair")] = request.get_number("loss_db")
        self._device.report_light()

    def _clear_loss(self, request: Request) -> None:
        if "pair" in request:
            self._faults.extra_loss_db.pop(request.get_pair("pair"), None)
        else:
            self._faults.extra_loss_db.clear()
        self._device.report_light()


def _remove_pair(pairs: set[Pair], request: Request) -> None:
    if "pair" in request:
        pairs.discard(request.get_pair("pair"))
    else:
        pairs.clear()
