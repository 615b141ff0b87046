"""Random modules with everything the language has: RTL against the fast simulator, no difference allowed."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fpga.count_action.ports import ports_of
from fpga.hdl.cosimulation import bits_of, coverage, first_mismatch

pytestmark = pytest.mark.hdl

SMALL_TOPS, SMALL = range(200, 225), 8
"""For Icarus, which builds in no time and runs slowly."""
EPISODE = 2000
"""Cycles from one reset to the next: a count that has jumped over its target is dead until then."""
EPISODES, ENOUGH_EPISODES = 251, 26
"""A million cycles for the long lane, a hundred thousand for every day."""
SMALL_EPISODES, SMALL_EPISODE = 2, 400
CASES = (
    "fires",
    "stalls_at_fire",
    "commits_while_counting",
    "overshoots",
    "saturations",
    "several",
    "chained",
)
ENOUGH_FIRES, ENOUGH_OF_A_CASE = 5000, 100


@dataclass
class Tally:
    """Events of all episodes together."""

    cycles: int = 0
    mismatches: list[str] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)
    fired: set[str] = field(default_factory=set)

    def add(self, datapath, inputs, expected, actual):
        seen = coverage(datapath, inputs, expected)
        self.cycles += seen.cycles
        if found := first_mismatch(datapath, expected, actual):
            self.mismatches.append(f"{datapath.name}: cycle {found.cycle}, {', '.join(found.ports)}")
        for name in CASES:
            self.totals[name] = self.totals.get(name, 0) + getattr(seen, name)
        here = {f"{datapath.name}.{module.name}" for module in datapath.modules}
        self.modules |= here
        self.fired |= here - {f"{datapath.name}.{name}" for name in seen.silent}

    def assert_enough_happened(self, share_of_modules):
        assert len(self.modules) >= 200
        assert len(self.fired) >= share_of_modules * len(self.modules), sorted(self.modules - self.fired)
        assert self.totals["fires"] >= ENOUGH_FIRES
        assert {name: count for name, count in self.totals.items() if count < ENOUGH_OF_A_CASE} == {}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("episodes", "cycles"),
    [(ENOUGH_EPISODES, 100_000), pytest.param(EPISODES, 1_000_000, marks=pytest.mark.long)],
)
def test_verilator_equals_the_simulator(
    large_top, large_tops, simulator_of, random_datapaths, episodes, cycles
):
    tally = Tally()
    for place in large_tops:
        datapath, rtl = large_top(place)
        simulator = simulator_of(datapath)
        for seed in range(episodes):
            inputs = random_datapaths.constructive_stimulus(datapath, EPISODE, seed)
            rtl.reset()
            simulator.reset()
            tally.add(datapath, inputs, simulator.run(inputs), rtl.run(inputs))
    assert tally.mismatches == []
    assert tally.cycles >= cycles
    tally.assert_enough_happened(0.95)


@pytest.mark.timeout(600)
def test_icarus_equals_the_simulator(icarus, simulator_of, random_datapaths):
    tally = Tally()
    for place in SMALL_TOPS:
        datapath = random_datapaths.random_datapath(place, SMALL, f"small_{place}")
        simulator = simulator_of(datapath)
        stimuli = [
            random_datapaths.constructive_stimulus(datapath, SMALL_EPISODE, seed)
            for seed in range(SMALL_EPISODES)
        ]
        outputs = icarus.run(datapath, np.concatenate(stimuli), episode=SMALL_EPISODE)
        for inputs, rows in zip(stimuli, np.split(outputs, SMALL_EPISODES), strict=True):
            simulator.reset()
            tally.add(datapath, inputs, simulator.run(inputs), rows)
    assert tally.mismatches == []
    assert tally.cycles >= 20_000
    tally.assert_enough_happened(0.85)


@pytest.mark.timeout(300)
def test_any_small_datapath_under_icarus(icarus, simulate, random_datapaths):
    fires = []

    @settings(max_examples=30)
    @given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 200))
    def equal(seed, modules, cycles):
        datapath = random_datapaths.random_datapath(seed, modules)
        inputs = random_datapaths.constructive_stimulus(datapath, cycles, seed)
        expected = simulate(datapath, inputs)
        assert first_mismatch(datapath, expected, icarus.run(datapath, inputs)) is None
        fires.append(int(bits_of(expected, ports_of(datapath).output("fire_o")).sum()))

    equal()
    assert sum(fires) >= 200
