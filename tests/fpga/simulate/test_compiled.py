"""The fast simulator against the plain one: the same bits in every cycle, over random datapaths."""

import os
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libraries import skip_without

from fpga.count_action import (
    Action,
    ActionKind,
    Count,
    CountKind,
    Datapath,
    Module,
    Ref,
    Signal,
    SignalKind,
    Target,
    check,
    parse_text,
)
from fpga.count_action.ports import make_ports
from fpga.count_action.simulate import ReferenceSimulator, compile_datapath, simulate
from fpga.count_action.simulate.compiled.expressions import (
    BitField,
    make_field,
    mask_field,
    pack,
    write_number,
)
from fpga.hdl.cosimulation import find_first_mismatch, measure_coverage

skip_without("numba")


def compared(generated, seed, modules, cycles):
    """Run a random datapath under both simulators; return what happened."""
    datapath = generated.random_datapath(seed, modules)
    inputs = generated.constructive_stimulus(datapath, cycles, seed)
    expected = ReferenceSimulator(datapath).run(inputs)
    assert find_first_mismatch(datapath, expected, simulate(datapath, inputs)) is None
    return measure_coverage(datapath, inputs, expected)


@pytest.mark.long
def test_many_modules_under_both_simulators(generated):
    seen = [compared(generated, seed, modules=14, cycles=400) for seed in range(3)]
    silent = sum(len(each.silent) for each in seen)
    assert sum(each.fires for each in seen) > 1000
    assert silent < 0.1 * 3 * 14
    assert min(
        sum(each.stalls_at_fire for each in seen),
        sum(each.commits_while_counting for each in seen),
        sum(each.overshoots for each in seen),
        sum(each.saturations for each in seen),
        sum(each.several for each in seen),
        sum(each.chained for each in seen),
    ) > 5  # fmt: skip


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(1000, 100_000))
def test_few_modules_under_both_simulators(generated, seed):
    compared(generated, seed, modules=3, cycles=200)


def test_a_run_in_pieces_is_the_same_run(generated):
    datapath = generated.random_datapath(3, 8)
    inputs = generated.constructive_stimulus(datapath, 500, 3)
    simulator = compile_datapath(datapath)
    whole_run = simulator.run(inputs)
    simulator = compile_datapath(datapath)  # a reset keeps the words of memories (R25)
    pieces = [simulator.run(inputs[begin:end]) for begin, end in [(0, 1), (1, 1), (1, 130), (130, 500)]]
    assert np.array_equal(np.concatenate(pieces), whole_run)
    assert not np.array_equal(simulator.run(inputs), whole_run), "the registers were kept"


@pytest.mark.slow
def test_bits_above_a_port_do_not_exist(generated):
    datapath = generated.random_datapath(5, 10)
    inputs = generated.constructive_stimulus(datapath, 200, 5)
    noisy = inputs.copy()
    for port in make_ports(datapath).inputs:
        spare = 64 * port.word_count - port.width
        if spare:
            noisy[:, port.column + port.word_count - 1] |= np.uint64((2**spare - 1) << (64 - spare))
    assert (noisy != inputs).any()
    assert np.array_equal(simulate(datapath, noisy), simulate(datapath, inputs))
    assert np.array_equal(ReferenceSimulator(datapath).run(noisy), ReferenceSimulator(datapath).run(inputs))


def test_the_largest_numbers():
    """32-bit numbers, counts and targets; a sum of them needs 34 bits before it is compared."""
    largest = 2**32 - 1
    module = Module(
        "m",
        (Count("c", CountKind.ACCUMULATE, "t", (Ref("x"), Ref("x")), width=32),),
        (Target("t", largest, 32),),
        (Action(ActionKind.EMIT, "c", "sum", (Ref("x"),), 32, signed=True, shift=31),),
    )
    datapath = Datapath("large", (Signal("x", SignalKind.NUMBER, width=32),), (module,))
    rows = np.zeros((4, 5), np.uint64)
    rows[:, 0], rows[:, 1] = [2**31, largest, 0, 1], 1
    seen = simulate(datapath, rows)
    assert np.array_equal(seen, ReferenceSimulator(datapath).run(rows))
    port = make_ports(datapath).find_output("saturated_o")
    assert seen[:, port.column].tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize(
    "rows", [np.zeros((3, 99), np.uint64), np.zeros((3, 7), np.int64), np.zeros(7, np.uint64)]
)
def test_rows_of_another_shape_are_refused(small, rows):
    for simulator in (ReferenceSimulator(small), compile_datapath(small)):
        with pytest.raises(ValueError, match=r"not uint64\[cycles, \d+\]"):
            simulator.run(rows)


def test_outputs_go_where_they_are_wanted(small, generated):
    inputs = generated.constructive_stimulus(small, 50)
    expected = simulate(small, inputs)
    out = np.zeros_like(expected)
    assert compile_datapath(small).run(inputs, out) is out
    assert np.array_equal(out, expected)
    for wrong in (out[1:], out.view(np.int64), np.asfortranarray(out)):
        with pytest.raises(ValueError, match="not a contiguous"):
            compile_datapath(small).run(inputs, wrong)


def test_streams_in_a_circle_are_refused():
    modules = tuple(
        Module(
            name,
            (Count("c", CountKind.ACCUMULATE, "t", (Ref("out", other),)),),
            (Target("t", 1),),
            (Action(ActionKind.STREAM, "c", "out", (Ref("out", other),), 8),),
        )
        for name, other in (("a", "b"), ("b", "a"))
    )
    datapath = Datapath("circle", (), modules)
    assert check(datapath)
    with pytest.raises(ValueError, match="cycle"):
        ReferenceSimulator(datapath)


def test_without_numba_the_hint_is_given(small, monkeypatch):
    monkeypatch.delitem(sys.modules, "fpga.count_action.simulate.compiled.native", raising=False)
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    with pytest.raises(ImportError, match=r"the extra \[fpga\] of lightbed"):
        simulate(small, np.zeros((1, make_ports(small).input_column_count), np.uint64))


def test_code_is_translated_once_and_again_where_its_file_is_damaged(small, monkeypatch, tmp_path):
    from fpga.count_action.simulate.compiled import native

    monkeypatch.setattr(native, "_make_cache_folder", lambda: tmp_path)
    rows = np.ones((5, make_ports(small).input_column_count), np.uint64)
    first = simulate(small, rows)
    (kept,) = tmp_path.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-1])
    assert (simulate(small, rows) == first).all()
    assert kept.read_bytes() == whole

    monkeypatch.setattr(native, "_compile_to_object_code", lambda _: pytest.fail("it was translated again"))
    assert (simulate(small, rows) == first).all()


def test_the_programs_that_were_used_least_recently_are_removed(monkeypatch, tmp_path):
    from fpga.count_action.simulate.compiled import native

    monkeypatch.setattr(native, "_MAX_CACHED_PROGRAMS", 10)
    for age in range(11):
        native._write_cache(tmp_path / f"{age}.o", b"x")
        os.utime(tmp_path / f"{age}.o", (age, age))
    assert {path.stem for path in tmp_path.iterdir()} == set(map(str, range(1, 11)))


@given(st.integers(0, 2**128 - 1), st.integers(0, 127), st.integers(1, 64), st.booleans())
def test_fields_of_words(bits, low, width, signed):
    """Expressions are evaluated as the machine does: in 64 bits."""
    width = min(width, 128 - low)
    text = write_number(BitField(("a", "b"), low, width), signed=signed)
    value = bits >> low & (1 << width) - 1
    words = {"a": Word(bits), "b": Word(bits >> 64)}
    assert (
        Word(eval(text, words)).value
        == Word(value - (value >> (width - 1) << width) if signed else value).value
    )


@given(st.lists(st.tuples(st.integers(1, 32), st.integers(0, 2**32 - 1)), min_size=1, max_size=9))
def test_fields_side_by_side(fields):
    names = {f"x{place}": Word(value & (1 << width) - 1) for place, (width, value) in enumerate(fields)}
    texts = pack(make_field(name, width) for name, (width, _) in zip(names, fields, strict=True))
    expected = low = 0
    for (width, _), word in zip(fields, names.values(), strict=True):
        expected, low = expected | word.value << low, low + width
    assert [Word(eval(text, names)).value & 2**64 - 1 for text in texts] == [
        expected >> 64 * word & 2**64 - 1 for word in range(-(-low // 64))
    ]
    assert mask_field(make_field("x0", 3)) == "x0"


class Word:
    """A 64-bit signed integer that wraps."""

    def __init__(self, value):
        value = int(value) & 2**64 - 1
        self.value = value - (value >> 63 << 64)

    def __int__(self):
        return self.value

    __index__ = __int__

    def __lshift__(self, other):
        return Word(self.value << int(other))

    def __rshift__(self, other):
        return Word(self.value >> int(other))

    def __and__(self, other):
        return Word(self.value & int(other))

    def __or__(self, other):
        return Word(self.value | int(other))

    def __xor__(self, other):
        return Word(self.value ^ int(other))

    def __sub__(self, other):
        return Word(self.value - int(other))


def test_a_stored_sample_of_another_module_is_that_of_the_fire():
    text = """
    inputs: { stream x of 8 bits }
    module a { counts: { sum x.valid } targets: { t: 1 } actions: { stream x.data } }
    module b { counts: { sum a.out.valid over cycles } targets: { t: 2 } actions: { store a.out.data as kept } }
    """
    datapath = parse_text(text, "stored.ca").datapath
    ports = make_ports(datapath)
    inputs = np.zeros((200, ports.input_column_count), np.uint64)
    inputs[:, ports.find_input("x_valid_i").column] = 1
    inputs[:, ports.find_input("x_data_i").column] = np.arange(200)
    expected = ReferenceSimulator(datapath).run(inputs)
    assert find_first_mismatch(datapath, expected, simulate(datapath, inputs)) is None
    assert len(np.unique(expected[:, ports.find_output("b_kept_o").column])) > 50
