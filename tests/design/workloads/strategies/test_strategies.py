"""Usual strategies, what a search may try, and strategies that do not fit their workload."""

from __future__ import annotations

import pickle
from itertools import combinations, pairwise

import numpy as np
import pytest

from testbed.design.workloads.iteration.totals import traffic
from testbed.design.workloads.model import Workload
from testbed.design.workloads.roofline import Cluster, check_memory
from testbed.design.workloads.sharding import (
    Sharding,
    Strategy,
    make_data_sharding,
    make_placed_sharding,
    make_spaced_sharding,
)
from testbed.design.workloads.strategies import (
    check_strategy,
    data_parallel,
    default_strategy,
    disaggregate,
    fitting_strategy,
    list_legal_shardings,
    pipeline_parallel,
)
from testbed.errors import OutOfMemory, StrategyError


def test_tables_go_where_least_is_and_everything_else_everywhere(make_operator):
    sizes = [50, 40, 30, 20, 20]
    tables = [
        make_operator(f"t{i}", kind="table", parameter_bytes=size * 10**9, ways=("place", "data"))
        for i, size in enumerate(sizes)
    ]
    dense = make_operator("dense", parameter_bytes=10, ways=("data", "tensor"))
    experts = make_operator("experts", ways=("expert", "data"))
    workload = Workload("dlrm", (*tables, dense, experts), (), 12)
    strategy = default_strategy(workload, 2)
    placed = [sharding.servers for sharding in strategy.shardings[:5]]
    assert placed == [(0,), (1,), (1,), (0,), (0,)]
    assert strategy.shardings[5] == make_data_sharding(range(2))
    assert strategy.shardings[6] == Sharding("expert", ((0, 1),))
    check_memory(workload, strategy, Cluster(2))
    with pytest.raises(OutOfMemory):
        check_memory(workload, data_parallel(workload, 2), Cluster(2, devices_per_server=3))


def test_what_cannot_be_copied_is_named(make_operator):
    workload = Workload("w", (make_operator("a"), make_operator("b", ways=("place", "tensor"))), (), 4)
    with pytest.raises(
        StrategyError, match="w: b cannot be replicated, only place or tensor: use default_strategy"
    ):
        data_parallel(workload, 4)


def test_stages_of_a_pipeline_are_as_even_as_can_be(make_operator):
    rng = np.random.default_rng(41)
    uneven = 0
    for _ in range(60):
        work = rng.integers(0, 9, size=rng.integers(1, 9)).astype(float).tolist()
        stages = int(rng.integers(1, len(work) + 1))
        operators = tuple(make_operator(f"d{i}", forward_flops=flops) for i, flops in enumerate(work))
        strategy = pipeline_parallel(Workload("w", operators, (), 4), 2 * stages, stages, 2)
        stage_of = [sharding.servers[0] for sharding in strategy.shardings]
        assert stage_of == sorted(stage_of)
        assert set(stage_of) == set(range(stages))
        assert all(
            sharding == make_data_sharding([at, at + stages])
            for at, sharding in zip(stage_of, strategy.shardings, strict=True)
        )
        heaviest = max(sum(w for w, at in zip(work, stage_of, strict=True) if at == s) for s in range(stages))
        assert heaviest == least_heaviest(work, stages)
        uneven += heaviest > sum(work) / stages
    assert uneven >= 20


def least_heaviest(work, stages):
    """Try all cuts."""
    return min(
        max(sum(work[begin:end]) for begin, end in pairwise((0, *cuts, len(work))))
        for cuts in combinations(range(1, len(work)), stages - 1)
    )


@pytest.mark.parametrize(("nodes", "stages"), [(4, 0), (4, 3), (6, 6), (2, 4)])
def test_stages_that_cannot_be_are_named(make_operator, nodes, stages):
    workload = Workload("w", tuple(make_operator(f"d{i}") for i in range(4)), (), 4)
    with pytest.raises(StrategyError, match=f"{stages} stages of 4 operators on {nodes} servers"):
        pipeline_parallel(workload, nodes, stages, 2)


@pytest.mark.parametrize("nodes", [1, 2, 7, 12])
def test_all_legal_shardings_are_legal_and_different(make_operator, nodes):
    any_way = make_operator("any")
    shardings = list_legal_shardings(any_way, nodes)
    workload = Workload("w", (any_way,), (), 4)
    for sharding in shardings:
        check_strategy(workload, Strategy((sharding,)), nodes)
    assert len(set(shardings)) == len(shardings)
    sizes = [size for size in range(min(2, nodes), nodes + 1) if nodes % size == 0]
    side_by_side = [size for size in sizes if 1 < size < nodes]
    placed = nodes + 1 if nodes > 1 else 1
    assert len(shardings) == 1 + placed + 2 * (len(sizes) + len(side_by_side))
    assert list_legal_shardings(make_operator("data", ways=("data",)), nodes) == (
        make_data_sharding(range(nodes)),
    )


@pytest.mark.parametrize(
    ("sharding", "told"),
    [
        (Sharding("data", ()), "at least one replica"),
        (Sharding("data", ((),)), "at least one replica"),
        (Sharding("tensor", ((0, 1), (2,))), "equally many shards"),
        (Sharding("tensor", ((0, 1), (1, 2))), "names a server twice"),
        (Sharding("data", ((0,), (4,))), "names servers 0 to 4: there are 0 to 3"),
        (Sharding("data", ((-1,),)), "names servers -1 to -1"),
        (Sharding("data", ((0, 1),)), "data parallel with 2 shards"),
        (Sharding("place", ((0,), (1,))), "placed 2 times"),
        (Sharding("expert", ((0, 1),)), "laid out as expert, it can be data or tensor or place"),
    ],
)
def test_wrong_grids_are_named(make_operator, sharding, told):
    workload = Workload("w", (make_operator("a", ways=("data", "tensor", "place")),), (), 4)
    with pytest.raises(StrategyError, match="w: a: ") as caught:
        check_strategy(workload, Strategy((sharding,)), 4)
    assert told in str(caught.value)


@pytest.mark.parametrize("microbatches", [0, -1, 5])
def test_microbatches_have_at_least_a_sample(make_operator, microbatches):
    workload = Workload("w", (make_operator("a"),), (), 4)
    with pytest.raises(StrategyError, match="microbatches of 4 samples"):
        check_strategy(workload, Strategy((make_placed_sharding([0]),), microbatches), 1)


def test_each_operator_has_a_sharding(make_operator):
    workload = Workload("w", (make_operator("a"), make_operator("b")), (), 4)
    with pytest.raises(
        StrategyError, match="w has 2 operators, but the strategy has 1 shardings: give one per operator"
    ):
        check_strategy(workload, Strategy((make_placed_sharding([0]),)), 1)


def test_nothing_is_cut_into_more_pieces_than_it_has(make_operator):
    attention = make_operator("attention", ways=("data", "tensor"), most_shards=12)
    experts = make_operator("experts", ways=("expert", "data"), most_shards=6)
    assert max(sharding.shards for sharding in list_legal_shardings(attention, 128)) == 8
    workload = Workload("w", (attention, experts), (), 128)
    assert [sharding.shards for sharding in default_strategy(workload, 8).shardings] == [1, 4]
    ten = Strategy((make_spaced_sharding("tensor", 120, 15), make_data_sharding([0])))
    with pytest.raises(StrategyError, match="attention: cut into 15 shards, it can be into 12 at most"):
        check_strategy(workload, ten, 120)
    whole = make_operator("whole", ways=("tensor",), most_shards=1)
    assert list_legal_shardings(whole, 4) == (make_spaced_sharding("tensor", 4, 1),)


@pytest.mark.parametrize(("nodes", "shards"), [(10, 4), (10, 20), (10, 0), (0, 1), (-4, 2)])
def test_shards_divide_the_servers(nodes, shards):
    with pytest.raises(StrategyError, match=f"{shards} shards on {nodes} servers"):
        make_spaced_sharding("tensor", nodes, shards)


@pytest.mark.parametrize("made", [data_parallel, default_strategy])
@pytest.mark.parametrize("nodes", [0, -2])
def test_a_strategy_needs_a_server(make_operator, made, nodes):
    with pytest.raises(StrategyError, match=f"w on {nodes} servers: a strategy needs at least 1"):
        made(Workload("w", (make_operator("a"),), (), 4), nodes)


def served(make_operator, *, gigabytes=1):
    """Return a layer that reads, one that writes, and the cache between them."""
    ways, cache = ("data", "tensor"), {"kind": "cache", "output_bytes": 1000}
    operators = (
        make_operator("prefill.layer", ways=ways, parameter_bytes=gigabytes * 10**9, output_bytes=7),
        make_operator("prefill.cache", ways=ways, **cache),
        make_operator("decode.cache", ways=ways, **cache),
        make_operator("decode.layer", ways=ways, parameter_bytes=gigabytes * 10**9, output_bytes=7),
    )
    return Workload("served", operators, ((0, 1), (1, 2), (2, 3)), 60, training=False)


def test_sides_get_servers_of_their_own_and_send_the_cache_alone(make_operator):
    workload, cluster = served(make_operator), Cluster(8)
    for strategy, first in (
        (fitting_strategy(workload, cluster), 4),
        (disaggregate(workload, cluster, 3), 3),
    ):
        sides = [set(sharding.servers) for sharding in strategy.shardings]
        assert sides[:2] == [set(range(first))] * 2
        assert sides[2:] == [set(range(first, 8))] * 2
        sent = traffic(workload, strategy, cluster)
        assert sent.pairs.sum() == 60 * 1000
        assert not sent.allreduce


def test_each_side_is_cut_over_as_few_servers_as_hold_it(make_operator):
    workload, cluster = served(make_operator, gigabytes=200), Cluster(8)  # a server has 160 GB
    strategy = fitting_strategy(workload, cluster)
    check_memory(workload, strategy, cluster)
    assert strategy.shardings[0].grid == ((0, 2), (1, 3))
    assert strategy.shardings[3].grid == ((4, 6), (5, 7))


def test_sides_share_what_is_too_small_for_them_apart(make_operator):
    workload = served(make_operator, gigabytes=70)
    assert set(fitting_strategy(workload, Cluster(1)).shardings) == {make_data_sharding([0])}
    large = served(make_operator, gigabytes=100)
    with pytest.raises(OutOfMemory):
        check_memory(large, fitting_strategy(large, Cluster(1)), Cluster(1))


@pytest.mark.parametrize("prefill_nodes", [0, 8, -1])
def test_each_side_needs_a_server(make_operator, prefill_nodes):
    with pytest.raises(StrategyError, match=f"{prefill_nodes} of 8 servers are for prefill"):
        disaggregate(served(make_operator), Cluster(8), prefill_nodes)


def test_what_has_no_sides_is_not_taken_apart(make_operator):
    with pytest.raises(
        StrategyError, match="w does not have both prefill and decode: use the default strategy"
    ):
        disaggregate(Workload("w", (make_operator("a"),), (), 4), Cluster(8))


def test_shardings_are_the_same_after_a_journey():
    sharding = Sharding("tensor", ((0, 1), (2, 3)))
    back = pickle.loads(pickle.dumps(sharding))
    assert back == sharding
    assert hash(back) == hash(sharding)
    assert back is not sharding
