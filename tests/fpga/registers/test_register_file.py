"""The register file against the one that PeakRDL makes of the same SystemRDL, transaction by transaction."""

import importlib.util
import random
import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from libraries import skip_without
from needs import needs

from fpga.count_action.ports import Port, Ports
from fpga.formal import sby
from fpga.hdl import explain_missing
from fpga.hdl.design import Design
from fpga.registers import Access, StreamAccess, make_register_map
from fpga.registers.model import BitField, MapBuilder, PortBits, RegisterMap
from fpga.registers.register_file import count_read_cycles, emit_register_file
from fpga.registers.register_ports import list_axi_signals, list_vectors

skip_without("peakrdl_regblock", reason="needs PeakRDL: pip install peakrdl-regblock")

HERE = Path(__file__).resolve().parent
_LONGEST = 40
"""Cycles within which an answer must have come and been taken."""
_SETTLE = 6
"""Cycles after which a write has acted in both."""


def _reference_sources(table):
    path = HERE / "peakrdl_reference.py"
    spec = importlib.util.spec_from_file_location("lightbed_tests_peakrdl_reference", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.reference_sources(table)


def random_map(seed):
    """Return a map with registers of every access, of random widths and words, with bits that no signal has."""
    draw, builder = random.Random(seed), MapBuilder()
    builder.add("ID", access=Access.CONSTANT, reset_value=draw.getrandbits(32), description="Constant")
    fields = tuple(BitField(f"B{low}", low, 1, "A bit") for low in range(draw.randint(1, 12)))
    builder.add("CONTROL", access=Access.PULSE, width=len(fields), fields=fields, description="Pulses")
    for number in range(draw.randint(8, 40)):
        kind = draw.choice(("packed", "packed", "row", "wide", "pulse", "push", "constant"))
        name, bits = f"R{number}", draw.choice((1, 7, 8, 9, 31, 32, 33, 64, 70))
        signal, access = PortBits(name.lower(), bits), draw.choice((Access.READ, Access.WRITE))
        if kind == "packed":
            builder.add_packed(name, access=access, description="Packed", signal=signal)
        elif kind == "row":
            words, width = draw.randint(1, 5), draw.randint(1, 32)
            signal = PortBits(name.lower(), words * width)
            builder.add(
                name, access=access, width=width, word_count=words, signal=signal, description="Row",
                reset_value=draw.getrandbits(width) if words == 1 else 0,
            )  # fmt: skip
        elif kind == "wide":
            high = draw.randint(1, 32)
            for end, width in (((), 32), (("HIGH",), high)):
                builder.add(
                    name, *end, access=access, width=width, reset_value=draw.getrandbits(width),
                    signal=PortBits(name.lower(), width), description="Wide",
                )  # fmt: skip
        elif kind == "pulse":
            width = draw.randint(1, 32)
            builder.add(
                name, access=Access.PULSE, width=width, description="Pulse",
                fields=tuple(BitField(f"B{low}", low, 1, "A bit") for low in range(width)),
            )  # fmt: skip
        elif kind == "push":
            builder.add_packed(name, access=Access.PUSH, description="Push", signal=signal)
        else:
            builder.add(
                name, access=Access.CONSTANT, reset_value=draw.getrandbits(32), description="Constant"
            )
    return RegisterMap(f"random{seed}", seed, tuple(builder.registers))


def design(table, sources):
    """Return a register file as a design with its pins as ports."""
    pins = [("datapath_reset_i", 1, False)]
    pins += [
        (f"s_axil_{each.name}", each.width, each.is_output) for each in list_axi_signals(table.address_width)
    ]
    pins += [(each.name, each.width, each.is_output) for register in table for each in list_vectors(register)]
    sides = []
    for driven in (False, True):
        ports, column = [], 0
        for name, width, is_output in pins:
            if is_output is driven:
                ports.append(Port(name, width, column))
                column += ports[-1].word_count
        sides.append(tuple(ports))
    return Design(f"{table.name}_registers", sources, Ports(*sides))


@dataclass
class Transaction:
    """A read, or a write with data and strobes."""

    address: int
    inputs: dict
    data: int | None = None
    strobes: int = 0
    reset: bool = False
    """The datapath is reset after it."""


@dataclass
class Seen:
    """The behaviour of a register file in a transaction."""

    answer: tuple
    acts: list = field(default_factory=list)
    """The values of all pulses and pushes in cycles in which one of them is not 0."""
    levels: list = field(default_factory=list)
    """The values of the stored registers, each time that one of them has changed."""


class Master:
    """AXI4-Lite with random pauses on every channel, and a check of what the protocol asks."""

    def __init__(self, table, simulator, seed):
        self.simulator, self.draw = simulator, random.Random(seed)
        self.ports = simulator.design.ports
        self.inputs = {port.name: port for port in self.ports.inputs}
        self.acting, self.kept = [], []
        for each in table:
            outputs = [vector for vector in list_vectors(each) if vector.is_output]
            if each.access is Access.WRITE:
                self.kept += outputs
            elif each.access is Access.PUSH:
                # Words before the last one are kept, so all of it counts only in a push.
                self.acting += outputs[1:]
            else:
                self.acting += outputs
        self.pushed = [
            vector for each in table if each.access is Access.PUSH for vector in list_vectors(each)
        ][::2]
        self.level = None
        self.before = None

    def cycle(self, inputs):
        row = np.zeros((1, self.ports.input_column_count), np.uint64)
        for name, value in inputs.items():
            port = self.inputs[name]
            for word in range(port.word_count):
                row[0, port.column + word] = value >> 64 * word & (1 << 64) - 1
        outputs = self.simulator.run(row)[0].tolist()
        now = {
            port.name: sum(outputs[port.column + word] << 64 * word for word in range(port.word_count))
            for port in self.ports.outputs
        }
        self.check(inputs, now)
        self.before = (inputs, now)
        return now

    def check(self, inputs, now):
        """Check that a valid stays, with its payload, until its ready."""
        if self.before is None:
            return
        was_in, was = self.before
        for channel, payload in (("b", ("resp",)), ("r", ("resp", "data"))):
            if was[f"s_axil_{channel}valid"] and not was_in.get(f"s_axil_{channel}ready"):
                for each in ("valid", *payload):
                    assert now[f"s_axil_{channel}{each}"] == was[f"s_axil_{channel}{each}"]

    def watch(self, now, seen):
        acts = tuple(now[each.name] for each in self.acting)
        if any(acts):
            pushes = [each for each in self.pushed if now[f"{each.name.removesuffix('_o')}_push_o"]]
            seen.acts.append((acts, tuple((each.name, now[each.name]) for each in pushes)))
        level = tuple(now[each.name] for each in self.kept)
        if level != self.level:
            seen.levels.append(level)
            self.level = level

    def run(self, access):
        seen = Seen(())
        pending = {"ar"} if access.data is None else {"aw", "w"}
        answer = "r" if access.data is None else "b"
        taken = []
        for _ in range(_LONGEST):
            pins = dict(access.inputs)
            for channel in [each for each in ("ar", "aw", "w") if each in pending]:
                # Once valid, it stays.
                was = self.before and self.before[0].get(f"s_axil_{channel}valid")
                pins[f"s_axil_{channel}valid"] = int(bool(was) or self.draw.random() < 0.5)
            pins |= {"s_axil_araddr": access.address, "s_axil_awaddr": access.address}
            pins |= {"s_axil_wdata": access.data or 0, "s_axil_wstrb": access.strobes}
            pins |= {"s_axil_awprot": 5, "s_axil_arprot": 2}
            pins[f"s_axil_{answer}ready"] = int(self.draw.random() < 0.5)
            now = self.cycle(pins)
            self.watch(now, seen)
            assert not now[f"s_axil_{'b' if answer == 'r' else 'r'}valid"]
            if now[f"s_axil_{answer}valid"]:
                assert not pending, "an answer before its request"
                if pins[f"s_axil_{answer}ready"]:
                    taken = [now[f"s_axil_{answer}resp"], now.get("s_axil_rdata") if answer == "r" else 0]
                    break
            for channel in list(pending):
                if pins[f"s_axil_{channel}valid"] and now[f"s_axil_{channel}ready"]:
                    pending.remove(channel)
        assert taken, "no answer"
        for cycle in range(_SETTLE):
            now = self.cycle(access.inputs | {"datapath_reset_i": int(access.reset and cycle == 3)})
            assert not now["s_axil_bvalid"]
            assert not now["s_axil_rvalid"], "a second answer"
            self.watch(now, seen)
        seen.answer = tuple(taken)
        return seen


def draw_accesses(table, seed, number):
    draw = random.Random(seed)
    inputs = [vector for register in table for vector in list_vectors(register) if not vector.is_output]
    levels = {each.name: 0 for each in inputs}
    for _ in range(number):
        if draw.random() < 0.3:
            levels = {each.name: draw.getrandbits(each.width) for each in inputs}
        address = draw.randrange(0, 1 << table.address_width, draw.choice((1, 4, 4, 4)))
        access = Transaction(address, dict(levels), reset=draw.random() < 0.02)
        if draw.random() < 0.6:
            data = draw.choice((0, 0xFFFF_FFFF, draw.getrandbits(32), draw.getrandbits(32)))
            access = replace(access, data=data, strobes=draw.choice((15, 15, draw.getrandbits(4))))
        yield access


def compare(table, number, text=None):
    """Compare PeakRDL's register file with ours, or with `text`; return how often something acted, or changed."""
    from fpga.hdl import verilator

    ours = design(table, ((f"{table.name}_registers.sv", text or emit_register_file(table)),))
    reference = design(table, _reference_sources(table))
    simulators = [verilator.build(each, optimise_flag="-O1") for each in (ours, reference)]
    try:
        masters = [Master(table, each, seed) for seed, each in enumerate(simulators)]
        for each in masters:
            each.simulator.reset()
            each.cycle({"datapath_reset_i": 1})
            each.level = tuple(each.cycle({})[kept.name] for kept in each.kept)
        assert masters[0].level == masters[1].level
        acted = changed = 0
        for access in draw_accesses(table, 5, number):
            mine, theirs = (each.run(access) for each in masters)
            assert mine == theirs, access
            acted, changed = acted + bool(mine.acts), changed + bool(mine.levels)
    finally:
        for each in simulators:
            each.close()
    return acted, changed


@pytest.fixture(scope="module")
@needs("hdl")
def has_verilator():
    if reason := explain_missing("verilator", "make", "g++"):
        pytest.skip(reason)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 8))
def test_random_maps_do_what_peakrdl_does(has_verilator, seed):
    acted, changed = compare(random_map(seed), 700)
    assert acted >= 8
    assert changed >= 20


@pytest.mark.parametrize(
    "streams", [StreamAccess.REGISTERS, pytest.param(StreamAccess.AXI_STREAM, marks=pytest.mark.long)]
)
def test_tops_do_what_peakrdl_does(has_verilator, demo, streams):
    table = replace(make_register_map(demo, streams), name="demo")
    acted, changed = compare(table, 300)
    assert acted >= 4
    assert changed >= 10


@pytest.mark.long
@pytest.mark.parametrize("name", ["synchronous_data_streamer", "photonic_dot", "header_parser", "dag_loader"])
def test_tops_of_the_library_do_what_peakrdl_does(has_verilator, name):
    skip_without("lark", reason="needs lark: pip install 'lightbed[fpga]'")
    from fpga.count_action import load

    path = HERE.parents[2] / "fpga" / "library" / f"{name}.ca"
    acted, changed = compare(make_register_map(load(path).datapath), 700)
    assert acted + changed >= 20


FAULTS = {
    "strobe of a value": (r"if \(strobe_q\[1\]\) (\w+_q)\[15:8\] <=", r"if (strobe_q[0]) \1[15:8] <="),
    "strobe of a pulse": (r"assign written = .*;", "assign written = data_q[3:0];"),
    "an act that stays": (r"if \(rst_i \|\| !write_CONTROL_q\) CONTROL_q", "if (rst_i) CONTROL_q"),
    "reset": (r"if \(datapath_reset_i\) (IN_step_q) <=", r"if (rst_i) \1 <="),
    "an answer that falls": (r"if \(rst_i \|\| \(answer_q && s_axil_bready\)\)", "if (rst_i || answer_q)"),
    "a word too far": (r"(\d'h)3: stage_0_1_q", r"\g<1>2: stage_0_1_q"),
}
"""Pieces of a register file, as regular expressions, and what makes them wrong."""


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(has_verilator, demo, fault):
    table = replace(make_register_map(demo), name="demo")
    text, times = re.subn(*FAULTS[fault], emit_register_file(table))
    assert times
    with pytest.raises(AssertionError):
        compare(table, 1000, text)


def small_map():
    """Return the map that `register_file_checks.sv` describes."""
    builder = MapBuilder()
    builder.add("ID", access=Access.CONSTANT, reset_value=0xC0FFEE01, description="Constant")
    fields = (BitField("A", 0, 1, "A bit"), BitField("RESET", 1, 1, "Resets the datapath"))
    builder.add("CONTROL", access=Access.PULSE, width=2, fields=fields, description="Pulses")
    level, shown = PortBits("level", 10), PortBits("shown", 5)
    builder.add("LEVEL", access=Access.WRITE, width=10, reset_value=0x2A5, signal=level, description="Level")
    builder.add_packed("SHOWN", access=Access.READ, signal=shown, description="Shown")
    builder.add_packed("ROW", access=Access.WRITE, signal=PortBits("row", 40), description="Row")
    builder.add_packed("MASK", access=Access.PUSH, signal=PortBits("mask", 33), description="Push")
    builder.add("LAST", access=Access.CONSTANT, reset_value=0x1234, description="Constant")
    return RegisterMap("small", 0, tuple(builder.registers))


def prove(text, *, values):
    if reason := explain_missing(*sby.TOOLS):
        pytest.skip(reason)
    checks = (HERE / "register_file_checks.sv").read_text()
    if values:
        checks = checks.replace("parameter bit Values = 1'b0", "parameter bit Values = 1'b1")
    depth = 13 if values else sby.DEPTH_CYCLES
    sources = {"small_registers.sv": text, "checks.sv": checks}
    return sby.run(sources, "register_file_proof", depth=depth, is_bounded=values)


@pytest.mark.long
@pytest.mark.hdl
@pytest.mark.parametrize("values", [False, True], ids=["protocol", "registers"])
def test_it_is_proven_for_a_small_map(warm_yosys, values):
    """The protocol by induction, the registers in the first 13 cycles: a write and a read, or two writes."""
    result = prove(emit_register_file(small_map()), values=values)
    assert result.is_proven, result.log[-2000:]
    assert not result.unreached_covers
    assert len(result.reached_covers) == (4 if values else 2)


@pytest.mark.long
@pytest.mark.hdl
@pytest.mark.parametrize(
    ("old", "new", "values", "name"),
    [
        ("if (rst_i || (answer_q && s_axil_bready))", "if (rst_i || answer_q)", False, "takes_one_write"),
        ("stage_q <= {stage_q[0], accept};", "stage_q <= {2{accept}};", False, "answers_a_read"),
        ("assign select = address_full_q &&", "assign select =", False, "answers_a_write"),
        ("if (strobe_q[1]) LEVEL_q[9:8]", "if (strobe_q[0]) LEVEL_q[9:8]", True, "values"),
        ("else CONTROL_q <= written;", "else CONTROL_q <= data_q[1:0];", True, "acts"),
        ("1'h1: answer_data_q <= stage_0_1_q;", "1'h1: answer_data_q <= stage_0_0_q;", True, "reads"),
    ],
)  # fmt: skip
def test_the_proof_finds_a_fault(warm_yosys, old, new, values, name):
    text = emit_register_file(small_map())
    assert text.count(old) == 1
    result = prove(text.replace(old, new), values=values)
    failing = {*(each.name for each in result.failures), *result.undecided_assertions}
    assert any(name in each for each in failing), failing


def test_a_read_takes_few_cycles():
    assert [count_read_cycles(bits) for bits in (3, 5, 6, 8, 9, 11, 12)] == [3, 3, 4, 4, 5, 5, 6]
