"""Rates of equal windows over FIFO queues: closed forms, the optimum, links that die, a whole iteration."""

import numpy as np
import pytest

from sim.models.network.execution import Change, simulate
from sim.models.network.execution.flows import compute_proportional_rates
from sim.models.network.fabrics import make_direct_fabric
from sim.models.network.latency import NO_LATENCY
from sim.models.network.taskgraph import TaskGraphBuilder

RING = [(node, (node + 1) % 4) for node in range(4)]


@pytest.mark.parametrize("hops", [1, 2, 5, 11])
def test_a_flow_over_many_links_has_its_part_of_all_of_them(hops):
    """One flow over all links and one on each: 1 / (hops + 1) of a link for the long one, the rest for the others."""
    rates = compute_proportional_rates([tuple(range(hops)), *((hop,) for hop in range(hops))], np.ones(hops))

    np.testing.assert_allclose(rates, [1 / (hops + 1), *[hops / (hops + 1)] * hops], rtol=1e-6)


@pytest.mark.long
def test_rates_are_feasible_and_none_can_be_better():
    """No rates y within the capacities have sum (y - x) / x above 0: a linear programme looks for them."""
    linprog = pytest.importorskip("scipy.optimize").linprog
    random, shared = np.random.default_rng(5), 0
    for _ in range(200):
        links, flows = int(random.integers(1, 12)), int(random.integers(1, 30))
        capacity = random.integers(1, 40, links).astype(float)
        paths = [
            random.choice(links, random.integers(1, min(links, 4) + 1), replace=False) for _ in range(flows)
        ]
        usage = np.zeros((links, flows))
        for flow, path in enumerate(paths):
            usage[path, flow] = 1

        rates = compute_proportional_rates([tuple(path.tolist()) for path in paths], capacity)

        assert (usage @ rates <= capacity * (1 + 1e-6)).all()
        best = -linprog(-1 / rates, A_ub=usage, b_ub=capacity).fun
        assert best == pytest.approx(flows, rel=1e-5)
        shared += bool((usage.sum(axis=1) > 3).any())
    assert shared > 100


def long_and_short():
    """Return a job: 0 to 2 over two links, and a transfer on each of these."""
    job = TaskGraphBuilder(4)
    for source, target in ((0, 2), (0, 1), (1, 2)):
        job.add_transfer(source, target, 3_000_000)
    return job.build()


def test_an_iteration_takes_what_these_rates_make_of_it():
    """The short ones have two thirds of 8 Mbit/s until they end after 4.5 s, the long one is left with half."""
    fabric = make_direct_fabric(4, RING, 0.008)

    fair = simulate(long_and_short(), fabric, latency=NO_LATENCY)
    in_proportion = simulate(long_and_short(), fabric, latency=NO_LATENCY, in_proportion=True)

    np.testing.assert_allclose(fair.end_s, [6, 6, 6], rtol=1e-3)
    np.testing.assert_allclose(in_proportion.end_s, [6, 4.5, 4.5], rtol=1e-3)
    np.testing.assert_array_equal(fair.link_bytes, in_proportion.link_bytes)


def test_flows_wait_while_a_link_is_dead():
    fabric = make_direct_fabric(4, RING, 0.008)
    changes = [Change(1.0, 0, 0.0), Change(2.0, 0, 8e6)]

    done = simulate(long_and_short(), fabric, latency=NO_LATENCY, changes=changes, in_proportion=True)

    assert done.end_s[2] < 4.5 < done.end_s[1]
    assert done.iteration_s == pytest.approx(7.0, rel=1e-3)
