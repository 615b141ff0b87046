"""Rounds of a discovery: a pure generator that chooses each round from the observations of earlier rounds.

    all       every free input is connected to a free output; a received frame identifies both ends of a circuit
    lasers    in round i, NICs are down if bit i of their number is 0, so light at an input spells a NIC's number
    circuits  in round i, circuits exist if bit i of their number is 1, so a carrier spells its circuit's number
    names     remaining ports are connected to known NICs, which send to open outputs and receive from open inputs

The laser code needs power monitors or known receivers, and NICs whose light goes off when they are down. Otherwise, the
circuit code does the same with carriers alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from testbed.operate.discovery.evidence import Evidence
from testbed.operate.discovery.model import NicKey, NicResult, Observation, Port, Problem, Round

RoundGenerator = Generator[Round, Observation, Evidence]
_MAX_IDLE_ROUNDS = 3


def plan_rounds(problem: Problem, *, max_rounds: int) -> RoundGenerator:
    """Yield rounds until every fibre is found or dead, nothing more can be learnt, or `max_rounds` is reached.

    Send the observation of each round to the generator; its return value is the evidence. The same observations give
    the same rounds.
    """
    search = _Search(problem, max_rounds)
    yield from search.run()
    return search.evidence


def compute_code_length(count: int) -> int:
    """Return the number of bits in which none of the numbers 1..count has only zeros or only ones.

    >>> [compute_code_length(count) for count in (1, 2, 3, 48)]
    [2, 2, 3, 6]
    """
    return max(2, (count + 1).bit_length())


def compute_max_rounds(problem: Problem) -> int:
    """Return the largest number of rounds that a discovery may take without power monitors.

    The limit counts both codes, then two tries of each open port. At least a quarter of the NICs are known after the
    codes.
    """
    port_count = max(len(problem.inputs), len(problem.outputs), 1)
    nic_count = max(len(problem.nics), 1)
    shift_count = -(-port_count // nic_count)
    return (
        shift_count * (2 + compute_code_length(port_count))
        + 2 * compute_code_length(nic_count)
        + 8 * shift_count
        + 8
    )


@dataclass
class _Search:
    """The search for the ports of all fibres: its rounds so far, and the evidence from them."""

    problem: Problem
    max_rounds: int
    history: list[tuple[Round, Observation]] = field(default_factory=list)
    try_count_by_output: Counter[Port] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.evidence = Evidence(self.problem, ())

    def run(self) -> Generator[Round, Observation, None]:
        for shift in range(1, len(self.problem.outputs) + 1):
            if not (yield from self._connect_all(shift)):
                return
            if self._can_code_lasers():
                yield from self._run_laser_code()
            if self._knows_few_outputs():
                yield from self._run_circuit_code(self.history[0 if shift == 1 else -1][0].circuits)
            yield from self._identify_remaining()
            if self._is_done() or self.evidence.map_known_inputs():
                return

    def _run_round(self, round_: Round) -> Generator[Round, Observation, bool]:
        """Yield one round and record its observation. At the end of the search, return False without a round."""
        if len(self.history) >= self.max_rounds or self._is_done():
            return False
        observation = yield round_
        self.history.append((round_, observation))
        self.evidence = Evidence(self.problem, tuple(self.history))
        return True

    def _is_done(self) -> bool:
        return bool(self.history) and all(
            "uncertain" not in (nic.transmit.verdict, nic.receive.verdict) for nic in self._get_results()
        )

    def _get_results(self) -> tuple[NicResult, ...]:
        return self.evidence.make_results()

    def _connect_all(self, shift: int) -> Generator[Round, Observation, bool]:
        circuits = pair_ports(self.problem.inputs, self.problem.outputs, shift)
        if not circuits or not self.problem.nics:
            return False
        return (yield from self._run_round(Round("all", circuits)))

    def _can_code_lasers(self) -> bool:
        """Return whether light at inputs of unknown NICs can be observed, and some transmitters are unknown."""
        unidentified_inputs = set(self.evidence.find_unidentified_inputs())
        monitored_ports = {port for light in self.evidence.light_by_round[-1:] for port in light}
        return bool(unidentified_inputs & monitored_ports) and bool(self._find_unknown_transmitters())

    def _find_unknown_transmitters(self) -> list[NicKey]:
        return [nic.nic for nic in self._get_results() if nic.transmit.verdict == "uncertain"]

    def _run_laser_code(self) -> Generator[Round, Observation, None]:
        """Set about half of the unknown NICs down in each round. Stop early if no light goes off with its NIC."""
        suspected_nics = self._find_unknown_transmitters()
        circuits = self.history[-1][0].circuits
        for bit in range(compute_code_length(len(suspected_nics))):
            down_nics = frozenset(
                nic for nic_number, nic in enumerate(suspected_nics, 1) if not nic_number >> bit & 1
            )
            if not down_nics:
                continue
            if not (yield from self._run_round(Round("lasers", circuits, down_nics))):
                return
            if 2 * len(down_nics) >= len(self.problem.nics) > 2 and not self.evidence.switched_ports:
                return

    def _knows_few_outputs(self) -> bool:
        """Return whether the outputs of fewer than half of the NICs that received light are known."""
        known_count = len(self.evidence.map_known_outputs())
        return 2 * known_count < len(self.evidence.receiving_nics) or not known_count

    def _run_circuit_code(self, circuits: Mapping[Port, Port]) -> Generator[Round, Observation, None]:
        pairs = list(circuits.items())
        for bit in range(compute_code_length(len(pairs))):
            tested_circuits = {
                port: output
                for circuit_number, (port, output) in enumerate(pairs, 1)
                if circuit_number >> bit & 1
            }
            if tested_circuits and not (yield from self._run_round(Round("circuits", tested_circuits))):
                return

    def _identify_remaining(self) -> Generator[Round, Observation, None]:
        """Connect open ports to known NICs until nothing new is found. Run the laser code once on silent NICs."""
        idle_round_count, has_run_code = 0, False
        while idle_round_count < _MAX_IDLE_ROUNDS and not self._is_done():
            previous_results, tried_count = self._get_results(), len(+self.try_count_by_output)
            circuits = self._connect_to_known()
            if not circuits or not (yield from self._run_round(Round("names", circuits))):
                return
            idle_round_count = (
                0
                if self._get_results() != previous_results or len(+self.try_count_by_output) > tried_count
                else idle_round_count + 1
            )
            if idle_round_count == 1 and not has_run_code and self._can_code_lasers():
                has_run_code = True
                yield from self._run_laser_code()
                idle_round_count = 0

    def _connect_to_known(self) -> dict[Port, Port]:
        """Return circuits that test as many open ports as the known NICs allow.

        A NIC can send only while its receiver has light, so the receiver of every sender is lit.
        """
        builder = _RoundCircuits(self.evidence, round_number=len(self.history))
        inputs = {port for nic in self._get_results() for port in nic.transmit.candidates}
        outputs = {port for nic in self._get_results() for port in nic.receive.candidates}
        open_inputs, open_outputs = (
            sorted(ports, key=lambda port: (self.try_count_by_output[port], port))
            for ports in (inputs, outputs)
        )
        for nic in self._find_unknown_transmitters():
            builder.light_receiver(nic)
        # Alternate between outputs and inputs: neither side may use up the NICs that the other needs.
        for index in range(max(len(open_inputs), len(open_outputs))):
            if index < len(open_outputs) and builder.probe_output(open_outputs[index]):
                self.try_count_by_output[open_outputs[index]] += 1
            if index < len(open_inputs) and builder.probe_input(open_inputs[index]):
                self.try_count_by_output[open_inputs[index]] += 1
        return builder.circuits


class _RoundCircuits:
    """Builder of the circuits of one `names` round. Each `round_number` starts with another known NIC."""

    def __init__(self, evidence: Evidence, round_number: int) -> None:
        self._evidence = evidence
        self.circuits: dict[Port, Port] = {}
        known_inputs = list(evidence.map_known_inputs().items())
        offset = round_number % len(known_inputs) if known_inputs else 0
        self._nic_by_input = dict(known_inputs[offset:] + known_inputs[:offset])
        self._unidentified_inputs = list(evidence.find_unidentified_inputs())
        self._nic_by_output = evidence.map_known_outputs()
        self._used_outputs: set[Port] = set()

    def _connect(self, source: Port, target: Port) -> None:
        self.circuits[source] = target
        self._used_outputs.add(target)
        self._nic_by_input.pop(source, None)
        self._nic_by_output.pop(target, None)
        self._unidentified_inputs = [port for port in self._unidentified_inputs if port != source]

    def light_receiver(self, nic: NicKey) -> bool:
        """Connect a light source to the receiver of a NIC, if its output is known; return whether it has light."""
        output = self._evidence.find_output(nic)
        if output is None or output in self._used_outputs:
            return output is not None
        # NICs that cannot send, because their output is unknown, serve as light sources first.
        sorted_sources = sorted(
            self._nic_by_input,
            key=lambda port: self._evidence.find_output(self._nic_by_input[port]) is not None,
        )
        source = next((port for port in sorted_sources if port[0] == output[0]), None)
        if source is None:
            return False
        self._connect(source, output)
        return True

    def probe_output(self, output: Port) -> bool:
        """Connect a known NIC, or else any light, to an output of an unknown NIC; return whether that was possible."""
        for source, nic in list(self._nic_by_input.items()):
            own_output = self._evidence.find_output(nic)
            if source[0] != output[0] or own_output is None:
                continue
            self._nic_by_input.pop(source)
            if self.light_receiver(nic):
                self._connect(source, output)
                return True
            self._nic_by_input[source] = nic
        # Light without frames also shows whether there is a receiver.
        light_source = next(
            (port for port in (*self._nic_by_input, *self._unidentified_inputs) if port[0] == output[0]), None
        )
        if light_source is not None:
            self._connect(light_source, output)
        return light_source is not None

    def probe_input(self, source: Port) -> bool:
        """Connect an input of an unknown NIC to a known NIC; return whether its switch has a free known NIC."""
        output = next((port for port in self._nic_by_output if port[0] == source[0]), None)
        if output is not None and source not in self.circuits:
            self._connect(source, output)
        return output is not None


def pair_ports(inputs: Iterable[Port], outputs: Iterable[Port], shift: int) -> dict[Port, Port]:
    """Return a circuit from every input to the output `shift` places further on its switch, while outputs last.

    >>> pair_ports([("s", 1), ("s", 2)], [("s", 3), ("s", 4)], 1)
    {('s', 1): ('s', 4), ('s', 2): ('s', 3)}
    """
    circuits: dict[Port, Port] = {}
    inputs_by_switch, outputs_by_switch = _group_by_switch(inputs), _group_by_switch(outputs)
    for switch, ports in inputs_by_switch.items():
        switch_outputs = outputs_by_switch.get(switch, [])
        for position, port in enumerate(
            ports[: len(switch_outputs)] if len(ports) > len(switch_outputs) else ports
        ):
            circuits[port] = switch_outputs[(position + shift) % len(switch_outputs)]
    return circuits


def _group_by_switch(ports: Iterable[Port]) -> dict[str, Sequence[Port]]:
    ports_by_switch: dict[str, list[Port]] = {}
    for port in ports:
        ports_by_switch.setdefault(port[0], []).append(port)
    return dict(ports_by_switch)
