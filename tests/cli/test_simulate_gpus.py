"""Hosts with several GPUs in `testbed simulate` and `compare`: rail fabrics, domains, large jobs, refusals."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("typer")

TESTBED12 = Path(__file__).resolve().parents[2] / "labs" / "testbed12.yaml"
SMALL = ("--set", "batch_per_device=1", "--json")
GPT = ("gpt", "--set", "layers=2", "--set", "sequence=64", *SMALL)


@pytest.mark.parametrize("fabric", ["rail-only", "rail-optimized"])
def test_the_gpus_of_a_servers_workload_are_a_domain_by_default(testbed, fabric):
    ran = testbed("simulate", *GPT, "--fabric", fabric, "--nodes", 3)

    assert ran.code == 0, ran.err
    assert (ran.json["servers"], ran.json["hb_domain"], ran.json["gpus"], ran.json["nodes"]) == (3, 4, 12, 12)
    assert (ran.json["hb_gbps"], ran.json["host_gbps"]) == (2400.0, 100.0)
    assert ran.json["bytes_in"] == ran.json["bytes_out"] + ran.json["bytes_forwarded"]
    assert 0 < ran.json["mfu"] < 1
    assert (ran.json["reconfigurations"], ran.json["outage_ms"], ran.json["allocation_s"]) == (0, 0, 0)


def test_wide_tensor_parallelism_is_slower_outside_a_domain(testbed):
    inside, outside = (
        testbed(
            *("simulate", *GPT, "--fabric", "fattree", "--strategy", "hybrid:4:1:1"),
            *("--nodes", servers, "--hb-domain", size),
        )
        for servers, size in ((4, 4), (8, 2))
    )

    assert (inside.json["gpus"], inside.json["batch"]) == (outside.json["gpus"], outside.json["batch"])
    assert inside.json["iteration_ms"] < outside.json["iteration_ms"]


def test_moving_circuits_count_their_moves_and_their_dark_time(testbed):
    ran = testbed("simulate", *GPT, "--fabric", "circuits", "--nodes", 6)

    assert ran.code == 0, ran.err
    assert ran.json["reconfigurations"] >= 1
    assert 0 < ran.json["outage_ms"] <= ran.json["iteration_ms"]
    assert ran.json["allocation_s"] > 0


def test_all_to_alls_on_moving_circuits_are_messages(testbed):
    large = ("moe", "--set", "layers=2", "--nodes", 264, "--json")
    circuits, switch = (testbed("simulate", *large, "--fabric", fabric) for fabric in ("mixnet", "ideal"))

    assert (circuits.json["exchanges"], switch.json["exchanges"]) == ("by_pair", "whole")
    assert circuits.json["payload_bytes"] == switch.json["payload_bytes"]


def test_a_comparison_is_of_servers_or_of_gpus(testbed):
    servers, gpus = (testbed("compare", *GPT, "--nodes", 6, *more) for more in ((), ("--hb-domain", 2)))
    names = [{row["fabric"] for row in ran.json["fabrics"]} for ran in (servers, gpus)]

    assert not {"rail-only", "rail-optimized"} & names[0]
    assert names[1] == names[0] - {"fattree-equal-cost"} | {"rail-only", "rail-optimized"}
    assert {row["host_gbps"] for row in gpus.json["fabrics"]} == {400}
    assert servers.json["gpus"] == 24
    assert gpus.json["gpus"] == 12


@pytest.mark.parametrize("fabric", ["direct", "expander", "circuits", "circuits-forwarding"])
def test_gpus_share_the_links_of_their_server(testbed, fabric):
    """Three servers of four GPUs; what does not stay inside a server crosses one link or more between servers."""
    ran = testbed("simulate", *GPT, "--fabric", fabric, "--nodes", 3, "--degree", 2, "--hb-domain", 4)

    assert ran.code == 0, ran.err
    assert (ran.json["nodes"], ran.json["servers"], ran.json["hb_domain"]) == (12, 3, 4)
    assert ran.json["bytes_in"] == ran.json["bytes_out"] + ran.json["bytes_forwarded"]
    between = {row["link"] for row in ran.json["links"] if min(map(int, row["link"].split("-"))) >= 12}
    assert between <= {f"{a}-{b}" for a in (12, 13, 14) for b in (12, 13, 14) if a != b}
    assert len(between) >= 3


def test_a_lab_file_gives_hosts_gpus_links_and_rate(testbed, tmp_path):
    text = TESTBED12.read_text(encoding="utf-8")
    lab = tmp_path / "lab.yaml"
    lab.write_text(
        re.sub(r"^(  - name: [a-l])$", r"\1\n    gpus: 4", text, flags=re.MULTILINE), encoding="utf-8"
    )
    shared = testbed("simulate", *GPT, "--lab", lab)
    own = testbed("simulate", *GPT, "--lab", lab, "--fabric", "rail-only")
    plain = testbed("simulate", *GPT, "--lab", TESTBED12, "--fabric", "rail-only")

    keys = ("nodes", "servers", "hb_domain", "degree", "rate_gbps")
    assert [shared.json.get(key) for key in keys] == [48, 12, 4, 4, 25.0]
    assert [own.json.get(key) for key in keys] == [48, 12, 4, 4, 6.25], "each GPU has a quarter of the links"
    assert [plain.json.get(key) for key in keys] == [12, None, None, 4, 25.0]


def test_a_large_comparison_leaves_out_moving_circuits_unless_named(testbed):
    ran = testbed("compare", *GPT, "--nodes", 257)
    left_out = {row["fabric"] for row in ran.json["fabrics"] if "takes minutes" in row.get("failure", "")}

    assert left_out == {"circuits", "circuits-forwarding", "sip-ocs", "sip-ring", "mixnet"}


def test_large_jobs_are_fluid_and_rounded_and_say_so(testbed):
    ran = testbed("simulate", *GPT, "--nodes", 300, "--fabric", "ideal")
    exact = testbed("simulate", *GPT, "--nodes", 300, "--fabric", "ideal", "--fluid")
    said = testbed("simulate", *GPT[:-1], "--nodes", 300, "--fabric", "ideal")

    assert (ran.json["rings"], ran.json["rounding"]) == ("fluid", 0.01)
    assert (exact.json["rings"], exact.json["rounding"]) == ("fluid", 0.0)
    assert ran.json["iteration_ms"] == pytest.approx(exact.json["iteration_ms"], rel=0.02)
    assert "flows begin and end up to 1% late (--fluid: exact flows; --rounds: each round)" in said.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--fabric", "ideal", "--hb-domain", 2, "--mig", 2), "--hb-domain makes nodes of whole devices"),
        (("--fabric", "ideal", "--strategy", "hybrid:3:2:2"), "groups and stages must divide the nodes"),
        (("--fabric", "ideal", "--strategy", "hybrid:3:2"), "give hybrid:SHARDS:STAGES:MICROBATCHES"),
    ],
)
def test_what_cannot_be_is_refused(testbed, options, message):
    ran = testbed("simulate", *GPT, "--nodes", 4, *options)

    assert ran.code == 1
    assert message in ran.json["error"]["message"]
