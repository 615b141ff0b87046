"""Comparing two runs, counting what happened, and the command that does both."""

import json

import numpy as np
import pytest

from fpga.count_action.model import (
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
)
from fpga.count_action.ports import make_ports
from fpga.hdl.cosimulation import (
    compare,
    find_first_mismatch,
    measure_coverage,
    read_values,
    unpack_bits,
)
from fpga.hdl.stimulus import generate_stimulus

TEXT = """\
module pair {
  inputs: { stream x of 8 bits; flag on }
  counts: { sum x.valid over cycles while on }
  targets: { goal: 3 }
  actions: { emit sum x.data as total }
}
"""


def chain() -> Datapath:
    def link(name, ref):
        count = Count("c", CountKind.ACCUMULATE, "t", (ref,))
        pulse = Action(ActionKind.PULSE, "c", "done")
        return Module(name, (count,), (Target("t", 2),), (pulse,))

    modules = (link("a", Ref("x")), link("b", Ref("done", "a")), link("c", Ref("done", "b")))
    return Datapath("chain", (Signal("x", SignalKind.FLAG),), modules)


def run_of(datapath: Datapath, **series):
    ports = make_ports(datapath)
    cycles = max(map(len, series.values()))
    rows = np.zeros((cycles, ports.output_column_count), np.uint64)
    for name, values in series.items():
        rows[: len(values), ports.find_output(name).column] = values
    return np.zeros((cycles, ports.input_column_count), np.uint64), rows


def test_equal_runs_have_no_mismatch():
    _, run = run_of(chain(), fire_o=[0, 1, 2])
    assert find_first_mismatch(chain(), run, run.copy()) is None


def test_a_mismatch_is_reported_with_its_cycle_its_ports_and_eight_cycles():
    inputs, expected = run_of(chain(), fire_o=[0] * 20)
    inputs[:, 0] = 1
    actual = expected.copy()
    actual[9, make_ports(chain()).find_output("a_done_o").column] = 1
    actual[11, make_ports(chain()).find_output("fire_o").column] = 1
    found = compare(chain(), "icarus", inputs, expected, actual)
    assert (found.mismatch.cycle, found.mismatch.ports, found.mismatch.cycles) == (
        9,
        ("a_done_o",),
        2,
    )
    assert [line.split() for line in found.window] == [
        ["cycle", *map(str, range(5, 13))],
        ["x_i", *"11111111"],
        ["a_done_o", "(expected)", *"00000000"],
        ["a_done_o", "(RTL)", *"00001000"],
    ]


def test_runs_of_unequal_length_are_not_compared():
    _, run = run_of(chain(), fire_o=[0, 1, 2])
    with pytest.raises(ValueError, match="cannot be compared"):
        find_first_mismatch(chain(), run, run[:2])


def test_bits_and_values_of_wide_ports():
    datapath = Datapath("wide", (Signal("x", SignalKind.NUMBER, 3, width=30),), ())
    port = make_ports(datapath).find_input("x_i")
    rows = np.array([[2**63 + 1, 3]], np.uint64)
    assert read_values(rows, port) == [(3 << 64) + 2**63 + 1]
    assert np.flatnonzero(unpack_bits(rows, port)[0]).tolist() == [0, 63, 64, 65]


def test_coverage_counts_fires_silence_and_chains():
    inputs, outputs = run_of(chain(), fire_o=[0b001, 0b010, 0b100, 0b101], overshoot_o=[0, 1, 1, 0])
    seen = measure_coverage(chain(), inputs, outputs)
    assert (seen.fires, seen.silent, seen.chained, seen.overshoots) == (
        5,
        (),
        1,
        1,
    )


def test_a_third_module_that_fires_by_itself_is_no_chain():
    inputs, outputs = run_of(chain(), fire_o=[0b001, 0b100, 0b101, 0b100])
    seen = measure_coverage(chain(), inputs, outputs)
    assert (seen.silent, seen.chained) == (("b",), 0)


def test_a_commit_counts_when_it_changes_the_target_of_a_count_above_0():
    inputs, outputs = run_of(chain(), count_o=[1, 0, 1, 1])
    inputs[:, make_ports(chain()).find_input("commit_i").column] = [0, 1, 1, 1]
    inputs[:, make_ports(chain()).find_input("target_shadow_i").column] = [0, 7, 7, 8]
    assert measure_coverage(chain(), inputs, outputs).commits_while_counting == 1


def test_the_same_seed_gives_the_same_stimulus():
    one, again, other = (generate_stimulus(chain(), 500, seed) for seed in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).any()


def stimuli():
    return [generate_stimulus(chain(), 500, seed) for seed in range(10)]


def test_the_generated_stimulus_makes_a_chain_fire(simulate):
    seen = [measure_coverage(chain(), inputs, simulate(chain(), inputs)) for inputs in stimuli()]
    assert sum(each.chained for each in seen) >= 50
    assert sum(each.commits_while_counting for each in seen) >= 50


@pytest.fixture
def command(icarus, simulate, tmp_path, capsys):
    pytest.importorskip("typer", reason="needs typer: pip install 'lightbed[fpga]'")
    pytest.importorskip("lark", reason="needs lark: pip install 'lightbed[fpga]'")
    from fpga.cli import run_app

    (tmp_path / "pair.ca").write_text(TEXT)

    def run(*arguments):
        code = run_app(["test", str(tmp_path / "pair.ca"), *arguments])
        return code, capsys.readouterr().out

    return run


@pytest.mark.hdl
def test_the_command_says_cycles_fires_and_mismatches(command):
    code, printed = command("--cycles", "500", "--seed", "3")
    assert code == 0
    assert printed.startswith("icarus: 500 cycles, ")
    assert "0 cycles with mismatches" in printed


@pytest.mark.hdl
def test_the_command_in_json(command):
    code, printed = command("--cycles", "500", "--json")
    document = json.loads(printed)
    assert (code, document["ok"], document["datapath"]) == (0, True, "pair")
    (run,) = document["runs"]
    assert run["mismatch"] is None
    assert run["coverage"]["fires"] > 20


def test_the_command_without_its_tool_tells_programs_on_standard_output(command, monkeypatch):
    from fpga.hdl import icarus
    from fpga.hdl.tools import ToolMissing

    def missing(*_, **__):
        raise ToolMissing("iverilog is not installed")

    monkeypatch.setattr(icarus, "run", missing)
    code, printed = command("--json")
    error = {"file": "", "line": 0, "column": 0, "message": "iverilog is not installed", "hint": ""}
    assert (code, json.loads(printed)) == (1, {"ok": False, "errors": [error]})


@pytest.mark.hdl
def test_the_command_shows_where_rtl_and_simulator_part(command, monkeypatch):
    from fpga.count_action.simulate import Simulator

    sound = Simulator.run

    def faulty(simulator, inputs):
        rows = sound(simulator, inputs)
        rows[100:, make_ports(simulator.datapath).find_output("fire_o").column] ^= np.uint64(1)
        return rows

    monkeypatch.setattr(Simulator, "run", faulty)
    code, printed = command("--cycles", "120")
    assert code == 1
    assert "20 cycles with mismatches" in printed
    assert "first mismatch in cycle 100 at fire_o:" in printed
    assert "    cycle " in printed


def test_more_cycles_than_anybody_waits_for_are_refused(command):
    assert command("--cycles", "100000000")[0] == 1
