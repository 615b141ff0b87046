"""`countaction build` and `countaction regs`."""

import json

import pytest
from libraries import skip_without

skip_without("lark", reason="needs lark: pip install 'lightbed[fpga]'")
skip_without("typer", reason="needs typer: pip install 'lightbed[fpga]'")

from fpga.cli import run_app
from fpga.count_action import load
from fpga.registers import make_register_map, to_json, to_markdown, to_rdl

STREAMER = """\
module streamer {
  counts:  { sum DAC[i].valid (i = 1 to num_DACs) }
  targets: { num_DACs }
  actions: { stream DAC[i].data (i = 1 to num_DACs) }
};
"""


@pytest.fixture
def streamer(tmp_path):
    (tmp_path / "bench.ca").write_text(STREAMER)
    return tmp_path / "bench.ca"


@pytest.fixture
def table(streamer):
    return make_register_map(load(streamer, {"num_DACs": 4}).datapath)


@pytest.mark.parametrize(
    ("option", "form"), [("--json", to_json), ("--markdown", to_markdown), ("--rdl", to_rdl)]
)
def test_regs_in_every_form(streamer, table, capsys, option, form):
    assert run_app(["regs", str(streamer), "-P", "num_DACs=4", option]) == 0
    assert capsys.readouterr().out == form(table)


def test_regs_as_a_table(streamer, table, capsys):
    assert run_app(["regs", str(streamer), "-P", "num_DACs=4"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == f"bench, hash {table.digest:08x}, {table.size_bytes} bytes"
    assert [line.split()[1] for line in lines] == [register.name for register in table]


def test_one_form_at_a_time(streamer, capsys):
    assert run_app(["regs", str(streamer), "--rdl", "--markdown"]) == 1
    assert "choose one" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["regs"], ["build", "-o", "out"]])
def test_a_text_that_is_wrong_is_located(tmp_path, capsys, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.ca").write_text("module m { counts: { sum x }")
    assert run_app([*command, "wrong.ca"]) == 1
    assert "error: wrong.ca:1:" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.process
def test_build_writes_what_its_document_names(streamer, tmp_path, capsys):
    command = [
        "build",
        str(streamer),
        "-o",
        str(tmp_path / "out"),
        "-P",
        "num_DACs=4",
        "--board",
        "zcu111",
        "--json",
    ]
    assert run_app(command) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], document["datapath"]) == (True, "bench")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == document["files"]
    for name in (
        "bench.sv",
        "bench_axi.sv",
        "bench_axis.sv",
        "bench.rdl",
        "bench.md",
        "test_bench.py",
        "project.tcl",
    ):
        assert name in document["files"]


@pytest.mark.long
@pytest.mark.process
def test_build_for_a_board_that_is_unknown(streamer, tmp_path, capsys):
    assert run_app(["build", str(streamer), "-o", str(tmp_path), "--board", "none", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    (error,) = document["errors"]
    assert "there are: zcu111" in error["message"]
    assert (document["ok"], error["file"], error["line"], error["column"]) == (False, "", 0, 0)


@pytest.mark.long
@pytest.mark.process
def test_build_where_a_file_stands_says_the_hint(streamer, tmp_path, capsys):
    (tmp_path / "taken").write_text("mine")
    for folder, why in (("taken", "it exists already"), ("taken/deeper", "a part of the path is a file")):
        assert run_app(["build", str(streamer), "-o", str(tmp_path / folder)]) == 1
        printed = capsys.readouterr().err
        assert printed.startswith(f"error: cannot use '{tmp_path / folder}'")
        assert why in printed
        assert ". Give " in printed
    assert (tmp_path / "taken").read_text() == "mine"
