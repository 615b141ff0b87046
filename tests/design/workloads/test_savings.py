import numpy as np
import pytest

from testbed.design.search.problem import Problem
from testbed.design.search.strategies import StrategyObjective
from testbed.design.workloads.catalogue import workload
from testbed.design.workloads.choice import apply_savings
from testbed.design.workloads.iteration.totals import traffic
from testbed.design.workloads.model import Workload
from testbed.design.workloads.roofline import Cluster, compute_memory_use, compute_operator_seconds
from testbed.design.workloads.sharding import Sharding, Strategy, make_data_sharding
from testbed.errors import WorkloadError

SIZES = {"parameter_bytes": 1000, "gradient_bytes": 1000, "state_bytes": 3000, "output_bytes": 0}


@pytest.mark.parametrize(
    # Of each copy 1000 bytes of parameters, 1000 of gradients, 2000 of the optimiser: four replicas divide them.
    ("zero", "held"),
    [(0, 4000), (1, 2000 + 500), (2, 1000 + 750), (3, 1000)],
)
def test_stages_of_zero_divide_state_gradients_and_parameters(make_operator, zero, held):
    job = apply_savings(Workload("w", (make_operator("d", **SIZES),), (), 8), zero=zero)
    strategy, cluster = Strategy((make_data_sharding(range(4)),)), Cluster(4)
    assert compute_memory_use(job, strategy, cluster).tolist() == [held] * 4
    sent = traffic(job, strategy, cluster).allreduce
    assert sent == {(0, 1, 2, 3): 1500 if zero == 3 else 1000}


def test_shards_divide_what_their_replicas_divide_again(make_operator):
    job = apply_savings(Workload("w", (make_operator("d", **SIZES),), (), 8), zero=3)
    grid = Strategy((Sharding("tensor", ((0, 1), (2, 3))),))
    assert compute_memory_use(job, grid, Cluster(4)).tolist() == [4000 / 2 / 2] * 4
    alone = Strategy((Sharding("tensor", ((0, 1, 2, 3),)),))
    assert compute_memory_use(job, alone, Cluster(4)).tolist() == [4000 / 4] * 4


def layers(make_operator, count, **sizes):
    """Return a chain of layers that are all copies, on two servers, and its strategy."""
    operators = tuple(make_operator(f"d{place}", ways=("data",), **sizes) for place in range(count))
    job = Workload("w", operators, tuple((place, place + 1) for place in range(count - 1)), 8)
    return job, (make_data_sharding(range(2)),) * count


def test_outputs_computed_again_are_there_a_segment_and_a_microbatch_at_a_time(make_operator):
    """Nine layers of 10 bytes for each of a server's 4 samples: three segments, of which the last outputs are kept."""
    job, copies = layers(make_operator, 9, output_bytes=10)
    saved = apply_savings(job, recompute=True)
    assert [one.segment for one in saved.operators] == [1, 1, 0, 2, 2, 0, 3, 3, 0]
    held = [
        compute_memory_use(one, Strategy(copies, count), Cluster(2)).tolist()
        for one, count in ((job, 1), (saved, 1), (saved, 4))
    ]
    assert held == [[each] * 2 for each in (9 * 40, 3 * 40 + 2 * 40, 3 * 40 + 2 * 40 / 4)]


def test_the_backward_pass_of_what_is_computed_again_takes_a_forward_pass_more(make_operator):
    sizes = {"forward_flops": 1e9, "backward_flops": 2e9, "forward_reduce_bytes": 3, "output_bytes": 10}
    job, _ = layers(make_operator, 4, **sizes)
    saved = apply_savings(job, recompute=True)
    assert [one.segment > 0 for one in saved.operators] == [True, False, True, False]
    for before, after in zip(job.operators, saved.operators, strict=True):
        (forward_s, backward_s), again = (
            compute_operator_seconds(one, 8, 1, Cluster(2)) for one in (before, after)
        )
        assert again == (forward_s, backward_s + (forward_s if after.segment else 0))
        assert after.backward_reduce_bytes == before.backward_reduce_bytes + (3 if after.segment else 0)


def test_nothing_is_changed_unless_asked_and_serving_is_refused(make_operator):
    job = Workload("w", (make_operator("d", **SIZES),), (), 8)
    assert apply_savings(job) is job
    with pytest.raises(WorkloadError, match="no stage 4"):
        apply_savings(job, zero=4)
    with pytest.raises(WorkloadError, match="leave out --zero"):
        apply_savings(Workload("w", job.operators, (), 8, training=False), zero=1)


def test_a_search_takes_strategies_that_fit_with_savings_alone():
    """Of a model that four servers do not hold as copies: the search begins with copies when ZeRO divides them."""
    job = workload("gpt", 4, layers=48, hidden=4096, heads=32)
    fits = {}
    for zero in (0, 3):
        objective = StrategyObjective(Problem(apply_savings(job, zero=zero), Cluster(4), 2, 100))
        copies = tuple(
            next(at for at, one in enumerate(known) if one.replicas == 4) for known in objective.shardings
        )
        fits[zero] = objective.fits_memory(copies)
    assert fits == {0: False, 3: True}
    assert np.isfinite(fits[3])
