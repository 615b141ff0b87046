"""Routes of plan files: what is written is read again, and what cannot be installed is refused by file and entry."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from functools import cache

import pytest
from libraries import library

from testbed.design.model import Topology
from testbed.design.plans.file import Plan, parse_plan, plan_to_json, read_plan, write_plan
from testbed.design.topology.circulants import find_topology
from testbed.design.topology.demand import make_demand
from testbed.design.workloads.choice import WorkloadChoice
from testbed.design.workloads.sharding import Strategy, make_data_sharding
from testbed.errors import PlanFileError

balancing = library("testbed.design.routing.balancing")


def plan_on(topology, pairs):
    routes = balancing.find_balanced_routes(topology, make_demand(topology.nodes, (), pairs))
    strategy = Strategy((make_data_sharding(range(topology.nodes)),))
    return Plan(
        WorkloadChoice("x"), topology, 25.0, ("layer",), strategy, {"iteration_ms": 1.0}, routes=routes
    )


@cache
def ring():
    return plan_on(find_topology(4, 2), [(0, 2, 1e6), (1, 2, 5e5)])


@cache
def parallel():
    return plan_on(Topology(2, 3, False, (), ((0, 1),) * 3 + ((1, 0),) * 3), [(0, 1, 1e6)])


@pytest.mark.parametrize("make", [ring, parallel])
def test_routes_are_read_as_they_were_written(make, tmp_path):
    plan = make()
    write_plan(plan, tmp_path / "p.json")
    read = read_plan(tmp_path / "p.json")
    assert read == plan
    assert read.routes.set_count > 1
    demand = make_demand(plan.topology.nodes, (), [(0, 1, 7.0), (1, 0, 3.0)])
    assert (read.routes.compute_link_bytes(demand) == plan.routes.compute_link_bytes(demand)).all()


def test_a_route_is_a_line_and_a_path_names_nodes(tmp_path):
    write_plan(ring(), tmp_path / "p.json")
    lines = [line.strip().rstrip(",") for line in (tmp_path / "p.json").read_text().splitlines()]
    written = [json.loads(line) for line in lines if line.startswith('{ "source"')]
    assert written == json.loads(json.dumps(plan_to_json(ring())["routes"]))
    half = [one for one in written if (one["source"], one["target"]) == (0, 2) and one["weight"]]
    assert sorted(one["path"] for one in half) == [[0, 1, 2], [0, 3, 2]]
    assert sum(one["weight"] for one in half) == pytest.approx(1.0)


def test_a_plan_of_an_earlier_release_has_no_routes():
    assert "routes" not in plan_to_json(replace(ring(), routes=None))
    assert parse_plan(plan_to_json(replace(ring(), routes=None)), "x").routes is None


def entry_of(document, **wanted):
    return next(one for one in document["routes"] if all(one[key] == value for key, value in wanted.items()))


def reroute(document):
    """Let node 0 reach 2 by 1 in set 0, where 3 reaches 2 by 0: then let 3's packets take another way from 0."""
    entry_of(document, source=0, target=2, set=0)["path"] = [0, 1, 2]
    entry_of(document, source=3, target=2, set=0)["path"] = [3, 0, 3, 2]


FAULTS = {
    "does not lead from 0 to 1 through different nodes": lambda d: entry_of(d, source=0, target=1).update(
        path=[0, 2]
    ),
    "does not lead from 3 to 2 through different nodes": reroute,
    "there is no link from node 0 to node 2": lambda d: entry_of(d, source=0, target=2).update(path=[0, 2]),
    r"routes\[0\].set: there is no set 4": lambda d: d["routes"][0].update(set=4),
    "sum to": lambda d: entry_of(d, source=0, target=1).update(weight=0.25),
    "weights of 0 -> 1 sum to 0, not to 1": lambda d: d["routes"].remove(
        entry_of(d, source=0, target=1, set=0)
    ),
    "set 0 has no route from node 0 to node 1": lambda d: d.update(
        routes=[one for one in d["routes"] if (one["target"], one["set"]) != (1, 0)]
    ),
    "there is no node 9": lambda d: d["routes"][0].update(source=9),
    r"routes\[0\] is not a JSON object": lambda d: d["routes"].__setitem__(0, 3),
    "is not a number from 0 to": lambda d: d["routes"][0].update(weight=2),
    r"copies: 2 copy numbers for 1 hops": lambda d: d["routes"][0].update(copies=[0, 0]),
    r"\(copy 1\)": lambda d: d["routes"][0].update(copies=[1]),
}


@pytest.mark.parametrize("what", FAULTS)
def test_routes_that_cannot_be_installed_are_refused(what):
    document = deepcopy(plan_to_json(ring()))
    FAULTS[what](document)
    with pytest.raises(PlanFileError, match=what):
        parse_plan(document, "p.json")


def test_a_set_that_forwards_one_target_two_ways_is_refused():
    plan = plan_on(find_topology(6, 4), [(source, target, 1.0) for source in range(6) for target in range(6)])
    document = deepcopy(plan_to_json(plan))
    target = 3
    two = next(one for one in document["routes"] if one["target"] == target and len(one["path"]) == 3)
    other = next(
        one
        for one in document["routes"]
        if one["target"] == target and one["set"] == two["set"] and one["source"] == two["path"][1]
    )
    ways = {tuple(edge) for edge in plan.topology.edges}
    detour = next(node for node in range(6) if {(other["source"], node), (node, target)} <= ways)
    other["path"] = [other["source"], detour, target]
    with pytest.raises(PlanFileError, match="within a set, a node has one link per destination"):
        parse_plan(document, "p.json")
