"""Plan files: what is written is read again, and whatever is wrong with one is told with file and key."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.design.model import Topology
from testbed.design.plans.file import (
    FORMAT,
    Plan,
    check_writable,
    parse_plan,
    plan_to_json,
    read_plan,
    write_plan,
)
from testbed.design.topology.circulants import find_topology
from testbed.design.workloads.choice import WorkloadChoice, parse_settings
from testbed.design.workloads.sharding import (
    Strategy,
    make_data_sharding,
    make_placed_sharding,
    make_spaced_sharding,
)
from testbed.errors import PlanFileError, WorkloadError

PLAN = Plan(
    workload=WorkloadChoice("dlrm", "testbed", {"tables": "3"}),
    topology=find_topology(6, 4),
    rate_gbps=25.0,
    operators=("table", "layer", "block"),
    strategy=Strategy(
        (make_placed_sharding([2]), make_data_sharding(range(6)), make_spaced_sharding("tensor", 6, 3)),
        microbatches=2,
    ),
    predicted={"iteration_ms": 1.5, "path_lengths": {"1": 24, "2": 6}},
    reasons=("because it is so", "strides ±1"),
    search={"seed": 3},
    lab="small",
    hosts=("a", "b", "c", "d", "e", "f"),
)


def test_a_plan_is_read_as_it_was_written(tmp_path):
    write_plan(PLAN, tmp_path / "plan.json")

    assert read_plan(tmp_path / "plan.json") == PLAN
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


@given(st.text(), st.integers(2, 9), st.booleans(), st.lists(st.text(), max_size=3))
def test_any_plan_survives_the_document(name, nodes, simplex, why):
    degree = 1 if simplex else 2 if nodes > 2 else 1
    plan = replace(
        PLAN,
        workload=WorkloadChoice(name),
        topology=find_topology(nodes, degree, simplex=simplex),
        strategy=Strategy((make_data_sharding(range(nodes)),)),
        operators=(name,),
        hosts=(),
        reasons=tuple(why),
    )

    assert parse_plan(json.loads(json.dumps(plan_to_json(plan))), "x") == plan


def test_a_plan_is_written_for_people(tmp_path):
    write_plan(PLAN, tmp_path / "plan.json")
    text = (tmp_path / "plan.json").read_text(encoding="utf-8")

    assert '"strides": [1, 2]' in text
    assert '"grid": [[2]]' in text
    assert "strides ±1" in text


TWO_TRIANGLES = [[0, 1], [1, 2], [0, 2], [3, 4], [4, 5], [3, 5]]


def damaged(path: str, value: object) -> dict:
    """Return the plan's document with one value put in its place; `None` takes the key away."""
    document = deepcopy(plan_to_json(PLAN))
    *outer, key = path.split(".")
    part = document
    for name in outer:
        part = part[int(name)] if name.isdigit() else part[name]
    if value is None:
        del part[key]
    else:
        part[int(key) if key.isdigit() else key] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("format", "lightbed-plan/9", ["lightbed-plan/9", FORMAT, "testbed optimise"]),
        ("topology", None, ["topology: is missing"]),
        ("topology", [], ["topology is not a JSON object"]),
        ("rate_gbps", -1, ["rate_gbps: -1 is not a number from 1e-06 to 1e+06"]),
        ("rate_gbps", 10**400, ["rate_gbps: 1000", "is not a number from"]),
        ("predicted", {}, ["predicted.iteration_ms: is missing"]),
        ("predicted.iteration_ms", float("nan"), ["predicted.iteration_ms: nan is not a finite number"]),
        ("predicted.path_lengths", {"1": -2}, ["predicted.path_lengths: {'1': -2}"]),
        ("rate_gbps", True, ["rate_gbps: True"]),
        ("lab", 3, ["lab: 3 is not a string"]),
        ("why", "so", ["why: 'so' is not a list"]),
        ("why", [1], ["why: must be a list of strings"]),
        ("hosts", ["a", "b"], ["2 hosts for 6 nodes"]),
        ("hosts", ["a"] * 6, ["'a' appears twice"]),
        ("topology.nodes", 0, ["topology.nodes: 0 is less than 1"]),
        ("topology.nodes", 2.5, ["topology.nodes: 2.5 is not an integer"]),
        ("topology.degree", 3, ["links: node 0", "3 NICs"]),
        ("topology.degree", 10**12, ["topology.degree: 1000000000000 is more than 1024"]),
        ("topology.nodes", 10**12, ["topology.links: 12 links cannot join 1000000000000 nodes"]),
        ("topology.strides", [0], ["topology.strides: 0 is not a stride", "strides are 1 to 5"]),
        ("topology.strides", [99999, -3], ["topology.strides: 99999 is not a stride"]),
        (
            "topology.strides",
            [1, 3],
            ["topology.strides: the links lack the ring of stride 3", "from node 0 to node 3"],
        ),
        (
            "topology.strides",
            [1, 1],
            ["topology.strides: the links lack the ring of stride 1", "from node 0 to node 1"],
        ),
        (
            "topology.strides",
            [1, 2, 3],
            ["topology.strides: their rings need 5 NICs per node, but nodes have 4"],
        ),
        ("topology.links", [], ["topology.links: 0 links cannot join 6 nodes"]),
        ("topology.links", TWO_TRIANGLES, ["topology.links: node 0 has no path to node 3"]),
        ("topology.simplex", 0, ["topology.simplex: 0 is not a boolean"]),
        ("topology.links.0", [0, 6], ["topology.links[0]: there is no node 6"]),
        ("topology.links.0", [2, 2], ["joins node 2 to itself"]),
        ("topology.links.0", [1], ["[1] is not a pair"]),
        ("strategy.microbatches", 0, ["strategy.microbatches"]),
        ("strategy.operators", [], ["strategy.operators: it is empty"]),
        ("strategy.operators.1.grid", [[0], [0]], ["operators[1].grid: its grid names a server twice"]),
        ("strategy.operators.1.grid", [[0, 1]], ["operators[1].grid: data parallel with 2 shards"]),
        ("strategy.operators.0.way", "luck", ["strategy.operators[0].way: 'luck' is not one of data"]),
        ("strategy.operators.1.grid", [[0], [1, 2]], ["strategy.operators[1].grid"]),
        ("strategy.operators.2.grid", [[9]], ["there is no node 9"]),
        ("workload.zero", "all", ["workload.zero: 'all' is not an integer"]),
        ("workload.recompute", 1, ["workload.recompute: 1 is not a boolean"]),
        ("workload.device", "tpu", ["workload.device: unknown device 'tpu'", "a100-80gb"]),
        ("workload.settings", {"batch": 3}, ["workload.settings.batch: 3 is not a string"]),
    ],
)
def test_what_is_wrong_is_told_with_file_and_key(path, value, words):
    with pytest.raises(PlanFileError) as caught:
        parse_plan(damaged(path, value), "my.json")

    assert str(caught.value).startswith("my.json: ")
    assert all(word in str(caught.value) for word in words), caught.value


def test_one_way_links_must_lead_back():
    document = plan_to_json(replace(PLAN, topology=find_topology(6, 1, simplex=True)))
    links = [[0, 1], [0, 2], [0, 3], [3, 4], [4, 5], [5, 4]]
    document["topology"] |= {"strides": [], "degree": 3, "links": links}

    with pytest.raises(PlanFileError, match=r"links: node 1 has no path to node 0"):
        parse_plan(document, "x")


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '"plan"', "\x00", '{"format": NaN}'])
def test_a_file_that_is_no_plan_says_so(tmp_path, text):
    (tmp_path / "x.json").write_text(text)

    with pytest.raises(PlanFileError, match=r"x\.json"):
        read_plan(tmp_path / "x.json")


def test_a_plan_that_cannot_be_written_leaves_the_old_one(tmp_path):
    write_plan(PLAN, tmp_path / "plan.json")
    with pytest.raises(TypeError):
        write_plan(replace(PLAN, search={"seed": object()}), tmp_path / "plan.json")

    assert read_plan(tmp_path / "plan.json") == PLAN


def test_where_no_plan_can_be_written_is_told_beforehand(tmp_path):
    check_writable(tmp_path / "plan.json")

    assert list(tmp_path.iterdir()) == []
    for path in (tmp_path, tmp_path / "missing" / "plan.json"):
        with pytest.raises(PlanFileError, match=re.escape(f"to {path}: ")):
            check_writable(path)


def test_one_node_needs_no_link():
    lone = replace(
        PLAN,
        topology=Topology(1, 4, False, (), ()),
        strategy=Strategy((make_data_sharding([0]),)),
        operators=("all",),
        hosts=("a",),
    )

    assert parse_plan(plan_to_json(lone), "x") == lone


@pytest.mark.parametrize("text", ["batch", "=4", "batch=", ""])
def test_settings_are_key_and_value(text):
    with pytest.raises(WorkloadError, match="KEY=VALUE"):
        parse_settings([text])
