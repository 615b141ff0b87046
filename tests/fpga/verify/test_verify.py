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

from fpga.cli import run_app
from fpga.count_action import load
from fpga.formal.sby import TOOLS
from fpga.hdl import why_missing
from fpga.registers.register_list import Streams
from fpga.verify.delivered import read_folder
from fpga.verify.documents import same
from fpga.verify.tops import run_top
from fpga.verify.verify import verify

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
    pytest.importorskip("peakrdl_regblock", reason="needs PeakRDL: pip install 'lightbed[hdl]'")
    if (
        importlib.util.find_spec("pyosys") is None
    ):  # never imported here: matplotlib cannot be imported after it
        pytest.skip("needs pyosys: pip install 'lightbed[hdl]'")
    if reason := why_missing(*TOOLS, "iverilog", "vvp"):
        pytest.skip(reason)


@pytest.fixture(scope="session")
def sound(tools, tmp_path_factory):
    """Return a folder that `countaction build` has written."""
    folder = tmp_path_factory.mktemp("sound")
    text = folder / f"{PLANTED.NAME}.ca"
    text.write_text(PLANTED.TEXT)
    assert run_app(["build", str(text), "-o", str(folder / "built")]) == 0
    return folder / "built"


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
    "place", [place if place in TOPS[::4] else pytest.param(place, marks=pytest.mark.long) for place in TOPS]
)
def test_a_fault_of_a_top_is_found_by_an_element(copy, place):
    fault = PLANTED.FAULTS[place]
    fault.plant(copy)
    delivered = read_folder(copy)
    found = [run_top(delivered.datapath, streams, delivered.around(streams)) for streams in Streams]
    breaches = [breach for each in found for breach in each.breaches.values()]
    assert breaches, fault
    assert all(each.expected != each.seen for each in breaches)


def test_sound_tops_are_worked_hard(sound):
    delivered = read_folder(sound)
    for streams in Streams:
        found = run_top(delivered.datapath, streams, delivered.around(streams))
        assert not found.breaches
        assert found.accesses >= 200
        assert found.beats >= (500 if streams is Streams.AXI_STREAM else 0)


@pytest.mark.long
@pytest.mark.parametrize("place", range(len(PLANTED.FAULTS)))
def test_a_planted_fault_is_found(copy, place):
    fault = PLANTED.FAULTS[place]
    fault.plant(copy)
    found = verify(copy)
    assert not found.ok
    assert fault.file in {each.path for each in found.files if each.verdict != "verified"}
    if place in HARDWARE and "saturates" not in fault.old:  # no run is long enough for that
        shown = [each for each in failing(found) if each.expected is not None]
        assert shown
        assert all(each.expected != each.seen for each in shown)


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
    assert {"build.json", "text/_/top.ca", "text/other.ca", "text/_/relu.ca"} == set(delivered.origin.files)
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
    assert same(name, one, other) is equal


def test_library_text_is_found_in_the_folder(tmp_path):
    """Text and imports loaded again from a copy are the same datapath."""
    from fpga.registers.origin import origin_files, read_origin

    text = tmp_path / "x.ca"
    text.write_text('import "relu.ca";\nuse relu as r;\n')
    checked = load(text)
    for name, told in origin_files(checked, text, {}).items():
        path = tmp_path / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(told)
    again = read_origin(tmp_path / "out")
    assert again.checked.datapath.digest == checked.datapath.digest
    assert again.files == ("build.json", "x.ca", "relu.ca")
