"""`testbed demo` and `testbed sim`: the main job with modelled hosts anywhere, with kernel hosts as root."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import fields, replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import yaml
from libraries import library
from needs import needs

from testbed.commands.measure.demo import DemoDocument, InferenceOutcome

pq = library("pyarrow.parquet")

LAB = Path(__file__).resolve().parents[2] / "labs" / "testbed12.yaml"
BOARD_LAB = LAB.with_name("testbed12-board.yaml")

kernel = [
    pytest.mark.kernel,
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("sshd", path="/usr/sbin:/sbin"),
        reason="hosts in kernel namespaces need root and sshd",
    ),
]


class Links(HTMLParser):
    """Everything a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.found += [
            value for name, value in attrs if name in ("src", "href") and not value.startswith("#")
        ]


def namespaces(said: str) -> list[str]:
    """Return network namespaces of the lab that a demo said it started; other labs may be up beside it."""
    (lab_id,) = set(re.findall(r"SIMULATED lab (lb[0-9a-f]+)", said))
    return [path.name for path in Path("/run/netns").glob(f"{lab_id}-*")]


def send_raw_scpi(lab: str, line: str) -> None:
    """Do what a second operator would: one line on a socket, and the question whether it is done."""
    address = yaml.safe_load(Path(lab).read_text())["switches"][0]["address"].removeprefix("polatis+scpi://")
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(f"{line};*OPC?\r\n".encode())
        assert connection.recv(100) == b"1\r\n"


def check_run(document: dict[str, object], tmp_path: Path) -> None:
    report = tmp_path / str(document["report"])
    text = report.read_text()
    links = Links()
    links.feed(text)

    assert document["links"] == 24
    assert document["verified"] is True
    assert "SIMULATED" in text
    assert [link for link in links.found if not link.startswith("data:image/png;base64,")] == []
    table = pq.read_table(report.parent / "timings.parquet").to_pylist()
    assert {row["simulated"] for row in table} == {True}
    assert {row["wrong"] for row in table} == {0}
    for path in (report.parent / "nccl").glob("*.json"):
        assert json.loads(path.read_text())["lightbed"]["marking"] == "SIMULATED"
    assert {path.stem for path in (report.parent / "nccl").glob("*.json")} >= {"all-nodes-rings-one-ring"}


@pytest.mark.process
@pytest.mark.socket
def test_the_demo_with_modelled_hosts_says_model_in_every_output(testbed, tmp_path):
    ran = testbed("demo", LAB, "--hosts", "model", "--json")
    shown = testbed("demo", LAB, "--hosts", "model")

    assert ran.code == 0, ran.err
    assert ran.json["hosts"] == "model"
    assert set(ran.json["busbw_mbps"]) == {"one_ring", "four_rings"}
    assert ran.json["ratio"] > 3
    assert "model" in ran.err
    assert "only modelled" in shown.out
    check_run(ran.json, tmp_path)
    report = (tmp_path / ran.json["report"]).read_text()
    assert "hosts: model" in report or "modelled" in report
    runs = testbed("runs", "--json").json["runs"]
    assert [run["status"] for run in runs] == ["done", "done"]
    assert testbed("report", ran.json["run_id"], "--json").json["timings"] > 30


@pytest.mark.process
@pytest.mark.socket
@pytest.mark.long
@pytest.mark.parametrize("signalled", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_ends_with_130_and_says_so_in_its_record(start_testbed, testbed, signalled):
    with start_testbed("demo", LAB, "--hosts", "model", "--sizes", "4:8MiB") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "Patching" in line:
                break
        process.send_signal(signalled)
        process.communicate(timeout=60)

    assert process.returncode == 130
    assert [run["status"] for run in testbed("runs", "--json").json["runs"]] == ["interrupted"]


def test_a_real_lab_is_planned_and_not_moved_unless_it_is_named(testbed, start_twin, tmp_path):
    lab = yaml.safe_load(LAB.read_text())
    lab["simulated"] = False
    lab["management"] = "127.0.0.0/24"
    for number, host in enumerate(lab["hosts"]):
        host["management"] = f"127.0.0.{11 + number}"
    lab["switches"][0] = {
        "name": "ocs1",
        "address": start_twin("polatis").urls["scpi"],
        "inputs": 48,
        "outputs": 48,
    }
    path = tmp_path / "real.yaml"
    path.write_text(yaml.safe_dump(lab))

    refused = testbed("demo", path)
    wrong_name = testbed("apply", path, "--really-move", "other", "--json")
    still = testbed("plan", path, "--json")

    assert refused.code == 1
    assert "--really-move testbed12" in refused.err
    assert "48 to make" in refused.out
    assert "SIMULATED" not in refused.out
    assert json.loads(wrong_name.out.splitlines()[-1])["error"]["code"] == "refused"
    assert still.code == 2, "nothing was moved: everything is still to do"


class TestKernelHosts:
    pytestmark = kernel

    @pytest.mark.hdl
    def test_the_demo_measures_real_packets_asks_the_board_and_leaves_nothing(self, testbed, tmp_path, model):
        words = ("--sizes", "1MiB:2MiB", "--inference", model, "--requests", 50, "--json")
        ran = testbed("demo", BOARD_LAB, *words)

        assert ran.code == 0, ran.err
        assert ran.json["hosts"] == "kernel"
        assert ran.json["busbw_mbps"]["one_ring"] > 0.8 * ran.json["rate_mbps"] or ran.json["cpu_limited"]
        assert ran.json["ratio"] > 1.5
        assert "TCP stalled" in ran.err
        check_run(ran.json, tmp_path)
        found = ran.json["inference"]
        assert (found["host"], found["board"]) == ("a", "board1")
        assert found["circuits"] == ["a/nic4 -> board1/port1", "board1/port1 -> a/nic4"]
        assert [found[name] for name in ("requests", "answered", "wrong", "lost")] == [50, 50, 0, 0]
        assert (found["refused"], found["error"]) == ({}, "")
        latency = found["latency_us"]
        assert 0 < latency["min"] <= latency["median"] <= latency["p99"] <= latency["max"]
        assert 100 < found["cycles"] < 10_000
        picture = tmp_path / found["picture"]
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert len(json.loads((picture.parent / "inference.json").read_text())["latencies_us"]) == 50
        links = Links()
        links.feed((tmp_path / ran.json["report"]).read_text())
        assert [link[:22] for link in links.found] == ["data:image/png;base64,"]
        assert namespaces(ran.err) == []

    @pytest.mark.long
    def test_an_interrupted_demo_tears_its_lab_down(self, start_testbed):
        said = ""
        with start_testbed("demo", LAB) as process:
            assert process.stderr is not None
            for line in process.stderr:
                said += line
                if "Measuring" in line:
                    break
            inside = namespaces(said)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)

        assert process.returncode == 130
        assert len(inside) == 14
        assert namespaces(said) == []

    @pytest.mark.long
    def test_a_raw_scpi_line_is_seen_by_verify_and_path(self, testbed, testbed_process):
        up = testbed_process("sim", "up", LAB, "--move", "--json").json  # the lab outlives its command
        try:
            lab = up["lab_file"]
            assert testbed("apply", lab, "--json").json["verified"] is True
            assert testbed("plan", lab).code == 0
            healthy = testbed("verify", lab, "--narrow", "--json")
            way = testbed("path", "a", "d", "--lab", lab, "--json")
            circuits = testbed("plan", lab, "--json").json["switches"][0]["circuits"]
            (row,) = [row for row in circuits if row["link"] == "a/nic1 -> b/nic1"]
            send_raw_scpi(lab, f":oxc:swit:conn:sub (@{row['input_port']}),(@)")

            verified = testbed("verify", lab, "--json")
            path = testbed("path", "a", "b", "--lab", lab)
        finally:
            testbed("sim", "down", up["lab_id"])

        assert verified.code == 2
        (finding,) = verified.json["findings"]
        assert finding.keys() == {"kind", "subject", "detail", "hint", "parts"}
        assert (finding["kind"], finding["subject"]) == ("missing_circuit", "a/nic1 -> b/nic1")
        assert finding["hint"] == f"run `testbed apply --epoch {verified.json['epoch']}`"
        assert "NOT PATCHED" in path.out
        assert path.code == 2
        assert "no circuit leads on from a/nic1" in path.out

        assert (healthy.code, healthy.json["ok"], healthy.json["notes"]) == (0, True, [])
        assert (healthy.json["links_heard"], healthy.json["pairs"], healthy.json["pairs_reached"]) == (
            48,
            132,
            132,
        )
        assert way.code == 0
        assert way.json["kernel"]["differs"] is False
        hops = [(hop["sender"], hop["receiver"]) for hop in way.json["kernel"]["hops"]]
        assert hops == [(hop["sender"], hop["receiver"]) for hop in way.json["hops"]]
        assert len(hops) > 1


@pytest.fixture(scope="module")
@needs("process")
def model(tmp_path_factory):
    """Provide a small model: 64 bytes, 10 scores."""
    folder = tmp_path_factory.mktemp("model")
    random = np.random.default_rng(1)
    shapes = {"w1": (20, 64), "w2": (10, 20)}
    np.savez(folder / "small.npz", **{name: random.normal(0, 0.1, shape) for name, shape in shapes.items()})
    command = [
        sys.executable,
        "-m",
        "lightning.cli",
        "compile",
        folder / "small.npz",
        "-o",
        folder / "small.lng",
    ]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "small.lng"


@pytest.mark.parametrize(
    ("counts", "code"), [({}, 0), ({"wrong": 1}, 2), ({"answered": 9, "lost": 1}, 2), (None, 0)]
)
def test_the_exit_code_says_whether_the_board_answered_as_expected(counts, code):
    right = InferenceOutcome(
        model="m.lng",
        host="a",
        board="board1",
        circuits=("a/nic4 -> board1/port1", "board1/port1 -> a/nic4"),
        requests=10,
        answered=10,
        wrong=0,
        lost=0,
        repeated=0,
        refused={},
        latency_us=None,
        cycles=None,
        picture="",
        error="",
    )
    document = DemoDocument(
        **dict.fromkeys(each.name for each in fields(DemoDocument))
        | {"inference": None if counts is None else replace(right, **counts)}
    )
    assert document.exit_code == code


class TestRefusedTrials:
    """Refusals of `--inference`, all before a lab starts."""

    def check(self, testbed, words: tuple[object, ...], code: str, text: str) -> None:
        ran = testbed("demo", *words, "--json")
        error = ran.json["error"]
        assert (ran.code, error["code"]) == (1, code)
        assert text in error["message"]
        assert "Starting the lab" not in ran.err

    def test_a_lab_without_boards(self, testbed, tmp_path):
        (tmp_path / "m.lng").write_bytes(b"")
        self.check(testbed, (LAB, "--inference", tmp_path / "m.lng"), "inference", "has no boards")

    def test_a_model_file_that_is_not_there(self, testbed, tmp_path):
        self.check(testbed, (BOARD_LAB, "--inference", tmp_path / "m.lng"), "usage", "does not exist")

    def test_modelled_hosts(self, testbed, tmp_path):
        (tmp_path / "m.lng").write_bytes(b"")
        words = (BOARD_LAB, "--hosts", "model", "--inference", tmp_path / "m.lng")
        self.check(testbed, words, "usage", "modelled hosts send none")

    def test_a_file_that_was_not_compiled(self, testbed, tmp_path):
        (tmp_path / "m.onnx").write_bytes(b"")
        words = (BOARD_LAB, "--inference", tmp_path / "m.onnx")
        self.check(testbed, words, "inference", "is not a compiled model: make one with `lightning compile")

    @pytest.mark.process
    def test_a_file_that_lightning_cannot_read(self, testbed, tmp_path):
        (tmp_path / "m.lng").write_bytes(b"no model")
        self.check(testbed, (BOARD_LAB, "--inference", tmp_path / "m.lng"), "inference", "lightning trace: ")


def test_a_journal_alone_is_no_run_and_no_damage(testbed, lab_file):
    applied = testbed("apply", lab_file, "--json")
    runs = testbed("runs", "--json")

    assert applied.json["hosts"] == "model"
    assert (runs.code, runs.json) == (0, {"runs": []})


def test_a_lab_file_that_says_simulated_moves_no_switch_that_we_did_not_start(testbed, start_twin, tmp_path):
    address = start_twin("polatis", "--host", "127.77.0.2").urls["scpi"].rpartition("/")[2]
    text = LAB.read_text().replace("10.99.0.2:5025", address).replace("10.99.0.", "127.77.0.")
    mine = tmp_path / "mine.yaml"
    mine.write_text(text.replace("name: testbed12", "name: mine"))

    ran = testbed("apply", mine)

    assert ran.code == 1
    assert "simulated: false" in ran.err
