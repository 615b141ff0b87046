"""Reasons that a plan gives, in whole sentences."""

from __future__ import annotations

import pytest

from testbed.design.search.finalists import RankedStrategy
from testbed.design.search.problem import Problem
from testbed.design.search.reasons import explain_plan
from testbed.design.topology.demand import make_demand
from testbed.design.topology.finder import plan_topology
from testbed.design.workloads.model import Operator, Workload
from testbed.design.workloads.roofline import Cluster
from testbed.design.workloads.sharding import Strategy, make_data_sharding

NODES = 12
ONE = Workload(
    "one", (Operator("dense", "dense", 1e9, 2e9, 1 << 20, 64, gradient_bytes=1 << 20),), (), batch=96
)
SPREAD = Strategy((make_data_sharding(range(NODES)),))


def ranked(degree, pairs, simulated_s, *, simplex=False):
    finding = plan_topology(make_demand(NODES), degree, simplex=simplex, matching_degree=pairs)
    return RankedStrategy(SPREAD, finding, simulated_s, simulated_s, 1.0)


def sentences(degree, times, ideal_s, *, simplex=False):
    """Return the reason given when so many links for pairs take so long; the first is the plan."""
    problem = Problem(ONE, Cluster(NODES), degree, 25.0, simplex)
    wirings = [ranked(degree, pairs, seconds, simplex=simplex) for pairs, seconds in times.items()]
    return explain_plan(problem, wirings, ideal_s)


def test_links_are_counted_in_words():
    strategy, links, *others, _ = sentences(4, {3: 1.0, 0: 1.5, 1: 1.0, 2: 0.9}, 1.0, simplex=True)

    assert strategy == "Strategy for 1 operator: 1 data parallel on 12 servers."
    assert links == "1 of 4 links a server makes rings of strides +1; 3 join the pairs that send most."
    assert others == [
        "With no links for pairs the simulated iteration takes 1.5 s, 50.0 % longer.",
        "With 1 link for pairs the simulated iteration takes 1 s, as long.",
        "With 2 links for pairs the simulated iteration takes 900 ms, 10.0 % less.",
    ]


@pytest.mark.parametrize(
    ("took_s", "end"), [(1.0, "links."), (1.0001, "links."), (1.5, "50.0 % longer than on the switch.")]
)
def test_the_switch_is_a_measure_only_where_it_is_faster(took_s, end):
    assert sentences(4, {0: took_s}, 1.0)[-1].endswith(end)
