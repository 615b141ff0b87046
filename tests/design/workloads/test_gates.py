"""Traffic of gates: tokens are conserved, no skew is even, a seed repeats, more skew is never more even."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.design.workloads.gates import compute_expert_shares, draw_expert_traffic
from testbed.errors import WorkloadError

skews = st.floats(0, 4)


@st.composite
def groups(draw):
    """Draw experts, routed and members."""
    experts = draw(st.integers(1, 64))
    return experts, draw(st.integers(1, experts)), draw(st.integers(1, min(experts, 16)))


@given(groups(), st.integers(1, 10**6), skews, st.integers(0, 99), st.integers(0, 99), st.booleans())
def test_tokens_are_conserved_and_a_seed_repeats(group, tokens, skew, layer, seed, by_member):
    _, routed, members = group
    gate = {"skew": skew, "layer": layer, "seed": seed, "by_member": by_member}
    traffic = draw_expert_traffic(tokens, *group, **gate)

    assert traffic.shape == (members, members)
    assert (traffic >= 0).all()
    assert traffic.sum(axis=1) == pytest.approx(np.full(members, tokens * routed))
    again = draw_expert_traffic(tokens, *group, **gate, token_bytes=2.0)
    assert (again == 2 * traffic).all()


@given(groups(), skews)
def test_no_expert_gets_a_token_twice(group, skew):
    experts, routed, _ = group
    shares = compute_expert_shares(experts, routed, skew)

    assert shares.max() <= 1 + 1e-9
    assert shares.sum() == pytest.approx(routed)


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 9))
def test_without_skew_the_traffic_is_even(members, each, layer):
    traffic = draw_expert_traffic(100, members * each, 1, members, layer=layer)

    assert traffic == pytest.approx(np.full((members, members), 100 / members))


def test_popularity_follows_zipf_and_differs_by_layer_and_seed():
    one, other, reseeded = (
        compute_expert_shares(8, 2, 0.5, layer=layer, seed=seed) for layer, seed in ((0, 0), (1, 0), (0, 1))
    )

    assert sorted(one, reverse=True) == pytest.approx(one.max() * np.arange(1, 9) ** -0.5)
    assert sorted(one) == sorted(other) == sorted(reseeded)
    assert not (one == other).all()
    assert not (one == reseeded).all()


def test_members_prefer_the_same_experts_unless_each_has_its_own():
    common = draw_expert_traffic(100, 8, 2, 8, skew=1.0)
    own = draw_expert_traffic(100, 8, 2, 8, skew=1.0, by_member=True)

    assert (common == common[0]).all()
    assert (own[0] == common[0]).all()
    assert len({int(row.argmax()) for row in own}) > 1
    assert np.sort(own, axis=1) == pytest.approx(np.sort(common, axis=1))


def test_a_strong_skew_fills_experts_in_turn():
    assert sorted(compute_expert_shares(4, 2, 50.0)) == pytest.approx([0, 0, 1, 1], abs=1e-6)


def test_uneven_blocks_of_experts():
    """60 experts on 16 members: twelve members have four, four have three."""
    received = draw_expert_traffic(60, 60, 1, 16)[0]

    assert sorted(received) == pytest.approx([3] * 4 + [4] * 12)


@pytest.mark.parametrize(
    ("numbers", "settings", "message"),
    [
        ((10, 4, 5, 2), {}, "5 of 4 experts"),
        ((10, 4, 0, 2), {}, "0 of 4 experts"),
        ((10, 4, 2, 5), {}, "on 5 members"),
        ((0, 4, 2, 2), {}, "0 tokens"),
        ((10, 4, 2, 2), {"skew": -1.0}, "skew -1.0"),
    ],
)
def test_impossible_gates_are_refused(numbers, settings, message):
    with pytest.raises(WorkloadError, match=message):
        draw_expert_traffic(*numbers, **settings)
