"""One server as several logical ones: `--mig`, and `server` in a lab file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("typer")

LAB = Path(__file__).resolve().parents[2] / "labs" / "testbed12-mig.yaml"
SMALL = ("vgg16", "--set", "batch_per_device=2", "--json")
SHORT = ("--steps", 0, "--chains", 1, "--json")


def test_six_servers_are_twelve_logical_ones(testbed):
    cut = testbed("simulate", *SMALL, "--nodes", 6, "--degree", 4, "--mig", 2)
    said = testbed("simulate", *SMALL, "--nodes", 12, "--degree", 2, "--device", "a100/2")
    whole = testbed("simulate", *SMALL, "--nodes", 6, "--degree", 4)

    assert cut.code == 0, cut.err
    assert (cut.json["servers"], cut.json["nodes"], cut.json["degree"], cut.json["mig"]) == (6, 12, 2, 2)
    assert cut.json["iteration_ms"] == said.json["iteration_ms"]
    assert cut.json["cost_usd"] == whole.json["cost_usd"], "as many NICs, ports and fibres"
    assert cut.json["compute_ms"] > whole.json["compute_ms"]
    assert cut.json["memory_limit_bytes"] * 2 == whole.json["memory_limit_bytes"]
    text = testbed("simulate", *SMALL[:-1], "--nodes", 6, "--mig", 2).out
    assert "6 servers as 12 logical servers" in text


def test_logical_servers_share_the_one_link_to_a_switch(testbed):
    ran = testbed("simulate", *SMALL, "--nodes", 6, "--fabric", "ideal", "--rate-gbps", 100, "--mig", 4)
    assert (ran.json["nodes"], ran.json["host_gbps"]) == (24, 25)


@pytest.mark.parametrize("command", ["simulate", "compare", "optimise"])
def test_links_that_cannot_be_dealt_out_are_told(testbed, command):
    ran = testbed(command, *SMALL, "--nodes", 6, "--degree", 4, "--mig", 3)
    assert ran.code == 1
    assert "4 links of a server cannot be divided among 3 logical servers" in ran.json["error"]["message"]


def test_fabrics_are_compared_with_logical_servers(testbed):
    ran = testbed("compare", *SMALL, "--nodes", 4, "--mig", 2, "--fabrics", "ideal,direct")
    assert ran.code == 0, ran.err
    assert (ran.json["servers"], ran.json["nodes"], ran.json["degree"]) == (4, 8, 2)


@pytest.mark.slow
def test_a_plan_of_logical_servers_is_simulated_again(testbed):
    asked = testbed("optimise", *SMALL[:-1], "--nodes", 3, "--mig", 2, *SHORT, "-o", "plan.json")
    assert asked.code == 0, asked.err
    assert asked.json["workload"]["device"] == "a100/2"
    again = testbed("simulate", "vgg16", "--strategy", "plan.json", "--json")
    assert again.json["iteration_ms"] == pytest.approx(asked.json["predicted"]["iteration_ms"], rel=1e-9)
    other = testbed("simulate", "vgg16", "--strategy", "plan.json", "--mig", 4)
    assert other.code != 0
    assert "leave out --mig" in other.err


def test_the_lab_file_says_what_is_on_one_server(testbed):
    """Two jobs share six machines: each counts with half of the devices, though it has one host of each machine."""
    first = testbed(
        *("optimise", *SMALL[:-1], "--lab", LAB, "--hosts-of", "a1,b1,c1,d1,e1,f1"), *SHORT, "-o", "one.json"
    )
    assert first.code == 0, first.err
    assert first.json["workload"]["device"] == "a100/2"
    assert first.json["hosts"] == ["a1", "b1", "c1", "d1", "e1", "f1"]
    assert first.json["topology"]["degree"] == 2
    wrong = testbed("optimise", *SMALL[:-1], "--lab", LAB, "--mig", 3, *SHORT)
    assert wrong.code != 0
    assert "the lab's hosts have 2 instances per server" in wrong.json["error"]["message"]


def test_servers_that_are_cut_differently_are_not_one_job(testbed, tmp_path):
    lab = tmp_path / "lab.yaml"
    lab.write_text(LAB.read_text(encoding="utf-8").replace("    server: f\n", ""), encoding="utf-8")
    mixed = testbed("optimise", *SMALL[:-1], "--lab", lab, "--hosts-of", "e1,f1", *SHORT)
    assert mixed.code != 0
    assert "the server of host 'e1' is 2 logical servers, that of 'f1' 1" in mixed.json["error"]["message"]
    alone = testbed("optimise", *SMALL[:-1], "--lab", lab, "--hosts-of", "f1,f2", *SHORT)
    assert json.loads(Path("plan.json").read_text(encoding="utf-8"))["workload"]["device"] == "a100"
    assert alone.code == 0, alone.err
