"""Stimuli from files: what they mean, and what is said about those that are wrong."""

import numpy as np
import pytest

from fpga.count_action import CountActionError
from fpga.count_action.ports import make_ports
from fpga.count_action.simulate import ReferenceSimulator
from fpga.count_action.simulate.port_values import unpack_row, write_series
from fpga.count_action.simulate.signals import list_input_wires, list_output_wires, map_wires_by_name
from fpga.count_action.simulate.stimuli.files import (
    find_failures,
    load_stimulus,
    make_example_stimulus,
    tabulate_window,
)

CSV = """\
cycle,x_valid[0],x_valid[1],x_data[0],x_data[1],go,expect:fire[join.both],expect:join_out_data_o[1]
0,1,0,-1,0x7f,1,0,
1,1,1,-2,0b101,,1,
2,,,,,1,0,5
"""

ENDLESS = """\
def stimulus(ports):
    go = 0
    while True:
        go = 1 - go
        yield {"go": go}
"""


def load(tmp_path, datapath, text, name="s.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_stimulus(datapath, path)


def refused(tmp_path, datapath, text, name="s.csv"):
    with pytest.raises(CountActionError) as caught:
        load(tmp_path, datapath, text, name)
    return caught.value.errors


def inputs_of(datapath, stimulus):
    return [unpack_row(make_ports(datapath).inputs, row) for row in stimulus.rows.tolist()]


def test_csv(tmp_path, small):
    stimulus = load(tmp_path, small, CSV)
    first, second, third = inputs_of(small, stimulus)
    assert first == {
        "x_valid_i": 1, "x_data_i": 0x7FFF, "go_i": 1,
        "target_shadow_i": 2 | 3 << 2, "commit_i": 0, "clear_status_i": 0,
    }  # fmt: skip
    assert (second["x_valid_i"], second["x_data_i"], second["go_i"]) == (3, 0x05FE, 0)
    assert third["x_valid_i"] == 0
    outputs = ReferenceSimulator(small).run(stimulus.rows)
    assert len(stimulus.expectations) == 4
    assert find_failures(stimulus, outputs) == ()


def test_a_failed_expectation_shows_eight_cycles(tmp_path, small):
    lines = CSV.splitlines()
    text = "\n".join([lines[0], *(f"{cycle},1,1,3,4,1,{int(cycle != 6)}," for cycle in range(20))])
    stimulus = load(tmp_path, small, text)
    outputs = ReferenceSimulator(small).run(stimulus.rows)
    (failure,) = find_failures(stimulus, outputs)
    assert str(failure) == "cycle 6: fire_o[join.both] is 1, expected 0"
    assert failure.expectation.line == 8
    shown = list(tabulate_window(small, stimulus.rows, outputs, failure))
    assert shown[0].split() == ["cycle", "2", "3", "4", "5", "*6", "7", "8", "9"]
    row = next(line for line in shown if line.startswith("fire_o[third.beats]"))
    assert row.split()[1:] == ["0", "1", "0", "0", "1", "0", "0", "1"]


def test_the_three_kinds_of_files_mean_the_same(tmp_path, small):
    expected = load(tmp_path, small, CSV)
    names = CSV.split("\n", 1)[0].split(",")[1:6]
    columns = {name: [1, 1, 0] for name in names} | {"x_valid[1]": [0, 1, 0], "go": [1, 0, 1]}
    columns |= {"x_data[0]": [-1, -2, 0], "x_data[1]": [0x7F, 5, 0], "expect:fire[join.both]": [0, 1, 0]}
    np.savez(tmp_path / "s.npz", **{name: np.array(values) for name, values in columns.items()})
    archive = load_stimulus(small, tmp_path / "s.npz")
    program = f"def stimulus(ports):\n    columns = {columns!r}\n    for cycle in range(3):\n"
    program += "        yield {name: values[cycle] for name, values in columns.items()}\n"
    generator = load(tmp_path, small, program, "s.py")
    for other in (archive, generator):
        assert np.array_equal(other.rows, expected.rows)
        assert [(e.cycle, e.value) for e in other.expectations] == [(0, 0), (1, 1), (2, 0)]


def test_ready_and_targets_have_sensible_values(tmp_path, generated):
    datapath = generated.random_datapath(0, 10)
    stimulus = load(tmp_path, datapath, f"{list_input_wires(datapath)[0].name}\n0\n")
    (row,) = inputs_of(datapath, stimulus)
    ready = [value for name, value in row.items() if name.endswith("_ready_i")]
    assert ready == [1] * len(ready) != []
    resets = [target.reset for _, target in datapath.list_targets()]
    wires = [wire for wire in list_input_wires(datapath) if wire.name.startswith("target_shadow")]
    assert [wire.read_series(stimulus.rows)[0] for wire in wires] == resets


@pytest.mark.parametrize(
    ("text", "line", "column", "message", "hint"),
    [
        ("x_vald\n1\n", 1, 1, "no input `x_vald`", "Did you mean `x_valid`"),
        ("go,fire\n1,1\n", 1, 2, "no input `fire`", "expect:fire"),
        ("go,expect:mark\n1,1\n", 1, 2, "no output `mark`", "third_mark"),
        ("go\n1\n2\n", 3, 1, "2 does not fit in `go_i`, which has 1 bits", "-1 to 1"),
        ("x_data[0]\n-129\n", 2, 1, "-129 does not fit", "-128 to 255"),
        ("go\n1\nyes\n", 3, 1, "`yes` is not a number", "0x1f"),
        ("go\n1,1\n", 2, 2, "2 cells under 1 names", "Remove"),
        ("go,go\n1,1\n", 1, 2, "appears twice", "Remove"),
        ("go,x_valid,x_valid[1]\n1,3,\n", 1, 3, "`x_valid` and `x_valid[1]` set the same bits", "Keep one"),
        ("x_valid[1],x_valid\n,3\n", 1, 2, "`x_valid[1]` and `x_valid` set the same bits", "Keep one"),
        ("go,go_i\n1,0\n", 1, 2, "`go` and `go_i` set the same bits of `go_i`", "Keep one"),
        ("go,cycle\n1,0\n1,10\n", 3, 2, "`10` under `cycle`, but this line is cycle 1", "for every cycle"),
        ("Cycle,go\n1,1\n", 2, 1, "`1` under `Cycle`, but this line is cycle 0", "numbered from 0"),
        ("", 1, 1, "is empty", "--init"),
        (b"go\n\xff\n", 1, 1, "not UTF-8", "UTF-8"),
    ],
)
def test_csv_that_is_wrong(tmp_path, small, text, line, column, message, hint):
    error, *_ = refused(tmp_path, small, text)
    assert (error.line, error.column) == (line, column)
    assert message in error.message
    assert hint in error.hint


def test_several_errors_are_reported_at_once(tmp_path, small):
    assert [error.line for error in refused(tmp_path, small, "go\n7\n1\nx\n")] == [2, 4]
    assert len(refused(tmp_path, small, "go\n" + "7\n" * 100)) == 20


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (
            "def stimulus(ports):\n    yield {'go': 1}\n    raise KeyError('gone')\n",
            3,
            "KeyError in the stimulus: 'gone'",
        ),
        ("def stimulus(ports)\n", 1, "is not valid Python"),
        ("x = 1\n", 1, "no function `stimulus`"),
        ("def stimulus(ports):\n    yield 1\n", 2, "not a dictionary"),
        ("def stimulus(ports):\n    yield {'go': 'a'}\n", 2, "`'a'` in cycle 0"),
        ("def stimulus(ports):\n    yield {'gone': 1}\n", 2, "no input `gone`"),
        (
            "def stimulus(ports):\n    yield {}\n    yield {'go': 1, 'go_i': 0}\n",
            3,
            "`go` and `go_i` set the same bits",
        ),
        (
            "import sys\ndef stimulus(ports):\n    yield {}\n    sys.exit(0)\n",
            4,
            "SystemExit in the stimulus: 0",
        ),
        ("import sys\nsys.exit(0)\n", 2, "SystemExit in the stimulus: 0"),
    ],
)
def test_a_generator_that_is_wrong(tmp_path, small, text, line, message):
    error, *_ = refused(tmp_path, small, text, "s.py")
    assert error.line == line
    assert message in error.message


def test_other_files_that_are_wrong(tmp_path, small):
    assert "unknown stimulus format" in refused(tmp_path, small, "go\n", "s.txt")[0].message
    assert "is not an NPZ" in refused(tmp_path, small, "go\n", "s.npz")[0].message
    np.savez(tmp_path / "f.npz", go=np.ones(3), **{"x_valid[0]": np.ones(2, int)})
    with pytest.raises(CountActionError) as caught:
        load_stimulus(small, tmp_path / "f.npz")
    assert [error.message for error in caught.value.errors] == [
        "`go` is float64[3], not 3 integers",
        "`x_valid[0]` is int64[2], not 3 integers",
    ]
    with pytest.raises(CountActionError, match="cannot be read"):
        load_stimulus(small, tmp_path / "none.csv")


@pytest.mark.slow
def test_the_example_passes_for_any_datapath(tmp_path, small, generated):
    for datapath in (small, *(generated.random_datapath(seed, 6) for seed in range(8))):
        stimulus = load(tmp_path, datapath, make_example_stimulus(datapath))
        outputs = ReferenceSimulator(datapath).run(stimulus.rows)
        assert find_failures(stimulus, outputs) == ()
        assert stimulus.expectations
        assert any(expected.value for expected in stimulus.expectations), "something fires"


def test_cells_that_are_too_large_for_csv_are_reported(tmp_path, small):
    assert "is not valid CSV" in refused(tmp_path, small, "go\n" + "1" * 200_000)[0].message


def test_names_that_share_no_bits_stand_together(tmp_path, small):
    text = "cycle,x_valid[0],x_valid[1],expect:fire,expect:fire[join.both]\n,1,0,,0\n1,0,1,,0\n"
    stimulus = load(tmp_path, small, text)
    assert [each["x_valid_i"] for each in inputs_of(small, stimulus)] == [1, 2]
    assert len(stimulus.expectations) == 2


def test_arrays_that_share_bits_are_refused(tmp_path, small):
    np.savez(tmp_path / "o.npz", **{"x_valid": np.ones(2, int), "x_valid[0]": np.zeros(2, int)})
    with pytest.raises(CountActionError, match=r"`x_valid` and `x_valid\[0\]` set the same bits"):
        load_stimulus(small, tmp_path / "o.npz")


def test_no_more_is_read_than_asked_for(tmp_path, small):
    load(tmp_path, small, CSV)
    np.savez(tmp_path / "s.npz", go=np.array([1, 0, 1]))
    (tmp_path / "s.py").write_text(ENDLESS)
    for name in ("s.csv", "s.npz", "s.py"):
        for cycles in (1, 2):
            stimulus = load_stimulus(small, tmp_path / name, cycles)
            assert [each["go_i"] for each in inputs_of(small, stimulus)] == [1, 0][:cycles]
            assert all(each.cycle < cycles for each in stimulus.expectations)


def test_a_generator_that_never_ends_is_reported_where_it_stands(tmp_path, small, monkeypatch):
    monkeypatch.setattr("fpga.count_action.simulate.stimuli.collector.MAX_CYCLES", 100)
    (error,) = refused(tmp_path, small, ENDLESS, "s.py")
    assert (error.line, error.message) == (5, "the stimulus has more than 100 cycles")
    assert "--cycles" in error.hint


def test_there_is_an_end(tmp_path, small, monkeypatch):
    monkeypatch.setattr("fpga.count_action.simulate.stimuli.collector.MAX_CYCLES", 3)
    load(tmp_path, small, "go\n" + "1\n" * 3)
    assert "more than 3 cycles" in refused(tmp_path, small, "go\n" + "1\n" * 9)[0].message


def test_more_values_than_cycles(small):
    port = make_ports(small).inputs[0]
    with pytest.raises(ValueError, match="2 values for 1 cycles"):
        write_series(np.zeros((1, 9), np.uint64), port, [1, 2])


def test_every_bit_of_every_port_has_a_name(generated):
    for seed in range(5):
        datapath = generated.random_datapath(seed, 12)
        ports = make_ports(datapath)
        for wires, places in (
            (list_input_wires(datapath), ports.inputs),
            (list_output_wires(datapath), ports.outputs),
        ):
            bits = [(wire.port.name, wire.low + bit) for wire in wires for bit in range(wire.width)]
            assert sorted(bits) == sorted((port.name, bit) for port in places for bit in range(port.width))
        assert len(map_wires_by_name(datapath, is_input=True)) >= 2 * len(ports.inputs)
