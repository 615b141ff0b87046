"""Random datapaths with formulas: conditions and samples of one that has none are replaced.

The same seed gives the same. What there is of each construct is counted by `constructs`.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from fpga.count_action import arbitration
from fpga.count_action.expressions import COMPARISON_OPERATORS, count_bits
from fpga.count_action.graph import Graph
from fpga.count_action.model import (
    Action,
    ActionKind,
    Claim,
    Condition,
    Count,
    CountKind,
    Datapath,
    Module,
    Operation,
    Ref,
    Signal,
    SignalKind,
    Target,
    is_formula_ref,
)

ARITHMETIC = ("+", "-", "max", "min")


def with_formulas(datapath: Datapath, seed: int) -> Datapath:
    """Return the datapath with formulas in about half of its conditions and samples."""
    generator = random.Random(seed)
    datapath = replace(datapath, inputs=tuple(_inputs(datapath, generator)))
    maker = _Maker(datapath, generator)
    made = replace(datapath, modules=tuple(maker.module(module) for module in datapath.modules))
    for place in range(1 + len(datapath.modules) // 20):
        made = _with_packets(made, f"packets{place}", generator)
    return replace(made, inputs=tuple(sorted(made.inputs, key=lambda each: each.loads_memory)))


def _with_packets(datapath, name, generator):
    """Return the datapath with a module that merges streams of packets (R18, R19)."""
    lanes, streams, signals = generator.randint(1, 3), [], []
    for letter in "abc"[: generator.randint(2, 3)]:
        stream = f"{name}_{letter}"
        width, buffered = generator.choice([8, 16, 40]), generator.random() < 0.5
        signals += [
            Signal(stream, SignalKind.STREAM, 1, lanes, width, buffered=buffered),
            Signal(f"{stream}_last", SignalKind.FLAG, part_of=stream),
            Signal(f"{stream}_keep", SignalKind.FLAG, lanes, part_of=stream),
        ]
        streams.append(Ref(stream))
    order = generator.choice(arbitration.ARBITRATION_ORDERS)
    count = Count("c0", CountKind.LEVEL, "t0", tuple(streams), order=order, whole=True)
    values = arbitration.make_picks(count, name)
    count = replace(count, picks=tuple(Ref(f"#{place}", name) for place in range(len(values))))
    actions = []

    def add(output, width, operands, kind=ActionKind.STORE, **more):
        refs = tuple(Ref(f"#{len(values) + place}", name) for place in range(len(operands)))
        values.extend(operands)
        actions.append(Action(kind, "c0", output, refs, width, **more))

    widths = arbitration.list_registers(order, takes_whole_frames=True, stream_count=len(streams))
    for end, operand in arbitration.make_next_values(count, name).items():
        add(f"c0_{end}", widths[end], [operand], part_of="c0")
    samples = arbitration.select_samples(count, name, lanes)
    add("merged", generator.choice([8, 16, 40]), samples, ActionKind.STREAM, merges=True)
    lasts = [arbitration.make_last_ref(each) for each in streams]
    add("merged_last", 1, [arbitration.make_selection(count, name, lasts)], part_of="merged")
    keeps = [_kept(each.name, lanes) for each in streams]
    add("merged_keep", lanes, [arbitration.make_selection(count, name, keeps)], part_of="merged")
    module = Module(name, (count,), (Target("t0", 1),), tuple(actions), values=tuple(values))
    inputs, modules = (*datapath.inputs, *signals), (*datapath.modules, module)
    return replace(datapath, inputs=inputs, modules=modules)


def _kept(stream, lanes):
    """Return the kept lanes of a beat as a number (R18)."""
    flags = [Ref(f"{stream}_keep", None, lane) for lane in range(lanes)]
    if lanes == 1:
        return flags[0]
    bits = [Operation("if", (flag, 1 << lane, 0)) for lane, flag in enumerate(flags)]
    made = bits[0]
    for each in bits[1:]:
        made = Operation("+", (made, each))
    return made


def _inputs(datapath, generator):
    """Return the inputs: streams may be wide, buffered, or packets (R18, R20)."""
    for signal in datapath.inputs:
        if signal.kind is not SignalKind.STREAM:
            yield signal
            continue
        wide = signal.width == 32 and generator.random() < 0.7
        width = generator.randint(33, 48) if wide else signal.width
        yield replace(signal, width=width, buffered=generator.random() < 0.35)
        if signal.size == 1:
            yield Signal(f"{signal.name}_last", SignalKind.FLAG, part_of=signal.name)


def constructs(datapath: Datapath) -> Counter[str]:
    """Return how often each operator and each reduction occurs."""
    found: Counter[str] = Counter("buffered" for each in datapath.inputs if each.buffered)
    found.update("wide stream" for each in datapath.inputs if each.width > 32)
    graph = Graph(datapath)
    for module in datapath.modules:
        found.update("split" for count in module.counts if graph.find_rivals(module, count))
        found.update(f"emit {each.reduction}" for each in module.list_actions(ActionKind.EMIT))
        found.update("merge" for each in module.actions if each.merges)
        found.update(each.kind for each in module.claims)
        found.update("wide" for each in (*module.counts, *module.targets, *module.actions) if each.width > 32)
        for count in module.counts:
            found.update([count.order, *(["until last"] if count.whole else [])] if count.order else [])
        found.update("store" for each in module.list_actions(ActionKind.STORE))
        found.update("memory" for _ in module.list_actions(ActionKind.MEMORY))
        found.update("read" for _ in module.list_actions(ActionKind.READ))
        found.update("store word" for _ in module.list_actions(ActionKind.STORE_WORD))
        found.update("ranked store" for each in module.actions if each.ranked)
        stores = [ref for each in module.list_actions(ActionKind.STORE) for ref in each.refs]
        found.update("store of a number" for ref in stores if not is_formula_ref(ref))
        found.update("taken" for each in module.counts if each.taken)
        found.update("bound" for each in module.counts if each.bound)
        found.update("wins" for each in module.actions if each.wins)
        found.update("at least" for each in module.targets if each.at_least)
        found.update("carry" for each in module.targets if each.carry)
        found.update("with index" for each in module.actions if each.with_index)
        found.update("ends" for each in module.actions if each.part_of)
        open_ = list(module.values)
        while open_:
            each = open_.pop()
            if isinstance(each, Operation):
                found[each.operator] += 1
                open_ += each.operands
    return found


class _Maker:
    def __init__(self, datapath, generator):
        self.datapath, self.random, self.graph = datapath, generator, Graph(datapath)
        self.lanes = {}
        self.ended = {(None, each.part_of) for each in datapath.inputs if each.part_of}

    def likely(self, probability):
        return self.random.random() < probability

    def module(self, module):
        self.values = []
        self.here = module
        self.streams = [t for count in module.counts for t in count.counted if self.graph.is_stream(t)]
        counts = [self.count(count) for count in module.counts]
        chosen = [count for count in counts if count.order]
        actions = list(module.list_actions(ActionKind.MEMORY))
        others = [each for each in module.actions if each not in actions]
        actions += [store for count in chosen for store in self.kept_by(count)]
        actions += [each for action in others for each in self.with_end(self.action(action))]
        if any(action.kind.drives is SignalKind.STREAM for action in module.actions):
            actions += [each for count in chosen for each in self.merge(count)]
        if self.likely(0.5):
            on = self.random.choice(module.counts).name
            actions.append(
                Action(ActionKind.STORE, on, "stored", (self.sample(),), self.random.randint(1, 20))
            )
            actions += self.further_stores(actions.pop())
        alone = {count.target for count in chosen}
        targets = tuple(
            replace(each, reset=1) if each.name in alone else self.target(each) for each in module.targets
        )
        made = {"targets": targets, "counts": tuple(counts), "actions": tuple(actions)}
        return replace(module, **made, values=tuple(self.values), claims=self.claims())

    def claims(self):
        """Return properties, of which some hold and some do not (R21)."""
        kinds = [self.random.choice(["always", "never"]) for _ in range(self.random.choice([0, 0, 1, 2]))]
        return tuple(Claim(kind, f"p{place}", self.condition(1)) for place, kind in enumerate(kinds))

    def further_stores(self, store):
        """Return a store and others of its number, which win in their order; some read a flag or a number by name."""
        seen = [
            key
            for key, drivers in self.graph.drivers.items()
            if drivers[0][1].kind not in {ActionKind.STREAM, ActionKind.EMIT, ActionKind.MEMORY}
        ]
        others = self.random.choice([0, 0, 1, 2])
        yield replace(store, ranked=others > 0)
        for _ in range(others):
            module, name = self.random.choice([*seen, (None, "")])
            refs = (Ref(name, module),) if name else (self.sample(),)
            on = self.random.choice(self.here.counts).name
            yield replace(store, on=on, refs=refs, ranked=True)

    # Choice among streams (R19)

    def chooses(self, count):
        """Return the count as one that chooses among its streams, where that is possible, and likely."""
        streams = all(map(self.graph.is_stream, count.terms)) and len(set(count.terms)) == len(count.terms)
        shared = sum(each.target == count.target for each in self.here.counts) > 1
        if count.kind is not CountKind.LEVEL or count.constant or not streams or shared:
            return None
        if not 2 <= len(count.terms) <= arbitration.MAX_STREAMS or self.likely(0.05):
            return None
        packets = tuple(each for each in count.terms if (each.module, each.name) in self.ended)
        whole = len(packets) > 1 and self.likely(0.8)
        order = self.random.choice(["turns", "turns", "priority"])
        return replace(count, terms=packets if whole else count.terms, order=order, whole=whole)

    def kept_by(self, count):
        widths = arbitration.list_registers(
            count.order, takes_whole_frames=count.whole, stream_count=len(count.terms)
        )
        for name, operand in arbitration.make_next_values(count, self.here.name).items():
            output = f"{count.name}_{name}"
            refs = (self.kept(operand),)
            yield Action(ActionKind.STORE, count.name, output, refs, widths[name], part_of=count.name)

    def merge(self, count):
        """Return a stream of what is chosen, and its ends, where the streams are alike."""
        lanes = {
            self.lanes.get((each.module, each.name)) or self.graph.find_source(each).lanes
            for each in count.terms
        }
        if len(lanes) > 1:
            return
        refs = [self.kept(each) for each in arbitration.select_samples(count, self.here.name, lanes.pop())]
        output, width = f"merged_{count.name}", self.random.choice([8, 32, 48])
        yield Action(ActionKind.STREAM, count.name, output, tuple(refs), width, self.likely(0.5), merges=True)
        if count.whole:
            lasts = [arbitration.make_last_ref(each) for each in count.terms]
            last = self.kept(arbitration.make_selection(count, self.here.name, lasts))
            yield Action(ActionKind.STORE, count.name, f"{output}_last", (last,), 1, part_of=output)

    def with_end(self, action):
        """Return an action, and now and then the end of its packets."""
        yield action
        if action.kind.drives is SignalKind.STREAM:
            self.lanes[self.here.name, action.output] = action.lanes
        if action.kind is ActionKind.STREAM and self.likely(0.95):
            self.ended.add((self.here.name, action.output))
            name = f"{action.output}_last"
            yield Action(
                ActionKind.STORE, action.on, name, (self.kept(self.condition(0)),), 1, part_of=action.output
            )

    def kept(self, formula):
        self.values.append(formula)
        return Ref(f"#{len(self.values) - 1}", self.here.name)

    def target(self, target):
        at_least = self.likely(0.3)
        return replace(target, at_least=at_least, carry=at_least and self.likely(0.5))

    def aim(self, count):
        """Return a table of targets for a count, now and then: its own first."""
        if self.likely(0.8):
            return None
        own, other = count.target, self.random.choice(self.here.targets).name
        index = self.random.choice([0, Operation("count", (Ref(self.here.counts[-1].name, self.here.name),))])
        entries = [Operation("target", (Ref(name, self.here.name),)) for name in (own, other, own)]
        return self.kept(Operation("table", (index, *entries)))

    def count(self, count):
        """Return a count with formulas, in the order in which a text has them."""
        chooses = self.chooses(count)
        if chooses is not None:
            made = replace(chooses, gate=self.gate(count))
            return replace(made, picks=tuple(map(self.kept, arbitration.make_picks(made, self.here.name))))
        aim = self.aim(count)
        made = replace(self.between(count), aim=aim, gate=self.gate(count))
        return replace(made, width=self.random.randint(33, 48)) if self.likely(0.1) else made

    def between(self, count):
        """Return a count that goes up and down, now and then, mostly with a bound."""
        if count.kind is CountKind.LEVEL or self.likely(0.6):
            return count
        most = len(count.terms) // 2 if len(count.terms) > 1 else 0
        place = self.random.randint(0, most)
        if self.likely(0.7):
            own = Operation("target", (Ref(count.target, self.here.name),))
            limit = self.kept(Operation("+", (own, self.random.randint(0, 2))))
        else:
            limit = None if place else self.kept(Operation("min", (self.random.randint(1, 9),)))
        # What only a larger increment reached has to fit now.
        width = max(count.width, self.here.target(count.target).reset.bit_length())
        return replace(count, terms=count.terms[place:], taken=count.terms[:place], bound=limit, width=width)

    def gate(self, count):
        gate = list(count.gate)
        if self.likely(0.4):
            formula = self.condition(self.random.choice([0, 1, 1, 2]))
            if self.likely(0.6):  # mostly such that the count is enabled often
                formula = Operation("or", (formula, Operation("!=", (self.leaf(), 0))))
            while formula.operator == "not":  # `while not ...` is a condition that is negated
                formula = formula.operands[0]
            gate.append(Condition(self.kept(formula), self.likely(0.2)))
        return tuple(gate)

    def condition(self, depth):
        if depth == 0:
            return Operation(
                self.random.choice(sorted(COMPARISON_OPERATORS)), (self.number(1), self.number(0))
            )
        operator = self.random.choice(["and", "or", "not"])
        if operator == "not":
            return Operation("not", (self.condition(depth - 1),))
        return Operation(
            "or", (Operation(operator, (self.condition(depth - 1), self.condition(0))), self.leaf())
        )

    def number(self, depth):
        if depth == 0 or self.likely(0.2):
            return self.random.randint(0, 9) if self.likely(0.3) else self.leaf()
        operator = self.random.choice([*ARITHMETIC, "if", "table", "<<", ">>", "slice", "concat"])
        if operator in {"<<", ">>"}:
            return Operation(operator, (self.number(0), self.random.randint(0, 6)))
        if operator == "slice":
            return self.slice()
        if operator == "concat":
            return Operation("concat", tuple(self.slice() for _ in range(self.random.randint(1, 3))))
        if operator == "table":
            return Operation(
                "table", (self.leaf(), *(self.number(0) for _ in range(self.random.randint(1, 4))))
            )
        if operator == "if":
            return Operation("if", (self.condition(0), self.number(depth - 1), self.number(0)))
        many = self.random.choice([1, 2, 3]) if operator in {"max", "min"} else 2
        return Operation(operator, tuple(self.number(depth - 1) for _ in range(many)))

    def slice(self):
        """Return some of the bits of a value, at most 16 (R23)."""
        value = self.number(0) if self.likely(0.5) else Operation("-", (self.leaf(), self.leaf()))
        width = 4 if isinstance(value, int) else count_bits(*self.graph.compute_interval(value))[0]
        low = self.random.randrange(width)
        return Operation("slice", (value, self.random.randint(low, min(width - 1, low + 15)), low))

    def leaf(self):
        what = self.random.random()
        if what < 0.5 and self.streams:
            ref = self.random.choice(self.streams)
            if what < 0.1:
                return Operation("valid", (Ref(ref.name, ref.module, ref.index),))
            lane = self.random.randrange(self.graph.find_source(ref).lanes)
            return Ref(ref.name, ref.module, ref.index, lane)
        if what < 0.7:
            return Operation("count", (Ref(self.random.choice(self.here.counts).name, self.here.name),))
        return Operation("target", (Ref(self.random.choice(self.here.targets).name, self.here.name),))

    def sample(self):
        """Return an operation: a name by itself is no formula."""
        return self.kept(Operation("+", (self.number(1), self.number(1))))

    def place(self):
        """Return an address, which is mostly inside a memory, and may be negative (R25)."""
        low = Operation("slice", (self.leaf(), 0, 0))
        operator, other = self.random.choice([("-", 1), ("+", 0), ("+", 0), ("+", 1), ("+", self.number(0))])
        return self.kept(Operation(operator, (low, other)))

    def action(self, action):
        if action.kind is ActionKind.CLEAR_FLAG:
            return replace(action, wins=self.likely(0.5))
        if action.kind in {ActionKind.STORE_WORD, ActionKind.READ}:
            *stored, place = action.refs
            stored = [self.sample() for _ in stored]
            return replace(action, refs=(*stored, self.place() if self.likely(0.6) else place))
        if action.kind.drives is not SignalKind.STREAM:
            return action
        refs = tuple(self.sample() if self.likely(0.4) else ref for ref in action.refs)
        if action.kind is ActionKind.EMIT and self.likely(0.5):
            reduction = self.random.choice(["max", "min"])
            return replace(action, refs=refs, reduction=reduction, with_index=self.likely(0.5))
        return replace(action, refs=refs)


def uses_values(datapath: Datapath) -> int:
    """Return how many conditions and samples are formulas."""
    refs = [each.ref for _, count in datapath.list_counts() for each in count.gate]
    refs += [ref for module in datapath.modules for action in module.actions for ref in action.refs]
    return sum(map(is_formula_ref, refs))
