"""Rounds of a discovery, each chosen by what the earlier ones showed. Pure: a generator of rounds.

    all       every free input is joined to a free output; who is heard names both ends of a circuit at once
    lasers    NICs are switched off by the bits of their numbers: power monitors read a number at every lit input
    circuits  circuits are left out by the bits of their numbers: carriers read a number at every receiver
    names     what is left is joined to NICs that are known: known ones speak to open outputs, listen at open inputs

The lasers' code needs power monitors, or receivers that are known already, and NICs whose light goes off with them;
where one of these is missing, the circuits' code does the same with carriers alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from testbed.operate.discovery.evidence import Evidence
from testbed.operate.discovery.model import NicName, NicResult, Observation, Port, Problem, Round

Rounds = Generator[Round, Observation, Evidence]
_PATIENCE = 3


def plan_rounds(problem: Problem, *, limit: int) -> Rounds:
    """Yield rounds until every fibre is found or dead, or nothing more can be learnt, or `limit` is reached.

    Send back what each round showed. The same observations give the same rounds.
    """
    search = _Search(problem, limit)
    yield from search.run()
    return search.evidence


def code_length(count: int) -> int:
    """Return the bits of numbers 1..count of which none has only zeros or only ones.

    >>> [code_length(count) for count in (1, 2, 3, 48)]
    [2, 2, 3, 6]
    """
    return max(2, (count + 1).bit_length())


def most_rounds(problem: Problem) -> int:
    """Return how many rounds a discovery may take without power monitors.

    Both codes, then each open port is tried with known NICs, which are at least a quarter of those that are looked
    for, twice.
    """
    ports = max(len(problem.inputs), len(problem.outputs), 1)
    nics = max(len(problem.nics), 1)
    shifts = -(-ports // nics)
    return shifts * (2 + code_length(ports)) + 2 * code_length(nics) + 8 * shifts + 8


@dataclass
class _Search:
    problem: Problem
    limit: int
    history: list[tuple[Round, Observation]] = field(default_factory=list)
    tries: Counter[Port] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.evidence = Evidence(self.problem, ())

    def run(self) -> Generator[Round, Observation, None]:
        for shift in range(1, len(self.problem.outputs) + 1):
            if not (yield from self._join_all(shift)):
                return
            if self._lasers_tell():
                yield from self._code_of_lasers()
            if self._few_are_known():
                yield from self._code_of_circuits(self.history[0 if shift == 1 else -1][0].circuits)
            yield from self._name_the_rest()
            if self._is_done() or self.evidence.known_inputs():
                return

    def _ask(self, round_: Round) -> Generator[Round, Observation, bool]:
        """Do one round; False when there are no more."""
        if len(self.history) >= self.limit or self._is_done():
            return False
        seen = yield round_
        self.history.append((round_, seen))
        self.evidence = Evidence(self.problem, tuple(self.history))
        return True

    def _is_done(self) -> bool:
        return bool(self.history) and all(
            "uncertain" not in (nic.transmit.verdict, nic.receive.verdict) for nic in self._results()
        )

    def _results(self) -> tuple[NicResult, ...]:
        return self.evidence.results()

    def _join_all(self, shift: int) -> Generator[Round, Observation, bool]:
        circuits = pair_ports(self.problem.inputs, self.problem.outputs, shift)
        if not circuits or not self.problem.nics:
            return False
        return (yield from self._ask(Round("all", circuits)))

    def _lasers_tell(self) -> bool:
        """Return whether there are lit inputs of unknown NICs whose light can be watched while circuits stand."""
        nameless = set(self.evidence.nameless())
        watched = {port for light in self.evidence.lit[-1:] for port in light}
        return bool(nameless & watched) and bool(self._unknown_transmitters())

    def _unknown_transmitters(self) -> list[NicName]:
        return [nic.nic for nic in self._results() if nic.transmit.verdict == "uncertain"]

    def _code_of_lasers(self) -> Generator[Round, Observation, None]:
        """Switch off half of the unknown NICs a round; ends early where no light goes off with its NIC."""
        suspects = self._unknown_transmitters()
        circuits = self.history[-1][0].circuits
        for bit in range(code_length(len(suspects))):
            off = frozenset(nic for number, nic in enumerate(suspects, 1) if not number >> bit & 1)
            if not off:
                continue
            if not (yield from self._ask(Round("lasers", circuits, off))):
                return
            if 2 * len(off) >= len(self.problem.nics) > 2 and not self.evidence.follows:
                return

    def _few_are_known(self) -> bool:
        """Return whether fewer than half of the NICs that received light are known."""
        known = len(self.evidence.known_outputs())
        return 2 * known < len(self.evidence.receives) or not known

    def _code_of_circuits(self, circuits: Mapping[Port, Port]) -> Generator[Round, Observation, None]:
        pairs = list(circuits.items())
        for bit in range(code_length(len(pairs))):
            kept = {port: output for number, (port, output) in enumerate(pairs, 1) if number >> bit & 1}
            if kept and not (yield from self._ask(Round("circuits", kept))):
                return

    def _name_the_rest(self) -> Generator[Round, Observation, None]:
        """Join open ports to known NICs until that teaches nothing more; then try lasers on those that cannot speak."""
        idle, coded = 0, False
        while idle < _PATIENCE and not self._is_done():
            before, tried = self._results(), len(+self.tries)
            circuits = self._join_to_known()
            if not circuits or not (yield from self._ask(Round("names", circuits))):
                return
            idle = 0 if self._results() != before or len(+self.tries) > tried else idle + 1
            if idle == 1 and not coded and self._lasers_tell():
                coded = True
                yield from self._code_of_lasers()
                idle = 0

    def _join_to_known(self) -> dict[Port, Port]:
        """Return circuits that try as many open ports as the known NICs allow.

        A NIC can speak only while its receiver has light, so every speaker's receiver gets some.
        """
        joints = _Joints(self.evidence, turn=len(self.history))
        inputs = {port for nic in self._results() for port in nic.transmit.candidates}
        outputs = {port for nic in self._results() for port in nic.receive.candidates}
        open_inputs, open_outputs = (
            sorted(ports, key=lambda port: (self.tries[port], port)) for ports in (inputs, outputs)
        )
        for nic in self._unknown_transmitters():
            joints.light(nic)
        # Turn about: neither side may use up the NICs that the other needs.
        for number in range(max(len(open_inputs), len(open_outputs))):
            if number < len(open_outputs) and joints.speak_to(open_outputs[number]):
                self.tries[open_outputs[number]] += 1
            if number < len(open_inputs) and joints.listen_at(open_inputs[number]):
                self.tries[open_inputs[number]] += 1
        return joints.circuits


class _Joints:
    """Circuits of one round of names, while they are chosen; every `turn` begins with another known NIC."""

    def __init__(self, evidence: Evidence, turn: int) -> None:
        self._evidence = evidence
        self.circuits: dict[Port, Port] = {}
        known = list(evidence.known_inputs().items())
        first = turn % len(known) if known else 0
        self._sources = dict(known[first:] + known[:first])
        self._lamps = list(evidence.nameless())
        self._targets = evidence.known_outputs()
        self._fed: set[Port] = set()

    def _join(self, source: Port, target: Port) -> None:
        self.circuits[source] = target
        self._fed.add(target)
        self._sources.pop(source, None)
        self._targets.pop(target, None)
        self._lamps = [port for port in self._lamps if port != source]

    def light(self, nic: NicName) -> bool:
        """Give the receiver of a NIC light, if it is known; True when it has some."""
        output = self._evidence.output_of(nic)
        if output is None or output in self._fed:
            return output is not None
        # Those that cannot speak are of no other use.
        mute_first = sorted(
            self._sources, key=lambda port: self._evidence.output_of(self._sources[port]) is not None
        )
        source = next((port for port in mute_first if port[0] == output[0]), None)
        if source is None:
            return False
        self._join(source, output)
        return True

    def speak_to(self, output: Port) -> bool:
        """Patch a known NIC to an output of which nobody knows who listens there."""
        for source, nic in list(self._sources.items()):
            own = self._evidence.output_of(nic)
            if source[0] != output[0] or own is None:
                continue
            self._sources.pop(source)
            if self.light(nic):
                self._join(source, output)
                return True
            self._sources[source] = nic
        # Light without a name proves a receiver too, or that there is none.
        light = next((port for port in (*self._sources, *self._lamps) if port[0] == output[0]), None)
        if light is not None:
            self._join(light, output)
        return light is not None

    def listen_at(self, source: Port) -> bool:
        """Patch an input of which nobody knows who speaks there to a known NIC."""
        output = next((port for port in self._targets if port[0] == source[0]), None)
        if output is not None and source not in self.circuits:
            self._join(source, output)
        return output is not None


def pair_ports(inputs: Iterable[Port], outputs: Iterable[Port], shift: int) -> dict[Port, Port]:
    """Return every input joined to an output of its switch, `shift` places on, as far as outputs go.

    >>> pair_ports([("s", 1), ("s", 2)], [("s", 3), ("s", 4)], 1)
    {('s', 1): ('s', 4), ('s', 2): ('s', 3)}
    """
    circuits: dict[Port, Port] = {}
    sources, targets = _by_switch(inputs), _by_switch(outputs)
    for switch, ports in sources.items():
        ends = targets.get(switch, [])
        for at, port in enumerate(ports[: len(ends)] if len(ports) > len(ends) else ports):
            circuits[port] = ends[(at + shift) % len(ends)]
    return circuits


def _by_switch(ports: Iterable[Port]) -> dict[str, Sequence[Port]]:
    by_switch: dict[str, list[Port]] = {}
    for port in ports:
        by_switch.setdefault(port[0], []).append(port)
    return dict(by_switch)
