import numpy as np
import pytest

from sim.models.network.allreduce.fluid import make_stride_rings
from sim.models.network.execution import simulate
from sim.models.network.latency import NO_LATENCY
from testbed.design.fabrics.direct import build_direct_fabric, list_ring_strides
from testbed.design.search.cost import Costs, build_paths
from testbed.design.search.problem import Problem
from testbed.design.search.program import Computing, ProgramBuilder, Sending, Summing
from testbed.design.search.strategies import StrategyObjective
from testbed.design.topology.finder import plan_topology
from testbed.design.workloads.iteration.task_graph import iteration
from testbed.design.workloads.iteration.totals import traffic
from testbed.design.workloads.model import Operator, Workload
from testbed.design.workloads.roofline import Cluster
from testbed.design.workloads.sharding import (
    Strategy,
    make_data_sharding,
    make_placed_sharding,
    make_spaced_sharding,
)
from testbed.design.workloads.strategies import data_parallel


def closed_form_s(problem, strategy, topology):
    costs = Costs(problem, build_paths(topology, problem.rate_gbps))
    return costs.compute_seconds(ProgramBuilder(problem).build_program(strategy.shardings))


def simulated_s(problem, strategy, topology):
    rings = make_stride_rings(lambda group: list_ring_strides(topology, group))
    graph = iteration(problem.workload, strategy, problem.cluster)
    fabric = build_direct_fabric(topology, problem.rate_gbps)
    return simulate(graph, fabric, latency=problem.latency, allreduce=rings).iteration_s


def layer(name, **sizes):
    given = {
        "kind": "dense",
        "forward_flops": 0.0,
        "backward_flops": 0.0,
        "parameter_bytes": 0,
        "output_bytes": 0,
    }
    return Operator(name, **given | sizes)


def test_one_sum_over_all_takes_its_bytes_over_all_rings():
    """8 servers, 4 rings of 10 Gb/s: 2 * 7/8 * 8 MB / 4 over 10 Gb/s are 2.8 ms."""
    operator = layer("all", parameter_bytes=8_000_000, gradient_bytes=8_000_000)
    workload = Workload("sum", (operator,), (), batch=8)
    problem = Problem(workload, Cluster(8, devices_per_server=1), 4, 10, latency=NO_LATENCY)
    strategy = data_parallel(workload, 8)
    topology = plan_topology(traffic(workload, strategy, problem.cluster).demand, 4).topology
    computing = sum(_seconds(problem, strategy))
    assert closed_form_s(problem, strategy, topology) - computing == pytest.approx(2.8e-3, rel=1e-9)
    assert simulated_s(problem, strategy, topology) - computing == pytest.approx(2.8e-3, rel=1e-6)


def _seconds(problem, strategy):
    for part in ProgramBuilder(problem).build_program(strategy.shardings).parts:
        for work in part.works:
            if isinstance(work, Computing):
                yield work.seconds.max()


def test_bytes_between_two_servers_pass_the_links_between_them():
    """1 MB a sample, 4 samples, 2 hops at 10 Gb/s: the link is the same width everywhere, so 3.2 ms."""
    workload = Workload(
        "pipe", (layer("a", output_bytes=10**6, ways=("place",)), layer("b", ways=("place",))), ((0, 1),), 4
    )
    problem = Problem(workload, Cluster(5), 2, 10, latency=NO_LATENCY)
    topology = plan_topology(traffic(workload, _pipe(0, 1), Cluster(5)).demand, 2, matching_degree=0).topology
    assert topology.strides == (1,)
    for far in (1, 2):
        computing = sum(_seconds(problem, _pipe(0, far)))
        assert closed_form_s(problem, _pipe(0, far), topology) - computing == pytest.approx(3.2e-3, rel=1e-9)


def _pipe(first, second):
    return Strategy((make_placed_sharding((first,)), make_placed_sharding((second,))))


def test_a_tensor_parallel_group_without_links_of_its_own_pays_for_its_hops():
    operator = layer(
        "t", parameter_bytes=64, forward_reduce_bytes=10**6, backward_reduce_bytes=10**6, ways=("tensor",)
    )
    workload = Workload("cut", (operator,), (), batch=4)
    problem = Problem(workload, Cluster(8, devices_per_server=1), 2, 10, latency=NO_LATENCY)
    strategy = Strategy((make_spaced_sharding("tensor", 8, 4),))
    computing = sum(_seconds(problem, strategy))
    own, other = (
        closed_form_s(problem, strategy, find_strides(8, strides)) - computing for strides in ((1, 2), (3,))
    )
    assert other == pytest.approx(2 * own, rel=5e-3)


@pytest.mark.parametrize("gradient_bytes", [0, 10**6])
@pytest.mark.parametrize(("shards", "within"), [(2, 0.01), (3, 0.01), (4, 0.13), (6, 0.01), (12, 0.01)])
def test_groups_without_rings_of_links_cost_what_the_simulator_says(shards, within, gradient_bytes):
    """On 12 servers and strides 1 and 5: groups that lie apart send over two hops and share links with each other."""
    operators = tuple(
        layer(
            name, parameter_bytes=64, gradient_bytes=12 * gradient_bytes, forward_reduce_bytes=10**6,
            backward_reduce_bytes=10**6, ways=("tensor",),
        )
        for name in "abc"
    )  # fmt: skip
    workload = Workload("cut", operators, ((0, 1), (1, 2)), batch=12)
    problem = Problem(workload, Cluster(12), 4, 10, latency=NO_LATENCY)
    strategy, topology = Strategy((make_spaced_sharding("tensor", 12, shards),) * 3), find_strides(12, (1, 5))
    closed = closed_form_s(problem, strategy, topology)
    assert closed == pytest.approx(simulated_s(problem, strategy, topology), rel=within)


def test_messages_take_the_paths_that_the_simulator_gives_them():
    """Each message another set of paths than the one before, all parts of a sum the same."""
    paths = build_paths(find_strides(12, (1, 5)), 10)
    fabric = build_direct_fabric(find_strides(12, (1, 5)), 10)
    different = 0
    for choice in range(8):
        for source, target in ((0, 2), (3, 9), (4, 1)):
            load, hops = paths.compute_link_seconds(
                *(np.array([one]) for one in (source, target, choice)), np.ones(1)
            )
            links = fabric.find_path(source, target, choice)
            assert (hops, set(np.flatnonzero(load))) == (len(links), set(links))
            different += links != fabric.find_path(source, target, 0)
    assert different > 0


def find_strides(nodes, strides):
    from testbed.design.model import Topology
    from testbed.design.topology.circulants import list_circulant_edges

    steps = [step for stride in strides for step in (stride, nodes - stride)]
    return Topology(
        nodes, 2 * len(strides), simplex=False, strides=strides, edges=list_circulant_edges(nodes, steps)
    )


def test_gradients_share_links_with_what_others_wait_for():
    """A link carries gradients and outputs at once: together as long as their bytes, and nobody waits for the other."""
    gradient, output = 10**6, 2 * 10**5
    pipe = [layer(name, output_bytes=output, parameter_bytes=8, ways=("place",)) for name in "ab"]
    big = layer("big", parameter_bytes=gradient, gradient_bytes=gradient)
    workload = Workload("both", (*pipe, big), ((0, 1),), batch=1)
    problem = Problem(workload, Cluster(2, devices_per_server=1), 1, 10, latency=NO_LATENCY)
    strategy = Strategy(
        (make_placed_sharding((0,)), make_placed_sharding((1,)), make_data_sharding(range(2)))
    )
    topology = plan_topology(traffic(workload, strategy, problem.cluster).demand, 1).topology
    closed = closed_form_s(problem, strategy, topology)
    assert closed == pytest.approx((gradient + output) * 8 / 10e9, rel=3e-2)
    assert closed == pytest.approx(simulated_s(problem, strategy, topology), rel=2e-2)


def test_what_comes_after_gradients_delays_them():
    """There and back over the same links while gradients are summed: each link carries its outputs twice."""
    gradient, output = 10**6, 2 * 10**5
    pipe = [layer(name, output_bytes=output, parameter_bytes=8, ways=("place",)) for name in "abc"]
    big = layer("big", parameter_bytes=gradient, gradient_bytes=gradient)
    workload = Workload("both", (*pipe, big), ((0, 1), (1, 2)), batch=1)
    problem = Problem(workload, Cluster(2, devices_per_server=1), 1, 10, latency=NO_LATENCY)
    placed = tuple(make_placed_sharding((server,)) for server in (0, 1, 0))
    strategy = Strategy((*placed, make_data_sharding(range(2))))
    topology = plan_topology(traffic(workload, strategy, problem.cluster).demand, 1).topology
    closed = closed_form_s(problem, strategy, topology)
    simulated = simulated_s(problem, strategy, topology)
    assert (gradient + 2 * output) * 8 / 10e9 <= min(closed, simulated)
    assert closed == pytest.approx(simulated, rel=0.12)


def test_branches_compute_side_by_side():
    """Three towers over three servers keep all of them at work; one after the other they would leave gaps."""
    towers, high = 3, 6
    operators = [
        layer(f"t{tower}s{step}", forward_flops=1e12, parameter_bytes=8, ways=("place",))
        for tower in range(towers)
        for step in range(high)
    ]
    edges = tuple((place, place + 1) for place in range(towers * high) if place % high < high - 1)
    workload = Workload("towers", tuple(operators), edges, batch=3, training=False)
    problem = Problem(workload, Cluster(towers), 2, 10, latency=NO_LATENCY)
    strategy = Strategy(
        tuple(
            make_placed_sharding(((tower + step) % towers,))
            for tower in range(towers)
            for step in range(high)
        )
    )
    topology = plan_topology(traffic(workload, strategy, problem.cluster).demand, 2).topology
    one = next(_seconds(problem, strategy))
    closed = closed_form_s(problem, strategy, topology)
    assert closed == pytest.approx(high * one, rel=1e-6)
    assert closed == pytest.approx(simulated_s(problem, strategy, topology), rel=1e-6)


@pytest.mark.parametrize("microbatches", [1, 3])
def test_a_program_sends_what_the_iteration_sends(random_workload, microbatches):
    """Summed over its items, to the byte, whatever the strategy."""
    kinds = set()
    for number in range(12):
        chance = np.random.default_rng([7, number])
        workload = random_workload(chance)
        problem = Problem(workload, Cluster(4), 2, 25, microbatches=microbatches)
        objective = StrategyObjective(problem)
        point = objective.get_start_point()
        for _ in range(6):
            point = objective.draw_neighbour(point, chance)
        wanted = traffic(workload, objective.make_strategy(point), problem.cluster)
        pairs, sums = np.zeros((4, 4)), dict.fromkeys(wanted.allreduce, 0)
        for work in (work for part in objective.get_program(point).parts for work in part.works):
            if isinstance(work, Summing):
                for members, size_bytes in zip(work.groups, work.size_bytes, strict=True):
                    sums[members] += size_bytes
            elif isinstance(work, Sending):
                np.add.at(pairs, (work.source, work.target), work.size_bytes)
        kinds |= {sharding.way for sharding in objective.make_strategy(point).shardings}
        assert (pairs == wanted.pairs).all()
        assert sums == dict(wanted.allreduce)
    assert kinds == {"data", "tensor", "place"}


@pytest.mark.long
@pytest.mark.slow
def test_closed_form_and_simulator_order_strategies_alike(random_workload):
    """Spearman over 24 random strategies, each on a topology of its own; 200 and real models in the benchmark."""
    from scipy.stats import spearmanr

    closed, simulated, matchings = [], [], 0
    for number in range(24):
        chance = np.random.default_rng([11, number % 3])
        problem = Problem(random_workload(chance), Cluster(8), 4, 25)
        objective = StrategyObjective(problem)
        point = objective.get_start_point()
        chance = np.random.default_rng([12, number])
        for _ in range(int(chance.integers(12))):
            point = objective.draw_neighbour(point, chance)
        finding = objective.get_finding(point)
        matchings += finding.matching_degree > 0
        closed.append(objective.compute_cost_s(point, point))
        simulated.append(simulated_s(problem, objective.make_strategy(point), finding.topology))
    assert spearmanr(closed, simulated).statistic >= 0.9
    assert matchings >= 1


def test_beyond_the_memory_the_cost_is_infinite(little):
    big = Operator("big", "dense", 1.0, 1.0, 30_000_000_000, 8, ways=("place", "data"))
    workload = Workload("full", tuple(_named(big, f"b{i}") for i in range(8)), (), batch=4)
    objective = StrategyObjective(Problem(workload, Cluster(4, devices_per_server=2), 2, 25))
    point = objective.get_start_point()
    assert objective.compute_cost_s(point, point) < 1
    crowded = (
        next(at for at, sharding in enumerate(objective.shardings[0]) if sharding.servers == (0,)),
    ) * 8
    assert objective.compute_cost_s(crowded, point) == np.inf


def test_what_fits_only_when_it_is_cut_is_searched_from_there():
    big = Operator("big", "dense", 1.0, 1.0, 60_000_000_000, 8, ways=("data", "tensor"))
    workload = Workload("large", tuple(_named(big, f"b{i}") for i in range(4)), (), batch=4)
    objective = StrategyObjective(Problem(workload, Cluster(4), 2, 25))
    assert {sharding.way for sharding in objective.make_strategy(objective.get_start_point()).shardings} == {
        "tensor"
    }
    assert objective.fits_memory(objective.get_start_point())


def _named(operator, name):
    from dataclasses import replace

    return replace(operator, name=name)
