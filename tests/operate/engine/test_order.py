"""Single-pair steps in an order that never takes a port twice, and keeps few circuits dark at a time."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocs_drivers.engine import planning
from ocs_drivers.model import Capabilities, CrossConnects
from testbed.operate.engine.order import order_steps

ONE_BY_ONE = Capabilities(8, 8)


def planned(before, after):
    return planning.plan(CrossConnects(after), CrossConnects(before), capabilities=ONE_BY_ONE)


def told(steps):
    return [
        f"{'-+'[step.kind == 'add']}{source}:{output}"
        for step in steps
        for source, output in step.pairs.items()
    ]


def most_dark(steps, after):
    """Return the largest number of wanted circuits that are dark at once, of those that were lit before."""
    lit = {source for source, _ in steps[0].before.items()} & set(after)
    return max(len(lit - set(step.after)) for step in steps)


def test_a_chain_begins_at_its_free_end():
    """1 goes to the free output 12, 2 to the output that 1 leaves, 3 to that of 2."""
    steps = order_steps(planned({1: 9, 2: 10, 3: 11}, {1: 12, 2: 9, 3: 10}))
    assert told(steps) == ["-1:9", "+1:12", "-2:10", "+2:9", "-3:11", "+3:10"]
    assert most_dark(steps, {1, 2, 3}) == 1


def test_the_cycle_of_a_permutation_is_broken_first():
    """Each of three goes where the next one is: one is broken, the others follow it round, it is made last."""
    steps = order_steps(planned({1: 9, 2: 10, 3: 11}, {1: 10, 2: 11, 3: 9}))
    assert told(steps) == ["-1:9", "-3:11", "+3:9", "-2:10", "+2:11", "+1:10"]
    assert most_dark(steps, {1, 2, 3}) == 2


def test_steps_of_many_pairs_are_the_device_s_own():
    bulk = Capabilities(8, 8, bulk_add=True)
    steps = planning.plan(CrossConnects({1: 10}), CrossConnects({1: 9}), capabilities=bulk)
    assert told(order_steps(steps)) == ["-1:9", "+1:10"]
    whole = Capabilities(8, 8, atomic_whole=True)
    (step,) = planning.plan(CrossConnects({1: 10}), CrossConnects({1: 9}), capabilities=whole)
    assert order_steps((step,)) == (step,)


partial_maps = st.permutations(range(9, 17)).flatmap(
    lambda outputs: st.sets(st.integers(1, 8)).map(
        lambda inputs: {source: outputs[source - 1] for source in sorted(inputs)}
    )
)


@pytest.mark.slow
def test_any_change_ends_where_it_should_and_takes_no_port_twice():
    seen: Counter[str] = Counter()

    @settings(max_examples=200)
    @given(partial_maps, partial_maps)
    def holds(before, after):
        steps = planned(before, after)
        found = order_steps(steps)
        assert Counter(map(str, told(found))) == Counter(map(str, told(steps)))
        held = CrossConnects(before)
        for step in found:
            assert step.before == held
            if step.kind == "add":  # CrossConnects itself refuses an output with two inputs
                ((source, output),) = step.pairs.items()
                assert source not in held
                assert output not in held.values()
            held = step.after
        assert held == CrossConnects(after)
        if found:
            assert most_dark(found, after) <= most_dark(steps, after)
            seen["shorter"] += most_dark(found, after) < most_dark(steps, after)
            seen["cycles"] += [step.kind for step in found[:2]] == ["remove", "remove"]

    holds()
    assert min(seen["shorter"], seen["cycles"]) >= 10, seen
