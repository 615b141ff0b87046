"""`--routing`, `--torch`, `--export-chakra` and `links` of `testbed simulate`, and the same of `compare`."""

from __future__ import annotations

import json
import sys

import pytest
from libraries import skip_without

skip_without("typer")

SMALL = ("--nodes", 6, "--set", "batch_per_device=2")
PACKET = 8936
MODULE = """
def make():
    import torch

    return torch.nn.Linear(128, 128), torch.zeros(1, 128)

def alone():
    return object()

def broken():
    raise RuntimeError("no weights here")
"""


@pytest.fixture
def transfer(tmp_path):
    """Return a task graph: node 0 of 4 sends node 3 bytes of 4,000 packets."""
    import numpy as np

    path = tmp_path / "transfer.npz"
    np.savez(
        path,
        task_type=np.array([5]),
        task_id=np.array([10]),
        task_device=np.array([100]),
        task_runtime_ms=np.array([0.0]),
        task_bytes=np.array([4_000 * PACKET]),
        next_ptr=np.array([0, 0]),
        next_ids=np.array([], dtype=int),
        device_id=np.array([100]),
        device_type=np.array([13]),
        device_property=np.array([3]),
        meta=np.array(json.dumps({"nodes": 4, "switches": 0})),
    )
    return path


@pytest.fixture
def plan(testbed):
    """Return the file of a plan that no search has changed: tables placed, several sets of routes."""
    asked = ("dlrm", "--preset", "testbed", "--nodes", 6, "--degree", 2, "--steps", 0, "--chains", 1)
    ran = testbed("optimise", *asked, "-o", "plan.json", "--json")
    assert ran.code == 0, ran.err
    assert max(route["set"] for route in ran.json["routes"]) > 0
    return ("dlrm", "--strategy", "plan.json", "--json")


def bytes_of(ran):
    assert ran.code == 0, ran.err
    return [(link["link"], link["bytes"]) for link in ran.json["links"]]


def test_links_say_what_each_carried_and_how_long_it_was_full(testbed, transfer):
    ran = testbed("simulate", transfer, "--fabric", "ideal", "--rate-gbps", 8, "--json")

    assert bytes_of(ran) == [("0-4", 4_000 * PACKET), ("4-3", 4_000 * PACKET)]
    busy_s = 4_000 * PACKET / 1e9
    for link in ran.json["links"]:
        assert link["busy"] == pytest.approx(busy_s / (ran.json["iteration_ms"] / 1e3))
        assert 0.99 < link["busy"] < 1


def test_packets_on_a_hashed_path_take_one_switch_of_each_tier(testbed, transfer):
    """Four hosts, two on an edge switch: both edges, 4 and 5, are below 12 and 13; the core is not needed."""
    asked = ("simulate", transfer, "--fabric", "fattree", "--json", "--routing")
    seeds = [bytes_of(testbed(*asked, "hash", "--seed", seed)) for seed in range(8)]
    again = bytes_of(testbed(*asked, "hash", "--seed", 0))

    assert seeds[0] == again
    paths = {tuple(link for link, _ in links) for links in seeds}
    assert paths == {("0-4", "4-12", "5-3", "12-5"), ("0-4", "4-13", "5-3", "13-5")}
    assert {size for links in seeds for _, size in links} == {4_000 * PACKET}
    spread = testbed(*asked, "spread")
    assert bytes_of(spread) == bytes_of(testbed(*asked[:-1]))
    assert len(bytes_of(spread)) == 4


@pytest.mark.long
def test_other_routings_leave_the_routes_of_a_plan(testbed, plan):
    planned, ideal, spread, hashed, other = (
        testbed("simulate", *plan, *options)
        for options in (
            (),
            ("--routing", "ideal"),
            ("--routing", "spread"),
            ("--routing", "hash"),
            ("--routing", "hash", "--seed", 1),
        )
    )

    assert bytes_of(planned) == bytes_of(ideal)
    assert planned.json["routes"] == ideal.json["routes"] == "planned"
    assert bytes_of(spread) != bytes_of(planned)
    assert bytes_of(hashed) != bytes_of(other)
    for ran in (spread, hashed, other):
        assert "routes" not in ran.json
        assert ran.json["wire_bytes"] == planned.json["wire_bytes"], "whole packets, however they are parted"
        assert sum(size for _, size in bytes_of(ran)) >= ran.json["wire_bytes"]


@pytest.mark.slow
def test_a_plan_tells_the_time_that_it_predicts(testbed, plan, tmp_path):
    """The search ends on the routes that are written: there is one predicted time."""
    document = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    predicted_ms = document["predicted"]["iteration_ms"]
    (searched,) = (sentence for sentence in document["why"] if sentence.startswith("The simulated"))

    assert testbed("simulate", *plan).json["iteration_ms"] == pytest.approx(predicted_ms, rel=1e-9)
    assert f"takes {predicted_ms:.3g} ms" in searched


@pytest.mark.long
def test_fabrics_are_compared_under_a_routing(testbed, plan):
    options = ("--routing", "hash", "--seed", 3)
    alone = testbed("simulate", *plan, *options)
    ran = testbed("compare", *plan, *options, "--fabrics", "ideal,direct,circuits")

    rows = {row["fabric"]: row for row in ran.json["fabrics"]}
    assert rows["direct"]["iteration_ms"] == alone.json["iteration_ms"]
    assert rows["direct"]["slowdown"] > 1
    assert "links" not in rows["direct"]
    assert "leave out --routing" in rows["circuits"]["failure"]


@pytest.mark.parametrize(
    ("fabric", "option"),
    [
        ("direct", ("--controller", "once")),
        ("ideal", ("--hysteresis", 1)),
        ("expander", ("--look-ahead", 1)),
        ("mixnet", ("--wavelengths", 8)),
    ],
)
def test_a_fabric_refuses_options_of_other_fabrics(testbed, fabric, option):
    ran = testbed("simulate", "gpt", *SMALL, "--fabric", fabric, *option)

    assert ran.code != 0
    assert f"fabric '{fabric}' has no {option[0]}: leave it out" in ran.err


def test_the_strategy_of_a_plan_runs_with_popular_experts(testbed):
    moe = ("moe", "--set", "layers=2", "--set", "batch_per_device=1", "--nodes", 8)
    ran = testbed("optimise", *moe, "--steps", 0, "--chains", 1, "-o", "experts.json")
    assert ran.code == 0, ran.err
    even, uneven = (
        testbed("simulate", "moe", "--strategy", "experts.json", "--json", *skew)
        for skew in ((), ("--skew", 1.5))
    )

    assert uneven.json["skew"] == 1.5
    assert uneven.json["compute_ms"] > 1.1 * even.json["compute_ms"]


@pytest.mark.parametrize("routing", ["ideal", "spread", "hash"])
def test_one_server_needs_no_routing(testbed, routing):
    asked = ("simulate", "vgg16", "--nodes", 1, "--set", "batch_per_device=2", "--json")
    ran = testbed(*asked, "--routing", routing)

    assert ran.code == 0, ran.err
    assert ran.json["iteration_ms"] == testbed(*asked).json["iteration_ms"] > 0
    assert ran.json["links"] == []


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--routing", "valiant"), "choose from ideal, spread, hash"),
        (("--routing", "hash", "--trace", "t"), "leave out --trace"),
        (("--routing", "hash", "--fabric", "circuits"), "leave out --routing"),
    ],
)
def test_what_no_routing_does_is_refused(testbed, transfer, options, word):
    ran = testbed("simulate", transfer, *options)

    assert (ran.code, ran.out) == (1, "")
    assert word in ran.err


def test_a_job_takes_as_long_from_the_traces_that_it_was_written_to(testbed, tmp_path):
    asked = ("simulate", "vgg16", *SMALL, "--json")
    first = testbed(*asked, "--export-chakra", "traces")
    again = testbed("simulate", "traces", "--json")
    beside = testbed("compare", "traces", "--fabrics", "direct", "--json")

    ranks = [f"vgg16.{rank}.et" for rank in range(6)]
    assert sorted(path.name for path in (tmp_path / "traces").iterdir()) == ["comm_group.json", *ranks]
    assert (again.json["nodes"], again.json["graph"]) == (6, "traces")
    assert again.json["iteration_ms"] == pytest.approx(first.json["iteration_ms"], rel=1e-9)
    assert beside.json["fabrics"][0]["iteration_ms"] == again.json["iteration_ms"]
    assert testbed("simulate", "traces", "--nodes", 6).code == 1
    fewer = testbed("simulate", "vgg16", "--nodes", 4, "--export-chakra", "traces")
    assert (fewer.code, "traces of another job, vgg16.4.et" in fewer.err) == (1, True)
    assert testbed(*asked, "--export-chakra", "traces").code == 0, "the same job replaces its own"


def test_a_folder_with_the_name_of_a_model_hides_it_not(testbed, tmp_path):
    (tmp_path / "vgg16").mkdir()

    model, folder = (testbed("simulate", name, *SMALL) for name in ("vgg16", "./vgg16"))

    assert model.code == 0, model.err
    assert "is a folder of traces" in folder.err


@pytest.fixture
def _own_modules(tmp_path, monkeypatch):
    """Keep the modules of a test, and the folder that they are looked for in, from other tests."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "one_layer.py").write_text(MODULE, encoding="utf-8")
    yield
    sys.modules.pop("one_layer", None)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.usefixtures("_own_modules")
def test_a_torch_module_is_a_workload(testbed):
    skip_without("torch")
    asked = ("--torch", "one_layer:make", "--nodes", 2, "--degree", 1, "--set", "batch_per_device=2")
    ran = testbed("simulate", *asked, "--json")
    beside = testbed("compare", *asked, "--fabrics", "direct", "--json")

    assert ran.code == 0, ran.err
    assert (ran.json["workload"], ran.json["batch"]) == ("torch:one_layer:make", 16)
    # Two servers sum weights and biases, 4 bytes each: each sends half of them twice.
    assert ran.json["payload_bytes"] == 2 * (128 * 128 + 128) * 4
    assert beside.json["fabrics"][0]["iteration_ms"] == ran.json["iteration_ms"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--torch", "one_layer"), "is not MODULE:FACTORY"),
        (("--torch", "one_layer:none"), "give a function of that module"),
        (("--torch", "one_layer:alone"), "must return a pair"),
        (("--torch", "one_layer:broken"), "one_layer.py, line 11 raised RuntimeError: no weights here"),
        (("--torch", "no_such_module:make"), "No module named"),
        (("vgg16", "--torch", "one_layer:make"), "not both"),
        ((), "name a WORKLOAD"),
    ],
)
@pytest.mark.usefixtures("_own_modules")
def test_what_names_no_workload_is_told(testbed, arguments, word):
    ran = testbed("simulate", *arguments)

    assert ran.code == 1
    assert word in ran.err


CHECKPOINT = ("--checkpoint-every", 10, "--storage-nodes", 2)


@pytest.mark.parametrize("mode", ["blocking", "overlapped"])
def test_a_checkpoint_makes_one_iteration_in_ten_longer(testbed, mode):
    ran = testbed("simulate", "vgg16", *SMALL, *CHECKPOINT, "--checkpoint-mode", mode, "--json")
    said = testbed("simulate", "vgg16", *SMALL, *CHECKPOINT, "--checkpoint-mode", mode)

    assert ran.code == 0, ran.err
    found = ran.json["checkpoint"]
    # 138 million parameters, of 4 bytes each: plain gradient descent has no optimiser state.
    assert found["bytes"] == 138_357_544 * 4
    assert (found["every"], found["storage"], found["mode"], ran.json["nodes"]) == (10, 2, mode, 6)
    assert found["iteration_ms"] > found["plain_ms"] == ran.json["iteration_ms"]
    assert found["plain_ms"] < found["mean_ms"] < found["iteration_ms"]
    if mode == "blocking":
        assert found["mean_ms"] == pytest.approx(0.9 * found["plain_ms"] + 0.1 * found["iteration_ms"])
        assert found["write_ms"] == pytest.approx(found["iteration_ms"] - found["plain_ms"])
    assert {link["link"] for link in ran.json["links"]} <= {link["link"] for link in found["links"]}
    assert ran.json["bytes_in"] == ran.json["bytes_out"] + ran.json["bytes_forwarded"]
    slower = found["iteration_ms"] / found["plain_ms"] - 1
    assert f"{mode} checkpoint of 0.5534 GB to 2 storage hosts" in said.out
    assert f"({slower:+.1%}); with one every 10 iterations" in said.out


def test_a_graph_writes_the_bytes_that_are_given(testbed, transfer):
    ran = testbed(
        "simulate", transfer, "--checkpoint-every", 5, "--checkpoint-bytes", 4_000 * PACKET, "--json"
    )
    without = testbed("simulate", transfer, "--json")

    assert ran.json["checkpoint"]["bytes"] == 4_000 * PACKET
    assert ran.json["payload_bytes"] == without.json["payload_bytes"]
    assert "checkpoint" not in without.json


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--storage-nodes", 2), "need --checkpoint-every N"),
        (("--checkpoint-mode", "overlapped"), "need --checkpoint-every N"),
        (("--checkpoint-every", 5), "give --checkpoint-bytes"),
    ],
)
def test_a_checkpoint_without_bytes_or_period_is_refused(testbed, transfer, options, word):
    ran = testbed("simulate", transfer, *options)

    assert (ran.code, ran.out) == (1, "")
    assert word in ran.err
