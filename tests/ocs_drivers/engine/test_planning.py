"""Plans reach their target, touch nothing outside the scope, and break before they make."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocs_drivers.engine.planning import plan
from ocs_drivers.errors import PortBusy, PortError, UnknownPort, WrongSide
from ocs_drivers.model import Capabilities, CrossConnects, Snapshot

SIZE = 6
WHOLE = Capabilities(SIZE, SIZE, atomic_whole=True, bulk_add=True)
PIECEWISE = replace(WHOLE, atomic_whole=False)

configurations = st.lists(
    st.sampled_from([0, *range(SIZE + 1, 2 * SIZE + 1)]), min_size=SIZE, max_size=SIZE
).map(
    lambda outputs: CrossConnects(
        {
            source: output
            for source, output in enumerate(outputs, 1)
            if output and output not in outputs[: source - 1]
        }
    )
)
scopes = st.frozensets(st.integers(1, SIZE), max_size=SIZE - 1)


def after(steps, seen):
    """Return what the steps make of `seen`, each applied as its device would; outputs never double."""
    now = seen
    for step in steps:
        assert step.before == now
        if step.kind == "replace":
            now = step.pairs
        elif step.kind == "remove":
            assert step.pairs.pairs <= now.pairs
            now = CrossConnects(now.pairs - step.pairs.pairs)
        else:
            assert not set(step.pairs) & set(now)
            now = CrossConnects(now.pairs | step.pairs.pairs)
        assert step.after == now
    return now


@given(configurations, configurations, st.sampled_from([WHOLE, PIECEWISE]))
def test_whole_plans_reach_the_target(target, seen, capabilities):
    steps = plan(target, seen, capabilities=capabilities)
    assert after(steps, seen) == target
    assert (steps == ()) == (target == seen)
    assert [step.kind for step in steps] in ([], ["replace"], ["remove"], ["add"], ["remove", "add"])
    assert capabilities.atomic_whole == any(step.kind == "replace" for step in steps) or not steps


@pytest.mark.long
def test_scoped_plans_reach_the_target_or_name_the_peer():
    refused = made = 0

    @settings(max_examples=450)
    @given(configurations, configurations, scopes, st.sampled_from([WHOLE, PIECEWISE]))
    def check(wanted, seen, scope, capabilities):
        nonlocal refused, made
        target = CrossConnects({i: o for i, o in wanted.items() if i in scope})
        kept = {i: o for i, o in seen.items() if i not in scope}
        held = set(kept.values()) & set(target.values())
        if held:
            with pytest.raises(PortBusy) as caught:
                plan(target, seen, capabilities=capabilities, scope=scope)
            assert kept[caught.value.peer] in held & set(caught.value.ports)
            refused += 1
            return
        steps = plan(target, seen, capabilities=capabilities, scope=scope)
        assert after(steps, seen) == CrossConnects({**kept, **target})
        assert "replace" not in [step.kind for step in steps]
        made += bool(steps)

    check()
    assert refused >= 20
    assert made >= 40


@given(configurations, configurations)
def test_a_scope_of_all_inputs_is_the_whole_switch(target, seen):
    everything = range(1, SIZE + 1)
    assert plan(target, seen, capabilities=WHOLE, scope=everything) == plan(target, seen, capabilities=WHOLE)


def test_a_snapshot_is_as_good_as_its_connections():
    seen, target = CrossConnects({1: 7}), CrossConnects({1: 8})
    assert plan(target, Snapshot(seen, 0.0), capabilities=WHOLE) == plan(target, seen, capabilities=WHOLE)


@pytest.mark.parametrize(
    ("target", "scope", "error", "ports"),
    [
        ({1: 13}, None, UnknownPort, (13,)),
        ({0: 7}, None, UnknownPort, (0,)),
        ({1: 2}, None, WrongSide, (2,)),
        ({7: 8}, None, WrongSide, (7,)),
        ({1: 7}, {2}, PortError, (1,)),
        ({1: 7}, {1, 7}, WrongSide, (7,)),
        ({1: 7}, {1, 99}, UnknownPort, (99,)),
    ],
)
def test_a_target_that_cannot_be_right_is_refused(target, scope, error, ports):
    with pytest.raises(error) as caught:
        plan(CrossConnects(target), CrossConnects(), capabilities=WHOLE, scope=scope, device="x://y")
    assert type(caught.value) is error
    assert caught.value.ports == ports
    assert str(caught.value).startswith("x://y: ")
    assert "1..6" in str(caught.value) or caught.value.hint
