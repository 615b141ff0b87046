"""Random datapaths that are valid by construction, built of the dataclasses alone."""

from __future__ import annotations

import random

from fpga.count_action.graph import Graph
from fpga.count_action.model import (
    Action,
    ActionKind,
    Condition,
    Count,
    CountKind,
    Datapath,
    Module,
    Ref,
    Signal,
    SignalKind,
    Target,
)


def random_datapath(seed: int) -> Datapath:
    """Return a datapath of one to five modules with everything that the language has."""
    return _Maker(random.Random(seed)).datapath()


class _Maker:
    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.inputs = (
            Signal(
                "x",
                SignalKind.STREAM,
                dice.randint(1, 6),
                dice.randint(1, 4),
                dice.randint(1, 32),
                dice.random() < 0.5,
            ),
            Signal("samples", SignalKind.STREAM, 1, dice.choice((1, 5)), 8, signed=dice.random() < 0.5),
            Signal("go", SignalKind.FLAG, dice.randint(1, 5)),
            Signal("layer", SignalKind.NUMBER, dice.randint(1, 3), 1, dice.randint(1, 12)),
        )
        self.modules: list[Module] = []
        self.level_taken: set[tuple[str | None, str, int]] = set()
        self.taken: set[tuple[str | None, str, int]] = set()

    def datapath(self) -> Datapath:
        for number in range(self.dice.randint(1, 5)):
            self.modules.append(self.module(f"m{number}"))
        return Datapath(f"random_{self.dice.randrange(10**6)}", self.inputs, tuple(self.modules))

    def module(self, name: str) -> Module:
        dice = self.dice
        stalls = dice.random() < 0.6
        counts = tuple(self.count(f"c{number}", stalls=stalls) for number in range(dice.randint(1, 4)))
        names = [f"t{number}" for number in range(dice.randint(1, len(counts)))]
        counts = tuple(_with_target(count, dice.choice(names)) for count in counts)
        targets = tuple(self.target(each, counts) for each in names)
        return Module(name, counts, targets, self.actions(name, counts, stalls=stalls))

    def target(self, name: str, counts: tuple[Count, ...]) -> Target:
        mine = [count for count in counts if count.target == name]
        width = max((count.width for count in mine), default=16) + self.dice.choice((0, 0, 1))
        graph = Graph(Datapath("d", self.inputs, tuple(self.modules)))
        most = min((_reachable(graph, count) for count in mine), default=5)
        least = max((count.constant for count in mine if count.kind is CountKind.LEVEL), default=0)
        if any(not count.terms for count in mine) or most <= least:
            return Target(name, 0, min(width, 32))
        return Target(name, self.dice.choice((0, self.dice.randint(max(least, 1), most))), min(width, 32))

    def count(self, name: str, *, stalls: bool) -> Count:
        dice = self.dice
        kind = dice.choice(list(CountKind))
        terms = [self.term(kind, stalls=stalls) for _ in range(dice.randint(1, 4))]
        run = self.run(kind) if dice.random() < 0.4 else []
        gate = [Condition(self.condition(), dice.random() < 0.5) for _ in range(dice.randint(0, 2))]
        constant = dice.choice((0, 0, 0, 1, 3))
        return Count(name, kind, "", tuple(terms + run), constant, tuple(gate), dice.choice((16, 17, 20, 32)))

    def run(self, kind: CountKind) -> list[Ref]:
        streams = [Ref("x", None, index) for index in range(self.inputs[0].size)]
        return [ref for ref in streams if self.may_take(ref, kind)]

    def may_take(self, ref: Ref, kind: CountKind) -> bool:
        key = (ref.module, ref.name, ref.index)
        if key in self.level_taken or (kind is CountKind.LEVEL and key in self.taken):
            return False
        self.taken.add(key)
        if kind is CountKind.LEVEL:
            self.level_taken.add(key)
        return True

    def term(self, kind: CountKind, *, stalls: bool) -> Ref:
        stream = self.stream()
        if self.dice.random() < 0.6 and self.may_take(stream, kind):
            return Ref(stream.name, stream.module, stream.index)
        return self.bit(pulses=not stalls)

    def stream(self) -> Ref:
        own = [
            Ref(each.output, module.name)
            for module in self.modules
            for each in module.list_actions(*_STREAMS)
        ]
        outside = [Ref(each.name, None, index) for each in self.inputs[:2] for index in range(each.size)]
        return self.dice.choice(own if own and self.dice.random() < 0.5 else outside)

    def bit(self, *, pulses: bool) -> Ref:
        kinds = (ActionKind.SET, ActionKind.ADVANCE, *((ActionKind.PULSE,) if pulses else ()))
        own = [
            Ref(each.output, module.name) for module in self.modules for each in module.list_actions(*kinds)
        ]
        outside = [Ref(each.name, None, index) for each in self.inputs[2:] for index in range(each.size)]
        return self.dice.choice(own if own and self.dice.random() < 0.5 else outside)

    def condition(self) -> Ref:
        return self.bit(pulses=True) if self.dice.random() < 0.8 else self.stream()

    def actions(self, module: str, counts: tuple[Count, ...], *, stalls: bool) -> tuple[Action, ...]:
        made: list[Action] = []
        for number in range(self.dice.randint(0, 5)):
            on = self.dice.choice(counts).name
            kinds = [*_PLAIN, *(_STREAMS if stalls else ())]
            made += self.action(self.dice.choice(kinds), on, number, module, counts)
        return tuple(made)

    def action(
        self, kind: ActionKind, on: str, number: int, module: str, counts: tuple[Count, ...]
    ) -> list[Action]:
        dice, name = self.dice, dice_name(self.dice, number)
        if kind is ActionKind.ADVANCE:
            modulo = dice.randint(2, 40)
            return [
                Action(
                    kind, on, name, width=(modulo - 1).bit_length() + dice.choice((0, 0, 1)), modulo=modulo
                )
            ]
        if kind is ActionKind.SET:
            return [Action(kind, on, name), Action(ActionKind.CLEAR_FLAG, dice.choice(counts).name, name)]
        if kind is ActionKind.CLEAR_COUNT:
            there = [(module, count.name) for count in counts]
            there += [(each.name, count.name) for each in self.modules for count in each.counts]
            return [Action(kind, on, clears=dice.choice(there))]
        if kind is ActionKind.PULSE:
            return [Action(kind, on, name)]
        return [self.beat(kind, on, name)]

    def beat(self, kind: ActionKind, on: str, name: str) -> Action:
        dice = self.dice
        graph = Graph(Datapath("d", self.inputs, tuple(self.modules)))
        refs: list[Ref] = []
        for _ in range(dice.randint(1, 3)):
            stream = self.stream() if dice.random() < 0.85 else self.bit(pulses=True)
            lanes = graph.find_source(stream).lanes
            low = dice.randrange(lanes)
            chosen = range(lanes) if dice.random() < 0.5 else range(low, dice.randint(low, lanes - 1) + 1)
            refs += [Ref(stream.name, stream.module, stream.index, lane) for lane in chosen]
        if dice.random() < 0.3:
            lanes = self.inputs[0].lanes
            refs += [
                Ref("x", None, index, lane) for index in range(self.inputs[0].size) for lane in range(lanes)
            ]
        signed = any(graph.find_source(ref).signed for ref in refs) ^ (dice.random() < 0.2)
        shift = dice.choice((0, 0, 4)) if kind is ActionKind.EMIT else 0
        return Action(kind, on, name, tuple(refs), dice.choice((1, 8, 16, 32)), signed, shift)


_STREAMS = (ActionKind.STREAM, ActionKind.EMIT)
_PLAIN = (ActionKind.PULSE, ActionKind.SET, ActionKind.ADVANCE, ActionKind.CLEAR_COUNT)


def dice_name(dice: random.Random, number: int) -> str:
    """Return a name for what an action drives; some are words of the language that may be names."""
    return (
        f"out_{number}"
        if number or dice.random() < 0.5
        else dice.choice(("out", "width", "over", "stream", "to"))
    )


def _with_target(count: Count, target: str) -> Count:
    return Count(count.name, count.kind, target, count.terms, count.constant, count.gate, count.width)


def _reachable(graph: Graph, count: Count) -> int:
    most = count.constant + len(count.terms)
    return most if count.kind is CountKind.LEVEL else min(2**count.width - 1, 10**6)
