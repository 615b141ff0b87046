"""Commands that need no lab: topology, patch list, import, runs, and what bad input gets."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from libraries import skip_without

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "labs" / "testbed12.yaml"

GOLDEN = (  # noqa: SIM905, as people write it
    "A1-B1 A2-L1 A3-F1 A4-H1 B2-C1 B3-G1 B4-I1 C2-D1 C3-H2 C4-J1 D2-E1 D3-I2 "
    "D4-K1 E2-F2 E3-J2 E4-L2 F3-G2 F4-K2 G3-H3 G4-L3 H4-I3 I4-J3 J4-K3 K4-L4"
).split()


def test_the_default_topology_has_strides_1_and_5(testbed):
    found = testbed("topology", "--nodes", 12, "--degree", 4, "--json").json

    assert list(found) == ["nodes", "degree", "simplex", "strides", "links", "diameter", "mean_hops"]
    assert (found["strides"], found["diameter"]) == ([1, 5], 3)
    assert found["mean_hops"] == pytest.approx(20 / 11)
    assert len(found["links"]) == 24


def test_a_topology_for_people_lists_its_patches(testbed):
    ran = testbed("topology", "--nodes", 12, "--degree", 4)

    assert ran.code == 0
    assert ran.out.splitlines()[2:] == GOLDEN


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("topology", "--nodes", 5, "--degree", 3), "odd"),
        (("topology", "--nodes", 4, "--degree", 1025), "degree"),
        (("topology", "--nodes", 0, "--degree", 4), "nodes"),
        (("topology", "--nodes", 12), "degree"),
        (("topology", "--nodes", 12, "--degree", 4, "--method", "guess"), "guess"),
        (("topology", "--nodes", 12, "--degree", 4, "--demand", "many"), "NODES:BYTES"),
        (("nonsense",), "nonsense"),
        (("nccl",), "--import"),
        (("nccl", LAB, "--sizes", "1parsec:2"), "1KiB:8MiB"),
        (("report", "19700101"), "testbed runs"),
        (("plan", "nowhere.yaml"), "nowhere.yaml"),
        (("path", "a", "zz", "--lab", LAB), "hosts are a, b"),
    ],
)
def test_bad_input_gets_one_message_and_exit_code_1(testbed, arguments, word):
    ran = testbed(*arguments)
    as_json = testbed(*arguments, "--json")

    assert (ran.code, as_json.code) == (1, 1)
    assert len(ran.err.strip().splitlines()) == 1
    assert word in ran.err
    assert set(as_json.json["error"]) == {"code", "who", "message"}


def test_the_patch_list_is_the_golden_one(testbed):
    assert testbed("plan", LAB, "--patch-list", "--json").json == {
        "patch_list": GOLDEN,
        "unfinished": [],
    }


def test_a_lab_file_with_a_port_used_twice_names_file_line_and_hint(testbed, tmp_path):
    bad = tmp_path / "twice.yaml"
    bad.write_text(LAB.read_text().replace("transmit: 'ocs1:2'", "transmit: 'ocs1:1'"))

    ran = testbed("demo", bad)

    line = next(n for n, text in enumerate(bad.read_text().splitlines(), 1) if "10.100.1.2," in text)
    assert ran.code == 1
    assert f"{bad}:{line}:" in ran.err
    assert "a/nic1" in ran.err


def test_nothing_measured_yet_is_no_error(testbed):
    ran = testbed("runs", "--json")

    assert (ran.code, ran.json) == (0, {"runs": []})


def test_nccl_tests_output_is_imported(testbed, tmp_path):
    text = tmp_path / "nccl.txt"
    text.write_text(
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
        "     time   algbw   busbw  #wrong\n"
        "     8388608       2097152     float     sum      -1    412.3   20.35   37.30       0"
        "    410.9   20.41   37.43       0\n"
        "# Avg bus bandwidth    : 37.3\n"
    )

    found = testbed("nccl", "--import", text, "--json").json

    (row,) = found["results"]
    assert row["size"] == 8388608
    assert row["out_of_place"]["bus_bw"] == 37.30
    json.dumps(found)


def test_a_file_that_is_no_nccl_output_says_so(testbed, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("hello\n")

    ran = testbed("nccl", "--import", other)

    assert ran.code == 1
    assert str(other) in ran.err


def test_the_command_itself_ends_with_its_code(testbed_process):
    ran = testbed_process("topology", "--nodes", 5, "--degree", 3)

    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: degree 3 with 5 nodes")


def test_runs_as_csv_have_the_columns_of_json(testbed, tmp_path):
    skip_without("sqlalchemy", "pyarrow")
    from testbed.lab.inventory import load_lab
    from testbed.measure.results.store import RunStore

    runs_dir = tmp_path / "some runs"
    with RunStore(runs_dir).begin_run(load_lab(LAB), True, "model", seeds={}):
        pass
    (as_json,) = testbed("runs", "--runs-dir", runs_dir, "--json").json["runs"]
    ran = testbed("runs", "--runs-dir", runs_dir, "--csv")

    header, row = csv.reader(ran.out.splitlines())
    assert header == list(as_json)
    assert row == ["" if value is None else str(value) for value in as_json.values()]
    assert testbed("runs", "--csv", "--json").code == 1
    assert testbed("runs", "--runs-dir", tmp_path / "none", "--csv").out.splitlines() == [",".join(header)]


def test_example_lab_files_are_written_and_never_replaced(testbed, tmp_path):
    folder = tmp_path / "labs"
    written = testbed("sim", "examples", folder, "--json").json["written"]
    assert {path.name for path in folder.iterdir()} == {path.name for path in (ROOT / "labs").iterdir()}
    (folder / "testbed12.yaml").write_text("name: mine\n")

    again = testbed("sim", "examples", folder, "--json").json

    assert (again["written"], again["kept"]) == ([], written)
    assert (folder / "testbed12.yaml").read_text() == "name: mine\n"
