import math

import numpy as np
import pytest

from testbed.design.topology.demand import AllReduceDemand, make_demand, make_matrix_demand
from testbed.errors import DemandError, TopologyError


def test_pairs_are_added_up_and_sorted():
    demand = make_demand(
        4, [AllReduceDemand(4, 1000)], [(2, 1, 5), (0, 1, 3), (2, 1, 2), (3, 3, 9), (1, 0, 0)]
    )
    assert demand.source.tolist() == [0, 2]
    assert demand.target.tolist() == [1, 1]
    assert demand.size_bytes.tolist() == [3, 7]
    assert demand.pair_bytes == 10
    assert demand.allreduce_bytes == 4 * 1500


def test_a_matrix_says_the_same():
    matrix = [[0, 3, 0], [0, 7, 0], [2, 0, 0]]
    demand = make_matrix_demand(matrix)
    assert list(
        zip(demand.source.tolist(), demand.target.tolist(), demand.size_bytes.tolist(), strict=True)
    ) == [
        (0, 1, 3),
        (2, 0, 2),
    ]


NAN = math.nan
REFUSED = [
    (lambda: make_demand(4, [], [(0, 1, NAN)]), "from node 0 to node 1 is nan bytes"),
    (lambda: make_demand(4, [], [(0, 1, math.inf)]), "is inf bytes"),
    (lambda: make_demand(4, [], [(0, 1, -1)]), "is -1.0 bytes"),
    (lambda: make_demand(4, [], [(0, 4, 1)]), "there are nodes 0 to 3 only"),
    (lambda: make_demand(4, [], [(-1, 0, 1)]), "there are nodes 0 to 3 only"),
    (lambda: make_demand(0), "at least 1"),
    (
        lambda: make_demand(12, [AllReduceDemand(13, 1)]),
        "a group of 13 nodes in a job of 12: a group cannot be larger than the job",
    ),
    (lambda: make_demand(12, [AllReduceDemand(5, 1)]), "must divide 12"),
    (lambda: make_demand(13, [AllReduceDemand(6, 1)]), "must divide 13"),
    (lambda: make_demand(12, [AllReduceDemand(0, 1)]), "a group of 0 nodes"),
    (lambda: make_demand(12, [AllReduceDemand(12, NAN)]), "AllReduce of nan bytes"),
    (lambda: make_demand(12, [AllReduceDemand(12, -5)]), "AllReduce of -5 bytes"),
    (lambda: make_matrix_demand([[0, NAN], [0, 0]]), "from node 0 to node 1 is not a number"),
    (lambda: make_matrix_demand([[0, 1, 2], [0, 0, 1]]), "shape"),
    (lambda: make_matrix_demand(np.zeros((0, 0))), "shape"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_is_no_demand_is_refused(make, message):
    with pytest.raises(DemandError, match=message) as caught:
        make()
    assert isinstance(caught.value, TopologyError)
    assert (caught.value.code, caught.value.who) == ("topology.demand", "user")


def test_a_group_of_one_sends_nothing():
    assert make_demand(12, [AllReduceDemand(1, 10**9)]).allreduce == ()
    assert make_demand(1, [AllReduceDemand(1, 10**9)], [(0, 0, 5)]).pair_bytes == 0
