"""The base class of drivers: a vendor adds a session, three readings and one write operation.

open ──> _discover                      who answers, and what it can do
read ──> _read                          retried on a new connection
execute ──> ready, nobody else changed it, guard, then the states of `step_execution`
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
from ocs_drivers.engine.device_lock import DeviceLock, lock_names
from ocs_drivers.engine.step_execution import Progress, StepExecution, StepHooks
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
from ocs_drivers.transports.transport import make_lost

_T = TypeVar("_T")

RETRY_PAUSES_S = (0.1, 0.4)
"""Before the second and the third attempt at a read that met a broken line or noise."""

SILENCE_S = 8.0
"""A device that answers nothing for so long in the middle of a move counts as dead: its end is told within 10 s."""

SHORTEST_OUTAGE_S = 2.0
"""A device that cannot be reached is tried for so long at least."""

OUTAGE_PAUSE_S = 1.0
"""Longest pause between two attempts to reach a device that does not answer in the middle of a move."""

FIRST_POLL_S = 0.02
"""Before the second read of a switch that is still moving; every further pause is twice as long."""


CHECK_PORT = "Check the port and the scheme of the address: something else may answer there."
ANOTHER_MAKE = "Or check the port and the scheme of the address: another make of switch may answer there."
SESSIONS = "It may have no free session: close other clients, or wait until the device ends idle ones."

_CLOSED = re.compile("closed|reset|lost", re.IGNORECASE)
"""In the reason of a `ConnectError` when somebody was there, and left."""

_NO_SESSION = re.compile(
    r"\b(sessions?|logins?|users?)\b.*\b(reached|exceeded|limit|full|in use)\b", re.IGNORECASE
)
_TOO_MANY = re.compile(r"\b(maximum|max|too many|no more)\b.*\b(sessions?|logins?|users?)\b", re.IGNORECASE)

_NO_SUCH_PAGE = frozenset({"404", "405", "406", "415", "501"})
"""HTTP statuses of a server that has nothing where the scheme asks."""

_NO_SUCH_COMMAND = re.compile(r"(?<!\d)-113\b")
"""The error that SCPI has for a command that the device does not know."""


class Session(Protocol):
    """Session of a driver with its device; those of `ocs_drivers.protocols` are such."""

    def open(self) -> object:
        """Connect and log in."""

    def close(self) -> None:
        """Log out and close the connection; does nothing when closed."""

    def disconnect(self) -> None:
        """Drop the connection, for the next exchange to make a new one."""

    @property
    def in_use(self) -> bool:
        """True from `open` to `close`."""

    @property
    def event_count(self) -> int:
        """Number of unsolicited messages that have come in since it was made."""

    @property
    def connections(self) -> int:
        """Number of connections made; when it grows, messages may have been missed in between."""

    def events(self, since: int) -> tuple[Event, ...]:
        """Return the unsolicited messages after number `since`; asked for where the device sends any."""

    def lock(self) -> AbstractContextManager[object]:
        """Return a re-entrant lock that holds off other threads over several exchanges."""

    def ready(self) -> None:
        """Make sure of a fresh connection with a login; takes in what waits. Raises `ConnectionLost` when closed."""


class SwitchDriver(ABC):
    """The vendor-independent half of a driver.

    Writes of all drivers of one address in this process take turns, and a write of another process is
    refused with `SwitchHeld`. Reads never wait for writers of other connections. `timeout_s` bounds every
    wait for an answer; `clock` is the time that waits are counted on.
    """

    poll_s = 0.5
    """Longest pause between two reads of a switch that is still moving, in seconds."""

    after_loss: ClassVar[Literal["judge", "settle", "watch"]] = "judge"
    """What a step needs when the line broke under its command: one read (`judge`); the longest switching time, then one
    read, where a read shows circuits before their mirrors have arrived (`settle`); or to be looked at until nothing
    moves, where a read tells what does (`watch`; after a refusal as well, for that may be of a part)."""

    def __init__(
        self, address: str, session: Session, *, timeout_s: float, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._clock = clock
        self._session = session
        self._writing = DeviceLock(*lock_names(address))
        self._identity: Identity | None = None
        self._capabilities: Capabilities | None = None
        self._known: Snapshot | None = None
        self._known_at = (0, 0)
        self._claimed: set[tuple[int, int]] = set()
        self._silence = Silence(max(SILENCE_S, timeout_s), clock)
        self._progress = Progress(None, address, clock, self._silence)

    # -- what a vendor adds

    @abstractmethod
    def _discover(self) -> tuple[Identity, Capabilities]:
        """Ask the device, just connected, who it is and what it can do."""

    @abstractmethod
    def _read(self) -> Snapshot:
        """Ask for the configuration, once."""

    @abstractmethod
    def _perform(self, step: Step, guard: Guard) -> None:
        """Send what does the step; call `guard` again before each further write command.

        Return when the device says it is complete or, where it does not say, when it has accepted the
        command (see `_still_moving`). Raises what the device objects.
        """

    def _read_back(self, step: Step) -> tuple[Snapshot | None, OcsError | None]:
        """Return what the device holds after a step, and what it objected to meanwhile, where it reports that apart."""
        return self._look_again(step), None

    def _look_again(self, step: Step) -> Snapshot:
        """Read what the device holds after a step, even one under which the line broke; made is what has arrived."""
        del step
        return self.read()

    @abstractmethod
    def ports(self) -> Mapping[int, PortInfo]:
        """Return all ports with their state now."""

    def _still_moving(self, step: Step, read_back: Snapshot) -> bool:
        """Return True while the device is at work on a step. Raises `RobotFault` if it never will be done."""
        del step, read_back
        return False

    # -- what all have in common

    @property
    def address(self) -> str:
        """Address where the device answers, without credentials."""
        return self._address

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of this very device. Raises `ConnectionLost` before the first `open`."""
        if self._capabilities is None:
            raise make_lost(self._address, "it was never opened")
        return self._capabilities

    def identity(self) -> Identity:
        """Return the identity that the device gave."""
        if self._identity is None:
            raise make_lost(self._address, "it was never opened")
        return self._identity

    def open(self) -> None:
        """Connect, log in and find out what the device can do; does nothing on an open switch."""
        if self._session.in_use:
            return
        try:
            self._session.open()
            self._identity, self._capabilities = self._discover()
            self._writing = DeviceLock(
                *lock_names(self._address, self._identity.vendor, self._identity.serial)
            )
        except BaseException as error:  # also an interrupt: neither a login nor what is half known may stay
            self._session.close()
            if isinstance(error, OcsError):
                advise(error)
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
        """Return the configuration the device holds now; read again, on new connections, after a broken line."""
        self._known = snapshot = self._note_answer(self._read)
        self._note_claims(snapshot.pending)
        return snapshot

    def _note_claims(self, pending: Iterable[PendingMove]) -> None:
        """Note circuits that requests in a robot's queue will remove: their end is no surprise."""
        self._claimed |= {move.pair for move in pending if move.pair and move.kind == "disconnect"}

    def _read_after_outage(self) -> Snapshot:
        """Read what the device holds, through a short outage of the network: a robot's move outlasts it."""
        while True:
            try:
                return self.read()
            except TransportError as broken:
                left_s = self._silence.remaining_s()
                if isinstance(broken, ConnectError | ConnectionLost):
                    left_s = self._silence.remaining_of_outage_s(SHORTEST_OUTAGE_S)
                if not left_s:
                    raise
                self._progress.tell()
                self._clock.sleep(min(self.poll_s, OUTAGE_PAUSE_S, left_s))

    def _note_answer(self, ask: Callable[[], _T]) -> _T:
        """Return the answer to something that tells all connections; reports and line breaks after it are news."""
        return self._retry(lambda: self._noting(ask))

    def _noting(self, ask: Callable[[], _T]) -> _T:
        session = self._session
        with session.lock():
            events = session.event_count
            answer = ask()
            self._known_at = events, session.connections
        return answer

    @contextmanager
    def _same_line(self) -> Iterator[None]:
        """Guard all queries of a read after the first: what was reported while the line was down was missed.

        Raises `ConnectionLost` when it was, so that the whole read is asked again.
        """
        connections = self._session.connections
        yield
        if self._session.connections != connections:
            raise make_lost(self._address, "between two queries of one read")

    def _check_possible(self, pairs: Iterable[tuple[int, int]], received: str = "") -> CrossConnects:
        """Return the circuits that were read. Raises `ProtocolDesync` for those that the switch cannot have."""
        try:
            connections = CrossConnects(pairs)
            planning.check_target(connections, None, self.capabilities)
        except (ValueError, OcsError) as error:
            raise ProtocolDesync(
                f"impossible circuits for this switch: {error}", received=received
            ) from error
        return connections

    def _retry(self, ask: Callable[[], _T]) -> _T:
        """Return the answer to something that may be asked twice."""
        for pause_s in RETRY_PAUSES_S:
            try:
                return ask()
            except (ConnectionLost, ConnectError, ProtocolDesync) as broken:
                if isinstance(broken, AnotherDevice) or not self._session.in_use:
                    raise
                self._clock.sleep(pause_s)
        return ask()

    def plan(
        self,
        target: CrossConnects,
        seen: Snapshot | CrossConnects,
        scope: Collection[int] | None = None,
    ) -> tuple[Step, ...]:
        """Return the steps from `seen` to `target`; see `planning.plan`, and `check_undisturbed` for robots."""
        steps = planning.plan(target, seen, capabilities=self.capabilities, scope=scope, device=self._address)
        if self.capabilities.serial_robot and isinstance(seen, Snapshot):
            transaction.check_undisturbed(target, seen, steps, scope, device=self._address)
        return steps

    def execute(self, step: Step, guard: Guard = allow_all) -> Outcome:
        """Do one step and read back until it is so; see the contract for what it raises."""
        with self._writing, self._session.lock():
            self._begin(step, guard)
            before, self._known = self._known, None  # until the step is proven
            self._claimed = set()
            self._silence = Silence(max(SILENCE_S, self._timeout_s), self._clock)
            self._progress = Progress(step, self._address, self._clock, self._silence)
            outcome = StepExecution(step, guard, self._hooks(), device=self._address, clock=self._clock).run()
            if self.capabilities.serial_robot and before is not None:
                self._note_claims(before.pending)
                outcome = transaction.with_losses(step, before, outcome, self._claimed)
            self._known = outcome.read_back
            return outcome

    def _hooks(self) -> StepHooks:
        return StepHooks(
            perform=self._perform,
            read_back=self._read_back,
            look_again=self._look_again,
            still_moving=self._still_moving,
            explain=self._explain,
            longest_s=self._longest_s,
            pauses_s=self._pauses(),
            settle_s=self.capabilities.switch_time_s[1] if self.after_loss == "settle" else 0.0,
            watches_after_failure=self.after_loss == "watch",
            silence=self._silence,
            progress=self._progress,
        )

    def _begin(self, step: Step, guard: Guard) -> None:
        """Do all that comes before the first byte: a fresh connection, nobody else's change, the caller's consent.

        A step that was planned on anything older than the last read is compared with that, which costs nothing.
        """
        self._session.ready()
        if self._known is None or self._must_look(step):
            self.read()
        if self._known is not None:
            self._check_as_planned(step, self._known)
        guard()

    def _check_as_planned(self, step: Step, found: Snapshot) -> None:
        """Raise `Conflict`, or what says it better, when somebody else has changed what a step is about."""
        transaction.check_unmoved(step, found.connections, device=self._address)
        if self.capabilities.serial_robot:
            transaction.check_unclaimed(step, found, device=self._address)

    def _must_look(self, step: Step) -> bool:
        """Return True to read once more before a step: a change was reported, or may have been missed."""
        del step
        events, connections = self._known_at
        if self._session.connections != connections:
            return True
        news = self.events(events) if self._session.event_count > events else ()
        return any(self._tells_of_change(event) for event in news)

    def _tells_of_change(self, event: Event) -> bool:
        """Return True if an unsolicited message says that the configuration was changed, by us or by somebody else."""
        return "DBCHG" in event.kind

    def _pauses(self) -> Iterator[float]:
        """Yield ever longer pauses between reads: what is quick is seen soon, what is slow is not asked too often."""
        pause_s = FIRST_POLL_S
        while True:
            yield min(pause_s, self.poll_s)
            pause_s *= 2

    def _longest_s(self, first: Snapshot) -> float:
        """Return the longest time a step may take, with all moves that are ahead of it in a robot's queue."""
        return self._timeout_s + self.capabilities.switch_time_s[1] * (1 + len(first.pending))

    def _explain(self, refusal: OcsError, step: Step) -> OcsError:
        """Return the refusal of a step with the ports it is about: those that the device says are unfit, else all."""
        if not isinstance(refusal, DeviceError):
            return refusal
        named = sorted({port for pair in step.pairs.items() for port in pair})
        try:
            now = self.ports()
        except OcsError:  # the refusal itself matters more than why it cannot be explained
            now = {}
        for state in (PortState.LOCKED, PortState.DISABLED, PortState.FAILED):
            unfit = [port for port in named if port in now and now[port].state is state]
            if unfit:
                return planning.unfit_error(
                    state,
                    unfit,
                    device=self._address,
                    sent=refusal.sent,
                    received=refusal.received or refusal.what,
                )
        refusal.ports = refusal.ports or tuple(named)
        refusal.hint = refusal.hint or "Read the switch and compare with what was asked; a port may be held."
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
        """Make the switch hold `target` within `scope`; see `ocs_drivers.engine.transaction.apply`."""
        if require_light and not self.capabilities.power_monitor:
            raise self._make_unsupported("measuring light")
        with self._writing:
            report = transaction.apply(self, target, scope=scope, expect=expect, guard=guard)
        if require_light:
            transaction.check_light(report, self.power(tuple(target.values())), device=self._address)
        return report

    def connect(self, pairs: Mapping[int, int]) -> ApplyReport:
        """Connect these inputs to these outputs, and touch no other input."""
        return self.apply(CrossConnects(pairs), scope=frozenset(pairs))

    def disconnect(self, inputs: Iterable[int]) -> ApplyReport:
        """Take down whatever circuits these inputs have, and touch no other input."""
        return self.apply(CrossConnects(), scope=frozenset(inputs))

    # -- what not every device has

    def power(self, ports: Collection[int]) -> dict[int, Power | None]:
        """Return None for every port, where there is no monitor."""
        planning.check_known(ports, self.capabilities, device=self._address)
        return dict.fromkeys(ports)

    def attenuation(self, port: int) -> Attenuation:
        """Raise `Unsupported`; drivers with attenuators return the setting of that of an output port."""
        raise self._make_unsupported("reading an attenuator", (port,))

    def set_attenuation(self, port: int, attenuation: Attenuation, guard: Guard = allow_all) -> None:
        """Set the attenuator of an output port; a driver without attenuators leaves it at that."""
        del attenuation, guard
        raise self._make_unsupported("setting an attenuator", (port,))

    def shutter(self, ports: Collection[int], *, is_open: bool, guard: Guard = allow_all) -> None:
        """Open or close shutters; a driver without shutters leaves it at that."""
        del is_open, guard
        raise self._make_unsupported("shutters", ports)

    def events(self, since: int = 0) -> tuple[Event, ...]:
        """Return the unsolicited messages after number `since`, where the device sends any.

        They report alarms and changes by anybody; ours as well, where the device reports them to us.
        """
        if self._capabilities is None or not self._capabilities.async_events:
            return ()
        return self._session.events(since)

    def _make_unsupported(self, what: str, ports: Iterable[int] = ()) -> Unsupported:
        return Unsupported(
            f"this device or this protocol has no command for {what}",
            device=self._address,
            ports=ports,
            hint="See `capabilities`; on a Polatis, attenuators answer on TL1 and REST only.",
        )


def advise(error: OcsError) -> None:
    """Complete the hint of an error that ended the opening of a switch."""
    hints = [error.hint]
    hints += [hint for hint in _hints(error) if not _is_said(hint, error.hint)]
    error.hint = " ".join(filter(None, hints))
    error.locate(device=error.device)


def _hints(error: OcsError) -> list[str]:
    """Return what may be the reason; a refusal in the language of the scheme means the right port."""
    text = f"{error.what} {error.received}"
    is_refusal = isinstance(error, DeviceError | AuthError)
    if is_refusal and (_NO_SESSION.search(text) or _TOO_MANY.search(text)):  # the device itself says so
        return [SESSIONS]
    if isinstance(error, TransportError):
        closed = isinstance(error, ConnectionLost) or (
            isinstance(error, ConnectError) and _CLOSED.search(error.what)
        )
        return [SESSIONS, CHECK_PORT] if closed else [CHECK_PORT]
    if isinstance(error, DeviceError) and error.device_code in _NO_SUCH_PAGE:
        return [CHECK_PORT]
    is_unknown = isinstance(error, DeviceError | AddressError) and _NO_SUCH_COMMAND.search(error.what)
    if is_unknown or isinstance(error, AuthError) or (isinstance(error, Unsupported) and error.sent):
        return [ANOTHER_MAKE]
    return []


def _is_said(hint: str, already: str) -> bool:
    said = "session" if hint is SESSIONS else "check the port"
    return said in already.lower()
