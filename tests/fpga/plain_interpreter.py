"""A datapath in plain Python, written a third time from the rules of docs/reference/count-action.md alone.

It knows nothing of the simulators: who stalls and what fires is found by trying until nothing changes. Slow, short,
and read next to the page. `run` takes the inputs of each cycle by port, and gives what the ports show.
"""

from __future__ import annotations

import operator

from fpga.count_action.model import ActionKind, CountKind, Operation, Ref, SignalKind

BEATS = (ActionKind.STREAM, ActionKind.EMIT)
OPERATORS = {
    "+": operator.add, "-": operator.sub, "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "max": lambda *each: max(each), "min": lambda *each: min(each),
    "<<": lambda value, bits: value * 2**bits, ">>": lambda value, bits: value // 2**bits,
    "slice": lambda value, high, low: value // 2**low % 2 ** (high - low + 1),
    "not": operator.not_,
    "and": lambda a, b: bool(a) and bool(b), "or": lambda a, b: bool(a) or bool(b),
    "if": lambda condition, a, b: a if condition else b,
    "table": lambda index, *entries: entries[index] if 0 <= index < len(entries) else 0,
}  # fmt: skip


def cut(value, width, signed=False):
    """Return the lowest bits of a value as a number (R10)."""
    value &= (1 << width) - 1
    return value - (1 << width) if signed and value >> (width - 1) else value


def side_by_side(values, width):
    return sum(cut(value, width) << place * width for place, value in enumerate(values))


class Plain:
    """A datapath after reset (R12)."""

    def __init__(self, datapath):
        self.datapath = datapath
        self.actions = [(module, action) for module in datapath.modules for action in module.actions]
        self.kinds = {(m.name, a.output): a for m, a in reversed(self.actions) if a.output}
        self.base = {(m.name, c.name): 0 for m, c in datapath.list_counts()}
        self.sticky = {(what, *key): 0 for what in ("overshoot", "saturated") for key in self.base}
        self.target = {(m.name, t.name): t.reset for m, t in datapath.list_targets()}
        self.driven = dict.fromkeys(self.kinds, 0)
        self.valid = set()
        self.queues = {(s.name, i): [] for s in datapath.inputs if s.buffered for i in range(s.size)}
        self.heads, self.violated = {}, []
        self.turn = {(m.name, c.name): 0 for m, c in datapath.list_counts()}
        self.open = set()
        self.words = {key: {} for key, action in self.kinds.items() if action.kind is ActionKind.MEMORY}
        self.samples = {key: [] for key, action in self.kinds.items() if action.kind is ActionKind.EMIT}

    # What a reference is in this cycle

    def is_stream(self, ref):
        if ref.module is None:
            return self.datapath.input(ref.name).kind is SignalKind.STREAM
        return not ref.name.startswith("#") and self.kinds[ref.module, ref.name].kind in BEATS

    def is_valid(self, ref):
        if ref.module is not None:
            return (ref.module, ref.name) in self.valid
        return bool(self.inputs[f"{ref.name}_valid_i"] >> ref.index & 1)

    def sample(self, ref):
        if ref.name.startswith("#"):
            return self.formula(self.datapath.module(ref.module).values[int(ref.name[1:])])
        if ref.module is None:
            signal = self.datapath.input(ref.name)
            port = f"{ref.name}_data_i" if self.is_stream(ref) else f"{ref.name}_i"
            place = ref.index * signal.lanes + ref.lane
            return cut(self.inputs[port] >> place * signal.width, signal.width, signal.signed)
        action = self.kinds[ref.module, ref.name]
        bits = self.driven[ref.module, ref.name] >> ref.lane * action.width
        return cut(bits, action.width, action.signed) if self.is_stream(ref) else bits

    def formula(self, operand):
        if isinstance(operand, int):
            return operand
        if isinstance(operand, Ref):
            return self.sample(operand)
        first = operand.operands[0]
        if operand.operator == "valid":
            return int(self.is_valid(first))
        if operand.operator in {"count", "target"}:
            return (self.base if operand.operator == "count" else self.target)[first.module, first.name]
        if operand.operator == "concat":  # the first slice has the highest bits (R24)
            bits = "".join(
                f"{self.formula(each):0{each.operands[1] - each.operands[2] + 1}b}"
                for each in operand.operands
            )
            return int(bits, 2)
        return int(OPERATORS[operand.operator](*map(self.formula, operand.operands)))

    def streams(self, operand):
        """Return the streams of whose samples something is made."""
        if isinstance(operand, Ref) and operand.name.startswith("#"):
            operand = self.datapath.module(operand.module).values[int(operand.name[1:])]
        if isinstance(operand, Ref):
            return [operand] if self.is_stream(operand) else []
        if not isinstance(operand, Operation) or operand.operator in {"valid", "count", "target"}:
            return []
        return [stream for each in operand.operands for stream in self.streams(each)]

    # Streams (R7)

    def takers(self, ref):
        wanted = (ref.module, ref.name, ref.index)
        for module, count in self.datapath.list_counts():
            if any((t.module, t.name, t.index) == wanted and self.is_stream(t) for t in count.counted):
                yield module, count

    def is_ready(self, ref):
        takers = list(self.takers(ref))
        if ref.module is not None and not takers:
            return bool(self.inputs[f"{ref.module}_{ref.name}_ready_i"])
        level = [(m, c) for m, c in takers if c.kind is CountKind.LEVEL]
        if level:  # one of them takes the beat (R26)
            return any(
                (m.name, c.name) in self.fires and (not c.order or self.is_same(self.chosen(m, c), ref))
                for m, c in level
            )
        return all(m.name not in self.stalled for m, _ in takers)

    def is_same(self, one, other):
        return one is not None and (one.module, one.name, one.index) == (
            other.module,
            other.name,
            other.index,
        )

    def chosen(self, module, count):
        """Return the stream whose beat a count takes if it fires (R19); None when no one has a beat for it."""
        key, streams = (module.name, count.name), list(count.terms)
        if key in self.open:
            waiting = [streams[self.turn[key]]]
        elif count.order == "turns":
            waiting = streams[self.turn[key] :] + streams[: self.turn[key]]
        else:
            waiting = streams
        return next((each for each in waiting if self.is_valid(each)), None)

    def moves(self, ref):
        return self.is_valid(ref) and self.is_ready(ref)

    # Counts (R1 to R4)

    def is_enabled(self, count):
        def holds(ref):
            return self.is_valid(ref) if self.is_stream(ref) else self.sample(ref) != 0

        return all(holds(each.ref) != each.negated for each in count.gate)

    def increment(self, module, count):
        if module.name in self.stalled or not self.is_enabled(count):
            return 0
        if count.order:
            return int(self.chosen(module, count) is not None)
        seen = self.is_valid if count.kind is CountKind.LEVEL else self.moves
        up, down = (
            sum(int(seen(t)) if self.is_stream(t) else self.sample(t) for t in terms)
            for terms in (count.terms, count.taken)
        )
        return count.constant + up - down

    def goal(self, module, count):
        return self.target[module.name, count.target] if count.aim is None else self.sample(count.aim)

    def reached(self):
        found, gone = set(), set()
        for module, count in self.datapath.list_counts():
            step = self.increment(module, count)
            value, goal = self.base[module.name, count.name] + step, self.goal(module, count)
            takes = {(t.module, t.name, t.index) for t in count.counted if self.is_stream(t)}
            if count.kind is CountKind.LEVEL and takes & gone:
                continue  # a count before it in the text fires and takes a beat of both (R26)
            if step and goal and (value == goal or (module.target(count.target).at_least and value > goal)):
                found.add((module.name, count.name))
                gone |= takes if count.kind is CountKind.LEVEL else set()
        return found

    def decide(self):
        """Find the modules that stall and the counts that fire: try, until trying changes nothing."""
        self.stalled, self.fires = set(), set()
        for _ in range(4 * len(self.datapath.modules) + 4):
            stalled = {key[0] for key in self.valid if not self.is_ready(Ref(key[1], key[0]))}
            before = self.stalled, self.fires
            self.stalled = stalled
            self.fires = self.reached()
            if before == (self.stalled, self.fires):
                return
        raise AssertionError("who stalls was not found")

    def step(self, inputs):
        self.given, self.inputs = inputs, self.behind_buffers(inputs)
        self.decide()
        shown = dict(self.shown())
        self.violated.append(set(self.broken()))
        self.clock()
        return shown

    def broken(self):
        """Return the properties that do not hold in this cycle (R21)."""
        for module in self.datapath.modules:
            for claim in module.claims:
                holds = bool(self.formula(claim.holds))
                if holds != (claim.kind != "never"):
                    yield module.name, claim.kind, claim.name

    def ports_of_beat(self, name):
        """Return the ports of a beat, each with its bits (R18, R20)."""
        signal = self.datapath.input(name)
        yield f"{name}_data_i", signal.lanes * signal.width
        yield from ((f"{flag.name}_i", flag.size) for flag in self.datapath.inputs if flag.part_of == name)

    def behind_buffers(self, inputs):
        """Return the inputs as the modules see them: of buffered streams the oldest beat that waits (R20)."""
        seen = dict(inputs)
        for (name, index), queue in self.queues.items():
            if queue:
                self.heads[name, index] = queue[0]
            fields = [(f"{name}_valid_i", 1, bool(queue))]
            head = self.heads.get((name, index), (0, 0, 0))
            fields += [(*port, value) for port, value in zip(self.ports_of_beat(name), head, strict=False)]
            for port, width, value in fields:
                others = seen[port] & ~((1 << width) - 1 << index * width)
                seen[port] = others | cut(value, width) << index * width
        return seen

    def clock_buffers(self):
        for (name, index), queue in self.queues.items():
            room = len(queue) < 2
            if self.moves(Ref(name, index=index)):
                queue.pop(0)
            if room and self.given[f"{name}_valid_i"] >> index & 1:
                ports = self.ports_of_beat(name)
                queue.append([self.given[port] >> index * width & (1 << width) - 1 for port, width in ports])

    def shown(self):
        for signal in self.datapath.inputs:
            if signal.kind is SignalKind.STREAM:
                refs = [Ref(signal.name, index=index) for index in range(signal.size)]
                ready = [
                    len(self.queues[ref.name, ref.index]) < 2 if signal.buffered else self.is_ready(ref)
                    for ref in refs
                ]
                yield f"{signal.name}_ready_o", side_by_side(ready, 1)
        for (module, name), action in self.kinds.items():
            if action.kind in BEATS:
                yield f"{module}_{name}_valid_o", int((module, name) in self.valid)
                yield f"{module}_{name}_data_o", self.driven[module, name]
            else:
                yield f"{module}_{name}_o", self.driven[module, name]
        counts = list(self.base)
        yield "fire_o", side_by_side([key in self.fires for key in counts], 1)
        for what in ("overshoot", "saturated"):
            yield f"{what}_o", side_by_side([self.sticky[(what, *key)] for key in counts], 1)
        place = total = 0
        for module, count in self.datapath.list_counts():
            total |= self.base[module.name, count.name] << place
            place += count.width
        yield "count_o", total

    # The clock edge

    def clock(self):
        chosen = {
            (m.name, c.name): (c, self.chosen(m, c))
            for m, c in self.datapath.list_counts()
            if c.order and (m.name, c.name) in self.fires
        }
        ends = {key: not c.whole or self.ends(ref) for key, (c, ref) in chosen.items()}
        cleared = {a.clears for m, a in self.actions if a.clears and (m.name, a.on) in self.fires}
        driven = {key: self.next_driven(key) for key in self.driven} | self.clock_memories()
        waiting = {key for key in self.valid if not self.is_ready(Ref(key[1], key[0]))}
        made = {
            (m.name, a.output) for m, a in self.actions if a.kind in BEATS and (m.name, a.on) in self.fires
        }
        for module, action in self.actions:
            if action.kind is ActionKind.EMIT:
                on, key = (module.name, action.on), (module.name, action.output)
                begins = on in self.fires or on in cleared or module.count(action.on).kind is CountKind.LEVEL
                self.samples[key] = [] if begins else self.samples[key] + self.counted(module, action)
        counts = [self.clock_count(module, count, cleared) for module, count in self.datapath.list_counts()]
        self.base = dict(zip(self.base, counts, strict=True))
        if self.inputs["commit_i"]:
            shadow = self.inputs["target_shadow_i"]
            for module, target in self.datapath.list_targets():
                self.target[module.name, target.name] = cut(shadow, target.width)
                shadow >>= target.width
        self.clock_buffers()
        self.driven, self.valid = driven, waiting | made
        for key, (count, ref) in chosen.items():
            self.open = self.open - {key} if ends[key] else self.open | {key}
            place = count.terms.index(ref)
            self.turn[key] = (place + 1) % len(count.terms) if count.order == "turns" and ends[key] else place
            registers = {f"{count.name}_turn": self.turn[key], f"{count.name}_open": int(key in self.open)}
            self.driven |= {
                (key[0], name): value for name, value in registers.items() if (key[0], name) in driven
            }

    def ends(self, stream):
        return bool(self.sample(Ref(f"{stream.name}_last", stream.module)))

    def clock_count(self, module, count, cleared):
        key, largest = (module.name, count.name), (1 << count.width) - 1
        step, target = self.increment(module, count), self.goal(module, count)
        value, keeps = self.base[key] + step, count.kind is CountKind.ACCUMULATE
        rest = value
        if key in self.fires:
            rest = value - target if module.target(count.target).carry else 0
        if count.bound is not None:
            largest = min(largest, self.sample(count.bound))
        events = {
            "overshoot": keeps and step and target and value > target and key not in self.fires,
            "saturated": keeps and step and not 0 <= rest <= largest,
        }
        for what, event in events.items():
            kept = self.sticky[(what, *key)] and not self.inputs["clear_status_i"]
            self.sticky[(what, *key)] = int(bool(event or kept))
        if not keeps or key in cleared:
            return 0
        return max(0, min(rest, largest)) if step else self.base[key]

    def clock_memories(self):
        """Return what memories show to a driver and what was read; loads and stores change their words (R25)."""
        driven = {}
        for (owner, name), words in self.words.items():
            module, load = self.datapath.module(owner), f"{owner}_{name}"
            accesses = [a for a in module.actions if a.memory == name and (owner, a.on) in self.fires]
            for action in accesses:
                if action.kind is ActionKind.READ:
                    driven[owner, action.output] = words.get(self.sample(action.refs[0]), 0)
            writes = [
                (self.sample(a.refs[1]), self.sample(a.refs[0]))
                for a in accesses
                if a.kind is ActionKind.STORE_WORD
            ]
            place = self.inputs[f"{load}_address_i"]
            if self.inputs[f"{load}_load_i"]:
                writes = [(place, self.inputs[f"{load}_word_i"])]
            if not writes:
                driven[owner, name] = words.get(place, 0)
                continue
            place, value = writes[0]
            memory = self.kinds[owner, name]
            if place in range(memory.words):
                words[place] = cut(value, memory.width)
        return driven

    def next_driven(self, key):
        """Return what an output is in the next cycle (R6, R9, R11, R14)."""
        mine = [(m, a) for m, a in self.actions if (m.name, a.output) == key]
        fired = [(m, a) for m, a in mine if (m.name, a.on) in self.fires]
        kind = mine[0][1].kind
        if kind in {ActionKind.MEMORY, ActionKind.READ}:
            return self.driven[key]  # `clock_memories` says what changes
        if kind is ActionKind.PULSE:
            return int(bool(fired))
        if not fired:
            return self.driven[key]
        module, action = fired[0]
        if action.merges:
            taken = self.chosen(module, module.count(action.on))
            lanes = [Ref(taken.name, taken.module, taken.index, lane) for lane in range(len(action.refs))]
            return side_by_side(map(self.sample, lanes), action.width)
        if kind in {ActionKind.STREAM, ActionKind.STORE}:
            return side_by_side([self.sample(ref) for ref in action.refs], action.width)
        if kind is ActionKind.EMIT:
            return side_by_side(
                self.emitted(action, self.samples[key] + self.counted(module, action)), action.width
            )
        if kind is ActionKind.ADVANCE:
            return (self.driven[key] + 1) % action.modulo
        is_set = any(each.kind is ActionKind.SET for _, each in fired)
        is_cleared = any(each.kind is ActionKind.CLEAR_FLAG for _, each in fired)
        clear_wins = any(each.wins for _, each in mine if each.kind is ActionKind.CLEAR_FLAG)
        return int(is_set and not (is_cleared and clear_wins))

    def counted(self, module, action):
        """Return the samples that are counted in this cycle."""
        if module.name in self.stalled or not self.is_enabled(module.count(action.on)):
            return []
        return [self.sample(ref) for ref in action.refs if all(map(self.moves, self.streams(ref)))]

    def emitted(self, action, samples):
        if action.reduction == "sum":
            return [cut(sum(samples), action.width, action.signed) >> action.shift]
        fitted = [cut(sample, action.width, action.signed) for sample in samples] or [0]
        found = {"max": max, "min": min}[action.reduction](fitted)
        return [found >> action.shift, fitted.index(found)][: 1 + action.with_index]
