"""Plan files: what is written is read again, and whatever is wrong with one is told with file and key."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.design.model import Topology
from testbed.design.plan_file import FORMAT, Plan, parse_plan, plan_json, read_plan, write_plan
from testbed.design.topology import find_topology
from testbed.design.workload_choice import WorkloadChoice, parse_settings
from testbed.design.workloads.layout import Strategy, data_layout, place_layout, spaced_layout
from testbed.errors import PlanFileError, WorkloadError

PLAN = Plan(
    workload=WorkloadChoice("dlrm", "testbed", {"tables": "3"}),
    topology=find_topology(6, 4),
    rate_gbps=25.0,
    operators=("table", "layer", "block"),
    strategy=Strategy(
        (place_layout([2]), data_layout(range(6)), spaced_layout("tensor", 6, 3)), microbatches=2
    ),
    predicted={"iteration_ms": 1.5, "path_lengths": {"1": 24, "2": 6}},
    why=("because it is so", "strides ±1"),
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
        strategy=Strategy((data_layout(range(nodes)),)),
        operators=(name,),
        hosts=(),
        why=tuple(why),
    )

    assert parse_plan(json.loads(json.dumps(plan_json(plan))), "x") == plan


def test_a_plan_is_written_for_people(tmp_path):
    write_plan(PLAN, tmp_path / "plan.json")
    text = (tmp_path / "plan.json").read_text(encoding="utf-8")

    assert '"strides": [1, 2]' in text
    assert '"grid": [[2]]' in text
    assert "strides ±1" in text


def damaged(path: str, value: object) -> dict:
    """The plan's document with one value put in its place; `None` takes the key away."""
    document = deepcopy(plan_json(PLAN))
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
        ("topology", [], ["topology is no JSON object"]),
        ("rate_gbps", -1, ["rate_gbps: -1 is no number above 0"]),
        ("rate_gbps", True, ["rate_gbps: True"]),
        ("lab", 3, ["lab: 3 is no text"]),
        ("why", "so", ["why: 'so' is no list"]),
        ("why", [1], ["why: must be a list of texts"]),
        ("hosts", ["a", "b"], ["2 hosts for 6 nodes"]),
        ("hosts", ["a"] * 6, ["'a' is there twice"]),
        ("topology.nodes", 0, ["topology.nodes: 0 is less than 1"]),
        ("topology.nodes", 2.5, ["topology.nodes: 2.5 is no whole number"]),
        ("topology.degree", 3, ["links: node 0", "3 NICs"]),
        ("topology.simplex", 0, ["topology.simplex: 0 is neither true nor false"]),
        ("topology.links.0", [0, 6], ["topology.links[0]: there is no node 6"]),
        ("topology.links.0", [2, 2], ["joins node 2 to itself"]),
        ("topology.links.0", [1], ["[1] is no pair"]),
        ("strategy.microbatches", 0, ["strategy.microbatches"]),
        ("strategy.operators.0.way", "luck", ["strategy.operators[0].way: 'luck' is none of data"]),
        ("strategy.operators.1.grid", [[0], [1, 2]], ["strategy.operators[1].grid"]),
        ("strategy.operators.2.grid", [[9]], ["there is no node 9"]),
        ("workload.settings", {"batch": 3}, ["workload.settings.batch: 3 is no text"]),
    ],
)
def test_what_is_wrong_is_told_with_file_and_key(path, value, words):
    with pytest.raises(PlanFileError) as caught:
        parse_plan(damaged(path, value), "my.json")

    assert str(caught.value).startswith("my.json: ")
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '"plan"', "\x00"])
def test_a_file_that_is_no_plan_says_so(tmp_path, text):
    (tmp_path / "x.json").write_text(text)

    with pytest.raises(PlanFileError, match=r"x\.json"):
        read_plan(tmp_path / "x.json")


def test_a_plan_that_cannot_be_written_leaves_the_old_one(tmp_path):
    write_plan(PLAN, tmp_path / "plan.json")
    with pytest.raises(TypeError):
        write_plan(replace(PLAN, search={"seed": object()}), tmp_path / "plan.json")

    assert read_plan(tmp_path / "plan.json") == PLAN


def test_one_node_needs_no_link():
    lone = replace(
        PLAN,
        topology=Topology(1, 4, False, (), ()),
        strategy=Strategy((data_layout([0]),)),
        operators=("all",),
        hosts=("a",),
    )

    assert parse_plan(plan_json(lone), "x") == lone


@pytest.mark.parametrize("text", ["batch", "=4", "batch=", ""])
def test_settings_are_key_and_value(text):
    with pytest.raises(WorkloadError, match="KEY=VALUE"):
        parse_settings([text])
