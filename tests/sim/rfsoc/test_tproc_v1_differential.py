"""Random programs on the processor of version 1 and on a second machine, written clock by clock from the firmware.

The reference knows no formula of queues: it steps the control's states, the queues and the dispatchers one tick
after the other, with dictionaries for registers and one branch per opcode.
"""

import importlib
import random
import sys
from collections import Counter, defaultdict, deque

import numpy as np
import pytest

from sim.twins.rfsoc.tproc_v1 import TprocV1

PMEM, DMEM = 4096, 64
OPCODES = {
    "pushi": 0x10, "popi": 0x11, "mathi": 0x12, "seti": 0x13, "synci": 0x14, "waiti": 0x15, "bitwi": 0x16,
    "memri": 0x17, "memwi": 0x18, "regwi": 0x19, "setbi": 0x1A, "loopnz": 0x30, "condj": 0x31, "end": 0x3F,
    "math": 0x50, "set": 0x51, "sync": 0x52, "read": 0x53, "wait": 0x54, "bitw": 0x55, "memr": 0x56,
    "memw": 0x57, "setb": 0x58,
}  # fmt: skip
NAMES = {opcode: name for name, opcode in OPCODES.items()}
LOWEST_BIT = {
    "page": 53, "channel": 50, "oper": 46, "a": 41, "b": 36, "c": 31, "d": 26, "e": 21, "f": 16, "g": 11, "imm": 0,
}  # fmt: skip


def word(name, **fields):
    """Return an instruction of 64 bits; `imm` with sign."""
    bits = OPCODES[name] << 56
    for field, value in fields.items():
        bits |= (value & 0x7FFFFFFF if field == "imm" else value) << LOWEST_BIT[field]
    return bits


# -------------------------------------------------------------------------------------------- reference
def with_sign(value, bits):
    value %= 2**bits
    return value - 2**bits if value >= 2 ** (bits - 1) else value


def unit(oper, a, b):
    """Bit-wise and mathematical unit on 32-bit words."""
    shift = b % 32
    answers = {
        0: a & b, 1: a | b, 2: a ^ b, 3: ~b, 4: a << shift, 5: a >> shift,
        8: a + b, 9: a - b, 10: with_sign(a, 16) * with_sign(b, 16),
    }  # fmt: skip
    return answers.get(oper, 0) % 2**32


def compare(oper, a, b):
    a, b = with_sign(a, 32), with_sign(b, 32)
    return [a > b, a >= b, a < b, a <= b, a == b, a != b, *[False] * 10][oper]


class Channel:
    """Queue and dispatcher of one channel."""

    def __init__(self):
        self.queue, self.state, self.held = deque(), "read", None

    def idle(self, tick):
        return (self.state == "read" and not self.queue) or (self.state == "wait" and self.held[1] > tick)

    def clock(self, tick, acknowledged):
        """Run one tick; return what takes effect in it, or None."""
        if self.state == "read":
            if self.queue:
                self.held = self.queue.popleft()
                self.state = "wait"
        elif self.state == "wait":
            if self.held[1] <= tick:
                self.state = "ack" if self.held[0] == "wait" else "send"
                return self.held
        elif self.state == "send" or acknowledged:
            self.state = "read"
        return None


class Reference:
    def __init__(self, program, read):
        self.program, self.read = program, read
        self.registers = defaultdict(int)
        self.memory = [0] * DMEM
        self.stack = []
        self.channels = [Channel() for _ in range(8)]
        self.tick = self.offset = self.pc = 0
        self.sent, self.stored, self.seen = [], [], Counter()
        self.acknowledges = self.entering = None
        self.blocked = False

    def run(self):
        control = self.control()
        while True:
            self.acknowledges, self.entering, self.blocked = None, None, False
            ended = next(control, "ended") == "ended"
            for number, channel in enumerate(self.channels):
                effect = channel.clock(self.tick, self.acknowledges == number)
                if effect is not None and effect[0] != "wait":
                    self.sent.append((number, self.tick, effect[2]))
                    self.seen["late"] += effect[1] < self.tick
            if self.entering is not None:
                number, *entry = self.entering
                self.channels[number].queue.append(entry)
            self.tick += 1
            idle = all(channel.idle(self.tick) for channel in self.channels)
            dues = [channel.held[1] for channel in self.channels if channel.state == "wait"]
            if idle and dues and (ended or self.blocked):
                self.tick = min(dues)
            elif idle and ended:
                return

    def control(self):
        """Run the program; each yield is the end of a tick."""
        yield  # fetch
        while True:
            bits = self.program[self.pc]
            self.pc += 1
            name = NAMES[bits >> 56]
            self.seen[name] += 1
            yield  # decode
            if name == "end":
                self.end = self.tick
                return
            yield from getattr(self, f"do_{name.rstrip('i')}")(bits, immediate=name.endswith("i"))

    def field(self, bits, name):
        return bits >> LOWEST_BIT[name] & (7 if name in {"page", "channel"} else 15 if name == "oper" else 31)

    def get(self, bits, name):
        number = self.field(bits, name)
        return self.registers[self.field(bits, "page"), number] if number else 0

    def put(self, bits, value):
        self.registers[self.field(bits, "page"), self.field(bits, "a")] = value

    def second(self, bits, name, immediate):
        return with_sign(bits, 31) % 2**32 if immediate else self.get(bits, name)

    def do_math(self, bits, immediate):
        oper = self.field(bits, "oper")
        self.seen[f"operation {oper}"] += 1
        result = unit(oper, self.get(bits, "b"), self.second(bits, "c", immediate))
        yield
        yield
        yield
        self.put(bits, result)
        yield

    do_bitw = do_math

    def do_regw(self, bits, immediate):
        self.put(bits, self.second(bits, "c", immediate))
        yield

    def do_push(self, bits, immediate):
        self.stack.append(self.get(bits, "b"))
        self.put(bits, self.second(bits, "c", immediate))
        yield

    def do_pop(self, bits, immediate):
        yield
        yield
        self.put(bits, self.stack.pop())
        yield

    def do_memr(self, bits, immediate):
        address = self.second(bits, "b", immediate) % DMEM
        yield
        yield
        self.put(bits, self.memory[address])
        yield

    def do_memw(self, bits, immediate):
        address = self.second(bits, "b", immediate) % DMEM
        self.memory[address] = self.get(bits, "c")
        self.stored.append((address, self.tick + 1, with_sign(self.get(bits, "c"), 32)))
        yield

    def do_sync(self, bits, immediate):
        yield
        self.offset = (self.offset + self.second(bits, "c", immediate)) % 2**48
        yield

    def enter(self, bits, entry):
        number = self.field(bits, "channel")
        yield  # the time is added
        while len(self.channels[number].queue) == 15:
            self.blocked = self.channels[number].state != "read"  # which makes room in this very tick
            self.seen["full"] += 1
            yield
        self.entering = (number, *entry)
        yield

    def due(self, bits, immediate):
        return (self.offset + self.second(bits, "c", immediate)) % 2**48

    def do_set(self, bits, immediate):
        rest = [0] * 4 if immediate else [self.get(bits, name) for name in "defg"]
        yield from self.enter(bits, ("send", self.due(bits, immediate), [self.get(bits, "b"), *rest]))
        yield  # fetch

    do_setb = do_set

    def do_wait(self, bits, immediate):
        number = self.field(bits, "channel")
        yield from self.enter(bits, ("wait", self.due(bits, immediate)))
        come = False
        while not come:
            come = self.channels[number].state == "ack"
            self.acknowledges, self.blocked = number, not come
            yield
        yield  # fetch

    def do_loopnz(self, bits, immediate):
        value = self.get(bits, "b")
        yield
        if value:
            self.pc = bits % 2**16
            yield
            yield
            self.put(bits, unit(self.field(bits, "oper"), value, 2**32 - 1))
            yield
        yield  # fetch

    def do_condj(self, bits, immediate):
        oper = self.field(bits, "oper")
        self.seen[f"comparison {oper}"] += 1
        true = compare(oper, self.get(bits, "b"), self.get(bits, "c"))
        self.seen["jump" if true else "no jump"] += 1
        yield
        yield
        if true:
            self.pc = bits % 2**16
            yield
        yield  # fetch

    def do_read(self, bits, immediate):
        channel, upper = self.field(bits, "channel"), self.field(bits, "oper") == 10
        self.put(bits, self.read(channel, int(upper), self.tick) if channel < 4 else 0)
        yield


# -------------------------------------------------------------------------------------- random programs
class Author:
    """Writes programs that end: loops count in registers that nothing else writes, branches go forward."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.program = []

    def write(self):
        for page in range(3):
            for number in range(1, 7):
                self.program.append(word("regwi", page=page, a=number, imm=self.number()))
        self.block(depth=0, length=self.draw.randrange(10, 30))
        self.program.append(word("end"))
        return self.program

    def block(self, depth, length):
        for _ in range(length):
            shapes = [self.plain] * 8 + ([self.loop, self.branch, self.pushed] if depth < 4 else [])
            self.draw.choice(shapes)(depth)

    def plain(self, depth):
        name = self.draw.choice([n for n in OPCODES if n not in {"pushi", "popi", "loopnz", "condj", "end"}])
        self.program.append(word(name, **self.fields(name)))

    def fields(self, name):
        fields = {field: self.draw.randrange(7) for field in "abcdefg"} | {"page": self.draw.randrange(3)}
        fields["channel"] = self.draw.choice([0, 1, 1, 1, 1, 2, 7])
        fields["oper"] = self.draw.choice([10, self.draw.randrange(16), self.draw.randrange(16)])
        if name.endswith("i"):
            timed = name in {"seti", "setbi", "synci", "waiti"}
            fields["imm"] = self.draw.randrange(120) if timed and self.draw.random() < 0.97 else self.number()
            for unused in "c" * (name != "memwi") + "defg":
                del fields[unused]
        elif name in {"sync", "wait", "set", "setb"} and self.draw.random() < 0.7:
            fields["c"] = 0  # else times of seconds, by registers
        return fields

    def number(self):
        common = [0, 1, 2, 3, 31, 32, 33, -1, -2, 2**30 - 1, -(2**30), 0x8000, 0xFFFF]
        return self.draw.choice([*common, self.draw.randrange(-(2**30), 2**30), self.draw.randrange(200)])

    def loop(self, depth):
        counter = 20 + depth
        self.program.append(word("regwi", a=counter, imm=self.draw.randrange(4)))
        start = len(self.program)
        self.block(depth + 1, self.draw.randrange(1, 6))
        self.program.append(word("loopnz", a=counter, b=counter, oper=8, imm=start))

    def branch(self, depth):
        at = len(self.program)
        fields = self.fields("condj") | {"oper": self.draw.randrange(8)}
        self.program.append(0)
        self.block(depth + 1, self.draw.randrange(1, 5))
        fields = {name: fields[name] for name in ("page", "oper", "b", "c")}
        self.program[at] = word("condj", **fields, imm=len(self.program))

    def pushed(self, depth):
        page, a, b = self.draw.randrange(3), self.draw.randrange(7), self.draw.randrange(7)
        self.program.append(word("pushi", page=page, a=a, b=b, imm=self.number()))
        self.block(depth + 1, self.draw.randrange(1, 4))
        self.program.append(word("popi", page=self.draw.randrange(3), a=self.draw.randrange(7)))


def from_input(port, half, tick):
    """Return a word that shows from which port, which half and at which tick it was read."""
    return (tick * 2654435761 + port * 97 + half * 13) % 2**32


def by_time(events):
    return sorted(events, key=lambda event: event[:2])


def outcome(run):
    """Return events of a run as the reference notes them."""
    writes = [(int(w["port"]), int(w["time"]), w["words"].tolist()[:5]) for w in run.port_writes]
    pins = [(int(p["port"]), int(p["time"]), [int(p["word"]), 0, 0, 0, 0]) for p in run.pin_events]
    counts = [(int(c["address"]), int(c["time"]), int(c["value"])) for c in run.counter_events]
    return by_time(writes), by_time(pins), counts, run.end_tick


def same_as_reference(seed):
    """Run one random program on both; what happened in it."""
    program = Author(seed).write()
    reference = Reference(program, from_input)
    reference.run()
    processor = TprocV1(PMEM, DMEM)
    processor.load_bin_program(np.array(program, np.uint64))
    run = processor.run(from_input)
    pins = [(port, time, [low, 0, 0, 0, 0]) for port, time, (low, *_) in reference.sent if port == 0]
    writes = [sent for sent in reference.sent if sent[0] != 0]
    assert outcome(run) == (by_time(writes), by_time(pins), reference.stored, reference.end)
    registers = [reference.registers[page, r] if r else 0 for page in range(8) for r in range(32)]
    assert processor._memories.registers.tolist() == registers
    assert processor.read_mem("dmem", DMEM).tolist() == [with_sign(w, 32) for w in reference.memory]
    assert processor._memories.depth == len(reference.stack) == 0
    return reference.seen


@pytest.mark.slow
@pytest.mark.parametrize("programs", [200, pytest.param(2000, marks=pytest.mark.long)])
def test_does_the_same_as_the_reference_on_random_programs(programs):
    seen = Counter()
    for seed in range(programs):
        seen.update(same_as_reference(seed))
    floors = dict.fromkeys(OPCODES, programs) | {"jump": programs, "no jump": programs, "late": programs}
    floors |= {"full": programs // 4}
    floors |= {f"operation {oper}": programs // 7 for oper in range(16)}
    floors |= {f"comparison {oper}": programs // 7 for oper in range(8)}
    assert {name: seen[name] for name in floors if seen[name] < floors[name]} == {}


@pytest.mark.slow
def test_does_the_same_without_numba(monkeypatch):
    package = "sim.twins.rfsoc.tproc_v1"
    monkeypatch.setitem(sys.modules, "numba", None)
    for name in ("compiled", "machine", "execution"):
        monkeypatch.delitem(sys.modules, f"{package}.{name}", raising=False)
        monkeypatch.delattr(sys.modules[package], name, raising=False)
    monkeypatch.delitem(sys.modules, "lightbed.compiled", raising=False)
    monkeypatch.delattr(sys.modules["lightbed"], "compiled", raising=False)
    assert importlib.import_module(f"{package}.compiled").IS_COMPILED is False
    seen = Counter()
    for seed in range(2000, 2100):
        seen.update(same_as_reference(seed))
    assert min(seen[name] for name in OPCODES) >= 100
