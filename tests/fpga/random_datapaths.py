"""Random datapaths that `check` accepts, and stimuli under which they fire often.

Everything the language has occurs: level and accumulating counts, several of them, shared targets, gates, numbers,
pulses, flags, chains, streams with back-pressure that are shared or joined, sums of data. The same seed gives the
same datapath, and the same stimulus. What happened in a run is counted by `fpga.hdl.cosimulation.measure_coverage`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import numpy as np

from fpga.count_action.actions.memory import make_memory
from fpga.count_action.checks.rules import compute_max_increment
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
from fpga.count_action.ports import WORD_BITS, make_ports

LEVEL, ACCUMULATE = CountKind.LEVEL, CountKind.ACCUMULATE


def random_datapath(seed: int, modules: int = 50, name: str = "random_datapath") -> Datapath:
    """Return a valid datapath of that many modules."""
    builder = _Builder(random.Random(seed))
    for place in range(modules):
        if place and (place % 7 == 6 or place == modules - 1):
            builder.add_sweeper()
        else:
            builder.add_module()
    return builder.datapath_with_memories(name)


@dataclass
class _Builder:
    """Adds module after module; a module looks at inputs, and at what those before it drive."""

    random: random.Random
    signals: list[Signal] = field(default_factory=list)
    modules: list[Module] = field(default_factory=list)
    untaken: list[Ref] = field(default_factory=list)
    """Streams without a taker; those of modules at the end."""
    shared: list[Ref] = field(default_factory=list)
    """Streams that only accumulating counts take."""
    flags: list[Ref] = field(default_factory=list)
    pulses: list[Ref] = field(default_factory=list)
    numbers: list[Ref] = field(default_factory=list)

    def datapath(self, name: str = "part") -> Datapath:
        return Datapath(name, tuple(self.signals), tuple(map(_with_split_streams, self._with_loops())))

    def datapath_with_memories(self, name: str) -> Datapath:
        """Return the datapath; about a sixth of its modules, and at least one, have a memory (R25)."""
        draw = random.Random(len(self.signals) * 1000 + len(self.modules))
        datapath, modules, inputs = self.datapath(name), [], []
        chosen = {draw.randrange(len(datapath.modules))}
        for place, module in enumerate(datapath.modules):
            if place in chosen or draw.random() < 0.16:
                extended, loads = self._with_memory(draw, datapath, module)
                inputs += loads
                modules.append(extended)
            else:
                modules.append(module)
        return Datapath(name, (*datapath.inputs, *inputs), tuple(modules))

    def _with_memory(self, draw: random.Random, datapath: Datapath, module: Module):
        """Return the module with a memory, and the inputs that load it."""
        words, width = draw.choice([2, 3, 5, 8, 16, 37, 64, 300]), draw.choice([1, 4, 8, 16, 33, 48])
        memory, inputs = make_memory(module.name, "mem", words, width)
        known = [Ref(each.output, module.name) for each in module.list_actions(ActionKind.ADVANCE)]
        known += [ref for ref in self.numbers if ref.module is None or draw.random() < 0.3]
        known += [ref for count in module.counts for ref in count.terms][:20]
        fetched = Ref("fetched", module.name)
        counts = [count.name for count in module.counts]
        actions = [memory]
        stores = draw.choice([0, 1, 1, 1, 2])
        if draw.random() < 0.8 or not stores:
            at = draw.choice(known or [fetched])
            actions.append(
                Action(ActionKind.READ, draw.choice(counts), "fetched", (at,), width, memory="mem")
            )
            known += [fetched] * 2
        for _ in range(stores if known else 0):
            refs = (draw.choice(known), draw.choice(known))
            on, ranked = draw.choice(counts), stores > 1
            actions.append(Action(ActionKind.STORE_WORD, on, refs=refs, memory="mem", ranked=ranked))
        actions = [actions[0], *module.actions, *actions[1:]]
        return replace(module, actions=tuple(actions)), inputs

    def likely(self, probability: float) -> bool:
        return self.random.random() < probability

    # ------------------------------------------------------------------------------- inputs
    def _new_stream(self) -> None:
        size = (
            self.random.choice([1, 1, 2, 3, 4, 8, 16]) if self.likely(0.95) else self.random.randint(60, 70)
        )
        width = self.random.choice([1, 4, 8, 12, 16, 32])
        lanes = self.random.choice([1, 1, 1, 2, 5]) if size < 20 else 1
        signal = Signal(self._name("s"), SignalKind.STREAM, size, lanes, width, self.likely(0.5))
        self.signals.append(signal)
        self.untaken[:0] = [Ref(signal.name, index=index) for index in range(size)]

    def _new_flags(self) -> None:
        size = self.random.choice([1, 2, 3, 6])
        self.signals.append(Signal(self._name("f"), SignalKind.FLAG, size))
        self.flags += [Ref(self.signals[-1].name, index=index) for index in range(size)]

    def _new_numbers(self) -> None:
        size, width = self.random.choice([1, 1, 3]), self.random.choice([1, 2, 3, 5, 8, 13])
        self.signals.append(Signal(self._name("n"), SignalKind.NUMBER, size, width=width))
        self.numbers += [Ref(self.signals[-1].name, index=index) for index in range(size)]

    def _name(self, letter: str) -> str:
        return f"{letter}{len(self.signals)}"

    def _flag(self) -> Ref:
        if not self.flags or self.likely(0.15):
            self._new_flags()
        return self._recent(self.flags)

    def _number(self) -> Ref:
        if not self.numbers or self.likely(0.2):
            self._new_numbers()
        return self._recent(self.numbers)

    def _recent(self, refs: list[Ref]) -> Ref:
        """Return one of the last few, mostly: chains grow that way."""
        return self.random.choice(refs[-6:] if self.likely(0.7) else refs)

    # ------------------------------------------------------------------------------ modules
    def add_module(self) -> None:
        name = f"m{len(self.modules)}"
        sends = self.likely(0.55)
        counts = [self._count(place, sends) for place in range(self.random.choice([1, 1, 1, 2, 2, 3]))]
        counts, targets = self._with_targets(counts)
        actions = self._actions(name, counts, sends)
        self.modules.append(Module(name, tuple(counts), tuple(targets), tuple(actions)))
        self._offer(self.modules[-1])

    def add_sweeper(self) -> None:
        """Add a module that now and then clears counts: those above their target would stay there (R4, R8)."""
        name, swept = f"m{len(self.modules)}", {each.clears for m in self.modules for each in m.actions}
        counts = [(module.name, count) for module, count in self.datapath().list_counts()]
        accumulating = [(module, count.name) for module, count in counts if count.kind is ACCUMULATE]
        often = Count("c0", ACCUMULATE, "t0", (self._flag(),), width=5)
        seldom = Count("c1", LEVEL, "t1", tuple(self._flag() for _ in range(4)), width=3)
        targets = (Target("t0", self.random.randint(2, 12), 5), Target("t1", 4, 3))
        actions = [
            Action(ActionKind.CLEAR_COUNT, "c0", clears=each) for each in accumulating if each not in swept
        ]
        actions.append(Action(ActionKind.CLEAR_COUNT, "c1", clears=(name, "c0")))
        actions.append(Action(ActionKind.PULSE, "c0", "o0"))
        self.modules.append(Module(name, (often, seldom), targets, tuple(actions)))
        self._offer(self.modules[-1])

    def _count(self, place: int, sends: bool) -> Count:
        kind = LEVEL if self.likely(0.35) else ACCUMULATE
        terms = self._terms(kind, sends)
        constant = self.random.randint(1, 3) if not terms or self.likely(0.07) else 0
        gate = tuple(self._condition(sends) for _ in range(self.random.choice([0, 0, 0, 1, 1, 2])))
        count = Count(f"c{place}", kind, "", terms, constant, gate, width=32)
        need = compute_max_increment(Graph(self.datapath()), count).bit_length()
        width = min(32, need + self.random.choice([0, 1, 2, 4, 16]))
        return Count(f"c{place}", kind, "", terms, constant, gate, width=width)

    def _terms(self, kind: CountKind, sends: bool) -> tuple[Ref, ...]:
        if self.likely(0.04):
            return ()
        what = self.random.random()
        if what < 0.55:
            return self._streams(kind)
        if what < 0.7:
            return tuple(self._flag() for _ in range(self.random.randint(1, 4)))
        if what < 0.8:
            return (self._number(), *(self._flag() for _ in range(self.random.randint(0, 2))))
        if self.pulses and not sends:
            return tuple(self._recent(self.pulses) for _ in range(self.random.randint(1, 2)))
        return (*self._streams(kind), self._flag())

    def _streams(self, kind: CountKind) -> tuple[Ref, ...]:
        """Return streams for a count: those of modules first, now and then all of a wide input."""
        if kind is ACCUMULATE and self.shared and self.likely(0.3):
            return tuple(self.random.sample(self.shared, min(len(self.shared), self.random.randint(1, 2))))
        while len(self.untaken) < 2 or (self.untaken[-1].module is None and self.likely(0.3)):
            self._new_stream()
        many = self.random.choice([1, 1, 2, 3, 4, 16, 66])
        taken = self.untaken[-many:] if self.likely(0.6) else self.untaken[:many]
        self.untaken = [ref for ref in self.untaken if ref not in taken]
        if kind is ACCUMULATE:
            self.shared += taken
        return tuple(taken)

    def _condition(self, sends: bool) -> Condition:
        what = self.random.random()
        if what < 0.7:
            flag = self._flag()
            # Whoever waits for a flag that waits for him waits for ever: mostly the other way round.
            return Condition(flag, self.likely(0.4 if flag.module is None else 0.9))
        if what < 0.85:
            return Condition(self._number(), self.likely(0.2))
        if self.shared and what < 0.95:
            return Condition(self.random.choice(self.shared), self.likely(0.5))
        return Condition(self.random.choice(self.pulses or [self._flag()]), negated=True)

    # ------------------------------------------------------------------------------ targets
    def _with_targets(self, counts: list[Count]) -> tuple[list[Count], list[Target]]:
        """Return one target for all counts where that is possible, and wanted; otherwise one each."""
        graph = Graph(self.datapath())
        possible = [set(_reachable(graph, count)) for count in counts]
        common = set.intersection(*possible)
        if len(counts) > 1 and common and self.likely(0.5):
            groups = [(counts, common)]
        else:
            groups = [([count], values) for count, values in zip(counts, possible, strict=True)]
        made, targets = [], []
        for members, values in groups:
            name = f"t{len(targets)}"
            never = len(counts) > 1 and self.likely(0.08)
            reset = 0 if never else self.random.choice(sorted(values)[:12])
            width = max([reset.bit_length(), *(count.width for count in members)])
            targets.append(Target(name, reset, min(32, width + self.random.choice([0, 0, 1]))))
            made += [_replaced(count, name) for count in members]
        return made, targets

    # ------------------------------------------------------------------------------ actions
    def _actions(self, module: str, counts: list[Count], sends: bool) -> list[Action]:
        actions: list[Action] = []
        for place, count in enumerate(counts):
            if sends and (place == 0 or self.likely(0.4)):
                make = self._emit if self.likely(0.5) else self._beat
                actions.append(make(count, f"o{len(actions)}"))
            for _ in range(self.random.choice([0, 1, 1, 2] if actions else [1, 1, 2])):
                actions += self._effect(module, counts, count, f"o{len(actions)}")
        return actions

    def _effect(self, module: str, counts: list[Count], count: Count, output: str) -> list[Action]:
        what = self.random.random()
        if what < 0.4:
            return [Action(ActionKind.PULSE, count.name, output)]
        if what < 0.65:
            by = self.random.choice(counts)
            both = Action(ActionKind.CLEAR_FLAG, by.name, output)
            return [Action(ActionKind.SET, count.name, output), both][
                : 2 if by != count or self.likely(0.1) else 1
            ]
        if what < 0.8:
            modulo = self.random.randint(2, 9)
            width = (modulo - 1).bit_length() + self.random.choice([0, 0, 2])
            return [Action(ActionKind.ADVANCE, count.name, output, width=width, modulo=modulo)]
        known = [(module, each.name) for each in counts if each.kind is ACCUMULATE]
        known += [
            (m.name, each.name) for m in self.modules[-4:] for each in m.counts if each.kind is ACCUMULATE
        ]
        if not known:
            return [Action(ActionKind.PULSE, count.name, output)]
        return [Action(ActionKind.CLEAR_COUNT, count.name, clears=self.random.choice(known))]

    def _beat(self, count: Count, output: str) -> Action:
        refs = self._samples(count)
        width = max(self._source(ref).width for ref in refs)
        if self.likely(0.3):
            width = self.random.choice([1, 3, 8, 16, 32])
        return Action(ActionKind.STREAM, count.name, output, refs, width, self.likely(0.5))

    def _emit(self, count: Count, output: str) -> Action:
        width = self.random.choice([5, 8, 16, 20, 32, 32])
        shift = self.random.choice([0, 0, 1, 3, 7])
        refs = self._samples(count)
        return Action(ActionKind.EMIT, count.name, output, refs, width, self.likely(0.6), shift)

    def _samples(self, count: Count) -> tuple[Ref, ...]:
        """Return all lanes of what is counted, in order or shuffled; now and then something else."""
        graph = Graph(self.datapath())
        refs = [
            Ref(ref.name, ref.module, ref.index, lane)
            for ref in count.terms
            for lane in range(max(1, graph.find_source(ref).lanes))
        ][:80]
        if self.likely(0.2):
            self.random.shuffle(refs)
            refs = refs[: self.random.randint(1, max(1, len(refs)))]
        if not refs or self.likely(0.15):
            refs.append(self.random.choice([*self.shared, self._flag(), self._number(), *self.pulses[-2:]]))
        return tuple(refs)

    def _source(self, ref: Ref):
        return Graph(self.datapath()).find_source(ref)

    def _offer(self, module: Module) -> None:
        """Offer what the modules after this one may look at."""
        for action in module.actions:
            ref = Ref(action.output, module.name)
            if action.kind.drives is SignalKind.STREAM:
                self.untaken.append(ref)
            elif action.kind is ActionKind.PULSE:
                self.pulses.append(ref)
            elif action.kind is ActionKind.SET:
                self.flags.append(ref)
            elif action.kind is ActionKind.ADVANCE:
                self.numbers.append(ref)

    def _with_loops(self) -> list[Module]:
        """Return the modules, of which a few wait for the flag of a later one to be 0: circles through registers."""
        loops = random.Random(len(self.modules))
        flags = [(place, ref) for place, m in enumerate(self.modules) for ref in _flags_of(m)]
        modules = list(self.modules)
        for place, module in enumerate(modules):
            later = [ref for where, ref in flags if where >= place]
            if later and loops.random() < 0.05:
                gate = (*module.counts[0].gate, Condition(loops.choice(later), negated=True))
                first = module.counts[0]
                gated = Count(
                    first.name, first.kind, first.target, first.terms, first.constant, gate, first.width
                )
                modules[place] = Module(
                    module.name, (gated, *module.counts[1:]), module.targets, module.actions
                )
        return modules


def _with_split_streams(module: Module) -> Module:
    """Return the module with further takers of the streams of a level count: another level count, or one that adds."""
    chance = random.Random(module.name)
    level = [each for each in module.counts if each.kind is LEVEL and each.terms and not each.constant]
    if not level or chance.random() < 0.5:
        return module
    first = chance.choice(level)
    terms = tuple(chance.sample(first.terms, chance.randint(1, len(first.terms))))
    kind = LEVEL if chance.random() < 0.75 else ACCUMULATE
    gate = first.gate if chance.random() < 0.3 else ()
    other = replace(first, name="split", kind=kind, target="split_t", terms=terms, gate=gate)
    target = Target("split_t", chance.randint(1, len(terms)), first.width)
    place = chance.randint(0, len(module.counts))
    counts = (*module.counts[:place], other, *module.counts[place:])
    action = Action(ActionKind.PULSE, "split", "split_o")
    if module.list_streams():
        sent = chance.choice([each for each in module.actions if each.kind.drives is SignalKind.STREAM])
        action = replace(sent, on="split", output="split_o")
    return replace(
        module, counts=counts, targets=(*module.targets, target), actions=(*module.actions, action)
    )


def _flags_of(module: Module) -> list[Ref]:
    clearing = {each.output for each in module.list_actions(ActionKind.CLEAR_FLAG)}
    return [
        Ref(each.output, module.name)
        for each in module.list_actions(ActionKind.SET)
        if each.output in clearing
    ]


def _reachable(graph: Graph, count: Count) -> range:
    """Return targets that are sensible for a count."""
    most = compute_max_increment(graph, count)
    if count.kind is LEVEL:
        return range(max(1, count.constant), min(most, 20) + 1)
    if not count.terms:
        return range(count.constant, min(2**count.width, 12 * count.constant), count.constant)
    return range(1, min(2**count.width - 1 + most, 8 + min(most, 20)) + 1)


def _replaced(count: Count, target: str) -> Count:
    return Count(count.name, count.kind, target, count.terms, count.constant, count.gate, count.width)


# ------------------------------------------------------------------------------------------------ stimuli

PHASE = 48
"""Cycles for which inputs keep how busy they are, and targets what they are."""


def constructive_stimulus(datapath: Datapath, cycles: int, seed: int = 0):
    """Return inputs under which counts reach their targets: partial sums of these inputs are committed."""
    return _Stimulus(datapath, cycles, np.random.default_rng(seed)).rows()


class _Stimulus:
    def __init__(self, datapath, cycles, generator):
        self.datapath, self.cycles, self.generator = datapath, cycles, generator
        self.ports = make_ports(datapath)
        self._signals = {signal.name: signal for signal in datapath.inputs}
        self.bits = {port.name: self._port(port) for port in self.ports.inputs}

    def rows(self):
        self.bits["target_shadow_i"] = self._targets()
        rows = np.zeros((self.cycles, self.ports.input_column_count), np.uint64)
        for port in self.ports.inputs:
            padded = np.zeros((self.cycles, port.word_count * WORD_BITS), np.bool_)
            padded[:, : port.width] = self.bits[port.name]
            packed = np.packbits(padded, axis=1, bitorder="little").view("<u8")
            rows[:, port.column : port.column + port.word_count] = packed
        return rows

    def _port(self, port):
        """Return the bits of one input port, cycles x width."""
        if port.name == "target_shadow_i":
            return None
        if port.name.endswith("_data_i"):
            density = self.generator.choice([0.02, 0.5, 0.5, 0.98], self.cycles)
        elif port.name == "commit_i":
            density = np.full(self.cycles, 1.5 / PHASE)
        elif port.name.endswith("_load_i"):
            density = self._phases([0.0, 0.02, 0.3])
        elif port.name == "clear_status_i":
            density = np.full(self.cycles, 0.02)
        else:
            density = self._phases([0.1, 0.5, 0.9, 1.0])
        drawn = np.frombuffer(self.generator.bytes(self.cycles * port.width), np.uint8)
        highest = np.maximum(np.round(density * 256) - 1, 0).astype(np.uint8)
        bits = drawn.reshape(self.cycles, port.width) <= highest[:, None]
        if port.name.startswith("n") and port.name.endswith("_i"):
            self._small(port, bits)
        return bits

    def _phases(self, choices):
        phases = self.generator.choice(choices, -(-self.cycles // PHASE))
        return np.repeat(phases, PHASE)[: self.cycles]

    def _small(self, port, bits):
        """Draw numbers mostly below 4: their upper bits are 1 in one cycle of sixteen only."""
        width = self.datapath.input(port.name[:-2]).width
        upper = np.arange(port.width) % width >= 2
        bits &= ~upper | (self.generator.random((self.cycles, 1)) < 1 / 16)

    def _targets(self):
        """Return what stands in the shadow bank: new in every phase, and mostly within reach."""
        fields = []
        for module, target in self.datapath.list_targets():
            counts = [count for count in module.counts if count.target == target.name]
            values = self._target(counts, target)
            bits = values[:, None] >> np.arange(target.width, dtype=np.uint64) & np.uint64(1)
            fields.append(np.repeat(bits.astype(np.bool_), PHASE, axis=0)[: self.cycles])
        return np.concatenate(fields, axis=1)

    def _target(self, counts, target):
        """Return the values of one target, one for each phase."""
        phases = -(-self.cycles // PHASE)
        kind = self.generator.random(phases)
        values = np.zeros(phases, np.uint64)
        if not counts:
            return values
        anything = (kind >= 0.03) & (kind < 0.06)
        values[anything] = self.generator.integers(0, 2**target.width, anything.sum(), np.uint64)
        values[(kind >= 0.06) & (kind < 0.15)] = target.reset
        which = self.generator.integers(len(counts), size=phases)
        for index, count in enumerate(counts):
            chosen = np.flatnonzero((kind >= 0.15) & (which == index))
            values[chosen] = np.clip(self._partial_sums(count, chosen), 1, 2**target.width - 1)
        return values

    def _partial_sums(self, count, phases):
        """Return what a count adds up in one cycle, or in a few, of each of the phases."""
        if count.order:
            return np.ones(len(phases), np.int64)
        begin = phases * PHASE + self.generator.integers(PHASE // 2, size=len(phases))
        begin = np.minimum(begin, self.cycles - 1)
        length = 1 if count.kind is LEVEL else self.generator.integers(1, 7, len(phases))
        increments = sum((self._increments(ref) for ref in count.terms), np.zeros(self.cycles, np.int64))
        so_far = np.concatenate([[0], np.cumsum(increments)])
        return count.constant * length + so_far[np.minimum(begin + length, self.cycles)] - so_far[begin]

    def _increments(self, ref):
        """Return what a term adds in each cycle if nothing stalls; what modules drive is 1 in half of the cycles."""
        if ref.module is not None:
            return self.generator.random(self.cycles) < 0.5
        signal = self._signals[ref.name]
        if signal.kind is not SignalKind.NUMBER:
            port = f"{ref.name}_valid_i" if signal.kind is SignalKind.STREAM else f"{ref.name}_i"
            return self.bits[port][:, ref.index]
        low = ref.index * signal.width
        return self.bits[f"{ref.name}_i"][:, low : low + signal.width] @ (1 << np.arange(signal.width))
