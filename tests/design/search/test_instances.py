"""Plans of the named problems for six servers beside the optimum of all strategies on all topologies.

Both are simulated on routes found in the same way.
"""

import pytest
from witnesses.exhaustive import simulated_optimum
from witnesses.instances import INSTANCES

from testbed.design.search import optimise

QUICK = ("one table",)
TIE = 1e-3


def plan_and_optimum(name):
    problem = INSTANCES[name]
    found = optimise(
        problem.workload,
        problem.cluster,
        problem.degree,
        problem.rate_gbps,
        steps=200,
        chains=4,
        microbatches=problem.microbatches,
    )
    return found.predicted.iteration_s, simulated_optimum(problem)


@pytest.mark.long
@pytest.mark.parametrize("name", QUICK)
def test_a_plan_is_the_optimum_of_all(name):
    planned_s, best = plan_and_optimum(name)
    assert best.tried >= 500
    assert planned_s <= best.seconds * (1 + TIE)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in INSTANCES if name not in QUICK])
def test_plans_of_the_other_problems_are_optima_too(name):
    planned_s, best = plan_and_optimum(name)
    assert best.tried >= 500
    assert planned_s <= best.seconds * (1 + TIE)


def test_there_are_twelve_of_both_degrees():
    assert len(INSTANCES) == 12
    assert {problem.degree for problem in INSTANCES.values()} == {2, 3}
    assert all(problem.nodes == 6 for problem in INSTANCES.values())
