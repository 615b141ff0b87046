"""The generator that all co-simulations share: what it makes is valid, repeatable, and does something."""

import numpy as np
import pytest

from fpga.count_action import ActionKind, CountKind, SignalKind, check, datapath_from_json
from fpga.hdl.cosimulation import measure_coverage


@pytest.mark.long
@pytest.mark.parametrize("modules", [1, 7, 50])
def test_datapaths_are_valid(generated, modules):
    for seed in range(12):
        datapath = generated.random_datapath(seed, modules)
        assert check(datapath) == ()
        assert len(datapath.modules) == modules
        assert datapath_from_json(datapath.to_json()) == datapath


def test_the_same_seed_gives_the_same(generated):
    first, second = (generated.random_datapath(4, 20) for _ in range(2))
    assert first == second
    inputs = [generated.constructive_stimulus(first, 100, 9) for _ in range(2)]
    assert np.array_equal(*inputs)
    assert generated.random_datapath(5, 20) != first


def test_everything_occurs(generated):
    datapaths = [generated.random_datapath(seed, 50) for seed in range(4)]
    actions = [action for datapath in datapaths for module in datapath.modules for action in module.actions]
    counts = [count for datapath in datapaths for _, count in datapath.list_counts()]
    formulas_alone = {ActionKind.STORE}  # random_formulas adds them
    assert {action.kind for action in actions} == set(ActionKind) - formulas_alone
    for kind, floor in ((ActionKind.MEMORY, 15), (ActionKind.READ, 10), (ActionKind.STORE_WORD, 10)):
        assert sum(action.kind is kind for action in actions) >= floor
    assert {count.kind for count in counts} == set(CountKind)
    assert {signal.kind for datapath in datapaths for signal in datapath.inputs} == set(SignalKind)
    assert sum(bool(count.gate) for count in counts) > 50
    assert sum(bool(count.constant) for count in counts) > 5
    assert sum(len(module.targets) < len(module.counts) for d in datapaths for module in d.modules) > 5
    assert any(len(count.terms) > 64 for count in counts), "more valid bits than a word has"
    assert any(action.shift and action.signed for action in actions)


@pytest.mark.long
@pytest.mark.slow
def test_nearly_every_module_fires(generated):
    from fpga.count_action.simulate import simulate

    pytest.importorskip("numba")
    datapath = generated.random_datapath(1, 50)
    inputs = generated.constructive_stimulus(datapath, 20_000, 1)
    seen = measure_coverage(datapath, inputs, simulate(datapath, inputs))
    assert len(seen.silent) <= 2
    assert seen.fires > 50_000
    assert min(seen.stalls_at_fire, seen.commits_while_counting, seen.overshoots, seen.saturations) > 100
    assert min(seen.several, seen.chained) > 1000
