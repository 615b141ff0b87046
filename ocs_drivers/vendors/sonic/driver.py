"""Driver of an optical switch that runs SONiC, through the shell. A ports are inputs, B ports are outputs.

There are two tables: the configuration, and the circuits of the hardware. `read` returns the circuits of the hardware,
because they carry the light. A ghost is a circuit of the hardware without configuration; `read` and `plan` treat it
like other circuits. A ghost cannot be deleted, so it is first added to the configuration and then deleted. A configured
pair that the hardware never connected is not a circuit; it is deleted before its ports are used.

Modes of `add`: `safe` fails if another cross-connect uses a port, `update` (the device's default) removes that
cross-connect, `overwrite` removes all others. We use `safe`: an earlier step has removed our blocking circuits, so
a remaining one belongs to somebody else.

A new circuit counts as connected once both its sides are tuned. The device stores its configuration itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

from ocs_drivers.contract import Guard, allow_all
from ocs_drivers.engine import planning
from ocs_drivers.engine.driver import SwitchDriver
from ocs_drivers.errors import DeviceError, OcsError, PortBusy, ProtocolDesync
from ocs_drivers.model import (
    Capabilities,
    CrossConnects,
    Event,
    Identity,
    PendingMove,
    PortInfo,
    PortState,
    Side,
    Snapshot,
    Step,
)
from ocs_drivers.protocols.cli_session import CliSession
from ocs_drivers.timing import SYSTEM_CLOCK, Clock
from ocs_drivers.transports.transport import Transport
from ocs_drivers.vendors.sonic import codec
from ocs_drivers.vendors.sonic.codec import CrossConnectTables, Lines, Pair, PortNames

_T = TypeVar("_T")

PROMPT = re.compile(r"[\w.-]+@[\w.-]+:[^\s$#]*[$#]")
"""`admin@sonic:~$`"""

LOG_LINE = re.compile(r"(?:Broadcast message|[A-Z][a-z]{2} [ \d]\d [\d:.]{8,15} \S+ (?P<kind>[A-Z]+) )")
"""Log lines on every terminal: `Nov 21 07:30:01.123456 sonic NOTICE swss#orchagent: ...`."""

SWITCH_TIME_S = (0.1, 60.0)
"""Typical (an assumption) and longest time to tune; sonic-mgmt also waits 60 s."""


class SonicOcs(SwitchDriver):
    """Driver of one SONiC switch. Call `open` first. `sudo` is true if commands that change the switch need sudo."""

    _session: CliSession
    poll_s = 0.2
    connection_loss_recovery = "watch"

    def __init__(
        self,
        address: str,
        transport: Transport,
        *,
        timeout_s: float,
        clock: Clock = SYSTEM_CLOCK,
        sudo: bool = True,
    ) -> None:
        self._session = CliSession(
            transport,
            device=address,
            timeout_s=timeout_s,
            prompt=PROMPT,
            clock=clock,
            unsolicited_pattern=LOG_LINE,
        )
        super().__init__(address, self._session, timeout_s=timeout_s, clock=clock)
        self._config_command = "sudo config ocs" if sudo else "config ocs"
        self._port_names = PortNames(0)
        self._last_tables = CrossConnectTables(frozenset(), {})
        # Unrealised pairs that the steps of the last plan may delete.
        self._deletable_pairs: frozenset[Pair] = frozenset()
        self._last_command_s = 0.0

    def _discover(self) -> tuple[Identity, Capabilities]:
        """Read the version, and count the ports."""
        identity = self._retry(lambda: self._show("version", codec.decode_identity))
        inputs, outputs = self._retry(lambda: self._show("ocs port config", codec.count_ports))
        self._port_names = PortNames(inputs)
        capabilities = Capabilities(
            inputs,
            outputs,
            bulk_add=True,
            shutter=True,
            async_events=False,
            login=True,
            boot_mode="RESTORE",
            switch_time_s=SWITCH_TIME_S,
        )
        return identity, capabilities

    def _show(self, subject: str, decode: Callable[[Lines], _T]) -> _T:
        """Return the decoded output of a `show` command."""
        return self._session.ask_with_retry(f"show {subject}", decode)

    def _bind_names(self, decode: Callable[[Lines, PortNames], _T]) -> Callable[[Lines], _T]:
        """Return the decoder with the port names bound."""
        return lambda lines: decode(lines, self._port_names)

    # -- reading

    def _read_tables(self) -> CrossConnectTables:
        """Read both tables."""
        with self._session.lock():
            tables = CrossConnectTables(
                self._show("ocs cross-connect config", self._bind_names(codec.parse_configured_pairs)),
                self._show("ocs cross-connect status", self._bind_names(codec.parse_hardware_states)),
            )
        self._last_tables = tables
        return tables

    def _read(self) -> Snapshot:
        with self._session.lock():
            circuits = self._make_circuits(self._read_tables().hardware_circuits)
            unfit_states = {number: info.state for number, info in self._read_ports().items()}
        return Snapshot(
            circuits,
            self._clock.now(),
            unfit={number: state for number, state in unfit_states.items() if state is not PortState.ENABLED},
            pending=tuple(
                PendingMove("connect", pair) for pair in sorted(self._last_tables.unrealised_circuits)
            ),
        )

    def _make_circuits(self, pairs: Collection[Pair]) -> CrossConnects:
        try:
            circuits = CrossConnects(pairs)
            planning.check_target(circuits, None, self.capabilities)
        except (OcsError, ValueError) as error:
            self._session.disconnect()
            raise ProtocolDesync(
                f"the device shows impossible cross-connects: {error}", device=self.address
            ) from error
        return circuits

    def ports(self) -> Mapping[int, PortInfo]:
        """Return all ports with their current state and label; a port that is forced dark is disabled."""
        return self._retry(self._read_ports)

    def _read_ports(self) -> Mapping[int, PortInfo]:
        inputs, outputs = self.capabilities.inputs, self.capabilities.outputs
        with self._session.lock():
            port_configs = self._show("ocs port config", self._bind_names(codec.decode_port_config))
            failed_ports = self._show("ocs port status", self._bind_names(codec.parse_broken_ports))
        if len(port_configs) != inputs + outputs:
            self._session.disconnect()
            raise ProtocolDesync(
                f"a switch of {inputs}x{outputs} shows {len(port_configs)} ports", device=self.address
            )
        return {
            number: PortInfo(
                number,
                Side.IN if number <= inputs else Side.OUT,
                PortState.FAILED if number in failed_ports else configured_state,
                label,
                name=self._port_names.name_port(number),
            )
            for number, (label, configured_state) in sorted(port_configs.items())
        }

    def events(self, since: int = 0) -> tuple[Event, ...]:
        """Return the unsolicited lines on the terminal after number `since`."""
        return self._session.events(since)

    # -- writing

    def plan(
        self,
        target: CrossConnects,
        current: Snapshot | CrossConnects,
        scope: Collection[int] | None = None,
    ) -> tuple[Step, ...]:
        """Plan as every driver does. Raise `PortBusy` if an unrealised pair outside the scope blocks a port."""
        steps = super().plan(target, current, scope)
        if isinstance(current, Snapshot):
            added_ports = {
                port for step in steps if step.kind == "add" for pair in step.pairs.items() for port in pair
            }
            self._deletable_pairs = frozenset(
                pair for pair in self._last_tables.unrealised_circuits if added_ports & set(pair)
            )
            self._check_in_scope(self._deletable_pairs, scope)
        return steps

    def _check_in_scope(self, pairs: Collection[Pair], scope: Collection[int] | None) -> None:
        for pair in sorted(pairs):
            if scope is not None and pair[0] not in scope:
                raise PortBusy(
                    f"{self._port_names.name_pair(pair)} is configured, but the hardware has not made it",
                    peer=pair[0],
                    device=self.address,
                    ports=pair,
                    hint="Include its input in the scope to clear it, or choose another output.",
                )

    def _perform(self, step: Step, guard: Guard) -> None:
        self._last_command_s = self._clock.now()
        commands = (
            self._yield_removal_commands(step.pairs)
            if step.kind == "remove"
            else self._yield_addition_commands(step.pairs)
        )
        for number, command in enumerate(commands):
            if number:
                guard()
            self._session.ask(f"{self._config_command} cross-connect {command}", codec.check_success)
            self._last_command_s = self._clock.now()

    def _yield_removal_commands(self, pairs: CrossConnects) -> Iterator[str]:
        """Yield the commands that remove circuits. Ghosts are added first, because they cannot be deleted otherwise."""
        tables = self._retry(self._read_tables)
        for ghost_list in self._port_names.format_pair_lists(tables.ghost_circuits & pairs.pairs):
            yield f"add {ghost_list} safe"
        for pair_list in self._port_names.format_pair_lists(pairs.pairs):
            yield f"delete {pair_list}"

    def _yield_addition_commands(self, pairs: CrossConnects) -> Iterator[str]:
        """Yield the commands that delete unrealised pairs on the ports of new circuits, and add the circuits.

        A pair is deleted only if it was unrealised at the time of the plan and still is. A newer unrealised pair may
        belong to somebody else, or the device may be about to connect it.
        """
        ports = {port for pair in pairs.items() for port in pair}
        unrealised_pairs = self._deletable_pairs & self._retry(self._read_tables).unrealised_circuits
        unrealised_pairs = frozenset(pair for pair in unrealised_pairs if ports & set(pair))
        for pair_list in self._port_names.format_pair_lists(unrealised_pairs):
            yield f"delete {pair_list}"
        for pair_list in self._port_names.format_pair_lists(pairs.pairs):
            yield f"add {pair_list} safe"

    def _read_back(self, step: Step) -> tuple[Snapshot | None, OcsError | None]:
        """Return the circuits of the hardware, and an error if it reports pairs of the step as failed."""
        read_back = self._read_after_step(step)
        failed_pairs = self._last_tables.failed_circuits & self._find_untuned_pairs(step)
        if not failed_pairs:
            return read_back, None
        names = ", ".join(map(self._port_names.name_pair, sorted(failed_pairs)))
        return read_back, DeviceError(
            f"the device reports {names} as failed",
            device_code=codec.FAILED,
            ports=sorted(port for pair in failed_pairs for port in pair),
        )

    def _read_after_step(self, step: Step) -> Snapshot:
        """Return the circuits of the hardware, without circuits that the step adds and that are not tuned."""
        tables = self._retry(self._read_tables)
        return Snapshot(
            self._make_circuits(tables.hardware_circuits - self._find_untuned_pairs(step)), self._clock.now()
        )

    def _find_untuned_pairs(self, step: Step) -> frozenset[Pair]:
        return step.pairs.pairs - self._last_tables.tuned_circuits if step.kind == "add" else frozenset()

    def _is_moving(self, step: Step, snapshot: Snapshot) -> bool:
        """Return True while the hardware differs from the configuration.

        The wait for a pair ends when the hardware reports the pair as failed, or when it has not begun to tune the pair
        before the timeout.
        """
        del snapshot
        if step.kind == "remove":
            return bool(step.pairs.pairs & self._last_tables.ghost_circuits)
        lagging_pairs = (
            step.pairs.pairs
            & self._last_tables.configured_circuits
            - self._last_tables.tuned_circuits
            - self._last_tables.failed_circuits
        )
        if lagging_pairs & self._last_tables.hardware_circuits:
            return True
        return bool(lagging_pairs) and self._clock.now() - self._last_command_s < self._timeout_s

    def shutter(self, ports: Collection[int], *, is_open: bool, guard: Guard = allow_all) -> None:
        """Block ports or return them to normal, and verify them by reading back. Raise `DeviceError`."""
        planning.check_ports_exist(ports, self.capabilities, device=self.address)
        port_mode = "normal" if is_open else "force_blocked"
        with self._write_lock, self._session.lock():
            self._session.make_ready()
            for port in sorted(ports):
                guard()
                command = f"{self._config_command} port state {self._port_names.name_port(port)} {port_mode}"
                self._session.ask(command, codec.check_silent)
        ports_after = self.ports() if ports else {}
        target_state = PortState.ENABLED if is_open else PortState.DISABLED
        wrong_ports = [port for port in ports if ports_after[port].state is not target_state]
        if wrong_ports:
            raise DeviceError(
                f"the device reported success, but the ports are not {target_state.value}",
                device=self.address,
                ports=wrong_ports,
                hint="Check these ports on the device.",
            )
