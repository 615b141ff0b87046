"""`testbed simulate|compare|optimise`, and plans carried out by `plan`, `apply`, `verify` and `path`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from testbed.commands.progress import PlainNarrator
from testbed.design.evaluation.comparison import COMPARED_FABRICS
from testbed.design.fabrics.fabric_list import has_gpu_nodes
from testbed.design.plans.file import read_plan
from testbed.errors import TopologyError

LAB = Path(__file__).resolve().parents[2] / "labs" / "testbed12.yaml"
SMALL = ("--set", "batch_per_device=2", "--nodes", 4)


@pytest.fixture
def graph(tmp_path):
    """Return two nodes compute, then one sends the other 1 MB."""
    path = tmp_path / "pair.npz"
    np.savez(
        path,
        task_type=np.array([1, 1, 5]),
        task_id=np.array([10, 11, 12]),
        task_device=np.array([100, 101, 102]),
        task_runtime_ms=np.array([1.0, 2.0, 0.0]),
        task_bytes=np.array([0, 0, 1_000_000]),
        next_ptr=np.array([0, 1, 1, 1]),
        next_ids=np.array([12]),
        device_id=np.array([100, 101, 102]),
        device_type=np.array([0, 0, 13]),
        device_property=np.array([0, 0, 1]),
        meta=np.array(json.dumps({"nodes": 2, "switches": 0})),
    )
    return path


def test_a_task_graph_is_simulated(testbed, graph):
    ran = testbed("simulate", graph, "--fabric", "ideal", "--rate-gbps", 8, "--json")

    assert ran.code == 0
    assert ran.json["iteration_ms"] == pytest.approx(2.0, rel=0.1)
    assert (ran.json["nodes"], ran.json["payload_bytes"]) == (2, 1_000_000)
    assert ran.json["simulated"] is True
    assert (ran.json["degree"], ran.json["host_gbps"]) == (1, 8)


def test_a_fat_tree_of_equal_cost_is_paid_as_much_as_direct_connect_of_four_links(testbed):
    asked = ("simulate", "vgg16", "--set", "batch_per_device=2", "--nodes", 6, "--rate-gbps", 25, "--json")
    direct = testbed(*asked)
    switch = testbed(*asked, "--fabric", "fattree", "--equal-cost")

    assert (direct.json["degree"], switch.json["degree"]) == (4, 4)
    assert switch.json["cost_usd"] == direct.json["cost_usd"]


@pytest.mark.parametrize("options", [("--nodes", 3), ("--strategy", "data"), ("--set", "batch=3")])
def test_a_task_graph_is_what_it_is(testbed, graph, options):
    ran = testbed("simulate", graph, *options)

    assert ran.code == 1
    assert "leave out --nodes" in ran.err


@pytest.mark.slow
def test_a_workload_is_simulated_traced_and_drawn(testbed, tmp_path):
    pictures = ("--trace", "trace", "--timeline", "line.png", "--heat-map", "map.png")
    ran = testbed("simulate", "vgg16", *SMALL, "--degree", 2, *pictures, "--json")
    shown = testbed("simulate", "vgg16", *SMALL, "--degree", 2)

    assert (ran.code, shown.code) == (0, 0), ran.err
    assert ran.json["fabric"] == "direct"
    assert ran.json["iteration_ms"] > ran.json["compute_ms"] > 0
    assert ran.json["bandwidth_tax"] == 1.0
    assert ran.json["settings"] == {"batch_per_device": "2"}
    assert sorted(path.name for path in (tmp_path / "trace").iterdir()) == [
        "flows.parquet",
        "links.parquet",
        "tasks.parquet",
    ]
    assert all((tmp_path / name).read_bytes()[:4] == b"\x89PNG" for name in ("line.png", "map.png"))
    assert shown.out.startswith("SIMULATED vgg16 on 4 servers, fabric direct, 2 links of 100 Gbit/s each")
    assert "recalled" in shown.out


@pytest.mark.slow
def test_fabrics_are_compared(testbed, tmp_path):
    ran = testbed("compare", "vgg16", *SMALL, "--degree", 2, "--fluid", "--picture", "all.png", "--json")
    shown = testbed("compare", "vgg16", *SMALL, "--degree", 2, "--fabrics", "ideal,direct")

    rows = {row["fabric"]: row for row in ran.json["fabrics"]}
    assert set(rows) == {name for name in COMPARED_FABRICS if not has_gpu_nodes(name)}
    assert rows["ideal"]["slowdown"] == 1.0
    assert rows["fattree-equal-cost"]["equal"] == "cost"
    assert rows["fattree-equal-cost"]["cost_usd"] == rows["direct"]["cost_usd"]
    assert (tmp_path / "all.png").read_bytes()[:4] == b"\x89PNG"
    assert "equal rate" in shown.out
    assert "SIMULATED vgg16 on 4 servers" in shown.out


@pytest.mark.slow
def test_a_plan_is_found_written_and_found_again(testbed, tmp_path):
    asked = ("optimise", "vgg16", *SMALL, "--degree", 2, "--steps", 5, "--rate-gbps", 25)
    first = testbed(*asked, "-o", "one.json", "--json")
    again = testbed(*asked, "-o", "two.json")

    assert (first.code, again.code) == (0, 0), again.err
    plans = [json.loads((tmp_path / name).read_text()) for name in ("one.json", "two.json")]
    assert all(plan["search"].pop("cpu_s") > 0 for plan in plans)
    assert plans[0] == plans[1]
    predicted = plans[0]["predicted"]
    assert set(predicted) == {
        "iteration_ms", "bound_ms", "bound_by", "above_bound", "ideal_switch_ms", "closed_form_ms", "bandwidth_tax",
        "routing_gap", "mean_hops", "diameter", "path_lengths", "ring_degree", "matching_degree", "batch",
    }  # fmt: skip
    assert predicted["bound_by"] in ("compute", "network")
    assert 0 < predicted["bound_ms"] <= predicted["iteration_ms"]
    assert predicted["above_bound"] == pytest.approx(predicted["iteration_ms"] / predicted["bound_ms"] - 1)
    assert plans[0]["search"] == {"seed": 0, "steps": 5, "chains": 4, "done": 20}, (
        "and cpu_s, which is gone by now"
    )
    assert first.json["format"] == "lightbed-plan/1"
    assert first.json["topology"]["strides"] == [1]
    assert predicted["iteration_ms"] > 0.99 * predicted["ideal_switch_ms"], (
        "a link has fewer hops than a switch"
    )
    assert first.json["predicted"]["path_lengths"] == {"1": 8, "2": 4}
    assert first.json["why"]
    assert "[20/20]" in first.err, "four chains of five steps"
    assert "plan: two.json" in again.out


@pytest.mark.slow
def test_a_plan_is_simulated_as_it_was_predicted(testbed):
    found = testbed(
        "optimise", "vgg16", *SMALL, "--degree", 2, "--rate-gbps", 7, "--steps", 5, "-o", "p.json", "--json"
    )
    asked = ("simulate", "vgg16", "--set", "batch_per_device=2", "--strategy", "p.json", "--json")
    ran, rounds = testbed(*asked), testbed(*asked, "--rounds")

    assert (ran.code, rounds.code) == (0, 0), ran.err
    predicted = found.json["predicted"]
    assert ran.json["iteration_ms"] == pytest.approx(predicted["iteration_ms"], rel=1e-12)
    assert ran.json["bandwidth_tax"] == pytest.approx(predicted["bandwidth_tax"], rel=1e-12)
    assert rounds.json["iteration_ms"] == pytest.approx(ran.json["iteration_ms"], rel=0.02)


@pytest.mark.long
def test_a_plan_keeps_what_saves_memory_and_is_simulated_with_it(testbed):
    asked = (
        "optimise",
        "vgg16",
        *SMALL,
        "--degree",
        2,
        "--steps",
        2,
        "--chains",
        1,
        "-o",
        "p.json",
        "--json",
    )
    plain, saved = testbed(*asked), testbed(*asked, "--zero", 3, "--recompute")
    ran = testbed("simulate", "vgg16", "--strategy", "p.json", "--json")

    assert "zero" not in plain.json["workload"]
    assert (saved.json["workload"]["zero"], saved.json["workload"]["recompute"]) == (3, True)
    assert ran.json["iteration_ms"] == pytest.approx(saved.json["predicted"]["iteration_ms"], rel=1e-12)
    assert saved.json["predicted"]["iteration_ms"] > plain.json["predicted"]["iteration_ms"]
    assert testbed(*asked, "--zero", 4).json["error"]["code"] == "usage"


def test_a_model_in_a_file_is_a_workload(testbed, tmp_path):
    onnx = pytest.importorskip("onnx", reason="models from files need the extra onnx")
    weights = onnx.numpy_helper.from_array(np.zeros((64, 256), np.float32), "weights")
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["samples", width])
        for name, width in (("x", 64), ("y", 256))
    ]
    product = onnx.helper.make_node("MatMul", ["x", "weights"], ["y"])
    model = onnx.helper.make_model(onnx.helper.make_graph([product], "layer", ends[:1], ends[1:], [weights]))
    onnx.save(model, tmp_path / "layer.onnx")
    asked = ("simulate", "layer.onnx", "--nodes", 4, "--fabric", "ideal", "--json")

    ran = testbed(*asked, "--strategy", "data", "--set", "batch_per_device=3")
    wrong = [testbed(*asked, *options) for options in (("--set", "batch=x"), ("--preset", "fig11"))]

    assert ran.json["batch"] == 3 * 4 * 4
    assert ran.json["payload_bytes"] == pytest.approx(4 * 2 * 3 / 4 * 64 * 256 * 4)
    assert [run.json["error"]["code"] for run in wrong] == ["workload", "workload"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("simulate", "vgg17"), "vgg16"),
        (("simulate", "vgg16", "--fabric", "cloud"), "choose ideal"),
        (("simulate", "vgg16", "--set", "batch"), "KEY=VALUE"),
        (("simulate", "vgg16", "--strategy", "missing.json"), "missing.json"),
        (("simulate", "missing.npz"), "missing.npz"),
        (("simulate", "vgg16", "--equal-cost"), "only a Fat-tree"),
        (("simulate", "vgg16", *SMALL, "--degree", 2, "--rate-gbps", 0), "a link of 0 Gbit/s"),
        (("compare", "vgg16", *SMALL, "--degree", 2, "--rate-gbps", -5), "a link of -5 Gbit/s"),
        (("optimise", "vgg16", *SMALL, "--degree", 2, "--rate-gbps", 0), "a link of 0 Gbit/s"),
        (("optimise", "vgg16", "--lab", LAB, "--rate-gbps", "nan"), "a link of nan Gbit/s"),
        (("optimise", "vgg16", "--lab", LAB, "--degree", 5), "hosts have 4 NICs, not 5"),
        (
            ("optimise", "vgg16", *SMALL, "--degree", 2, "-o", "missing/p.json"),
            "cannot write the plan to missing/",
        ),
        (("compare", "vgg16", "--fabrics", "cloud"), "unknown fabric"),
        (("optimise", "vgg16", "--lab", LAB, "--nodes", 4), "leave out --nodes"),
        (("optimise", "vgg16", "--hosts-of", "a,b"), "pass --lab too"),
        (("optimise", "vgg16", "--lab", LAB, "--hosts-of", "a,zz"), "no host 'zz'"),
        (("plan", LAB, "--plan", "missing.json"), "missing.json"),
        (("plan", LAB, "--plan", "p.json", "--simplex"), "leave out --simplex"),
        (("verify", LAB, "--plan", "p.json", "--demand", "4:1e9"), "leave out --simplex"),
    ],
)
def test_bad_input_of_the_planner_gets_one_message(testbed, arguments, word, tmp_path):
    alone = tmp_path / "lab.yaml"  # a name that no lab has that runs meanwhile
    alone.write_text(LAB.read_text(encoding="utf-8").replace("name: testbed12", "name: not-running"))
    arguments = [alone if part is LAB else part for part in arguments]
    ran = testbed(*arguments)
    as_json = testbed(*arguments, "--json")

    assert (ran.code, as_json.code) == (1, 1)
    assert word in ran.err.splitlines()[-1]
    assert as_json.json["error"]["who"] == "user" or "missing" in word


def test_two_hosts_of_a_lab_are_planned_for_with_one_link(testbed):
    asked = ("--lab", LAB, "--hosts-of", "a,b", "--degree", 1, "--steps", 0, "--set", "batch_per_device=2")
    ran = testbed("optimise", "vgg16", *asked)

    assert ran.code == 0, ran.err
    assert "vgg16 on 2 servers, 1 link of " in ran.out
    assert "1 patch" in ran.out.splitlines()


@pytest.mark.slow
def test_a_plan_that_the_lab_cannot_hold_is_kept(testbed, tmp_path, monkeypatch):
    def cannot(*_):
        raise TopologyError("there is no such split")

    monkeypatch.setattr("testbed.operate.design.build_plan_design", cannot)
    asked = ("--lab", LAB, "--hosts-of", "a,b,c", "--degree", 2, "--steps", 0, "--set", "batch_per_device=2")
    ran = testbed("optimise", "vgg16", *asked, "-o", "kept.json")

    assert ran.code == 1
    assert "the plan was written to kept.json, but lab 'testbed12' cannot hold it" in ran.err
    assert read_plan(tmp_path / "kept.json").hosts == ("a", "b", "c")


def test_a_plan_is_compared_with_what_its_own_links_cost(testbed):
    asked = ("vgg16", *SMALL, "--degree", 2, "--steps", 0, "-o", "p.json")
    assert testbed("optimise", *asked, "--rate-gbps", 7).code == 0
    ran = testbed("compare", "vgg16", "--strategy", "p.json", "--fabrics", "direct,fattree", "--json")
    other = [
        testbed(command, "vgg16", "--strategy", "p.json", "--degree", 8)
        for command in ("simulate", "compare")
    ]

    assert (ran.json["degree"], ran.json["settings"]) == (2, {"batch_per_device": "2"})
    assert {row["host_gbps"] for row in ran.json["fabrics"]} == {14}
    assert [(run.code, "2 links per server, not 8" in run.err) for run in other] == [(1, True)] * 2


def test_progress_in_a_log_is_told_when_it_changes(capsys):
    narrator = PlainNarrator()
    for done, text in ((0, "5 ms"), (1, "5 ms"), (2, "4 ms"), (3, "4 ms"), (4, "4 ms")):
        narrator.tick(done, 4, text)

    assert capsys.readouterr().err.split() == ["[0/4]", "5", "ms", "[2/4]", "4", "ms", "[4/4]", "4", "ms"]


@pytest.mark.long
def test_two_jobs_share_a_lab_and_no_link(testbed, lab_file):
    """From a model to a patched lab, twice: the second leaves the first as it is."""
    asked = ("optimise", "vgg16", "--lab", LAB, "--steps", 0)
    for name, hosts in (("one.json", "a,b,c,d,e,f"), ("two.json", "g,h,i,j,k,l")):
        assert testbed(*asked, "--hosts-of", hosts, "-o", name).code == 0
    applied = [testbed("apply", lab_file, "--plan", name, "--json").json for name in ("one.json", "two.json")]
    verified = [testbed("verify", lab_file, "--plan", name) for name in ("one.json", "two.json")]
    planned = testbed("plan", lab_file, "--plan", "two.json")
    path = testbed("path", "g", "j", "--lab", lab_file, "--plan", "two.json", "--json")
    foreign = testbed("path", "a", "j", "--lab", lab_file, "--plan", "two.json")
    measured = testbed("nccl", lab_file, "--plan", "one.json", "--sizes", "1MiB:1MiB", "--json")
    stored = testbed("apply", lab_file, "--json")
    whole = testbed("apply", lab_file, "--method", "geometric", "--json")
    again = testbed("verify", lab_file, "--plan", "one.json")
    busy = testbed("apply", lab_file, "--plan", "one.json")
    taken = testbed("apply", lab_file, "--plan", "one.json", "--take-over", "--json")

    assert [(done["circuits"], done["verified"]) for done in applied] == [(24, True)] * 2
    assert [ran.code for ran in verified] == [0, 0]
    assert planned.code == 0
    assert "24 of others untouched; nothing to do" in planned.out
    assert {hop["sender"][0] for hop in path.json["hops"]} <= set("ghijkl")
    assert "no host 'a'; hosts are g, h" in foreign.err
    assert {row["ranks"] for row in measured.json["results"]} == {6}
    assert stored.json["circuits"] == 24, "without a name the stored plan is meant"
    assert whole.json["circuits"] == 48, "without a plan all hosts are one job"
    assert again.code == 2
    assert (busy.code, "is used by input" in busy.err) == (1, True)
    assert taken.json["verified"] is True
