"""The half of a Calient driver that does not depend on the protocol: ports, readings, and activation of circuits."""

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
from ocs_drivers.vendors.calient.circuits import CircuitTable, check_not_provisioned, make_power_reading
from ocs_drivers.vendors.calient.ports import Pair, PortNames, format_circuit_name

ACTIVATION_S = 10.0
"""Longest time from activation to an active circuit: one public driver polls ten times, once a second."""

BUSY_TEXT = "invalid connection"
"""Part of the text with which the device denies a circuit because a port is in use."""

Powers = Mapping[str, tuple[float | None, float | None]]
"""Input and output power in dBm by port name; None means no light."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port as either protocol reports it: the states of its input and output fibre, and its alias."""

    states: tuple[PortState, PortState]
    alias: str = ""


class CalientSwitch(SwitchDriver):
    """The half of a Calient driver that does not depend on the protocol; `_names` is set by `open`.

    A circuit with `OC=FAIL` is connected, but dark. `activation_s` is the longest time from activation to an active
    circuit.
    """

    poll_s = 1.0
    connection_loss_recovery = "watch"
    provision_prefix = ""
    """Prefix of the command that provisions; only a denial of this command can mean that a port is in use."""

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
        self._names = PortNames(())
        self._circuits = CircuitTable(self._names, ())
        self._awaited_pairs: frozenset[Pair] = frozenset()
        self._deletable_circuits: frozenset[str] = frozenset()
        self._awaited_until_s = 0.0

    @abstractmethod
    def _ask_circuits(self) -> CircuitTable:
        """Return all circuits, including provisioned circuits."""

    @abstractmethod
    def _ask_ports(self) -> Mapping[str, Port]:
        """Return all ports by name."""

    def _ask_port_summary(self) -> Mapping[str, Port]:
        """Return the ports whose states a single query reports, possibly none."""
        return self._ask_ports()

    def _ask_labelled_ports(self) -> Mapping[str, Port]:
        """Return all ports by name, with their aliases, which may need a further query."""
        return self._ask_ports()

    @abstractmethod
    def _ask_powers(self, names: Collection[str]) -> Powers:
        """Return the power at these ports, and possibly at others."""

    @abstractmethod
    def _send_commands(self, step: Step, guard: Guard) -> None:
        """Send the commands of a step that adds or removes; return when the device has accepted them all."""

    # -- reading

    def ports(self) -> Mapping[int, PortInfo]:
        """Return all ports with their current state and alias; the two fibres of a port share its name."""
        ports, size = self._ask_labelled_ports(), len(self._names)
        infos = [
            PortInfo(
                self._names.get_number(name) + number_offset,
                side,
                port.states[index],
                port.alias,
                has_power_monitor=True,
                name=name,
            )
            for index, side, number_offset in ((0, Side.IN, 0), (1, Side.OUT, size))
            for name, port in ports.items()
        ]
        return {info.number: info for info in sorted(infos, key=lambda info: info.number)}

    def _read(self) -> Snapshot:
        """Read the active and provisioned circuits, and the unfit ports among those that a single query reports."""
        with self._session.lock():
            self._circuits = self._ask_circuits()
            with self._require_same_connection():
                unfit = self._find_unfit(self._ask_port_summary())
        return self._circuits.make_snapshot(self._clock.now(), unfit)

    def _find_unfit(self, ports: Mapping[str, Port]) -> dict[int, PortState]:
        size = len(self._names)
        states = {
            self._names.get_number(name) + number_offset: state
            for name, port in ports.items()
            for number_offset, state in zip((0, size), port.states, strict=True)
        }
        return {port: state for port, state in sorted(states.items()) if state is not PortState.ENABLED}

    def _read_after_step(self, step: Step) -> Snapshot:
        """Read the circuits. A circuit that this driver activated counts as connected once its mirrors have settled."""
        del step
        self._circuits = self._query_circuits(self._ask_circuits)
        return self._circuits.make_snapshot(self._clock.now(), {}, awaited_pairs=self._awaited_pairs)

    def power(self, ports: Collection[int]) -> dict[int, Power | None]:
        """Return the optical power in dBm. `NONE` counts as dark, as does an output whose circuit has no light."""
        planning.check_ports_exist(ports, self.capabilities, device=self.address)
        if not ports:
            return {}
        with self._session.lock():
            readings = self._ask_powers({self._names.get_name(port) for port in ports})
            circuits = self._ask_circuits()
        size = len(self._names)
        return {
            port: make_power_reading(
                readings[self._names.get_name(port)][port > size], is_dark=circuits.is_dark(port)
            )
            for port in ports
        }

    # -- changing

    def plan(
        self,
        target: CrossConnects,
        current: Snapshot | CrossConnects,
        scope: Collection[int] | None = None,
    ) -> tuple[Step, ...]:
        """Plan as every driver does. The steps may delete the provisioned circuits of `current` that block their ports.

        Raises also `PortBusy` if such a circuit has an input outside the scope.
        """
        steps = super().plan(target, current, scope)
        if isinstance(current, Snapshot):
            if scope is not None:
                check_not_provisioned(current.pending, _list_added_pairs(*steps), scope, device=self.address)
            self._deletable_circuits = frozenset(move.request for move in current.pending)
        return steps

    def _check_ports_unchanged(self, step: Step, snapshot: Snapshot) -> None:
        """Check as every driver does, and that the step deletes no circuit that others changed since the plan.

        Raises `PortBusy` for a newly provisioned circuit with an input outside the step, and `Conflict` for a circuit
        that is now two-way and that the step would remove in part.
        """
        super()._check_ports_unchanged(step, snapshot)
        foreign_moves = [move for move in snapshot.pending if move.request not in self._deletable_circuits]
        check_not_provisioned(foreign_moves, _list_added_pairs(step), step.pairs, device=self.address)
        if any(group & step.pairs.pairs and group - step.pairs.pairs for group in snapshot.tied):
            raise transaction.make_conflict(step.before, snapshot.connections, device=self.address)

    def _perform(self, step: Step, guard: Guard) -> None:
        if step.kind == "replace":
            raise self._make_unsupported("the whole configuration at once")
        self._awaited_pairs = frozenset()
        try:
            self._send_commands(step, guard)
        except TransportError:  # the device may have received the command
            raise
        except Exception:  # the device refused: mirrors that are not moving yet will not move
            self._awaited_until_s = self._clock.now()
            raise
        if step.kind == "add":
            self._expect_pairs(step.pairs.pairs)

    def _expect_pairs(self, pairs: frozenset[Pair]) -> None:
        """Expect these pairs from now on. Call this before the activation is sent, because its answer may be lost."""
        self._awaited_pairs = pairs
        self._awaited_until_s = self._clock.now() + self._activation_s

    def _find_name(self, pair: Pair) -> str:
        """Return the name of the circuit of a pair. A circuit that was never read is ours, so it is one-way."""
        circuit = self._circuits.find_active(pair)
        return circuit.name if circuit else format_circuit_name(*self._names.get_port_names(pair))

    def _compute_timeout_s(self, snapshot: Snapshot) -> float:
        """Return the longest time of a step. Provisioned circuits are not queued moves, so they add no time."""
        return self._timeout_s + self._activation_s

    def _is_moving(self, step: Step, snapshot: Snapshot) -> bool:
        """Return True while mirrors move or have not started to move.

        Raises `DeviceError` for a circuit that is not active after `activation_s`.
        """
        missing_pairs = self._awaited_pairs - snapshot.connections.pairs
        if any(self._circuits.is_moving(pair) for pair in missing_pairs):
            return True
        dormant_pairs = sorted(
            pair for pair in missing_pairs if self._circuits.find_provisioned_circuit(pair)
        )
        if dormant_pairs and self._clock.now() >= self._awaited_until_s:
            raise DeviceError(
                "the device accepted the command, but did not activate the provisioned circuit",
                device=self.address,
                ports=sorted({port for pair in dormant_pairs for port in pair}),
                hint="Apply again, which activates provisioned circuits; if it fails again, check these ports.",
            )
        return bool(dormant_pairs)

    def _explain(self, refusal: OcsError, step: Step) -> OcsError:
        """Return `PortBusy`, with the other end of the blocking circuit, if the device denied a port in use."""
        is_provisioning = refusal.sent.startswith(self.provision_prefix)
        if not (
            is_provisioning and isinstance(refusal, DeviceError) and BUSY_TEXT in refusal.problem.lower()
        ):
            return super()._explain(refusal, step)
        refused_ports = set(refusal.ports) or {port for pair in step.pairs.items() for port in pair}
        peer, ports = None, tuple(sorted(refused_ports))
        for pair in sorted(step.pairs.items()):
            other_pair = self._circuits.find_other_pair(pair) if refused_ports & set(pair) else None
            if other_pair is not None:
                peer, ports = (other_pair[1] if other_pair[0] == pair[0] else other_pair[0]), pair
                break
        return PortBusy(
            refusal.problem,
            peer=peer,
            device=self.address,
            ports=ports,
            sent=refusal.sent,
            hint="Read the switch: somebody else made or provisioned a circuit there.",
        )


def _list_added_pairs(*steps: Step) -> frozenset[Pair]:
    """Return the pairs that these steps add."""
    return frozenset(pair for step in steps if step.kind == "add" for pair in step.pairs.items())
