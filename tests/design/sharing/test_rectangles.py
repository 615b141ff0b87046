"""Jobs as rectangles of domains by rails: properties of tilings, an oracle for small ones, and the simulator."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.models.network.allreduce.domains import reduce_over_domains
from sim.models.network.execution import simulate
from sim.models.network.fabrics import make_rail_only
from sim.models.network.latency import NO_LATENCY
from sim.models.network.taskgraph import TaskGraphBuilder
from testbed.design.sharing.rectangles import RailCluster, RailJob, Rectangle, cut_greedily, tile_jobs
from testbed.errors import WorkloadError

CLUSTER = RailCluster(4, 4)


@st.composite
def rail_jobs(draw, most=10):
    """Jobs of a cluster: some too large for it, some that serve."""
    cluster = RailCluster(draw(st.integers(1, 6)), draw(st.sampled_from([1, 2, 4, 8])))
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=most))
    jobs = [
        RailJob(f"j{number}", gpus, draw(st.sampled_from([1, 1, 2, 4])), None, draw(st.booleans()))
        for number, gpus in enumerate(sizes)
    ]
    return cluster, jobs


def used(rectangles):
    return sum(one.domains * one.rails for one in rectangles)


@settings(max_examples=150, deadline=None)
@given(rail_jobs())
def test_rectangles_hold_their_jobs_inside_the_cluster_and_apart(drawn):
    cluster, jobs = drawn
    for rectangles in (tile_jobs(cluster, jobs, max_steps=20_000).rectangles, cut_greedily(cluster, jobs)):
        gpus = [gpu for one in rectangles for gpu in one.find_gpus(cluster)]

        assert len(set(gpus)) == len(gpus)
        assert set(gpus) <= set(range(cluster.gpu_count))
        for one in rectangles:
            assert len(one.find_gpus(cluster)) == one.job.gpu_count
            for group in one.list_tensor_groups(cluster):
                assert len(group) == one.job.tensor_degree
                assert len({gpu // cluster.rails for gpu in group}) == 1
            if one.job.is_serving:
                assert len({gpu // cluster.rails for gpu in one.find_gpus(cluster)}) == 1


@settings(max_examples=150, deadline=None)
@given(rail_jobs())
def test_each_job_has_a_place_or_a_reason_and_the_search_is_no_worse(drawn):
    cluster, jobs = drawn
    tiling = tile_jobs(cluster, jobs, max_steps=20_000)

    assert {one.job.name for one in tiling.rectangles} | set(tiling.reason_by_unplaced_job) == {
        job.name for job in jobs
    }
    assert not {one.job.name for one in tiling.rectangles} & set(tiling.reason_by_unplaced_job)
    assert tiling.used_gpu_count >= used(cut_greedily(cluster, jobs))
    assert tiling.utilisation == tiling.used_gpu_count / cluster.gpu_count <= 1


def most_gpus(cluster, jobs):
    """Return the most GPUs that rectangles can use: all jobs, all shapes, all places."""

    def places(job):
        return [
            frozenset(Rectangle(job, at, rail, domains, rails).find_gpus(cluster))
            for domains, rails in job.list_shapes(cluster)
            for at in range(cluster.domains - domains + 1)
            for rail in range(cluster.rails - rails + 1)
        ]

    best = 0
    for choice in product(*([frozenset(), *places(job)] for job in jobs)):
        total = sum(map(len, choice))
        if total > best and all(not one & other for one, other in combinations(choice, 2)):
            best = total
    return best


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([RailCluster(3, 3), RailCluster(2, 4), RailCluster(4, 2), RailCluster(3, 4)]),
    st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=3, max_size=4),
)
def test_the_search_finds_what_trying_everything_finds(cluster, sizes):
    jobs = [RailJob(f"j{number}", gpus, is_serving=serves) for number, (gpus, serves) in enumerate(sizes)]
    tiling = tile_jobs(cluster, jobs)

    assert tiling.is_proven
    assert tiling.used_gpu_count == most_gpus(cluster, jobs)


def test_the_search_beats_the_heuristic_where_the_largest_job_is_in_the_way():
    """Two jobs of 4 by 2 fill the cluster, but fit neither beside a job of 3 by 3 nor below it."""
    jobs = [RailJob("large", 9, shape=(3, 3)), *(RailJob(f"j{n}", 8, shape=(4, 2)) for n in range(2))]

    assert used(cut_greedily(CLUSTER, jobs)) == 9
    assert (tile_jobs(CLUSTER, jobs).used_gpu_count, tile_jobs(CLUSTER, jobs).is_proven) == (16, True)
    assert not tile_jobs(CLUSTER, jobs, max_exact_jobs=2).is_proven


def test_many_jobs_are_placed_at_once():
    jobs = [
        RailJob(f"j{number}", 2 ** (number % 6), tensor_degree=min(2 ** (number % 6), 8))
        for number in range(300)
    ]
    tiling = tile_jobs(RailCluster(400, 8), jobs)

    assert tiling.reason_by_unplaced_job == {}
    assert tiling.used_gpu_count == sum(job.gpu_count for job in jobs)


@pytest.mark.parametrize(
    ("block", "job", "reason"),
    [
        ((3, 3), RailJob("x", 20), "it needs 20 GPUs, but the cluster has 16"),
        ((3, 3), RailJob("x", 6, is_serving=True), "it serves with 6 GPUs, but a domain has 4"),
        ((3, 3), RailJob("x", 8, tensor_degree=8), "its tensor width is 8, but a domain has 4 GPUs"),
        (
            (3, 3),
            RailJob("x", 5),
            "5 GPUs with tensor width 1 do not form a rectangle in 4 domains of 4 GPUs",
        ),
        (
            (3, 3),
            RailJob("x", 4, tensor_degree=3, shape=(2, 2)),
            "2 domains by 2 rails with tensor width 3 do not fit in 4 domains of 4 GPUs",
        ),
        ((3, 4), RailJob("x", 6), "it needs 6 GPUs, but other jobs leave 4"),
        (
            (3, 3),
            RailJob("x", 4, shape=(2, 2)),
            "7 GPUs are free, but not in a rectangle of 2 by 2 (domains by rails)",
        ),
    ],
)
def test_a_job_without_a_place_has_a_reason(block, job, reason):
    tiling = tile_jobs(CLUSTER, [RailJob("block", block[0] * block[1], shape=block), job])

    assert dict(tiling.reason_by_unplaced_job) == {"x": reason}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RailCluster(0, 4), "0 domains with 4 rails"),
        (lambda: RailJob("x", 0), "job 'x' has 0 GPUs"),
        (lambda: RailJob("x", 6, shape=(2, 2)), "its shape is 2 domains by 2 rails: correct one of them"),
        (lambda: tile_jobs(CLUSTER, [RailJob("x", 1), RailJob("x", 2)]), "two jobs are named 'x'"),
    ],
)
def test_invalid_input_is_named(make, words):
    with pytest.raises(WorkloadError, match=words):
        make()


FABRIC = make_rail_only(CLUSTER.gpu_count, CLUSTER.rails, 200.0, 2400.0)


def seconds(*jobs):
    """Return the simulated time in which each job ends its sums, alone or together, from its groups of GPUs."""
    builder = TaskGraphBuilder(CLUSTER.gpu_count)
    sums = [[builder.add_allreduce(group, 10_000_000) for group in groups] for groups in jobs]
    execution = simulate(
        builder.build(), FABRIC, latency=NO_LATENCY, allreduce=reduce_over_domains(CLUSTER.rails)
    )
    return [max(execution.end_s[task] for task in own) for own in sums]


def groups_of(rectangle):
    return (*rectangle.list_tensor_groups(CLUSTER), *rectangle.list_data_groups(CLUSTER))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param((0, 0, 2, 2), (2, 2, 2, 2), id="no domain and no rail in common"),
        pytest.param((0, 0, 4, 2), (0, 2, 4, 2), id="the same domains"),
        pytest.param((0, 0, 2, 4), (2, 0, 2, 4), id="the same rails"),
    ],
)
def test_jobs_on_different_rectangles_do_not_slow_each_other_down(one, other):
    jobs = [
        groups_of(Rectangle(RailJob(name, place[2] * place[3], tensor_degree=2), *place))
        for name, place in (("one", one), ("other", other))
    ]
    alone = [seconds(job)[0] for job in jobs]

    assert min(alone) > 0
    assert seconds(*jobs) == pytest.approx(alone, rel=1e-12)


def test_a_job_that_is_no_rectangle_slows_down_another():
    """Between GPUs 0 and 5, of two domains and rails, GPU 4 forwards: on the link over which GPU 8 sends to it."""
    crossing, rectangle = ((0, 5),), groups_of(Rectangle(RailJob("other", 2), 1, 0, 2, 1))
    assert rectangle[-1] == (4, 8)
    alone = [seconds(job)[0] for job in (crossing, rectangle)]

    assert seconds(crossing, rectangle)[1] > 1.9 * alone[1]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([(2, 1), (2, 2), (4, 1), (4, 2), (4, 4), (8, 2)]), min_size=2, max_size=5))
def test_no_job_of_a_tiling_is_slowed_down(sizes):
    jobs = [RailJob(f"j{number}", gpus, tensor) for number, (gpus, tensor) in enumerate(sizes)]
    placed = [groups_of(one) for one in tile_jobs(CLUSTER, jobs).rectangles]

    assert seconds(*placed) == pytest.approx([seconds(job)[0] for job in placed], rel=1e-9)
