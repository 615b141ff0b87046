"""Random programs for the second timed processor, against a reference that never sees a word of 72 bits.

The generator writes each line twice: as assembly, which QICK's own assembler turns into words for the machine under
test, and as an action in plain Python on numbers with sign. What both send out, and what they leave in registers and
memories, must agree.
"""

import random
from collections import Counter

import numpy as np
import pytest
from libraries import skip_without

skip_without("qick", reason="needs QICK's assembler: pip install 'lightbed[kit]'")
from qick.tprocv2_assembler import Assembler

from sim.twins.rfsoc.tproc_v2 import TprocV2, compiled

PROGRAMS = 60
FREE = [f"r{n}" for n in range(4, 12)]
WAVE = [f"w{n}" for n in range(6)]
LOOPS = ["r0", "r1", "r2"]


def sx(value, width=32):
    """Return the low bits as a number with sign."""
    half = 1 << (width - 1)
    return (value + half) % (2 * half) - half


TWO = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "AND": lambda a, b: a & b,
    "ASR": lambda a, b: a >> b % 16,
    "OR": lambda a, b: a | b,
    "XOR": lambda a, b: a ^ b,
    "CAT": lambda a, b: a % 65536 * 65536 + b % 65536,
    "SL": lambda a, b: a * 2 ** (b % 16),
    "SR": lambda a, b: a % 2**32 // 2 ** (b % 16),
}
ONE = {
    "ABS": abs,
    "MSH": lambda a: a % 2**32 // 65536,
    "LSH": lambda a: a % 65536,
    "SWP": lambda a: a % 65536 * 65536 + a % 2**32 // 65536,
    "NOT": lambda a: -1 - a,
    "PAR": lambda a: f"{a % 2**32:b}".count("1") % 2,
}
REDUCED = ["+", "-", "AND", "ASR"]
MULTIPLIER = {
    "T": (2, lambda a, b: (a, 0, b, 0)),
    "TP": (3, lambda a, b, c: (a, 0, b, c)),
    "TM": (3, lambda a, b, c: (a, 0, b, -c)),
    "PT": (3, lambda d, a, b: (a, d, b, 0)),
    "PTP": (4, lambda d, a, b, c: (a, d, b, c)),
    "PTM": (4, lambda d, a, b, c: (a, d, b, -c)),
    "MT": (3, lambda d, a, b: (-sx(a, 27), d, b, 0)),
    "MTP": (4, lambda d, a, b, c: (-sx(a, 27), d, b, c)),
    "MTM": (4, lambda d, a, b, c: (-sx(a, 27), d, b, -c)),
}


def given(condition):
    return f"-if({condition})" if condition else ""


class Plain:
    """The reference: registers by name, memories as dictionaries, everything with sign."""

    def __init__(self, waves):
        self.reg = Counter()
        self.dmem = Counter()
        self.wmem = {n: list(wave) for n, wave in enumerate(waves)}
        self.zero = self.sign = self.flag = self.new = False
        self.reference = 0
        self.last = {}
        self.out = []
        self.counts = []
        self.stack = []

    def set(self, name, value):
        if name == "s0":
            return
        if name in {"s12", "s13"}:
            self.counts.append((int(name[1:]) - 11, value % 2**32))
        self.reg[name] = sx(value)

    def flags(self, value):
        self.zero, self.sign = sx(value) == 0, sx(value) < 0

    def when(self, condition):
        return {
            "": True, "Z": self.zero, "NZ": not self.zero, "S": self.sign, "NS": not self.sign,
            "F": self.flag, "NF": not self.flag,
        }[condition]  # fmt: skip

    def send(self, port, time, what):
        time = max(time + self.reference, self.last.get(port, -3) + 3)
        self.last[port] = time
        self.out.append((port, time, what))

    def wave(self):
        return [self.reg[f"w{n}"] % 2 ** (32, 32, 24, 32, 32, 16)[n] for n in range(6)]


class Generator:
    """Writes a program: `lines` of (label, text, action); an action may return a label to go on at."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lines = []
        self.label = None
        self.labels = 0
        self.used = Counter()

    def add(self, kind, text, action):
        self.used[kind] += 1
        self.lines.append((self.label, text, action, kind))
        self.label = None

    def mark(self, label):
        if self.label is not None:
            self.add("NOP", "NOP", lambda m: None)
        self.label = label

    def fresh(self):
        self.labels += 1
        return f"L{self.labels}"

    def number(self, bits):
        edge = self.random.choice([0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))])
        return self.random.choice([edge, self.random.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))])

    def source(self):
        return self.random.choice(FREE + WAVE + ["s0", "s3", "s4", "s5", "s12", "s14"])

    def operation(self, *, full):
        """Return (text, value of a machine, kind): the argument of -op."""
        left = self.source()
        shape = self.random.choice(["copy", "one", "two", "literal"] if full else ["copy", "two", "literal"])
        if shape == "copy":
            return left, (lambda m: m.reg[left]), "copy"
        if shape == "one":
            name = self.random.choice(sorted(ONE))
            return f"{name} {left}", (lambda m: ONE[name](m.reg[left])), name
        name = self.random.choice(sorted(TWO) if full else REDUCED)
        if shape == "two":
            right = self.source()
            return f"{left} {name} {right}", (lambda m: TWO[name](m.reg[left], m.reg[right])), name
        literal = self.random.randrange(16) if name in {"ASR", "SL", "SR"} else self.number(24)
        return f"{left} {name} #{literal}", (lambda m: TWO[name](m.reg[left], literal)), name

    def place(self):
        """Return (text, value): an address of data memory."""
        literal = self.random.randrange(1024)
        register = self.random.choice(FREE)
        return self.random.choice([
            (f"[&{literal}]", lambda m: literal),
            (f"[{register} + &{literal}]", lambda m: (m.reg[register] + literal) % 4096),
            (f"[{register}]", lambda m: m.reg[register] % 4096),
        ])  # fmt: skip

    # ------------------------------------------------------------------------------ single instructions
    def compute(self):
        target = self.random.choice([*FREE, *WAVE, "s12", "s13", "s0"])
        text, value, kind = self.operation(full=True)
        condition = self.random.choice(["", "", "Z", "NZ", "S", "NS", "F", "NF"])
        updates = self.random.random() < 0.5

        def action(m):
            if m.when(condition):
                result = value(m)
                m.set(target, result)
                if updates:
                    m.flags(result)

        self.used["if " + condition] += 1
        self.add("op " + kind, f"REG_WR {target} op -op({text}) {given(condition)} {'-uf' * updates}", action)

    def literal(self):
        target, value = self.random.choice(FREE + WAVE), self.number(32)
        self.add("imm", f"REG_WR {target} imm #{value}", lambda m: m.set(target, value))

    def load(self):
        target, (text, place) = self.random.choice(FREE), self.place()
        self.add("dmem", f"REG_WR {target} dmem {text}", lambda m: m.set(target, m.dmem[place(m)]))

    def store(self):
        text, place = self.place()
        if self.random.random() < 0.3:
            value = self.number(32)

            def put(m):
                m.dmem[place(m)] = value

            self.add("DMEM_WR imm", f"DMEM_WR {text} imm #{value}", put)
            return
        source, result, _ = self.operation(full=False)

        def action(m):
            m.dmem[place(m)] = sx(result(m))

        self.add("DMEM_WR op", f"DMEM_WR {text} op -op({source})", action)

    def test(self):
        text, value, _ = self.operation(full=False)
        self.add("TEST", f"TEST -op({text})", lambda m: m.flags(value(m)))

    def wave_load(self):
        place = self.random.randrange(8)

        def action(m):
            m.reg.update({f"w{n}": sx(v) - m.reg[f"w{n}"] for n, v in enumerate(m.wmem[place])})

        self.add("r_wave", f"REG_WR r_wave wmem [&{place}]", action)

    def wave_store(self):
        place = self.random.randrange(8)
        self.add("WMEM_WR", f"WMEM_WR [&{place}]", lambda m: m.wmem.update({place: m.wave()}))

    def wave_port(self):
        port, time, place = self.random.randrange(16), self.random.randrange(10**6), self.random.randrange(8)
        if self.random.random() < 0.5:
            text = f"WPORT_WR p{port} wmem [&{place}] @{time}"
            self.add("WPORT wmem", text, lambda m: m.send(("wave", port), time, tuple(m.wmem[place])))
        else:
            text = f"WPORT_WR p{port} r_wave @{time}"
            self.add("WPORT r_wave", text, lambda m: m.send(("wave", port), time, tuple(m.wave())))

    def out_time(self):
        time, port = self.random.randrange(10**6), self.random.randrange(3)

        def action(m):
            m.reg["s14"] = time

        self.add("s14", f"REG_WR s14 imm #{time}", action)
        register = self.random.choice(FREE)
        self.add(
            "DPORT reg", f"DPORT_WR p{port} reg {register}",
            lambda m: m.send(("data", port), m.reg["s14"], m.reg[register] % 2**32),
        )  # fmt: skip

    def pins(self):
        port, time, level = self.random.randrange(20), self.random.randrange(10**6), self.random.randrange(2)
        text = f"TRIG p{port} {('clr', 'set')[level]} @{time}"
        self.add("TRIG", text, lambda m: m.send(("trig", port), time, level))

    def time(self):
        delay, register = self.random.randrange(1000), self.random.choice(FREE)

        def literal(m):
            m.reference += delay

        def masked(m):
            m.set(register, m.reg[register] & 1023)

        def moved(m):
            m.reference += m.reg[register]

        if self.random.random() < 0.5:
            self.add("inc_ref imm", f"TIME inc_ref #{delay}", literal)
        else:
            self.add("op AND", f"REG_WR {register} op -op({register} AND #1023)", masked)
            self.add("inc_ref reg", f"TIME inc_ref {register}", moved)

    def flag(self):
        what = self.random.choice(["set", "clr", "inv"])

        def action(m):
            m.flag = {"set": True, "clr": False, "inv": not m.flag}[what]

        self.add("FLAG", f"FLAG {what}", action)

    def multiply(self):
        name = self.random.choice(sorted(MULTIPLIER))
        count, sort = MULTIPLIER[name]
        registers = [self.random.choice(FREE) for _ in range(count)]

        def action(m):
            a, d, b, c = sort(*(m.reg[r] for r in registers))
            inner = sx(sx(a, 27) + sx(d, 27), 27)
            m.reg["s3"] = sx(inner * sx(b, 18) + c)

        self.add("ARITH " + name, f"ARITH {name} {' '.join(registers)}", action)
        for _ in range(5):  # the result is there for the sixth instruction
            self.add("NOP", "NOP", lambda m: None)

    def divide(self):
        over, under = self.random.choice(FREE), self.random.choice(FREE)

        def action(m):
            rest, divisor, result = m.reg[over] % 2**32, m.reg[under] % 2**32, 0
            for bit in range(30, -1, -1):  # as the hardware does it
                if rest >= divisor << bit:
                    rest -= divisor << bit
                    result |= 1 << bit
            m.reg.update({"s4": sx(result) - m.reg["s4"], "s5": sx(rest) - m.reg["s5"]})

        self.add("DIV", f"DIV {over} {under}", action)
        self.add("WAIT", "WAIT div_rdy", lambda m: m.flags(1))

    # ------------------------------------------------------------------------------------- structure
    def body(self, depth, count):
        single = [
            self.compute, self.compute, self.compute, self.literal, self.load, self.store, self.test, self.wave_load,
            self.wave_store, self.wave_port, self.out_time, self.pins, self.time, self.flag, self.multiply,
            self.divide,
        ]  # fmt: skip
        for _ in range(count):
            roll = self.random.random()
            if roll < 0.08 and depth < 3:
                self.loop(depth)
            elif roll < 0.2:
                self.branch()
            elif roll < 0.25 and depth < 3:
                self.add("CALL", "CALL SUB", lambda m: "call SUB")
            else:
                self.random.choice(single)()

    def loop(self, depth):
        counter, passes, label = LOOPS[depth], self.random.randrange(1, 4), self.fresh()
        self.add("imm", f"REG_WR {counter} imm #0", lambda m: m.set(counter, 0))
        self.mark(label)
        self.body(depth + 1, self.random.randrange(2, 8))
        last = passes - 1
        self.add("TEST", f"TEST -op({counter} - #{last})", lambda m: m.flags(m.reg[counter] - last))

        def action(m):
            if m.zero:
                return None
            m.set(counter, m.reg[counter] + 1)
            return label

        self.add("loop", f"JUMP {label} -if(NZ) -wr({counter} op) -op({counter} + #1)", action)

    def branch(self):
        label, condition = self.fresh(), self.random.choice(["", "Z", "NZ", "S", "NS", "F", "NF"])
        text, value, _ = self.operation(full=False)
        target = self.random.choice(FREE)

        def action(m):
            if not m.when(condition):
                return None
            result = value(m)
            m.set(target, result)
            m.flags(result)
            return label

        self.used["jump " + condition] += 1
        self.add("JUMP", f"JUMP {label} {given(condition)} -wr({target} op) -op({text}) -uf", action)
        for _ in range(self.random.randrange(1, 4)):
            self.compute()
        self.mark(label)

    def program(self):
        self.add("inc_ref imm", "TIME inc_ref #10000000", lambda m: setattr(m, "reference", 10**7))
        for name in FREE:
            value = self.number(32)
            self.add("imm", f"REG_WR {name} imm #{value}", lambda m, n=name, v=value: m.set(n, v))
        self.body(0, 40)
        self.mark("LAST")
        self.add("end", "JUMP HERE", lambda m: "end")
        self.mark("SUB")
        for _ in range(4):
            self.compute()
        self.add("RET", "RET", lambda m: "return")
        return self

    def text(self):
        return "\n".join((f"{label}:\n" if label else "") + text for label, text, _, _ in self.lines)

    def interpret(self, machine):
        labels = {label: at for at, (label, _, _, _) in enumerate(self.lines) if label}
        at, done = 0, Counter()
        while True:
            _, _, action, kind = self.lines[at]
            done[kind] += 1
            at, where = at + 1, action(machine)
            if where == "end":
                return done
            if where == "return":
                at = machine.stack.pop()
            elif where == "call SUB":
                machine.stack.append(at)
                at = labels["SUB"]
            elif where:
                at = labels[where]


def waves(seed):
    source = np.random.default_rng(seed)
    return [[int(v) % 2**w for v, w in zip(source.integers(2**32, size=6), (32, 32, 24, 32, 32, 16), strict=True)]
            for _ in range(8)]  # fmt: skip


def loaded(generator, seed):
    processor = TprocV2(2048, 4096, 64, fifo_depth=4096)
    _, words = Assembler.str_asm2bin(generator.text())
    rows = np.array([[*wave, 0, 0] for wave in waves(seed)], np.uint32).astype(np.int32)
    processor.load_bin_program({"pmem": np.array(words, np.int64), "wmem": rows, "dmem": None})
    return processor


def sent(run):
    """Return what a run sent, in the shape of the reference's list: per port in the order of times."""
    kinds = ("data", "trig")
    waves = [(("wave", int(w["port"])), int(w["time"]), tuple(w["words"].tolist())) for w in run.port_writes]
    pins = [((kinds[p["kind"]], int(p["port"])), int(p["time"]), int(p["word"])) for p in run.pin_events]
    return sorted(waves + pins, key=lambda item: (item[0], item[1]))


def compare(generator, seed):
    processor = loaded(generator, seed)
    run = processor.run(lambda port, half, tick: 0)
    plain = Plain(waves(seed))
    done = generator.interpret(plain)
    names = [*FREE, *LOOPS, "s3", "s4", "s5", "s12", "s13", "s14"]
    registers = processor.registers
    assert {n: registers[n] for n in names} == {n: plain.reg[n] % 2**32 for n in names}
    assert [registers[n] for n in WAVE] == [plain.reg[n] % 2**32 for n in WAVE]
    assert sent(run) == sorted(plain.out, key=lambda item: (item[0], item[1]))
    assert [(int(c["address"]), int(c["value"])) for c in run.counter_events] == plain.counts
    assert processor.read_mem("dmem", 4096).tolist() == [plain.dmem[n] for n in range(4096)]
    assert (processor.read_mem("wmem", 8).view(np.uint32).tolist()) == [plain.wmem[n] for n in range(8)]
    return done


@pytest.fixture(scope="module")
def done():
    """Return how often each instruction was carried out over all programs, and each condition generated."""
    total = Counter()
    for seed in range(PROGRAMS):
        generator = Generator(seed).program()
        total += compare(generator, seed)
        total += Counter({k: n for k, n in generator.used.items() if k.startswith(("if ", "jump "))})
    return total


@pytest.mark.slow
def test_machine_and_reference_agree(done):
    assert done["end"] == PROGRAMS


@pytest.mark.parametrize("name", ["copy", *sorted(TWO), *sorted(ONE)])
def test_every_operation_of_the_arithmetic_unit_was_tried(done, name):
    assert done[f"op {name}"] >= 50


@pytest.mark.parametrize(
    "kind",
    ["imm", "dmem", "DMEM_WR op", "DMEM_WR imm", "TEST", "r_wave", "WMEM_WR", "WPORT wmem", "WPORT r_wave", "s14",
     "DPORT reg", "TRIG", "inc_ref imm", "inc_ref reg", "FLAG", "DIV", "loop", "JUMP", "CALL", "RET"],
)  # fmt: skip
def test_every_instruction_was_tried(done, kind):
    assert done[kind] >= 50


@pytest.mark.parametrize("name", sorted(MULTIPLIER))
def test_every_operation_of_the_multiplier_was_tried(done, name):
    assert done[f"ARITH {name}"] >= 10


@pytest.mark.parametrize("condition", ["Z", "NZ", "S", "NS", "F", "NF"])
def test_every_condition_was_tried(done, condition):
    assert done[f"if {condition}"] >= 50
    assert done[f"jump {condition}"] >= 25


@pytest.mark.translates
@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [PROGRAMS, *(pytest.param(PROGRAMS + more, marks=pytest.mark.long) for more in range(1, 5))]
)
def test_the_compiled_machine_is_the_same_machine(seed):
    pytest.importorskip("numba", reason="needs numba: pip install 'lightbed[kit]'")
    generator = Generator(seed).program()
    processor = loaded(generator, seed)
    execution = processor._make_execution()
    execution.use_compiled_code(compiled.get_executor())
    while execution.run_until_stop(10**6) == 3:
        execution.collect_records()
    execution.collect_records()
    fast = execution.make_run()
    slow = loaded(generator, seed).run(lambda port, half, tick: 0)
    for name in ("port_writes", "pin_events", "counter_events", "end_tick"):
        assert np.array_equal(getattr(fast, name), getattr(slow, name)), name
