"""`countaction check` and `countaction explain`, and the examples that come with the language."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from libraries import skip_without

skip_without("lark", reason="lark reads the language: pip install 'lightbed[fpga]'")
skip_without("typer", reason="typer is the command line: pip install 'lightbed[fpga]'")

from fpga.cli import run_app
from fpga.count_action import ActionKind, CountKind, load, parse_text
from fpga.count_action.explanation.explain import explain
from fpga.count_action.explanation.svg import draw, draw_svg

BROKEN = "module m {\n  counts: { sum x over cycles }\n  targets: { 70000 }\n}\n"


def run(capsys, *arguments):
    """Return exit code, what was printed, and what was said on standard error."""
    code = run_app([str(each) for each in arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_check_says_that_nothing_is_wrong(capsys, examples):
    code, out, err = run(capsys, "check", examples / "chain.ca")
    assert (code, err) == (0, "")
    assert "no errors in 3 modules (streamer, accumulator, sequencer)" in out


def test_check_says_what_is_wrong_and_where(capsys, tmp_path):
    (tmp_path / "broken.ca").write_text(BROKEN)
    code, out, err = run(capsys, "check", tmp_path / "broken.ca")
    assert (code, out) == (1, "")
    assert "broken.ca:3:14: target `target` is 70000 and does not fit in 16 bits. Write `width 17`" in err


def test_check_for_programs(capsys, tmp_path, examples):
    (tmp_path / "broken.ca").write_text(BROKEN)
    code, out, _ = run(capsys, "check", tmp_path / "broken.ca", "--json")
    assert code == 1
    document = json.loads(out)
    assert document["ok"] is False
    assert document["modules"] == []
    (error,) = document["errors"]
    assert error.keys() == {"file", "line", "column", "message", "hint"}
    assert (error["line"], error["column"]) == (3, 14)
    code, out, _ = run(capsys, "check", examples / "streamer.ca", "--json")
    assert code == 0
    document = json.loads(out)
    assert (document["ok"], document["modules"], document["errors"]) == (
        True,
        ["synchronized_data_streamer"],
        [],
    )
    assert len(document["inferences"]) == 2


@pytest.mark.parametrize("given", ["num_DACs", "num_DACs=", "num_DACs=four", "=4", "num_DACs=" + "9" * 5000])
def test_check_refuses_parameters_that_are_none(capsys, examples, given):
    code, out, _ = run(capsys, "check", examples / "streamer.ca", "-P", given, "--json")
    assert code == 1
    assert "is not a valid value of a parameter" in json.loads(out)["errors"][0]["message"]


def test_explain_draws_counts_targets_actions_and_who_triggers_whom(capsys, examples, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    code, out, _ = run(capsys, "explain", examples / "chain.ca")
    assert code == 0
    for shown in (
        "streamer",
        "sum product[i].valid (i = 0 to 3)",
        "reaches 3 (cycles)",
        "emit sum streamer.beat.data width 16 as dot  (+2 cycles)  ──▶ sequencer.count",
        "(+3 cycles)",
        "▼ 1 cycle later",
    ):
        assert shown in out
    assert len({len(line) for line in out.splitlines() if line.startswith(("│", "╭", "╰"))}) == 1


def test_the_drawing_fits_narrow_and_old_terminals(examples):
    drawing = draw(explain(load(examples / "gated.ca").datapath), 50, ascii_only=True)
    assert drawing.isascii()
    assert max(map(len, drawing.splitlines())) <= 50


def test_explain_for_programs(capsys, examples):
    code, out, _ = run(capsys, "explain", examples / "chain.ca", "--json")
    assert code == 0
    document = json.loads(out)
    assert [each["name"] for each in document["modules"]] == ["streamer", "accumulator", "sequencer"]
    effects = [
        effect for each in document["modules"] for count in each["counts"] for effect in count["effects"]
    ]
    assert [each["latency_cycles"] for each in effects] == [1, 2, 3, 3]
    assert effects[0]["triggers"] == ["accumulator.count"]
    assert document["inferences"] == []


def test_explain_draws_svg(capsys, tmp_path, examples):
    code, _, _ = run(capsys, "explain", examples / "two_channels.ca", "--svg", tmp_path / "drawing.svg")
    assert code == 0
    root = ET.parse(tmp_path / "drawing.svg").getroot()
    texts = ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"left", "right", "pair"} <= set(texts)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) >= 5


def test_a_memory_is_drawn_as_what_a_driver_loads():
    text = """module m { inputs: { flag f } memory w: 4 of 8 bits; counts: { sum f } targets: { 1 }
      actions: { read w[1] as r } }"""
    explanation = explain(parse_text(text).datapath)
    assert "memory m.w: 4 of 8 bits  ──▶ m\n" in draw(explanation, 80)
    root = ET.fromstring(draw_svg(explanation))
    assert "memory m.w: 4 of 8 bits" in ["".join(each.itertext()) for each in root.iter()]
    assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) >= 2


def test_explain_refuses_as_check_does(capsys, tmp_path):
    (tmp_path / "broken.ca").write_text(BROKEN)
    code, out, err = run(capsys, "explain", tmp_path / "broken.ca")
    assert (code, out) == (1, "")
    assert "broken.ca:3:14" in err
    code, out, _ = run(capsys, "explain", tmp_path / "broken.ca", "--json")
    assert (code, json.loads(out)["ok"]) == (1, False)


def test_usage_errors_are_sentences(capsys):
    code, _, err = run(capsys, "check")
    assert code == 1
    assert "Missing argument" in err
    code, _, err = run(capsys, "chekc")
    assert code == 1
    assert "No such command 'chekc'" in err


@pytest.mark.long
@pytest.mark.process
def test_the_command_is_a_module_of_python(examples):
    command = [sys.executable, "-m", "fpga.cli", "check", str(examples / "streamer.ca")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    notes = done.stderr.splitlines()
    assert [note.partition("`")[2].partition("`")[0] for note in notes] == ["num_DACs", "DAC"]
    assert {note.partition(" ")[0] for note in notes} == {"note:"}


@pytest.mark.process
def test_the_core_needs_no_lark():
    code = (
        "import sys; sys.modules['lark'] = None\n"
        "from fpga.count_action import parse_text\n"
        "try: parse_text('module m { }')\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "install the extra [fpga] of lightbed" in done.stdout


def test_every_example_is_accepted_without_a_warning(examples):
    files = sorted(examples.glob("*.ca"))
    assert len(files) >= 5
    for file in files:
        assert load(file).warnings == (), file


def test_the_example_of_two_channels_uses_the_averager_twice(examples):
    left, right, pair = load(examples / "two_channels.ca").datapath.modules
    assert [(ref.name, ref.index) for each in (left, right) for ref in each.counts[0].terms] == [
        ("adc", 0),
        ("adc", 1),
    ]
    assert left.actions[0].kind is ActionKind.EMIT
    assert (left.actions[0].width, left.actions[0].shift) == (10, 2)
    assert pair.counts[0].kind is CountKind.LEVEL


def test_strict_takes_warnings_for_errors_and_parameters_are_noted(capsys, tmp_path):
    path = tmp_path / "t.ca"
    path.write_text(
        "module m { counts: { sum x[i].valid (i = 1 to n) over cycles } targets: { n } actions: { pulse p } }"
    )
    assert run(capsys, "check", path)[0] == 0
    code, _, err = run(capsys, "check", path, "--strict")
    assert code == 1
    assert "note: " in err
    assert "`n` is assumed to be a parameter" in err
    assert "warning: " in err
