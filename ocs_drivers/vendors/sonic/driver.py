"""An optical switch that runs SONiC, over its shell: A ports are inputs, B ports outputs.

There are two books: what is configured, and what the hardware holds. `read` gives what the hardware holds, since that
is where light goes. A ghost, which the hardware holds without configuration, is a circuit like every other to `read`
and `plan`; it cannot be deleted, so to remove it, it is first added to the configuration. What is configured but was
never taken up by the hardware is not a circuit; it is deleted before its ports are used.

Modes of `add`: `safe` fails when a port is used by another cross-connect, `update` (the device's default) drops that
other, `overwrite` drops all others. We say `safe`: what is in the way was removed by a step of its own, or belongs to
somebody else.

A new circuit counts as made when both its sides are tuned. The device keeps its configuration by itself.
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
from ocs_drivers.vendors.sonic.codec import CrossConnectTables, Lines, Names, Pair

_T = TypeVar("_T")

PROMPT = re.compile(r"[\w.-]+@[\w.-]+:[^\s$#]*[$#]")
"""`admin@sonic:~$`"""

LOG_LINE = re.compile(r"(?:Broadcast message|[A-Z][a-z]{2} [ \d]\d [\d:.]{8,15} \S+ (?P<kind>[A-Z]+) )")
"""What the system writes to every terminal: `Nov 21 07:30:01.123456 sonic NOTICE swss#orchagent: ...`."""

SWITCH_TIME_S = (0.1, 60.0)
"""Assumption: tuning takes a tenth of a second; sonic-mgmt waits a minute for it, and so do we."""


class SonicOcs(SwitchDriver):
    """One SONiC switch on any transport; `open` before use. `sudo` goes before commands that change something."""

    _session: CliSession
    poll_s = 0.2
    after_loss = "watch"

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
            transport, device=address, timeout_s=timeout_s, prompt=PROMPT, clock=clock, unsolicited=LOG_LINE
        )
        super().__init__(address, self._session, timeout_s=timeout_s, clock=clock)
        self._config = "sudo config ocs" if sudo else "config ocs"
        self._names = Names(0)
        self._seen = CrossConnectTables(frozenset(), {})
        self._in_vain: frozenset[Pair] = frozenset()  # what a plan may clear away
        self._sent_s = 0.0

    def _discover(self) -> tuple[Identity, Capabilities]:
        """Ask for the version, and count the ports."""
        identity = self._retry(lambda: self._show("version", codec.identity))
        inputs, outputs = self._retry(lambda: self._show("ocs port config", codec.port_names))
        self._names = Names(inputs)
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

    def _show(self, what: str, decode: Callable[[Lines], _T]) -> _T:
        """Return a table that `show` prints."""
        return self._session.ask_again(f"show {what}", decode)

    def _decode_names(self, decode: Callable[[Lines, Names], _T]) -> Callable[[Lines], _T]:
        """Return a decoder that knows the names of the ports."""
        return lambda lines: decode(lines, self._names)

    # -- reading

    def _tables(self) -> CrossConnectTables:
        """Return both tables, asked for now."""
        with self._session.lock():
            seen = CrossConnectTables(
                self._show("ocs cross-connect config", self._decode_names(codec.parse_configured)),
                self._show("ocs cross-connect status", self._decode_names(codec.hardware)),
            )
        self._seen = seen
        return seen

    def _read(self) -> Snapshot:
        with self._session.lock():
            held = self._circuits(self._tables().held)
            unfit = {number: info.state for number, info in self._ports().items()}
        return Snapshot(
            held,
            self._clock.now(),
            unfit={number: state for number, state in unfit.items() if state is not PortState.ENABLED},
            pending=tuple(PendingMove("connect", pair) for pair in sorted(self._seen.unrealised)),
        )

    def _circuits(self, pairs: Collection[Pair]) -> CrossConnects:
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
        """Return all ports with state and label now; a port forced to be dark is disabled."""
        return self._retry(self._ports)

    def _ports(self) -> Mapping[int, PortInfo]:
        inputs, outputs = self.capabilities.inputs, self.capabilities.outputs
        with self._session.lock():
            config = self._show("ocs port config", self._decode_names(codec.port_config))
            broken = self._show("ocs port status", self._decode_names(codec.parse_broken_ports))
        if len(config) != inputs + outputs:
            self._session.disconnect()
            raise ProtocolDesync(
                f"a switch of {inputs}x{outputs} shows {len(config)} ports", device=self.address
            )
        return {
            number: PortInfo(
                number,
                Side.IN if number <= inputs else Side.OUT,
                PortState.FAILED if number in broken else override,
                label,
                name=self._names.of_port(number),
            )
            for number, (label, override) in sorted(config.items())
        }

    def events(self, since: int = 0) -> tuple[Event, ...]:
        """Return what the system wrote to the terminal unsolicited, after number `since`."""
        return self._session.events(since)

    # -- writing

    def plan(
        self,
        target: CrossConnects,
        seen: Snapshot | CrossConnects,
        scope: Collection[int] | None = None,
    ) -> tuple[Step, ...]:
        """Plan as every switch; raises `PortBusy` for outputs that others have configured in vain, too."""
        steps = super().plan(target, seen, scope)
        if isinstance(seen, Snapshot):
            wanted = {
                port for step in steps if step.kind == "add" for pair in step.pairs.items() for port in pair
            }
            self._in_vain = frozenset(pair for pair in self._seen.unrealised if wanted & set(pair))
            self._check_in_scope(self._in_vain, scope)
        return steps

    def _check_in_scope(self, in_vain: Collection[Pair], scope: Collection[int] | None) -> None:
        for pair in sorted(in_vain):
            if scope is not None and pair[0] not in scope:
                raise PortBusy(
                    f"{self._names.of_pair(pair)} is configured, but the hardware has not made it",
                    peer=pair[0],
                    device=self.address,
                    ports=pair,
                    hint="Include its input in the scope to clear it, or choose another output.",
                )

    def _perform(self, step: Step, guard: Guard) -> None:
        self._sent_s = self._clock.now()
        commands = self._removal(step.pairs) if step.kind == "remove" else self._addition(step.pairs)
        for number, command in enumerate(commands):
            if number:
                guard()
            self._session.ask(f"{self._config} cross-connect {command}", codec.check_done)
            self._sent_s = self._clock.now()

    def _removal(self, pairs: CrossConnects) -> Iterator[str]:
        """Return the commands that remove circuits; ghosts are configured first, or they could not be deleted."""
        seen = self._retry(self._tables)
        for ghosts in self._names.lists(seen.ghosts & pairs.pairs):
            yield f"add {ghosts} safe"
        for listed in self._names.lists(pairs.pairs):
            yield f"delete {listed}"

    def _addition(self, pairs: CrossConnects) -> Iterator[str]:
        """Return the commands that make circuits, after what was configured on their ports in vain is out of the way.

        In vain is what the hardware had not taken up when the plan was made, and has not now: what is new may be on
        its way, or is somebody else's.
        """
        ports = {port for pair in pairs.items() for port in pair}
        in_vain = self._in_vain & self._retry(self._tables).unrealised
        in_vain = frozenset(pair for pair in in_vain if ports & set(pair))
        for listed in self._names.lists(in_vain):
            yield f"delete {listed}"
        for listed in self._names.lists(pairs.pairs):
            yield f"add {listed} safe"

    def _read_back(self, step: Step) -> tuple[Snapshot | None, OcsError | None]:
        """Return what the hardware holds, and what it reports as failed of what the step adds."""
        read_back = self._read_again(step)
        broken = self._seen.failed & self._under_way(step)
        if not broken:
            return read_back, None
        names = ", ".join(map(self._names.of_pair, sorted(broken)))
        return read_back, DeviceError(
            f"the device reports {names} as failed",
            device_code=codec.FAILED,
            ports=sorted(port for pair in broken for port in pair),
        )

    def _read_again(self, step: Step) -> Snapshot:
        """Return what the hardware holds; of what the step adds, only what is tuned by now."""
        seen = self._retry(self._tables)
        return Snapshot(self._circuits(seen.held - self._under_way(step)), self._clock.now())

    def _under_way(self, step: Step) -> frozenset[Pair]:
        return step.pairs.pairs - self._seen.tuned if step.kind == "add" else frozenset()

    def _still_moving(self, step: Step, read_back: Snapshot) -> bool:
        """Return True while the hardware lags behind the configuration.

        What the hardware has not even begun to make after the timeout it will not make; neither will it what it
        reports as failed.
        """
        del read_back
        if step.kind == "remove":
            return bool(step.pairs.pairs & self._seen.ghosts)
        lagging = step.pairs.pairs & self._seen.configured - self._seen.tuned - self._seen.failed
        if lagging & self._seen.held:
            return True
        return bool(lagging) and self._clock.now() - self._sent_s < self._timeout_s

    def shutter(self, ports: Collection[int], *, is_open: bool, guard: Guard = allow_all) -> None:
        """Force ports to be dark or not, and prove it by reading back; raises `DeviceError`."""
        planning.check_known(ports, self.capabilities, device=self.address)
        override = "normal" if is_open else "force_blocked"
        with self._writing, self._session.lock():
            self._session.ready()
            for port in sorted(ports):
                guard()
                command = f"{self._config} port state {self._names.of_port(port)} {override}"
                self._session.ask(command, codec.nothing)
        found = self.ports() if ports else {}
        wanted = PortState.ENABLED if is_open else PortState.DISABLED
        wrong = [port for port in ports if found[port].state is not wanted]
        if wrong:
            raise DeviceError(
                f"the device reported success, but the ports are not {wanted.value}",
                device=self.address,
                ports=wrong,
                hint="Check these ports on the device.",
            )
