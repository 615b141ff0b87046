"""Buffers that are alive together never share a byte, and the plan is small."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning.compiler import memory_plan
from lightning.compiler.datapath.memory import ALIGNMENT, Buffer, find_buffers, plan_memory

lives = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 12), st.integers(0, 6)), min_size=1, max_size=14
).map(
    lambda rows: [
        Buffer((str(name),), size * ALIGNMENT, first, first + length)
        for name, (size, first, length) in enumerate(rows)
    ]
)
met = {"shared": 0, "as small as can be": 0, "all at once": 0}


def alive_at_once(plan):
    """Return the bytes alive at one time, at most: no plan can take less."""
    alive = (
        [each.size for each in plan.buffers if each.first <= time <= each.last]
        for time in {each.first for each in plan.buffers}
    )
    return max(map(sum, alive), default=0)


@pytest.mark.slow
@settings(max_examples=300)
@given(lives)
def test_buffers_that_are_alive_together_never_overlap(buffers):
    plan = plan_memory(buffers)
    assert sorted(each.tensors for each in plan.buffers) == sorted(each.tensors for each in buffers)
    for one, other in combinations(plan.buffers, 2):
        if one.overlaps(other):
            assert one.offset + one.size <= other.offset or other.offset + other.size <= one.offset
    assert alive_at_once(plan) <= plan.size_bytes <= plan.unshared_bytes
    met["shared"] += plan.size_bytes < plan.unshared_bytes
    met["as small as can be"] += plan.size_bytes == alive_at_once(plan) < plan.unshared_bytes
    met["all at once"] += len(buffers) > 2 and alive_at_once(plan) == plan.unshared_bytes


@pytest.mark.slow
def test_the_property_above_saw_plans_with_and_without_sharing():
    met.update(dict.fromkeys(met, 0))
    test_buffers_that_are_alive_together_never_overlap()
    assert min(met.values()) >= 5, met


def test_the_smallest_gap_that_is_large_enough_is_taken():
    held = [Buffer((name,), size, 0, 9) for name, size in (("a", 640), ("b", 576), ("c", 512), ("d", 448))]
    gone = [Buffer(("x",), 1000, 10, 12), Buffer(("y",), 448, 0, 3)]
    plan = {each.tensors[0]: each.offset for each in plan_memory([*held, *gone]).buffers}
    assert plan["x"] == 0
    assert plan == {"x": 0, "a": 0, "b": 640, "c": 1216, "d": 1728, "y": 2176}


def test_lives_in_a_network_with_a_branch(compiled_residual):
    plan = memory_plan(compiled_residual)
    lives = {each.tensors: (each.first, each.last, each.size) for each in plan.buffers}
    assert lives[("image",)] == (-1, 0, 320)
    assert lives[("r",)] == (1, 3, 576)
    assert lives[("w",)] == (2, 4, 256)
    assert lives[("p", "f")] == (5, 7, 64)
    assert lives[("answer",)] == (8, 9, 64)
    assert plan.size_bytes == alive_at_once(plan) == 1152


@pytest.mark.parametrize(("width", "size"), [(2, 64), (4, 64), (64, 1920)])
def test_sizes_are_rounded_up_to_whole_rows(chain, width, size):
    first = find_buffers(chain([[[1.0] * 30]]), width)[0]
    assert (first.tensors, first.size) == (("input",), max(size, -(-30 * width // 64) * 64))
