"""Proofs of datapaths: the library, faults in the wiring of a top, and what the command says."""

import json
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from libraries import skip_without

import fpga

skip_without("lark", reason="needs lark: pip install 'lightbed[fpga]'")
skip_without("typer", reason="needs typer: pip install 'lightbed[fpga]'")

from fpga.cli import run_app
from fpga.count_action import load, parse_text
from fpga.formal import Verdict, prove, sby, specification
from fpga.formal.properties import PROPERTIES
from fpga.formal.search import format_table, read_vcd
from fpga.hdl.design import make_design
from fpga.hdl.tools import ToolTimeout

LIBRARY = sorted((Path(fpga.__file__).parent / "library").glob("*.ca"))
DAILY = {"round_robin_arbiter"}
"""Proven every day: it chooses among streams, and merges them. `make test-long` proves the whole library."""


def daily(places, *kept):
    """Return the parameters of a test, of which those that are not kept are long."""
    return [pytest.param(each, marks=() if each in kept else pytest.mark.long) for each in places]


@pytest.mark.parametrize(
    "path", daily(LIBRARY, *(path for path in LIBRARY if path.stem in DAILY)), ids=lambda path: path.stem
)
def test_a_module_of_the_library_is_proven(prover, path):
    proof = prove(load(path).datapath)
    assert proof.ok, proof.results
    unreached = [
        (each.module, each.part_name, each.statement) for each in proof.cover_results if not each.is_reached
    ]
    # Nothing keeps the accumulator's results waiting: the sequencer, which counts them, has no stream of its own.
    never = [("accumulator", "result", "stall")] if path.stem == "photonic_mac_control" else []
    assert unreached == never
    assert sum(each.statement == "fire" for each in proof.cover_results if each.is_reached) >= 1


@pytest.fixture(scope="module")
def wired(mutants):
    return parse_text(mutants.WIRED, "wired.ca").datapath


def faulty(datapath, mutant):
    """Return a stand-in for `make_design` that plants the fault in the generated top."""
    sound = make_design(datapath)
    name, text = sound.sources[-1]
    assert text.count(mutant.old) == 1, f"{mutant.old!r} stands once in the top"
    sources = (*sound.sources[:-1], (name, text.replace(mutant.old, mutant.new)))
    return lambda _: type(sound)(sound.top, sources, sound.ports)


@pytest.mark.long
def test_a_sound_top_is_proven_and_every_property_applies(prover, wired):
    proof = prove(wired)
    assert proof.ok
    assert {each.property for each in proof.results if each.verdict is Verdict.PROVEN} == {
        fact.name for fact in PROPERTIES
    }
    assert proof.find_result("after", "data").verdict is Verdict.NOT_APPLICABLE
    assert proof.counterexample == ()


@pytest.mark.long
@pytest.mark.parametrize("place", range(7))
def test_a_fault_in_the_wiring_fails_the_property_it_is_about(prover, mutants, wired, place):
    mutant = mutants.WIRING_MUTANTS[place]
    with mock.patch.object(specification, "make_design", faulty(wired, mutant)):
        proof = prove(wired, include_cover=False)
    result = proof.find_result(mutant.module, mutant.property)
    assert result.verdict is Verdict.FAILED
    assert not proof.ok
    head = proof.counterexample[0].split()
    assert head[0] == "cycle"
    first = min(each.cycle for each in proof.results if each.cycle is not None)
    assert (
        int(head[-1]) <= first
    )  # the cycle that fails; no port may show it before a later one of another run
    assert proof.vcd_text.startswith("$")


@pytest.fixture(scope="module")
def chosen(mutants):
    return parse_text(mutants.CHOSEN, "chosen.ca").datapath


@pytest.mark.long
@pytest.mark.parametrize("place", daily(range(4), 3))
def test_a_fault_in_a_choice_or_a_buffer_is_found(prover, mutants, chosen, place):
    mutant = mutants.CHOICE_MUTANTS[place]
    with mock.patch.object(specification, "make_design", faulty(chosen, mutant)):
        proof = prove(chosen, include_cover=False)
    assert proof.find_result(mutant.module, mutant.property).verdict is Verdict.FAILED
    assert proof.counterexample != ()


@pytest.mark.long
def test_choices_and_buffers_are_proven(prover, chosen):
    proof = prove(chosen)
    assert proof.ok
    assert [each for each in proof.cover_results if not each.is_reached] == []


BITS = """module m { inputs: { stream x of 2 lanes of 4 bits signed; number n of 3 bits }
  counts: { c: sum x.valid over cycles while x.data[1][3:2] == 0x3 or (c + 1)[1:0] << 1 != n[2:1] }
  targets: { 0x10 } actions: { stream concat(x.data, n), x.data[2] >> 1, x.data[1] << 3 } }"""


@pytest.mark.long
def test_bits_of_values_are_proven(prover):
    proof = prove(parse_text(BITS, "bits.ca").datapath)
    assert proof.ok
    assert [each for each in proof.cover_results if not each.is_reached] == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new", "name"),
    [(" >>> 2) & ", " >>> 1) & ", "fires"), (" >>> 1;", " <<< 1;", "data"), (" <<< 7)", " <<< 6)", "data")],
)
def test_a_wrong_bit_is_found(prover, mutants, old, new, name):
    datapath = parse_text(BITS, "bits.ca").datapath
    with mock.patch.object(
        specification, "make_design", faulty(datapath, mutants.WiringMutant(old, new, "m", name))
    ):
        proof = prove(datapath, include_cover=False)
    assert proof.find_result("m", name).verdict is Verdict.FAILED


SPLIT = """module m { inputs: { stream x of 4 bits; stream y of 4 bits }
  counts: { pair: sum x.valid + y.valid to two; small: sum x.valid to one while x.data < 4; rest: sum y.valid to one }
  targets: { one: 1; two: 2 } actions: { on pair: emit sum x.data + y.data width 5; on small: stream x.data as low;
    on rest: stream y.data as other } }"""


@pytest.mark.long
def test_a_split_stream_is_proven_and_a_beat_taken_twice_is_found(prover, mutants):
    datapath = parse_text(SPLIT, "split.ca").datapath
    proof = prove(datapath)
    assert proof.ok
    assert [each for each in proof.cover_results if not each.is_reached] == []
    twice = mutants.WiringMutant(".enable_i(!m_pair_fire)", ".enable_i(1'b1)", "m", "fires")
    with mock.patch.object(specification, "make_design", faulty(datapath, twice)):
        proof = prove(datapath, include_cover=False)
    assert proof.find_result("m", "fires").verdict is Verdict.FAILED


TURNS = """module m { inputs: { stream x of 4 bits with last; stream y of 4 bits with last; flag p }
  counts: { high: sum x.valid while x.data > 7 and not p; rest: sum x.valid + y.valid by turns until last;
    left: sum y.valid while p } targets: { 1 }
  actions: { on high: stream x.data as big; on rest: merge with last as both; on left: stream y.data as late } }"""


@pytest.mark.long
def test_a_choice_among_streams_that_others_take_is_proven_and_a_beat_taken_twice_is_found(prover, mutants):
    datapath = parse_text(TURNS, "turns.ca").datapath
    proof = prove(datapath)
    assert proof.ok, proof.results
    assert [each for each in proof.cover_results if not each.is_reached] == []
    twice = mutants.WiringMutant(".enable_i(!m_high_fire)", ".enable_i(1'b1)", "m", "beats")
    with mock.patch.object(specification, "make_design", faulty(datapath, twice)):
        proof = prove(datapath, include_cover=False)
    assert proof.find_result("m", "beats").verdict is Verdict.FAILED


MEMORY = """module m { inputs: { stream x of 3 bits signed; flag b; flag c; number k of 4 bits }
  memory w: 5 of 3 bits;
  counts: { p: sum x.valid over cycles; q: sum b; r: sum c } targets: { 1 }
  actions: {
    on p: store x.data in w[x.data + 1] by priority;
    on q: store k in w[k] by priority;
    on r: read w[k - 1] as old
  } }"""


def test_a_memory_is_proven(prover):
    proof = prove(parse_text(MEMORY, "memory.ca").datapath)
    assert proof.ok, proof.results
    assert [each for each in proof.cover_results if not each.is_reached] == []


@pytest.mark.long
def test_a_histogram_is_proven(prover):
    histogram = Path(__file__).resolve().parents[1] / "language" / "newcomers" / "histogram.ca"
    assert prove(load(histogram).datapath).ok


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (".store_word_i(m_p_fire ? x_data_i : k_i[2:0])", ".store_word_i(m_q_fire ? k_i[2:0] : x_data_i)"),
        (".store_inside_i(", ".store_inside_i(1'b1 || "),
        (".read_inside_i(", ".read_inside_i(1'b1 || "),
        (".read_i(m_r_fire)", ".read_i(m_q_fire)"),
        (".load_i(m_w_load_i)", ".load_i(1'b0)"),
        (".load_inside_i(m_w_address_i < 3'd5)", ".load_inside_i(m_w_address_i < 3'd4)"),
    ],
)
def test_a_wrong_memory_is_found(prover, mutants, old, new):
    datapath = parse_text(MEMORY, "memory.ca").datapath
    with mock.patch.object(
        specification, "make_design", faulty(datapath, mutants.WiringMutant(old, new, "m", "flags"))
    ):
        proof = prove(datapath, include_cover=False)
    assert proof.find_result("m", "flags").verdict is Verdict.FAILED
    assert proof.counterexample != ()


RANKED = """module m { inputs: { flag a; flag b; number n of 4 bits } counts: { x: sum a; y: sum b } targets: { 1 }
  actions: { on x: store n as k by priority; on y: store k + 1 width 4 as k by priority } }"""


@pytest.mark.long
@pytest.mark.parametrize(("first", "verdict"), [("m_x_fire", Verdict.PROVEN), ("!m_y_fire", Verdict.FAILED)])
def test_the_first_of_several_stores_wins(prover, mutants, first, verdict):
    datapath = parse_text(RANKED, "ranked.ca").datapath
    mutant = mutants.WiringMutant(".data_i(m_x_fire ?", f".data_i({first} ?", "m", "flags")
    with mock.patch.object(specification, "make_design", faulty(datapath, mutant)):
        proof = prove(datapath, include_cover=False)
    assert proof.find_result("m", "flags").verdict is verdict


STATED = """
module bucket {
  inputs: { stream x of 8 bits; flag tick }
  counts: { tokens: sum tick - x.valid over cycles at most 5 }
  targets: { never }
  always { bounded: tokens <= 5; small: x.data < 200 }
  never { three: tokens == 3 }
  assume { x.data < 100 }
}
"""


@pytest.mark.long
def test_what_the_text_states_is_proven_under_what_it_assumes(prover):
    proof = prove(parse_text(STATED).datapath, include_cover=False)
    stated = {each.part_name: each for each in proof.results if each.property == "stated"}
    assert {name: each.verdict for name, each in stated.items()} == {
        "bounded": Verdict.PROVEN,
        "small": Verdict.PROVEN,  # by what is assumed alone
        "three": Verdict.FAILED,  # and the others are not open for that
    }
    assert stated["three"].cycle == 4
    assert all(each.verdict is not Verdict.OPEN for each in proof.results)
    assert not proof.ok
    assert "tick_i" in " ".join(proof.counterexample)


@pytest.mark.long
def test_a_property_is_vacuous_where_no_run_meets_what_is_assumed(prover):
    text = STATED.replace("assume { x.data < 100 }", "assume { x.data < 1 and x.data > 1 }")
    proof = prove(
        parse_text(text.replace("three: tokens == 3", "six: tokens == 6")).datapath, include_cover=False
    )
    assert {each.verdict for each in proof.results if each.property == "stated"} == {Verdict.VACUOUS}
    assert proof.find_result("bucket", "fires").verdict is Verdict.PROVEN


def test_all_wiring_mutants_are_looked_at(mutants):
    assert len(mutants.WIRING_MUTANTS) == 7


@pytest.fixture
def file(tmp_path, mutants):
    path = tmp_path / "wired.ca"
    path.write_text(mutants.WIRED)
    return path


@pytest.mark.long
def test_the_command_shows_what_is_proven(prover, file, capsys):
    assert run_app(["prove", str(file), "--module", "after"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("after\n")
    assert "gate" not in shown
    assert "proven          fires" in shown
    assert "not applicable  data" in shown
    assert "reached: " in shown


ONE_COUNT = """
module gate {
  inputs:  { stream x of 4 bits; flag on }
  counts:  { n: sum x.valid over cycles while on }
  targets: { n: 3 }
  actions: { pulse done }
}
"""


def test_the_command_shows_a_counterexample_and_writes_the_waves(prover, mutants, tmp_path, capsys):
    file, waves = tmp_path / "gate.ca", tmp_path / "counterexample.vcd"
    file.write_text(ONE_COUNT)
    sound = parse_text(ONE_COUNT, "gate.ca").datapath
    with mock.patch.object(specification, "make_design", faulty(sound, mutants.WIRING_MUTANTS[0])):
        assert run_app(["prove", str(file), "--json", "--vcd", str(waves)]) == 1
    document = json.loads(capsys.readouterr().out)
    assert not document["ok"]
    assert {"module": "gate", "property": "fires", "verdict": "failed"}.items() <= next(
        each for each in document["results"] if each["verdict"] == "failed"
    ).items()
    assert any(line.startswith("x_valid_i") for line in document["counterexample"])
    assert "x_valid_i" in waves.read_text()


def test_an_unknown_module_is_named(prover, file, capsys):
    assert run_app(["prove", str(file), "--module", "nobody"]) == 1
    printed = capsys.readouterr().err
    assert "nobody" in printed
    assert "gate" in printed


def test_a_dump_is_read_cycle_by_cycle():
    dump = """$scope module top $end
$var wire 1 a clk_i $end
$var wire 4 b count_o $end
$scope module dut $end
$var wire 4 c count_o $end
$upscope $end
$upscope $end
$enddefinitions $end
#0
0a
b0001 b
b1111 c
#10
bx01x b
#20
"""
    series = read_vcd(dump, ["count_o", "absent"])
    assert series == {"count_o": (1, 2)}
    assert format_table(series, 3, 5) == ["cycle    3  4", "count_o  1  2"]


VACUOUS = (
    """module m { counts: { sum x over cycles while a and not a } targets: { 2 } actions: { pulse p } }"""
)


@pytest.mark.parametrize(("allowed", "verdict"), [(False, Verdict.VACUOUS), (True, Verdict.PROVEN)])
def test_a_count_that_can_never_count_is_not_proven(allowed, verdict):
    with mock.patch.object(sby, "run", return_value=replace(sby.NO_FINDINGS, is_proven=True)) as run:
        proof = prove(parse_text(VACUOUS).datapath, depth=50, allow_vacuous=allowed)
    assert run.call_args.kwargs["depth"] == 50
    assert proof.find_result("m", "fires").verdict is verdict
    assert proof.ok is allowed


def test_a_prover_that_does_not_end_is_a_verdict():
    silent = mock.patch("fpga.formal.search.simulate_differences", return_value=())
    with silent, mock.patch.object(sby, "run", side_effect=ToolTimeout("sby did not end within 300 s")):
        proof = prove(parse_text(VACUOUS).datapath)
    assert proof.find_result("m", "fires").verdict is Verdict.TIMED_OUT
    assert proof.find_result("m", "data").verdict is Verdict.NOT_APPLICABLE
    assert not proof.ok


def test_a_budget_that_the_samples_exceed_leaves_the_other_properties_proven():
    """The first run, of all assertions, exceeds the budget; the second leaves out those of the samples."""
    runs = []

    def run(*_, excluded_assertions=(), **__):
        runs.append(excluded_assertions)
        if not excluded_assertions:
            raise ToolTimeout
        return replace(sby.NO_FINDINGS, is_proven=True)

    silent = mock.patch("fpga.formal.search.simulate_differences", return_value=())
    with silent, mock.patch.object(sby, "run", run):
        proof = prove(load(next(path for path in LIBRARY if path.stem == "relu")).datapath)

    assert {name.partition(".")[2] for name in runs[1]} >= {"data", "keeps"}
    verdicts = {each.property: each.verdict for each in proof.results}
    assert verdicts.pop("data") is Verdict.TIMED_OUT
    assert set(verdicts.values()) == {Verdict.PROVEN, Verdict.NOT_APPLICABLE}
