"""The base class of drivers: a vendor adds a session, three read operations and one write operation.

open ──> _discover                      identity and capabilities of the device
read ──> _read                          retried on a new connection
execute ──> connect, check for foreign changes, call the guard, then the states of `step_execution`
apply, connect, disconnect              loops over those: `ocs_drivers.engine.transaction`
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar, Literal, Protocol, Self, TypeVar

from ocs_drivers.contract import Guard, allow_all
from ocs_drivers.engine import planning, transaction
from ocs_drivers.engine.device_lock import DeviceLock, make_lock_names
from ocs_drivers.engine.step_execution import ProgressLog, StepExecution, StepHooks
from ocs_drivers.errors import (
    AddressError,
    AnotherDevice,
    AuthError,
    ConnectError,
    ConnectionLost,
    DeviceError,
    OcsError,
    ProtocolDesync,
    TransportError,
    Unsupported,
)
from ocs_drivers.model import (
    ApplyReport,
    Attenuation,
    Capabilities,
    CrossConnects,
    Event,
    Identity,
    Outcome,
    PendingMove,
    PortInfo,
    PortState,
    Power,
    Snapshot,
    Step,
)
from ocs_drivers.timing import SYSTEM_CLOCK, Clock, Silence
from ocs_drivers.transports.transport import make_connection_lost, make_not_open

_T = TypeVar("_T")

RETRY_PAUSES_S = (0.1, 0.4)
"""Pauses before the second and third attempt at a read that failed on a broken connection or invalid data."""

MIN_SILENCE_LIMIT_S = 8.0
"""Silence after which a device counts as dead during a move, so that its loss is reported within 10 s."""

MIN_OUTAGE_S = 2.0
"""Minimum time for which an unreachable device is retried."""

MAX_OUTAGE_PAUSE_S = 1.0
"""Longest pause between two attempts to reach a device that does not answer during a move."""

FIRST_POLL_INTERVAL_S = 0.02
"""Pause before the second read of a switch that is still moving; each further pause is twice as long."""


CHECK_PORT_HINT = "Check the port and the scheme of the address: something else may answer there."
OTHER_MAKE_HINT = "Or check the port and the scheme of the address: another make of switch may answer there."
FREE_SESSION_HINT = (
    "It may have no free session: close other clients, or wait until the device ends idle ones."
)

_CLOSED_BY_PEER_PATTERN = re.compile("closed|reset|lost", re.IGNORECASE)
"""Matches the reason of a `ConnectError` if a peer accepted the connection and then closed it."""

_SESSION_LIMIT_PATTERN = re.compile(
    r"\b(sessions?|logins?|users?)\b.*\b(reached|exceeded|limit|full|in use)\b", re.IGNORECASE
)
_TOO_MANY_SESSIONS_PATTERN = re.compile(
    r"\b(maximum|max|too many|no more)\b.*\b(sessions?|logins?|users?)\b", re.IGNORECASE
)

_UNKNOWN_PAGE_STATUSES = frozenset({"404", "405", "406", "415", "501"})
"""HTTP statuses of a server that does not serve the REST interface of the scheme."""

_UNKNOWN_COMMAND_PATTERN = re.compile(r"(?<!\d)-113\b")
"""SCPI's error number for a command that the device does not know."""


class Session(Protocol):
    """Session of a driver with its device, as implemented in `ocs_drivers.protocols`."""

    def open(self) -> object:
        """Connect and log in."""

    def close(self) -> None:
        """Log out and close the connection. Do nothing if it is closed."""

    def disconnect(self) -> None:
        """Drop the connection; the next exchange makes a new one."""

    @property
    def is_in_use(self) -> bool:
        """True from `open` to `close`."""

    @property
    def event_count(self) -> int:
        """Number of unsolicited messages received since the session was created."""

    @property
    def connection_count(self) -> int:
        """Number of connections made so far; messages may have been missed between two of them."""

    def events(self, since: int) -> tuple[Event, ...]:
        """Return the unsolicited messages after number `since`; called only for devices that send them."""

    def lock(self) -> AbstractContextManager[object]:
        """Return a re-entrant lock that excludes other threads over several exchanges."""

    def make_ready(self) -> None:
        """Ensure a live connection with a login, and read pending input. Raise `ConnectionLost` after `close`."""


class SwitchDriver(ABC):
    """The vendor-independent half of a driver.

    All drivers of one device in this process write in turn; while another process writes, a write raises
    `SwitchHeld`. Reads never wait for writes on other connections. `timeout_s` bounds every wait for an
    answer, measured on `clock`.
    """

    poll_s = 0.5
    """Longest pause between two reads of a switch that is still moving, in seconds."""

    connection_loss_recovery: ClassVar[Literal["judge", "settle", "watch"]] = "judge"
    """Recovery after the connection broke during a command. `judge`: read once. `settle`: wait the longest switching
    time, then read once, for devices whose reads show circuits before their mirrors have arrived. `watch`: read until
    nothing moves, for devices that report moves. With `watch`, do this after a refusal too, which may concern only a
    part of the command."""

    def __init__(
        self, address: str, session: Session, *, timeout_s: float, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._clock = clock
        self._session = session
        self._write_lock = DeviceLock(*make_lock_names(address))
        self._identity: Identity | None = None
        self._capabilities: Capabilities | None = None
        self._last_snapshot: Snapshot | None = None
        self._counters_at_last_read = (0, 0)
        self._disconnecting_pairs: set[tuple[int, int]] = set()
        self._silence = Silence(max(MIN_SILENCE_LIMIT_S, timeout_s), clock)
        self._progress = ProgressLog(None, address, clock, self._silence)

    # -- parts that a vendor adds

    @abstractmethod
    def _discover(self) -> tuple[Identity, Capabilities]:
        """Query the identity and the capabilities of the device, just after connecting."""

    @abstractmethod
    def _read(self) -> Snapshot:
        """Read the configuration once, without retries."""

    @abstractmethod
    def _perform(self, step: Step, guard: Guard) -> None:
        """Send the commands of the step; call `guard` again before each further write command.

        Return when the device reports completion or, if it never does, when it has accepted the
        command (see `_is_moving`). Raise the errors that the device reports.
        """

    def _read_back(self, step: Step) -> tuple[Snapshot | None, OcsError | None]:
        """Return the configuration after a step, and the step's error if the device reports it separately."""
        return self._read_after_step(step), None

    def _read_after_step(self, step: Step) -> Snapshot:
        """Read the configuration after a step, even if the step broke the connection. Only settled circuits count."""
        del step
        return self.read()

    @abstractmethod
    def ports(self) -> Mapping[int, PortInfo]:
        """Return all ports with their state now."""

    def _is_moving(self, step: Step, snapshot: Snapshot) -> bool:
        """Return True while the device is executing the step. Raise `RobotFault` if it cannot complete it."""
        del step, snapshot
        return False

    # -- parts that all drivers share

    @property
    def address(self) -> str:
        """Address where the device answers, without credentials."""
        return self._address

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of this device. Raises `ConnectionLost` before the first `open`."""
        if self._capabilities is None:
            raise make_not_open(self._address)
        return self._capabilities

    def identity(self) -> Identity:
        """Return the identity that the device reported. Raise `ConnectionLost` before the first `open`."""
        if self._identity is None:
            raise make_not_open(self._address)
        return self._identity

    def open(self) -> None:
        """Connect, log in and read the capabilities. Do nothing on an open switch."""
        if self._session.is_in_use:
            return
        try:
            self._session.open()
            self._identity, self._capabilities = self._discover()
            self._write_lock = DeviceLock(
                *make_lock_names(self._address, self._identity.vendor, self._identity.serial)
            )
        except BaseException as error:  # also an interrupt: leave no login behind
            self._session.close()
            if isinstance(error, OcsError):
                add_hints(error)
            raise

    def close(self) -> None:
        """Close the connection; circuits stay as they are."""
        self._session.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._address}>"

    def read(self) -> Snapshot:
        """Return the configuration the device holds now. If the connection breaks, retry on a new connection."""
        self._last_snapshot = snapshot = self._query_circuits(self._read)
        self._record_disconnecting_pairs(snapshot.pending)
        return snapshot

    def _record_disconnecting_pairs(self, pending_moves: Iterable[PendingMove]) -> None:
        """Record the circuits that queued robot requests will remove, because this removal is not a conflict."""
        self._disconnecting_pairs |= {
            move.pair for move in pending_moves if move.pair and move.kind == "disconnect"
        }

    def _read_after_outage(self) -> Snapshot:
        """Read the configuration; retry through a short network outage, during which a robot's move continues."""
        while True:
            try:
                return self.read()
            except TransportError as error:
                remaining_s = self._silence.remaining_s()
                if isinstance(error, ConnectError | ConnectionLost):
                    remaining_s = self._silence.outage_remaining_s(MIN_OUTAGE_S)
                if not remaining_s:
                    raise
                self._progress.log_wait()
                self._clock.sleep(min(self.poll_s, MAX_OUTAGE_PAUSE_S, remaining_s))

    def _query_circuits(self, query: Callable[[], _T]) -> _T:
        """Return the result of `query`, which reads all circuits. First store the counts of events and connections.

        If either count has changed, the next step may read again (see `_needs_read`).
        """
        return self._retry(lambda: self._query_circuits_once(query))

    def _query_circuits_once(self, query: Callable[[], _T]) -> _T:
        session = self._session
        with session.lock():
            event_count = session.event_count
            answer = query()
            self._counters_at_last_read = event_count, session.connection_count
        return answer

    @contextmanager
    def _require_same_connection(self) -> Iterator[None]:
        """Raise `ConnectionLost` after the block if it reconnected.

        The queries of one read share a connection: after a reconnection reports may be missing, so the caller repeats
        the read.
        """
        connection_count = self._session.connection_count
        yield
        if self._session.connection_count != connection_count:
            raise make_connection_lost(self._address, "it was replaced between two queries of one read")

    def _check_possible(self, pairs: Iterable[tuple[int, int]], received: str = "") -> CrossConnects:
        """Return `pairs` as circuits. Raise `ProtocolDesync` if this switch cannot have these circuits."""
        try:
            circuits = CrossConnects(pairs)
            planning.check_target(circuits, None, self.capabilities)
        except (ValueError, OcsError) as error:
            raise ProtocolDesync(
                f"the device reports impossible circuits for this switch: {error}", received=received
            ) from error
        return circuits

    def _retry(self, query: Callable[[], _T]) -> _T:
        """Return the result of `query`. Repeat it after a broken connection or invalid data, so it must be a read."""
        for pause_s in RETRY_PAUSES_S:
            try:
                return query()
            except (ConnectionLost, ConnectError, ProtocolDesync) as error:
                if isinstance(error, AnotherDevice) or not self._session.is_in_use:
                    raise
                self._clock.sleep(pause_s)
        return query()

    def plan(
        self,
        target: CrossConnects,
        current: Snapshot | CrossConnects,
        scope: Collection[int] | None = None,
    ) -> tuple[Step, ...]:
        """Return the steps from `current` to `target`; see `planning.plan`. Robots also `check_target_undisturbed`."""
        steps = planning.plan(
            target, current, capabilities=self.capabilities, scope=scope, device=self._address
        )
        if self.capabilities.serial_robot and isinstance(current, Snapshot):
            transaction.check_target_undisturbed(target, current, steps, scope, device=self._address)
        return steps

    def execute(self, step: Step, guard: Guard = allow_all) -> Outcome:
        """Execute one step and read back until it is complete; raises as `OpticalSwitch.execute` does."""
        with self._write_lock, self._session.lock():
            self._prepare_step(step, guard)
            snapshot_before, self._last_snapshot = (
                self._last_snapshot,
                None,
            )  # unknown until the step is verified
            self._disconnecting_pairs = set()
            self._silence = Silence(max(MIN_SILENCE_LIMIT_S, self._timeout_s), self._clock)
            self._progress = ProgressLog(step, self._address, self._clock, self._silence)
            outcome = StepExecution(
                step, guard, self._make_hooks(), device=self._address, clock=self._clock
            ).run()
            if self.capabilities.serial_robot and snapshot_before is not None:
                self._record_disconnecting_pairs(snapshot_before.pending)
                outcome = transaction.add_lost_circuits(
                    step, snapshot_before, outcome, self._disconnecting_pairs
                )
            self._last_snapshot = outcome.read_back
            return outcome

    def _make_hooks(self) -> StepHooks:
        return StepHooks(
            send_step=self._perform,
            read_configuration=self._read_back,
            read_after_step=self._read_after_step,
            is_moving=self._is_moving,
            explain_error=self._explain,
            find_timeout_s=self._compute_timeout_s,
            poll_intervals_s=self._yield_pauses(),
            settling_time_s=self.capabilities.switch_time_s[1]
            if self.connection_loss_recovery == "settle"
            else 0.0,
            watches_after_failure=self.connection_loss_recovery == "watch",
            silence=self._silence,
            progress=self._progress,
        )

    def _prepare_step(self, step: Step, guard: Guard) -> None:
        """Ensure a connection, check for foreign changes and call the guard, before the first byte of a step.

        The check uses the last read; the device is read again only if `_needs_read` returns True.
        """
        self._session.make_ready()
        if self._last_snapshot is None or self._needs_read(step):
            self.read()
        if self._last_snapshot is not None:
            self._check_ports_unchanged(step, self._last_snapshot)
        guard()

    def _check_ports_unchanged(self, step: Step, snapshot: Snapshot) -> None:
        """Raise `Conflict`, or a more specific error, if somebody else has changed the ports of a step."""
        transaction.check_ports_unmoved(step, snapshot.connections, device=self._address)
        if self.capabilities.serial_robot:
            transaction.check_ports_unrequested(step, snapshot, device=self._address)

    def _needs_read(self, step: Step) -> bool:
        """Return True if the device must be read before a step: a change was reported, or may have been missed."""
        del step
        event_count, connection_count = self._counters_at_last_read
        if self._session.connection_count != connection_count:
            return True
        new_events = self.events(event_count) if self._session.event_count > event_count else ()
        return any(self._reports_change(event) for event in new_events)

    def _reports_change(self, event: Event) -> bool:
        """Return True if an unsolicited message reports a change of the configuration, by us or by somebody else."""
        return "DBCHG" in event.kind

    def _yield_pauses(self) -> Iterator[float]:
        """Yield increasing pauses between reads: fast moves are noticed soon, slow ones are not polled often."""
        pause_s = FIRST_POLL_INTERVAL_S
        while True:
            yield min(pause_s, self.poll_s)
            pause_s *= 2

    def _compute_timeout_s(self, snapshot: Snapshot) -> float:
        """Return the longest time a step may take, including the moves ahead of it in a robot's queue."""
        return self._timeout_s + self.capabilities.switch_time_s[1] * (1 + len(snapshot.pending))

    def _explain(self, refusal: OcsError, step: Step) -> OcsError:
        """Return the refusal of a step, with the ports that are reported as unfit, or else all ports of the step."""
        if not isinstance(refusal, DeviceError):
            return refusal
        step_ports = sorted({port for pair in step.pairs.items() for port in pair})
        try:
            current = self.ports()
        except OcsError:  # the refusal matters more than the failure to explain it
            current = {}
        for state in (PortState.LOCKED, PortState.DISABLED, PortState.FAILED):
            unfit_ports = [port for port in step_ports if port in current and current[port].state is state]
            if unfit_ports:
                return planning.make_unfit_error(
                    state,
                    unfit_ports,
                    device=self._address,
                    sent=refusal.sent,
                    received=refusal.received or refusal.problem,
                )
        refusal.ports = refusal.ports or tuple(step_ports)
        refusal.hint = (
            refusal.hint or "Read the switch and compare it with the request; a port may be locked."
        )
        return refusal.locate(device=self._address)

    def apply(
        self,
        target: CrossConnects,
        *,
        scope: Collection[int] | None = None,
        expect: CrossConnects | None = None,
        guard: Guard = allow_all,
        require_light: bool = False,
    ) -> ApplyReport:
        """Set the circuits of `scope` to `target`; see `ocs_drivers.engine.transaction.apply`."""
        if require_light and not self.capabilities.power_monitor:
            raise self._make_unsupported("measuring light")
        with self._write_lock:
            report = transaction.apply(self, target, scope=scope, expect=expect, guard=guard)
        if require_light:
            transaction.check_light(report, self.power(tuple(target.values())), device=self._address)
        return report

    def connect(self, pairs: Mapping[int, int]) -> ApplyReport:
        """Connect these inputs to these outputs; leave all other inputs unchanged."""
        return self.apply(CrossConnects(pairs), scope=frozenset(pairs))

    def disconnect(self, inputs: Iterable[int]) -> ApplyReport:
        """Disconnect these inputs; leave all other inputs unchanged."""
        return self.apply(CrossConnects(), scope=frozenset(inputs))

    # -- functions that only some devices have

    def power(self, ports: Collection[int]) -> dict[int, Power | None]:
        """Return None for every port; drivers of devices with power monitors override this."""
        planning.check_ports_exist(ports, self.capabilities, device=self._address)
        return dict.fromkeys(ports)

    def attenuation(self, port: int) -> Attenuation:
        """Raise `Unsupported`; drivers with attenuators override this."""
        raise self._make_unsupported("reading an attenuator", (port,))

    def set_attenuation(self, port: int, attenuation: Attenuation, guard: Guard = allow_all) -> None:
        """Raise `Unsupported`; drivers with attenuators override this."""
        del attenuation, guard
        raise self._make_unsupported("setting an attenuator", (port,))

    def shutter(self, ports: Collection[int], *, is_open: bool, guard: Guard = allow_all) -> None:
        """Raise `Unsupported`; drivers with shutters override this."""
        del is_open, guard
        raise self._make_unsupported("shutters", ports)

    def events(self, since: int = 0) -> tuple[Event, ...]:
        """Return the unsolicited messages after number `since`; empty for a device that sends none.

        The messages report alarms and the changes of all clients; some devices do not report our own changes.
        """
        if self._capabilities is None or not self._capabilities.async_events:
            return ()
        return self._session.events(since)

    def _make_unsupported(self, function: str, ports: Iterable[int] = ()) -> Unsupported:
        return Unsupported(
            f"this device or this protocol has no command for {function}",
            device=self._address,
            ports=ports,
            hint="See `capabilities`; on a Polatis, attenuators answer on TL1 and REST only.",
        )


def add_hints(error: OcsError) -> None:
    """Add the likely causes to the hint of an error that was raised while opening a switch."""
    hints = [error.hint]
    hints += [hint for hint in _find_hints(error) if not _has_hint(error.hint, hint)]
    error.hint = " ".join(filter(None, hints))
    error.locate(device=error.device)


def _find_hints(error: OcsError) -> list[str]:
    """Return hints about likely causes. A refusal in the protocol of the scheme shows that the port is right."""
    text = f"{error.problem} {error.received}"
    is_refusal = isinstance(error, DeviceError | AuthError)
    # The device itself says that it has no free session.
    if is_refusal and (_SESSION_LIMIT_PATTERN.search(text) or _TOO_MANY_SESSIONS_PATTERN.search(text)):
        return [FREE_SESSION_HINT]
    if isinstance(error, TransportError):
        is_closed = isinstance(error, ConnectionLost) or (
            isinstance(error, ConnectError) and _CLOSED_BY_PEER_PATTERN.search(error.problem)
        )
        return [FREE_SESSION_HINT, CHECK_PORT_HINT] if is_closed else [CHECK_PORT_HINT]
    if isinstance(error, DeviceError) and error.device_code in _UNKNOWN_PAGE_STATUSES:
        return [CHECK_PORT_HINT]
    is_unknown = isinstance(error, DeviceError | AddressError) and _UNKNOWN_COMMAND_PATTERN.search(
        error.problem
    )
    if is_unknown or isinstance(error, AuthError) or (isinstance(error, Unsupported) and error.sent):
        return [OTHER_MAKE_HINT]
    return []


def _has_hint(text: str, hint: str) -> bool:
    keyword = "session" if hint is FREE_SESSION_HINT else "check the port"
    return keyword in text.lower()
