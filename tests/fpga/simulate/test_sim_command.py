"""`countaction sim`: from a text to waveforms."""

import json
from pathlib import Path

import pytest
from libraries import skip_without

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "count_action"
skip_without("lark")
skip_without("typer")


@pytest.fixture
def command(capsys):
    from fpga.cli import run_app

    def run(*arguments):
        code = run_app([str(each) for each in arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def stimulus(command, tmp_path):
    path = tmp_path / "s.csv"
    assert command("sim", EXAMPLES / "streamer.ca", "--init", path)[0] == 0
    return path


def test_from_a_text_to_a_waveform(command, stimulus, tmp_path):
    code, out, err = command(
        "sim", EXAMPLES / "streamer.ca", "--stimulus", stimulus, "--vcd", tmp_path / "o.vcd"
    )
    assert (code, err) == (0, "")
    assert "16 cycles; fires: synchronized_data_streamer.count" in out
    assert "16 of 16 expectations met" in out
    assert (tmp_path / "o.vcd").read_text().startswith("$timescale 1 ns $end")


def test_json(command, stimulus, tmp_path):
    code, out, _ = command(
        "sim", EXAMPLES / "streamer.ca", "-s", stimulus, "--json", "--explain", "--vcd", tmp_path / "o.vcd"
    )
    document = json.loads(out)
    assert (code, document["ok"], document["cycles"], document["failed"]) == (0, True, 16, [])
    fires = sum("FIRES" in line for line in document["explanation"])
    assert document["fires"] == {"synchronized_data_streamer.count": fires}
    assert fires > 5
    assert document["written"] == [str(tmp_path / "o.vcd")]


STATED = """module m {
  inputs: { flag x } counts: { sum x over cycles } targets: { never }
  always { low: count < 3 }
  assume { sometimes: count < 1000 }
}
"""


def test_a_property_that_does_not_hold(command, tmp_path):
    (tmp_path / "m.ca").write_text(STATED)
    (tmp_path / "s.csv").write_text("x_i\n1\n1\n0\n1\n0\n1\n")
    code, out, err = command("sim", tmp_path / "m.ca", "-s", tmp_path / "s.csv")
    assert code == 1
    assert "6 cycles" in out
    assert err.splitlines() == [
        f"error: property low of m (`always`) does not hold in cycle {cycle} (R21)" for cycle in (4, 5)
    ]
    code, out, _ = command("sim", tmp_path / "m.ca", "-s", tmp_path / "s.csv", "--json", "--cycles", 5)
    assert (code, json.loads(out)["ok"]) == (1, False)
    assert json.loads(out)["violated"] == [{"cycle": 4, "module": "m", "kind": "always", "property": "low"}]


def test_a_failed_expectation(command, stimulus):
    lines = stimulus.read_text().splitlines()
    lines[5] = lines[5][:-1] + "0"
    stimulus.write_text("\n".join(lines))
    code, out, err = command("sim", EXAMPLES / "streamer.ca", "-s", stimulus)
    assert code == 1
    assert "15 of 16 expectations met" in out
    assert f"error: {stimulus}:6:1: cycle 4: fire_o[synchronized_data_streamer.count] is 1, expected 0" in err
    assert "*4" in err
    code, out, _ = command("sim", EXAMPLES / "streamer.ca", "-s", stimulus, "--json")
    assert (code, json.loads(out)["failed"][0]["cycle"]) == (1, 4)


def test_explanations(command, stimulus):
    _, out, _ = command("sim", EXAMPLES / "streamer.ca", "-s", stimulus, "--explain", "--cycles", 2)
    assert "  synchronized_data_streamer.count: level 8, target 16" in out
    assert "  synchronized_data_streamer.count: level 16, target 16: FIRES" in out
    assert "cycle 2" not in out


def test_more_cycles_than_the_stimulus_has(command, stimulus):
    pytest.importorskip("numba")
    code, out, _ = command("sim", EXAMPLES / "streamer.ca", "-s", stimulus, "--cycles", 30_000, "--json")
    document = json.loads(out)
    assert (code, document["cycles"], document["expectations"]) == (0, 30_000, 16)


def test_a_generator_that_never_ends_is_cut(command, tmp_path):
    path = tmp_path / "s.py"
    path.write_text(
        "def stimulus(ports):\n    while True:\n        yield {'DAC_valid': 3, 'expect:fire': 0}\n"
    )
    code, out, err = command("sim", EXAMPLES / "streamer.ca", "-s", path, "--cycles", 10, "--json")
    document = json.loads(out)
    assert (code, err, document["cycles"], document["expectations"]) == (0, "", 10, 10)


def test_a_stimulus_does_not_end_the_command(command, tmp_path):
    path = tmp_path / "s.py"
    path.write_text("import sys\ndef stimulus(ports):\n    yield {}\n    sys.exit(0)\n")
    code, out, err = command("sim", EXAMPLES / "streamer.ca", "-s", path)
    assert (code, out) == (1, "")
    assert f"error: {path}:4:1: SystemExit in the stimulus: 0. Fix the generator." in err


def test_numbered_lines_with_gaps_are_refused(command, tmp_path):
    path = tmp_path / "s.csv"
    path.write_text("cycle,DAC_valid\n0,1\n10,1\n")
    code, out, err = command("sim", EXAMPLES / "streamer.ca", "-s", path)
    assert (code, out) == (1, "")
    assert f"error: {path}:3:1: `10` under `cycle`, but this line is cycle 1. Write a line for every" in err


def test_parameters(command, stimulus):
    code, _, err = command("sim", EXAMPLES / "streamer.ca", "-s", stimulus, "-P", "num_DACs=4")
    assert code == 1
    assert f"error: {stimulus}:1:6: there is no input `DAC_valid[4]`" in err


def test_what_cannot_be_done(command, stimulus):
    assert command("sim", EXAMPLES / "streamer.ca")[0] == 1
    code, _, err = command("sim", EXAMPLES / "streamer.ca", "--init", stimulus)
    assert code == 1
    message = f"cannot use '{stimulus}': it exists already and is not replaced"
    assert err == f"error: {message}. Give another name, or move it away.\n"
    code, out, err = command("sim", EXAMPLES / "streamer.ca", "--init", stimulus, "--json")
    hint = "Give another name, or move it away."
    error = {"file": "", "line": 0, "column": 0, "message": message, "hint": hint}
    assert (code, json.loads(out), err) == (1, {"ok": False, "errors": [error]}, "")
    code, out, _ = command("sim", EXAMPLES / "streamer.ca", "-s", "none.csv", "--json")
    assert (code, json.loads(out)["errors"][0]["file"]) == (1, "none.csv")


def test_a_file_that_cannot_be_written_says_why_and_the_hint(command, stimulus, tmp_path):
    missing = tmp_path / "none"
    code, _, err = command("sim", EXAMPLES / "streamer.ca", "--init", missing / "s.csv")
    path, hint = missing / "s.csv", "Create it, or give another path."
    assert (code, err) == (1, f"error: cannot use '{path}': there is no folder '{missing}'. {hint}\n")
    code, _, err = command("sim", EXAMPLES / "streamer.ca", "-s", stimulus, "--vcd", tmp_path)
    assert (code, err) == (1, f"error: cannot use '{tmp_path}': it is a folder. Give the name of a file.\n")


@pytest.mark.parametrize("kind", [PermissionError, FileNotFoundError, OSError])
def test_what_the_system_refuses_has_a_hint(kind, tmp_path):
    from fpga.cli.errors import diagnose_os_error

    described = diagnose_os_error(kind(None, "no space left", str(tmp_path / "file")))
    assert described.message.startswith(f"cannot use '{tmp_path / 'file'}': ")
    assert ("no space left" in described.message) == (kind is OSError)
    assert "path" in described.hint


@pytest.mark.slow
def test_an_example_and_a_plot_reported_as_json(command, tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'lightbed[hdl]'")
    path, plot = tmp_path / "new.csv", tmp_path / "run.png"
    code, out, _ = command("sim", EXAMPLES / "chain.ca", "--init", path, "--json")
    assert (code, json.loads(out)) == (0, {"ok": True, "written": [str(path)]})
    code, out, _ = command("sim", EXAMPLES / "chain.ca", "-s", path, "--png", plot)
    assert (code, out.splitlines()[-1]) == (0, f"written: {plot}")
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_not_every_failure_of_many_is_printed(command, tmp_path):
    path = tmp_path / "s.csv"
    path.write_text("expect:fire\n" + "1\n" * 30)
    code, out, err = command("sim", EXAMPLES / "streamer.ca", "-s", path)
    assert (code, err.count(": cycle ")) == (1, 20)
    assert "0 of 30 expectations met" in out
    assert "error: 10 more failures" in err
