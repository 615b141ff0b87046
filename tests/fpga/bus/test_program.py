"""Programs: what they accept, and that a file of one is one."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga import Program, ProgramError, program_from_json


def test_a_target_that_is_not_named_has_the_value_of_the_text(demo):
    program = Program(demo, ({}, {"adder.per_sum": 7}))
    assert {(module, name): value for module, name, value in program.targets(1)} == {
        ("join", "n"): 3,
        ("adder", "per_sum"): 7,
        ("wall", "n"): 33,
        ("book", "many"): 2,
        ("book", "far"): 5,
        ("book", "never"): 0,
    }
    with pytest.raises(ProgramError, match="has layers 0 to"):
        list(program.targets(2))


@given(
    values=st.lists(
        st.dictionaries(st.sampled_from(["adder.per_sum", "book.far"]), st.integers(0, 65535)), min_size=1
    )
)
def test_a_file_of_a_program_is_the_program(demo, values):
    program = Program(demo, tuple(values))
    assert program_from_json(program.to_json()) == program


def test_numbers_of_numpy_are_numbers(demo):
    assert dict(Program(demo, ({"join.n": np.uint8(2)},)).layers[0]) == {"join.n": 2}


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ({"join.m": 1}, r"layer 1: no target 'join.m'. Did you mean 'join.n'\?"),
        ({"zzz": 1}, r"no target 'zzz'. There are: join.n, adder.per_sum"),
        ({"join.n": 16}, "join.n is 16, and its 4 bits hold 0 to 15"),
        ({"join.n": -1}, "join.n is -1"),
        ({"join.n": 1.5}, r"layer 1: join\.n is 1\.5, but a target must be an integer\."),
        ({"join.n": "3"}, r"layer 1: join\.n is '3', but a target must be an integer\."),
    ],
)
def test_what_cannot_be_is_refused(demo, layer, message):
    with pytest.raises(ProgramError, match=message):
        Program(demo, ({}, layer))


def test_a_program_has_a_layer(demo):
    with pytest.raises(ProgramError, match="a program needs at least one layer, which may be empty"):
        Program(demo, ())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"hash": "0", "layers": [1], "datapath": {}}'])
def test_what_is_no_program(text):
    with pytest.raises(ProgramError, match="not a valid program"):
        program_from_json(text)


def test_a_datapath_that_was_changed_by_hand_is_noticed(demo):
    document = json.loads(Program(demo).to_json())
    document["datapath"]["modules"][0]["targets"][0]["reset"] = 2
    with pytest.raises(ProgramError, match=f"for hash {demo.digest:08x}, but the datapath in it has"):
        program_from_json(json.dumps(document))
