"""`testbed runs` and what it is asked, and `testbed metrics`, as people and programs call them."""

from __future__ import annotations

import json

import pytest
from libraries import skip_without

skip_without("pyarrow")
skip_without("sqlalchemy")
skip_without("typer")

from testbed.cli.app import run_app


@pytest.fixture
def ask(capsys, laboratory):
    """Run a command on the laboratory; return exit code, standard output, standard error."""

    def run(*words):
        code = run_app([*words, "--runs-dir", str(laboratory.runs_dir)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_bare_runs_still_lists(ask, laboratory):
    run_id = laboratory.run(0, mbps=90)

    code, out, _ = ask("runs", "--json")
    assert code == 0
    assert [run["run_id"] for run in json.loads(out)["runs"]] == [run_id]
    code, out, _ = ask("runs", "--csv")
    assert (code, out.splitlines()[1].partition(",")[0]) == (0, run_id)
    code, out, _ = ask("runs")
    assert (code, run_id in out, "SIMULATED" in out) == (0, True, True)


def test_options_before_the_word_of_a_command_are_refused(laboratory, capsys):
    assert run_app(["runs", "--runs-dir", str(laboratory.runs_dir), "trend"]) == 1
    assert "write options after the command: testbed runs trend ..." in capsys.readouterr().err
    assert run_app(["runs", "nonsense"]) == 1


@pytest.mark.slow
def test_query_prints_a_table_csv_and_json(ask, laboratory):
    skip_without("duckdb")
    laboratory.run(0, mbps=90)
    statement = "select lab, max(busbw_mbps) as best from runs join timings using (run_id) group by lab"

    assert json.loads(ask("runs", "query", statement, "--json")[1]) == {
        "columns": ["lab", "best"],
        "rows": [["t4", 90.0]],
    }
    assert ask("runs", "query", statement, "--csv")[1] == "lab,best\nt4,90.0\n"
    assert "best" in ask("runs", "query", statement)[1]
    code, out, err = ask("runs", "query", "select nonsense from runs")
    assert (code, out) == (1, "")
    assert "nonsense" in err
    assert ask("runs", "query", statement, "--csv", "--json")[0] == 1


def test_compare_prints_rows_and_what_differs(ask, laboratory):
    first, second = laboratory.run(0, mbps=90), laboratory.run(1, mbps=80, lab="other")

    document = json.loads(ask("runs", "compare", first, "last", "--json")[1])
    assert (document["a"], document["b"], len(document["rows"])) == (first, second, 2)
    assert document["differences"] == [{"fact": "lab", "a": "t4", "b": "other"}]
    header, row, *_ = ask("runs", "compare", first, second, "--csv")[1].splitlines()
    assert header == "configuration,collective,ranks,size_bytes,a_mbps,b_mbps,ratio,clear"
    assert row == "ring: one ring,all_reduce,4,1024,45.0,40.0,0.889,yes"
    assert "lab: A t4, B other" in ask("runs", "compare", first, second)[1]


def test_trend_ends_with_2_where_something_was_lost(ask, laboratory):
    code, out, _ = ask("runs", "trend")
    assert (code, out) == (0, "0 series of 0 runs judged\nno change of level\n")

    for day in range(12):
        laboratory.reading(day, -1.0 if day < 6 else -3.0)
    code, out, _ = ask("runs", "trend", "--quantity", "power", "--json")
    document = json.loads(out)
    (change,) = document["changes"]

    assert code == 2
    assert (document["series"], document["regressions"], change["regression"]) == (1, 1, True)
    assert (change["before"], change["after"], change["epochs"]) == (-1.0, -3.0, [])
    assert ask("runs", "trend", "--quantity", "bandwidth")[0] == 0
    assert ask("runs", "trend", "--lab", "other")[0] == 0
    assert "REGRESSION power of lab t4" in ask("runs", "trend")[1]


def test_metrics_are_printed(ask, laboratory):
    laboratory.run(0, mbps=90)
    code, out, _ = ask("metrics")
    assert code == 0
    assert 'testbed_runs_total{lab="t4",status="done"} 1' in out.splitlines()
    samples = json.loads(ask("metrics", "--json")[1])["samples"]
    assert {"metric": "testbed_maintenance", "labels": {"lab": "t4"}, "value": 0.0} in samples
