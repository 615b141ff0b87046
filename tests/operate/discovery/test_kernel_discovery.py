"""Fibres of hosts that are real to the kernel are found by the command, whose lab file every other command takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from libraries import skip_without
from needs import needs

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from testbed.cli.app import run_app
from testbed.lab.control import send_request
from testbed.lab.inventory import load_lab, render_lab
from testbed.lab.simulated.fibre_draw import draw_fibres, remove_fibres
from testbed.lab.simulated.lifecycle import start_lab

pytestmark = pytest.mark.kernel
TESTBED12 = Path(__file__).parents[3] / "labs" / "testbed12.yaml"


def small_lab(lab, hosts, nics):
    """Return the first hosts of the 12-host lab at a switch of just their ports, under a name of their own."""
    python = str(Path(sys.executable).resolve())
    kept = tuple(replace(host, nics=host.nics[:nics], python=python) for host in lab.hosts[:hosts])
    size = hosts * nics
    switches = tuple(replace(switch, input_count=size, output_count=size) for switch in lab.switches)
    return replace(lab, name=f"bare-{os.getpid()}", hosts=kept, switches=switches)


@pytest.fixture(scope="module")
@needs("process", "socket")
def up(testbed12):
    drawn = draw_fibres(small_lab(testbed12, 4, 3), 11, crossed_count=1, dead_count=1)
    with start_lab(drawn.lab, hosts="kernel", may_move=True) as lab:
        for fibre in drawn.dead_fibre_names:
            send_request(lab.control_addresses["plant"], {"do": "cut", "fibre": fibre})
        yield lab


@pytest.fixture
def bare(up, tmp_path):
    path = tmp_path / "bare.yaml"
    path.write_text(f"# found by nobody yet\n{render_lab(remove_fibres(up.lab))}", encoding="utf-8")
    return path


def run(capsys, *words):
    status = run_app([str(word) for word in words])
    out = capsys.readouterr().out
    return status, json.loads(out) if "--json" in words else out


def check_against_the_truth(up, path, document):
    truth = send_request(up.control_addresses["plant"], {"do": "fibres"})["fibres"]
    said = {
        f"{nic['nic']}:{way}": nic[way]["port"] or nic[way]["verdict"]
        for nic in document["nics"]
        for way in ("transmit", "receive")
    }
    assert said == {
        name: "dead" if fibre["cut"] else f"{fibre['switch']}:{fibre['port']}"
        for name, fibre in truth.items()
    }
    dead = {name.partition(":")[0] for name, fibre in truth.items() if fibre["cut"]}
    assert {f"{host.name}/{nic.name}" for host in load_lab(path).hosts for nic in host.unused_nics} == dead
    return len(said)


def test_discover_then_plan_apply_and_verify(up, bare, tmp_path, capsys):
    output, runs = tmp_path / "wired.yaml", tmp_path / "runs"
    status, document = run(capsys, "discover", bare, "-o", output, "--runs-dir", runs, "--json")
    assert (status, document["hosts"], document["uncertain"]) == (2, "kernel", [])
    assert check_against_the_truth(up, output, document) == 24
    assert document["rounds"] <= 12
    assert send_request(up.control_addresses["ocs1"], {"do": "truth"})["connections"] == []
    assert output.read_text("utf-8").startswith("# found by nobody yet\n")
    assert run(capsys, "plan", output)[0] == 2
    status, applied = run(capsys, "apply", output, "--runs-dir", runs, "--json")
    assert (status, applied["verified"], applied["circuits"]) == (0, True, 8)
    assert run(capsys, "verify", output, "--json")[1]["findings"] == []
    _check_again(up, bare, output, runs, capsys)


def _check_again(up, bare, output, runs, capsys):
    """Discover while the circuits of a plan are in use: they stay, and their NICs are named."""
    before = send_request(up.control_addresses["ocs1"], {"do": "truth"})["connections"]
    status, refused = run(capsys, "discover", bare, "-o", output, "--runs-dir", runs, "--json")
    assert (status, refused["error"]["code"]) == (1, "lab.file")
    words = ("discover", bare, "-o", output, "--force", "--runs-dir", runs, "--json")
    status, document = run(capsys, *words)
    assert (status, len(document["in_use"]["circuits"]), len(document["in_use"]["nics"])) == (2, 8, 8)
    assert send_request(up.control_addresses["ocs1"], {"do": "truth"})["connections"] == before
    status, refused = run(capsys, "plan", output, "--runs-dir", runs, "--json")
    assert status == 1, "NICs in use were left out: the stored epoch is of another lab file"
    assert "with 2 NICs, which epoch 1 connects: the file differs from " in refused["error"]["message"]
    assert "name a topology for the current hosts and NICs" in refused["error"]["message"]


@pytest.mark.long
@needs("process", "socket")
def test_all_96_fibres_of_twelve_hosts_are_right_or_named_as_dead():
    script = Path(__file__).parents[3] / "benchmarks" / "discover.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert (figures["fibres"], figures["wrong"], figures["uncertain"], figures["dead"]) == (96, 0, 0, 3)
    assert figures["rounds"] <= 20
