"""Deduction of the possible ports of every fibre from the observations of all rounds.

Each rule only removes ports that contradict an observation. Rules are applied until nothing changes, because a port
that is found in a later round may explain earlier observations. A fibre without possible ports is dead.

    a monitor is dark        no transmitter that is on ends there
    a monitor is lit         no transmitter that is off ends there, if this light went off with a NIC in another round
    j hears a frame of i     the circuit leads from an input of i to an output of j
    j has carrier            a circuit that may be lit feeds its output
    j has no carrier         no circuit that is lit feeds its output
    i sends, j hears none    i does not end at the input whose circuit feeds j
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from testbed.operate.discovery.model import (
    FibreResult,
    History,
    NicKey,
    NicResult,
    Observation,
    Port,
    Problem,
    Round,
)

PortsByNic = dict[NicKey, set[Port]]


@dataclass
class Evidence:
    """Possible ports of the transmit and the receive fibre of every NIC, after a history of rounds.

    `sending_nics` holds the NICs whose transmit fibre carries light: a frame was received, or the light of an input
    went off with the NIC. `receiving_nics` holds the NICs that had carrier. `light_by_round` maps inputs to their
    light, for each round. `switched_ports` holds inputs that were lit in one round, and dark in another round in which
    NICs were off.
    """

    problem: Problem
    history: History
    transmit_ports: PortsByNic = field(default_factory=dict)
    receive_ports: PortsByNic = field(default_factory=dict)
    sending_nics: set[NicKey] = field(default_factory=set)
    receiving_nics: set[NicKey] = field(default_factory=set)
    light_by_round: list[dict[Port, bool]] = field(default_factory=list)
    switched_ports: set[Port] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.transmit_ports = {nic: set(self.problem.inputs) for nic in self.problem.nics}
        self.receive_ports = {nic: set(self.problem.outputs) for nic in self.problem.nics}
        self._judge_repeated_circuits()
        while True:
            previous_counts = self._count_candidates()
            self._judge_light()
            for (round_, observation), is_lit_by_input in zip(self.history, self.light_by_round, strict=True):
                self._judge_transmitters(round_, is_lit_by_input)
                self._judge_frames(round_, observation)
                self._judge_carriers(round_, observation, is_lit_by_input)
                self._judge_silence(round_, observation)
            self._assign_switched_inputs()
            self._exclude_settled_ports(self.transmit_ports, self.sending_nics)
            self._exclude_settled_ports(self.receive_ports, self.receiving_nics)
            if self._count_candidates() == previous_counts:
                return

    def _count_candidates(self) -> tuple[int, ...]:
        port_counts = (sum(map(len, ports.values())) for ports in (self.transmit_ports, self.receive_ports))
        return (
            *port_counts,
            len(self.sending_nics),
            len(self.receiving_nics),
            sum(map(len, self.light_by_round)),
            len(self.switched_ports),
        )

    def find_input(self, nic: NicKey) -> Port | None:
        """Return the input at which the transmit fibre of a NIC ends, or None if it is not known."""
        ports = self.transmit_ports[nic]
        return next(iter(ports)) if nic in self.sending_nics and len(ports) == 1 else None

    def find_output(self, nic: NicKey) -> Port | None:
        """Return the output from which a NIC receives, or None if it is not known."""
        ports = self.receive_ports[nic]
        return next(iter(ports)) if nic in self.receiving_nics and len(ports) == 1 else None

    def map_known_inputs(self) -> dict[Port, NicKey]:
        """Return the inputs whose NIC is known, with that NIC."""
        return {port: nic for nic in self.problem.nics if (port := self.find_input(nic))}

    def map_known_outputs(self) -> dict[Port, NicKey]:
        """Return the outputs whose NIC is known, with that NIC."""
        return {port: nic for nic in self.problem.nics if (port := self.find_output(nic))}

    def find_unidentified_inputs(self) -> tuple[Port, ...]:
        """Return the inputs of unknown NICs that are lit while all NICs are on."""
        lit_ports = {
            port
            for (this_round, _), is_lit_by_port in zip(self.history, self.light_by_round, strict=True)
            if not this_round.down_nics
            for port, is_lit in is_lit_by_port.items()
            if is_lit
        }
        return tuple(
            port for port in self.problem.inputs if port in lit_ports - self.map_known_inputs().keys()
        )

    def _judge_light(self) -> None:
        """Set `light_by_round` and `switched_ports`.

        A monitor shows whether an input is lit, or else a known receiver or transmitter does.
        """
        nic_by_output, nic_by_input = self.map_known_outputs(), self.map_known_inputs()
        self.light_by_round = [
            dict(self._infer_light(this_round, observation, nic_by_output, nic_by_input))
            for this_round, observation in self.history
        ]
        rounds = list(zip(self.history, self.light_by_round, strict=True))
        dark_ports = {
            port
            for (this_round, _), is_lit_by_port in rounds
            if this_round.down_nics
            for port, is_lit in is_lit_by_port.items()
            if not is_lit
        }
        self.switched_ports = {
            port for _, light in rounds for port, is_lit in light.items() if is_lit
        } & dark_ports

    def _infer_light(
        self,
        this_round: Round,
        observation: Observation,
        nic_by_output: dict[Port, NicKey],
        nic_by_input: dict[Port, NicKey],
    ) -> Iterator[tuple[Port, bool]]:
        for port in self.problem.inputs:
            output = this_round.circuits.get(port)
            is_lit = observation.is_lit_by_port.get(port)
            if is_lit is None and output is not None:
                is_lit = observation.is_lit_by_port.get(output)
                if is_lit is None and output in nic_by_output:
                    is_lit = observation.has_carrier_by_nic.get(nic_by_output[output])
            if is_lit is None and port in nic_by_input and nic_by_input[port] not in this_round.down_nics:
                is_lit = True
            if is_lit is not None:
                yield port, is_lit

    def _judge_transmitters(self, this_round: Round, is_lit_by_input: dict[Port, bool]) -> None:
        dark_ports = {port for port, is_lit in is_lit_by_input.items() if not is_lit}
        lit_ports = {port for port, is_lit in is_lit_by_input.items() if is_lit} & self.switched_ports
        for nic, ports in self.transmit_ports.items():
            ports.difference_update(lit_ports if nic in this_round.down_nics else dark_ports)

    def _judge_frames(self, this_round: Round, observation: Observation) -> None:
        input_by_output = {output: port for port, output in this_round.circuits.items()}
        for receiver, senders in observation.senders_by_receiver.items():
            lab_senders = [sender for sender in senders if sender in self.transmit_ports]
            if receiver not in self.receive_ports or len(lab_senders) != 1:
                continue
            (sender,) = lab_senders
            outputs, inputs = self.receive_ports[receiver], self.transmit_ports[sender]
            outputs &= {this_round.circuits[port] for port in inputs if port in this_round.circuits}
            inputs &= {input_by_output[output] for output in outputs}
            self.sending_nics.add(sender)
            self.receiving_nics.add(receiver)

    def _judge_carriers(
        self, this_round: Round, observation: Observation, is_lit_by_input: dict[Port, bool]
    ) -> None:
        possibly_lit_outputs = {
            output for port, output in this_round.circuits.items() if is_lit_by_input.get(port, True)
        }
        certainly_lit_outputs = {
            output for port, output in this_round.circuits.items() if is_lit_by_input.get(port, False)
        }
        for nic, has_carrier in observation.has_carrier_by_nic.items():
            if nic not in self.receive_ports:
                continue
            if has_carrier:
                self.receiving_nics.add(nic)
                self.receive_ports[nic] &= possibly_lit_outputs
            else:
                self.receive_ports[nic] -= certainly_lit_outputs

    def _judge_silence(self, this_round: Round, observation: Observation) -> None:
        nic_by_output = self.map_known_outputs()
        for port, output in this_round.circuits.items():
            receiver = nic_by_output.get(output)
            if receiver is None or receiver not in observation.has_carrier_by_nic:
                continue
            for nic in (
                observation.active_senders
                - set(observation.senders_by_receiver.get(receiver, ()))
                - this_round.down_nics
            ):
                if nic in self.transmit_ports:
                    self.transmit_ports[nic].discard(port)

    def _judge_repeated_circuits(self) -> None:
        """Exclude outputs of circuits through which a NIC had carrier in one round and none in another.

        Light through the same circuit does not change while all NICs are on, so the NIC is not at that output.
        """
        carrier_values_by_circuit: dict[tuple[NicKey, Port, Port], set[bool]] = defaultdict(set)
        for this_round, observation in self.history:
            for port, output in this_round.circuits.items() if not this_round.down_nics else ():
                for nic, has_carrier in observation.has_carrier_by_nic.items():
                    if nic in self.receive_ports:
                        carrier_values_by_circuit[nic, port, output].add(has_carrier)
        for (nic, _, output), carrier_values in carrier_values_by_circuit.items():
            if len(carrier_values) == 2:
                self.receive_ports[nic].discard(output)

    def _assign_switched_inputs(self) -> None:
        """Assign a NIC to an input whose light went off with NICs of the lab, if only one NIC is possible."""
        for port in self.switched_ports:
            candidates = [nic for nic, ports in self.transmit_ports.items() if port in ports]
            if len(candidates) == 1:
                self.transmit_ports[candidates[0]] &= {port}
                self.sending_nics.update(candidates)

    def _exclude_settled_ports(self, ports_by_nic: PortsByNic, working_nics: set[NicKey]) -> None:
        """Exclude a port that certainly belongs to one fibre from all other fibres."""
        nic_by_settled_port = {
            port: nic
            for nic, candidates in ports_by_nic.items()
            if nic in working_nics and len(candidates) == 1
            for port in candidates
        }
        for nic, candidates in ports_by_nic.items():
            candidates -= {port for port in candidates if nic_by_settled_port.get(port, nic) != nic}

    def make_results(self) -> tuple[NicResult, ...]:
        """Return the verdict on both fibres of every NIC."""
        return tuple(
            NicResult(
                nic,
                _make_result(self.transmit_ports[nic], is_working=nic in self.sending_nics),
                _make_result(self.receive_ports[nic], is_working=nic in self.receiving_nics),
            )
            for nic in self.problem.nics
        )


def _make_result(ports: set[Port], *, is_working: bool) -> FibreResult:
    if not ports and not is_working:
        return FibreResult("dead")
    if len(ports) == 1 and is_working:
        return FibreResult("found", next(iter(ports)))
    return FibreResult("uncertain", None, tuple(sorted(ports)))
