"""Random labs in memory for the tests of discovery: the truth about fibres, and what a round would show of it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from testbed.operate.discovery.model import FibreResult, Observation, Problem


@dataclass
class RandomLab:
    """A lab whose fibres `seed` drew. Dead fibres have a port like all others, and no light.

    `follow` says that the light of a NIC goes off with it; `strangers` are lit inputs of nobody in the lab.
    """

    seed: int
    hosts: int = 12
    degree: int = 4
    switches: int = 1
    spare: int = 0
    dead: int = 3
    monitors: bool = True
    follow: bool = True
    strangers: int = 0
    whole_cables: int = 0
    rounds: int = 0
    transmit: dict = field(default_factory=dict)
    receive: dict = field(default_factory=dict)

    def __post_init__(self):
        draw = random.Random(self.seed)
        nics = [(f"h{h}", f"nic{k}") for h in range(self.hosts) for k in range(self.degree)]
        size = -(-len(nics) // self.switches) + self.spare
        inputs = [(f"ocs{s}", p + 1) for s in range(self.switches) for p in range(size)]
        outputs = [(f"ocs{s}", size + p + 1) for s in range(self.switches) for p in range(size)]
        self.problem = Problem(tuple(nics), tuple(inputs), tuple(outputs))
        places = draw.sample(inputs, len(nics))
        self.transmit = dict(zip(nics, places, strict=True))
        self.receive = dict(zip(nics, draw.sample(outputs, len(nics)), strict=True))
        ends = [(way, nic) for nic in nics for way in ("transmit", "receive")]
        self.dead_ends = set(draw.sample(ends, self.dead))
        for nic in draw.sample(nics, self.whole_cables):
            self.dead_ends |= {("transmit", nic), ("receive", nic)}
        free = [port for port in inputs if port not in places]
        self.foreign = set(draw.sample(free, min(self.strangers, len(free))))

    def show(self, round_):
        """Return what a round shows."""
        self.rounds += 1
        assert set(round_.circuits) <= set(self.problem.inputs)
        assert set(round_.circuits.values()) <= set(self.problem.outputs)
        assert len(set(round_.circuits.values())) == len(round_.circuits)
        assert all(source[0] == target[0] for source, target in round_.circuits.items())
        shining = {
            port: nic
            for nic, port in self.transmit.items()
            if ("transmit", nic) not in self.dead_ends and not (self.follow and nic in round_.down_nics)
        }
        light = set(shining) | self.foreign
        source_of = {target: source for source, target in round_.circuits.items()}
        lit = {port: port in light for port in self.problem.inputs} if self.monitors else {}
        on = [nic for nic in self.problem.nics if nic not in round_.down_nics]
        carriers = {
            nic: ("receive", nic) not in self.dead_ends and source_of.get(self.receive[nic]) in light
            for nic in on
        }
        spoke = frozenset(nic for nic in on if carriers[nic])
        heard = {
            nic: (shining[source_of[self.receive[nic]]],)
            for nic in spoke
            if shining.get(source_of[self.receive[nic]]) in spoke
        }
        return Observation(lit, carriers, heard, spoke)

    def truth(self, way, nic):
        """Return what a perfect discovery says of a fibre."""
        if (way, nic) in self.dead_ends:
            return FibreResult("dead")
        return FibreResult("found", getattr(self, way)[nic])
