"""The half of a Calient that does not depend on the protocol: ports, readings, and when a circuit counts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ocs_drivers.contract import Guard
from ocs_drivers.engine import planning, transaction
from ocs_drivers.engine.driver import Session, SwitchDriver
from ocs_drivers.errors import DeviceError, OcsError, PortBusy, TransportError
from ocs_drivers.model import CrossConnects, PortInfo, PortState, Power, Side, Snapshot, Step
from ocs_drivers.timing import Clock
from ocs_drivers.vendors.calient.circuits import Circuits, check_not_booked, power_reading
from ocs_drivers.vendors.calient.ports import Names, Pair, circuit_name

ACTIVATION_S = 10.0
"""How long a circuit may stay provisioned after it was activated: one public driver asks ten times, every second."""

BUSY = "invalid connection"
"""In the text of a denial when a port is in use."""

Powers = Mapping[str, tuple[float | None, float | None]]
"""Power in and out in dBm by the name of the port; None is no light."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port as either language tells it: the states of its fibre in and its fibre out, and its alias."""

    states: tuple[PortState, PortState]
    alias: str = ""


class CalientSwitch(SwitchDriver):
    """The half of a Calient that does not depend on the language; `_names` is set when it is opened.

    A circuit with `OC=FAIL` is connected, but dark. `activation_s` is how long an activation may take to show.
    """

    poll_s = 1.0
    after_loss = "watch"
    provisions = ""
    """How the command that books ports begins: only its denial can mean that a port is in use."""

    def __init__(
        self,
        address: str,
        session: Session,
        *,
        timeout_s: float,
        clock: Clock,
        activation_s: float = ACTIVATION_S,
    ) -> None:
        super().__init__(address, session, timeout_s=timeout_s, clock=clock)
        self._activation_s = activation_s
        self._names = Names(())
        self._seen = Circuits(self._names, ())
        self._awaited: frozenset[Pair] = frozenset()
        self._cleared: frozenset[str] = frozenset()
        self._awaited_until_s = 0.0

    @abstractmethod
    def _ask_circuits(self) -> Circuits:
        """Return all circuits, provisioned ones included."""

    @abstractmethod
    def _ask_ports(self) -> Mapping[str, Port]:
        """Return all ports by name."""

    def _ask_ports_at_once(self) -> Mapping[str, Port]:
        """Return the ports that a single query reports; none where it takes one for each."""
        return self._ask_ports()

    def _ask_labelled_ports(self) -> Mapping[str, Port]:
        """Return all ports by name, with their aliases, where these have to be asked for."""
        return self._ask_ports()

    @abstractmethod
    def _ask_powers(self, names: Collection[str]) -> Powers:
        """Return the power at these ports at least."""

    @abstractmethod
    def _carry_out(self, step: Step, guard: Guard) -> None:
        """Send the commands of a step that adds or removes; return when the device has taken them all."""

    # -- reading

    def ports(self) -> Mapping[int, PortInfo]:
        """Return all ports with state and alias now; the two fibres of a port bear one name."""
        ports, size = self._ask_labelled_ports(), len(self._names)
        infos = [
            PortInfo(
                self._names.number(name) + shift,
                side,
                port.states[place],
                port.alias,
                has_power_monitor=True,
                name=name,
            )
            for place, side, shift in ((0, Side.IN, 0), (1, Side.OUT, size))
            for name, port in ports.items()
        ]
        return {info.number: info for info in sorted(infos, key=lambda info: info.number)}

    def _read(self) -> Snapshot:
        """Return what is connected or provisioned, and unfit ports, where these are reported at once."""
        with self._session.lock():
            self._seen = self._ask_circuits()
            with self._one_connection():
                unfit = self._unfit(self._ask_ports_at_once())
        return self._seen.snapshot(self._clock.now(), unfit)

    def _unfit(self, ports: Mapping[str, Port]) -> dict[int, PortState]:
        size = len(self._names)
        states = {
            self._names.number(name) + shift: state
            for name, port in ports.items()
            for shift, state in zip((0, size), port.states, strict=True)
        }
        return {port: state for port, state in sorted(states.items()) if state is not PortState.ENABLED}

    def _read_again(self, step: Step) -> Snapshot:
        """Count a circuit that we activated when its mirrors have arrived, any other as soon as it is reported."""
        del step
        self._seen = self._read_current(self._ask_circuits)
        return self._seen.snapshot(self._clock.now(), {}, awaited=self._awaited)

    def power(self, ports: Collection[int]) -> dict[int, Power | None]:
        """Return the optical power in dBm. `NONE` is darkness, and so is an output whose circuit has failed."""
        planning.check_known(ports, self.capabilities, device=self.address)
        if not ports:
            return {}
        with self._session.lock():
            readings = self._ask_powers({self._names.name(port) for port in ports})
            circuits = self._ask_circuits()
        size = len(self._names)
        return {
            port: power_reading(readings[self._names.name(port)][port > size], is_dark=circuits.is_dark(port))
            for port in ports
        }

    # -- changing

    def plan(
        self,
        target: CrossConnects,
        seen: Snapshot | CrossConnects,
        scope: Collection[int] | None = None,
    ) -> tuple[Step, ...]:
        """Plan as every switch; raises `PortBusy` also for what is provisioned in the way by inputs outside the scope.

        What is provisioned in the way and was seen here may be deleted when the steps are executed.
        """
        steps = super().plan(target, seen, scope)
        if isinstance(seen, Snapshot):
            if scope is not None:
                check_not_booked(seen.pending, _find_steps_pairs(*steps), scope, device=self.address)
            self._cleared = frozenset(move.request for move in seen.pending)
        return steps

    def _check_as_planned(self, step: Step, found: Snapshot) -> None:
        """Check as every switch; also, nothing is deleted that others have provisioned or made two-way since the plan.

        What is provisioned by the inputs of the step is in the scope, whoever did it.
        """
        super()._check_as_planned(step, found)
        foreign = [move for move in found.pending if move.request not in self._cleared]
        check_not_booked(foreign, _find_steps_pairs(step), step.pairs, device=self.address)
        if any(group & step.pairs.pairs and group - step.pairs.pairs for group in found.tied):
            raise transaction.conflict(step.before, found.connections, device=self.address)

    def _perform(self, step: Step, guard: Guard) -> None:
        if step.kind == "replace":
            raise self._make_unsupported("the whole configuration at once")
        self._awaited = frozenset()
        try:
            self._carry_out(step, guard)
        except TransportError:  # it may have been received all the same
            raise
        except Exception:  # refused: what has not begun to move by now never will
            self._awaited_until_s = self._clock.now()
            raise
        if step.kind == "add":
            self._await(step.pairs.pairs)

    def _await(self, pairs: frozenset[Pair]) -> None:
        """Wait for these from now on; said before their activation is sent, for the answer to it may be lost."""
        self._awaited = pairs
        self._awaited_until_s = self._clock.now() + self._activation_s

    def _name_of(self, pair: Pair) -> str:
        """Return the circuit that makes a pair; never read by us, it can only be one-way."""
        circuit = self._seen.of(pair)
        return circuit.name if circuit else circuit_name(*self._names.one_way(pair))

    def _longest_s(self, first: Snapshot) -> float:
        """Leave out what others have provisioned: it is nobody's queue, and delays nothing."""
        return self._timeout_s + self._activation_s

    def _still_moving(self, step: Step, read_back: Snapshot) -> bool:
        """Return True while mirrors are on their way, or have yet to begin.

        Raises `DeviceError` for a circuit that is still only provisioned when `activation_s` have passed.
        """
        missing = self._awaited - read_back.connections.pairs
        if any(self._seen.is_moving(pair) for pair in missing):
            return True
        dormant = sorted(pair for pair in missing if self._seen.find_booked(pair))
        if dormant and self._clock.now() >= self._awaited_until_s:
            raise DeviceError(
                "the device accepted the command, but did not activate the provisioned circuit",
                device=self.address,
                ports=sorted({port for pair in dormant for port in pair}),
                hint="Apply again, which activates provisioned circuits; if it fails again, check these ports.",
            )
        return bool(dormant)

    def _explain(self, refusal: OcsError, step: Step) -> OcsError:
        """Name the other end of the circuit in a denial because of a port in use."""
        is_provisioning = refusal.sent.startswith(self.provisions)
        if not (is_provisioning and isinstance(refusal, DeviceError) and BUSY in refusal.what.lower()):
            return super()._explain(refusal, step)
        named = set(refusal.ports) or {port for pair in step.pairs.items() for port in pair}
        peer, ports = None, tuple(sorted(named))
        for pair in sorted(step.pairs.items()):
            other = self._seen.holder(pair) if named & set(pair) else None
            if other is not None:
                peer, ports = (other[1] if other[0] == pair[0] else other[0]), pair
                break
        return PortBusy(
            refusal.what,
            peer=peer,
            device=self.address,
            ports=ports,
            sent=refusal.sent,
            hint="Read the switch: somebody else made or provisioned a circuit there.",
        )


def _find_steps_pairs(*steps: Step) -> frozenset[Pair]:
    """Return the pairs that steps are to make."""
    return frozenset(pair for step in steps if step.kind == "add" for pair in step.pairs.items())
