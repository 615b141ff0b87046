import pytest

from testbed.design.topology.circulants import share_rings, split_degree
from testbed.design.topology.demand import AllReduceDemand, make_demand
from testbed.errors import TopologyError


def demand(allreduce, pairs, nodes=16):
    """Return `allreduce` and `pairs` bytes in all."""
    size = allreduce / (nodes * 2 * (nodes - 1) / nodes)
    return make_demand(nodes, [AllReduceDemand(nodes, size)], [(0, 1, pairs)])


@pytest.mark.parametrize(
    ("allreduce", "pairs", "degree", "one_way", "duplex"),
    [
        (1, 0, 4, (4, 0), (4, 0)),
        (0, 1, 4, (1, 3), (2, 2)),
        (1, 1, 4, (2, 2), (2, 2)),
        (3, 1, 4, (3, 1), (4, 0)),
        (1, 3, 8, (2, 6), (2, 6)),
        (1, 99, 8, (1, 7), (2, 6)),
        (5, 3, 8, (5, 3), (6, 2)),
        (1, 1, 3, (2, 1), (2, 1)),
        (9, 1, 3, (3, 0), (3, 0)),
        (0, 0, 4, (4, 0), (4, 0)),
    ],
)
def test_the_degree_is_split_by_bytes(allreduce, pairs, degree, one_way, duplex):
    """d_A = max(1, ceil(d * A / (A + M))); duplex rings take two NICs."""
    assert split_degree(demand(allreduce, pairs), degree, simplex=True) == one_way
    assert split_degree(demand(allreduce, pairs), degree, simplex=False) == duplex


def test_a_split_may_be_asked_for():
    assert split_degree(demand(1, 0), 4, simplex=False, matching_nic_count=2) == (2, 2)
    assert split_degree(demand(1, 0), 4, simplex=True, matching_nic_count=3) == (1, 3)


@pytest.mark.parametrize(("wanted", "simplex"), [(4, True), (-1, True), (4, False), (3, False), (1, False)])
def test_a_split_that_leaves_no_ring_is_refused(wanted, simplex):
    with pytest.raises(
        TopologyError, match=r"of 4 NICs for matchings leave . for rings, which need at least"
    ):
        split_degree(demand(1, 1), 4, simplex=simplex, matching_nic_count=wanted)


ROOMY = dict.fromkeys((2, 4, 8, 16), 8)


@pytest.mark.parametrize(
    ("weights", "rings", "published", "averages"),
    [
        ({16: 1.0}, 4, {16: 4}, {16: 4}),
        ({16: 3.0, 4: 1.0}, 4, {16: 3, 4: 1}, {16: 3, 4: 1}),
        ({4: 3.0, 16: 1.0}, 4, {4: 3, 16: 1}, {4: 3, 16: 1}),
        ({4: 3.0, 16: 1.0}, 2, {4: 2, 16: 0}, {4: 1, 16: 1}),  # published: the second group starves
        ({16: 5.0, 8: 3.0, 4: 2.0}, 8, {16: 4, 8: 3, 4: 1}, {16: 5, 8: 2, 4: 1}),  # a tie at 1.0
        ({16: 0.0}, 2, {16: 2}, {16: 2}),
    ],
)
def test_rings_are_shared_among_groups(weights, rings, published, averages):
    assert share_rings(rings, 16, weights, ROOMY, "published") == published
    assert share_rings(rings, 16, weights, ROOMY, "averages") == averages


def test_the_heaviest_group_gets_its_part_not_the_inverse():
    """The released code gave total/own instead of own/total."""
    shares = share_rings(8, 16, {16: 6.0, 4: 2.0}, ROOMY, "published")
    assert shares == {16: 6, 4: 2}


def test_an_unknown_rule_is_refused():
    with pytest.raises(TopologyError, match="choose 'averages' or 'published'"):
        share_rings(2, 16, {16: 1.0}, ROOMY, "largest")
