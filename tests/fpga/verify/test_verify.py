"""Built folders as they are delivered: sound ones pass, changed ones do not, whatever was changed."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest
from libraries import skip_without
from needs import needs

skip_without("lark", reason="needs lark: pip install 'lightbed[fpga]'")
skip_without("typer", reason="needs typer: pip install 'lightbed[fpga]'")

import fpga
from fpga.cli import run_app
from fpga.count_action import CountActionError, load, parse_text
from fpga.formal.sby import TOOLS
from fpga.hdl import explain_missing
from fpga.registers.model import Access
from fpga.registers.register_list import StreamAccess
from fpga.registers.text import to_rdl
from fpga.registers.top import Top
from fpga.verify.accesses import PARTIAL_ROUNDS, SEED_COUNT, draw_accesses
from fpga.verify.bus_bench import write_random_datapath
from fpga.verify.bus_record import MAX_WAITING_CYCLES, find_waits_for_ready
from fpga.verify.delivered import read_folder
from fpga.verify.stream_rules import list_stream_ports
from fpga.verify.tops import run_seeds, run_top
from fpga.verify.verify import is_equivalent, verify

HERE = Path(__file__).parent


def _planted():
    spec = importlib.util.spec_from_file_location("fpga_verify_planted", HERE / "planted.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


PLANTED = _planted()
HARDWARE = [place for place, fault in enumerate(PLANTED.FAULTS) if fault.file.endswith((".sv", ".v"))]
TOPS = [
    place
    for place in HARDWARE
    if PLANTED.FAULTS[place].file.startswith((PLANTED.NAME + "_", "portal", "reg", "axis"))
]


@pytest.fixture(scope="session")
@needs("hdl")
def tools(warm_yosys):
    """Return nothing; skip where tools are missing."""
    if reason := explain_missing(*TOOLS, "iverilog", "vvp"):
        pytest.skip(reason)


@pytest.fixture(scope="session")
def sound(tools, tmp_path_factory):
    """Return a folder that `countaction build` has written."""
    folder = tmp_path_factory.mktemp("sound")
    text = folder / f"{PLANTED.NAME}.ca"
    text.write_text(PLANTED.TEXT)
    assert run_app(["build", str(text), "-o", str(folder / "built")]) == 0
    return folder / "built"


@pytest.mark.long
@pytest.mark.hdl
def test_a_memory_is_verified_and_a_wrong_load_is_found(tools, tmp_path):
    text = """module m { inputs: { stream x of 4 bits } memory w: 5 of 40 bits;
      counts: { c: sum x.valid over cycles; d: sum seen over cycles } targets: { 1 }
      actions: { on c: read w[x.data] as y; on c: pulse seen; on d: store y + 1 in w[x.data] } }"""
    path = tmp_path / "loads.ca"
    path.write_text(text)
    built = tmp_path / "built"
    assert run_app(["build", str(path), "-o", str(built)]) == 0
    assert run_app(["verify", str(built)]) == 0
    block = built / "register_memory.sv"
    sound = block.read_text()
    for old, new in (
        ("address_q + 1'b1", "address_q + 2'd2"),
        ("load_o    = push_i", "load_o    = push_i || set_i"),
    ):
        assert sound.count(old) == 1
        block.write_text(sound.replace(old, new))
        assert run_app(["verify", str(built)]) == 1


@pytest.fixture
def copy(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "copy")


def failing(found):
    return [each for each in found.properties if each.verdict.value in {"failed", "open"}]


@pytest.mark.long
def test_renamed_wires_and_comments_pass(copy, capsys):
    """The names of wires inside are nobody's: those that the proof looks at are found by what they do."""
    core = copy / f"{PLANTED.NAME}.sv"
    text = core.read_text()
    for old, new in ((" target;", " now;"), ("(target)", "(now)"), ("(target[", "(now[")):
        text = text.replace(old, new)
    core.write_text(f"// Größe\n{text}")
    block = copy / "count_action_sum.sv"
    block.write_text(block.read_text().replace("sum_q", "kept"))
    top = copy / f"{PLANTED.NAME}_axi.sv"
    top.write_text(top.read_text().replace(" datapath (", " the_datapath ("))
    (copy / "notes.txt").write_text("mine")
    assert run_app(["verify", str(copy), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ok"]
    verdicts = {each["path"]: each["verdict"] for each in document["files"]}
    assert verdicts.pop("notes.txt") == "not checked"
    assert verdicts.pop("build.json") == verdicts.pop(f"{PLANTED.NAME}.ca") == "text"
    assert set(verdicts.values()) == {"verified"}
    assert all(len(each["sha256"]) == 64 for each in document["files"])
    assert set(document["properties"][0]) >= {
        "module", "property", "verdict", "part", "cycle", "expected", "seen",
    }  # fmt: skip
    modules = {each["module"] for each in document["properties"]}
    assert modules == {"gate", "after", f"{PLANTED.NAME}_axi", f"{PLANTED.NAME}_axis"}


@pytest.mark.parametrize(
    "place", [place if place in TOPS[::8] else pytest.param(place, marks=pytest.mark.long) for place in TOPS]
)
def test_a_fault_of_a_top_is_found_by_an_element(copy, place):
    fault = PLANTED.FAULTS[place]
    fault.plant(copy)
    delivered = read_folder(copy)
    found = [
        run_seeds(delivered.datapath, streams, delivered.read_sources_around_datapath(streams))
        for streams in StreamAccess
        if fault.file in delivered.read_sources(streams)
    ]
    breaches = [breach for each in found for breach in each.breaches.values()]
    assert breaches, fault
    assert all(each.expected != each.actual for each in breaches)


@pytest.mark.slow
def test_sound_tops_are_worked_hard(sound):
    delivered = read_folder(sound)
    for streams in StreamAccess:
        found = run_top(delivered.datapath, streams, delivered.read_sources_around_datapath(streams))
        assert not found.breaches
        assert found.access_count >= 350
        assert found.beat_count >= (1000 if streams is StreamAccess.AXI_STREAM else 0)
        assert min(found.partial_write_counts.values()) >= 2 * PARTIAL_ROUNDS
        assert {"CONTROL", "TARGET_gate_n"} <= set(found.partial_write_counts)


@pytest.mark.long
def test_sound_tops_pass_from_every_seed(sound):
    delivered = read_folder(sound)
    for streams in StreamAccess:
        found = run_seeds(
            delivered.datapath, streams, delivered.read_sources_around_datapath(streams), seeds=range(10)
        )
        assert not found.breaches
        assert min(found.partial_write_counts.values()) >= 2 * PARTIAL_ROUNDS


def test_every_byte_of_every_register_is_written_alone_and_left_alone():
    """Over all seeds, every word is written with each set of strobes that leaves a byte away."""
    for streams in StreamAccess:
        table = Top(parse_text(PLANTED.TEXT, "delivered.ca").datapath, streams).register_map
        strobes = {}
        for seed in range(SEED_COUNT):
            writes, _ = draw_accesses(table, seed)
            for register in table:
                if register.access in {Access.CONSTANT, Access.READ}:
                    continue
                for word in range(register.word_count):
                    mine = [each.strobes for each in writes if each.address == register.get_offset(word)]
                    for byte in range(-(-register.width // 8)):
                        assert mine.count(1 << byte) >= PARTIAL_ROUNDS
                        assert mine.count(15 ^ 1 << byte) >= PARTIAL_ROUNDS
                    strobes.setdefault(register.get_offset(word), set()).update(mine)
        assert all(each == set(range(16)) for each in strobes.values())
        assert table["CONTROL",].offset in strobes


def test_a_valid_that_waits_for_its_ready_is_told_from_one_that_has_nothing_to_send():
    long = MAX_WAITING_CYCLES + 1
    waits = list(find_waits_for_ready("x", [True] * long, [0] * long, [0] * long))
    assert [(each.pin, each.cycle, each.expected, each.actual) for each in waits] == [
        ("x before its ready", MAX_WAITING_CYCLES, 1, 0)
    ]
    assert not list(find_waits_for_ready("x", [False] * long, [0] * long, [0] * long))
    assert not list(find_waits_for_ready("x", [True] * long, [0] * MAX_WAITING_CYCLES + [1], [0] * long))
    assert not list(find_waits_for_ready("x", [True] * long, [0] * long, [0] * MAX_WAITING_CYCLES + [1]))


MERGES = {
    f"{order}{whole}{ends}": f"""
module one {{
  inputs:  {{ stream a of 8 bits{ends}; stream b of 8 bits{ends} }}
  counts:  {{ c: sum a.valid + b.valid by {order}{whole} }}
  targets: {{ c: 1 }}
  actions: {{ on c: merge{ends} as y }}
}}
"""
    for order in ("turns", "priority")
    for whole, ends in (
        ("", ""), (" until last", " with last"), (" until last", " with last and keep"), ("", " with last"),
    )
}  # fmt: skip
"""Merges of each kind."""


@pytest.mark.parametrize("kind", MERGES)
def test_a_merge_has_a_bench(kind):
    """A choice keeps `NAME_turn` and `NAME_open`, which are no ends of a stream."""
    datapath = parse_text(MERGES[kind], "merge.ca").datapath
    text = write_random_datapath(datapath)
    assert "one_y_valid_o" in text
    (merged,) = [each for each in list_stream_ports(datapath) if not each.pins.is_input]
    assert [end for end, _, _ in merged.end_ports] == kind.partition(" with ")[2].replace(" and", "").split()


def test_a_stream_with_the_name_of_its_choice_is_refused():
    """It was a KeyError."""
    text = MERGES["turns until last with last"].replace("c:", "y:").replace(" c ", " y ")
    with pytest.raises(CountActionError, match="`y` is a stream here and a count elsewhere"):
        parse_text(text, "merge.ca")


def built(path, text, folder):
    """Return the folder that `countaction build` makes of a text."""
    folder.mkdir(exist_ok=True)
    path.write_text(text)
    assert run_app(["build", str(path), "-o", str(folder / "built")]) == 0
    return folder / "built"


@pytest.mark.slow
def test_the_tops_of_a_merge_are_held(tools, tmp_path):
    delivered = read_folder(built(tmp_path / "merge.ca", MERGES["turns until last with last"], tmp_path))
    found = run_top(
        delivered.datapath,
        StreamAccess.AXI_STREAM,
        delivered.read_sources_around_datapath(StreamAccess.AXI_STREAM),
    )
    assert not found.breaches
    assert found.beat_count >= 1000


@pytest.mark.long
@pytest.mark.parametrize("kind", MERGES)
def test_a_merge_of_every_kind_is_verified(tools, tmp_path, kind):
    assert run_app(["verify", str(built(tmp_path / "merge.ca", MERGES[kind], tmp_path))]) == 0


LIBRARY = sorted((Path(fpga.__file__).parent / "library").glob("*.ca"))


@pytest.mark.long
@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.stem)
def test_the_tops_of_every_module_of_the_library_are_held(tools, tmp_path, path):
    delivered = read_folder(built(tmp_path / path.name, path.read_text(), tmp_path))
    for streams in StreamAccess:
        found = run_seeds(delivered.datapath, streams, delivered.read_sources_around_datapath(streams))
        assert not found.breaches
        assert min(found.partial_write_counts.values()) >= 2 * PARTIAL_ROUNDS


def test_bits_that_act_have_the_strobe_of_their_byte():
    """A pulse is decoded for each field, and a push of more than a byte has a field for each byte."""
    text = """module one {
      inputs: { stream a[0 to 10] of 2 bits }
      counts: { sum a[i].valid (i = 0 to 10) } targets: { 11 } actions: { pulse p }
    }"""
    table = Top(parse_text(text, "wide.ca").datapath, StreamAccess.REGISTERS).register_map
    rdl = to_rdl(table)
    assert "singlepulse; swmod; } COMMIT[0:0]" in rdl
    assert "} BYTE0[7:0] = 8'h0" in rdl
    assert "} BYTE1[10:8] = 3'h0" in rdl


@pytest.mark.long
@pytest.mark.parametrize("place", range(len(PLANTED.FAULTS)))
def test_a_planted_fault_is_found(copy, place):
    fault = PLANTED.FAULTS[place]
    fault.plant(copy)
    found = verify(copy)
    assert not found.ok
    assert fault.file in {each.path for each in found.files if each.verdict != "verified"}
    if place in HARDWARE and "is_full" not in fault.old:  # no run is long enough for that
        shown = [each for each in failing(found) if each.expected is not None]
        assert shown
        assert all(each.expected != each.actual for each in shown)


def test_there_are_thirty_faults_with_late_ones():
    assert len(PLANTED.FAULTS) >= 30
    assert {fault.late for fault in PLANTED.FAULTS} == {0, 20, 45}
    assert sum(fault.late > 0 for fault in PLANTED.FAULTS) >= 10
    assert len(HARDWARE) >= 27


@pytest.mark.long
def test_a_late_fault_of_the_datapath_has_its_counterexample(copy, capsys):
    fault = next(each for each in PLANTED.FAULTS if each.late == 45 and each.file == PLANTED.CORE)
    fault.plant(copy)
    assert run_app(["verify", str(copy)]) == 1
    shown = capsys.readouterr().out
    assert "failed          beats at x_ready_o in cycle" in shown
    assert "x_ready_o: expected 0, seen 1" in shown
    assert f"failed       {PLANTED.CORE}" in shown


def test_a_folder_that_is_none_is_refused(tmp_path, capsys):
    assert run_app(["verify", str(tmp_path), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert "build.json" in document["errors"][0]["message"]
    assert run_app(["verify", str(tmp_path / "nowhere")]) == 1
    assert "there is no folder" in capsys.readouterr().err


def test_a_folder_has_all_that_its_text_imports(tools, tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    text = tmp_path / "a" / "b" / "top.ca"
    text.write_text('import "../other.ca";\nimport "relu.ca";\nuse other as one;\nuse relu as two;\n')
    (tmp_path / "a" / "other.ca").write_text(
        "module other (n) { counts: { sum f over cycles } targets: { n } actions: { pulse p } }"
    )
    assert run_app(["build", str(text), "-o", str(tmp_path / "out"), "-P", "n=7"]) == 0
    shutil.rmtree(tmp_path / "a")
    delivered = read_folder(tmp_path / "out")
    assert {"build.json", "text/_/top.ca", "text/other.ca", "text/_/relu.ca"} == set(
        delivered.origin.file_names
    )
    assert delivered.datapath.module("one").targets[0].reset == 7


@pytest.mark.parametrize(
    ("name", "one", "other", "equal"),
    [
        ("a.rdl", "reg {} X @ 0x8; // here", "reg   {} X @ 0x8;", True),
        ("a.rdl", 'desc = "a // b";', 'desc = "a // c";', False),
        ("a.h", "#define X 8u /* eight */", "#define X 8u", True),
        ("a.h", "#define X 8u", "#define X 12u", False),
        ("a.json", '{"a": 1}', '{ "a":1 }', True),
        ("a.json", '{"a": 1}', "{", False),
        ("a.py", "x = 1  # one", "x = 1", True),
        ("a.xml", "<a><!-- x --><b/></a>", "<a> <b/></a>", True),
        ("a.xml", "<a><b/></a>", "<a><c/></a>", False),
        ("a.tcl", "# first\nset x 1", "set x 1", True),
    ],
)
def test_documents_are_compared_by_what_they_say(name, one, other, equal):
    assert is_equivalent(name, one, other) is equal


def test_library_text_is_found_in_the_folder(tmp_path):
    """Text and imports loaded again from a copy are the same datapath."""
    from fpga.registers.origin import collect_origin_files, read_origin

    text = tmp_path / "x.ca"
    text.write_text('import "relu.ca";\nuse relu as r;\n')
    checked = load(text)
    for name, told in collect_origin_files(checked, text, {}).items():
        path = tmp_path / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(told)
    again = read_origin(tmp_path / "out")
    assert again.checked_datapath.datapath.digest == checked.datapath.digest
    assert again.file_names == ("build.json", "x.ca", "relu.ca")
