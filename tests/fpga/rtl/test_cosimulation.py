"""Random modules with everything the language has: RTL against the fast simulator, no difference allowed."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fpga.count_action.ports import make_ports
from fpga.hdl.cosimulation import find_first_mismatch, measure_coverage, unpack_bits

pytestmark = pytest.mark.hdl

DAILY_SMALL_TOPS, SMALL_TOPS, SMALL = range(200, 206), range(200, 225), 8
"""For Icarus, which builds in no time and runs slowly."""
EPISODE = 2000
"""Cycles from one reset to the next: a count that has jumped over its target is dead until then."""
DAILY_EPISODES, EPISODES = 3, 251
"""A million cycles for the long lane, some thousand for every day."""
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


@dataclass
class Tally:
    """Events of all episodes together."""

    cycles: int = 0
    mismatches: list[str] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)
    fired: set[str] = field(default_factory=set)

    def add(self, datapath, inputs, expected, actual):
        seen = measure_coverage(datapath, inputs, expected)
        self.cycles += seen.cycles
        if found := find_first_mismatch(datapath, expected, actual):
            self.mismatches.append(f"{datapath.name}: cycle {found.cycle}, {', '.join(found.ports)}")
        for name in CASES:
            self.totals[name] = self.totals.get(name, 0) + getattr(seen, name)
        here = {f"{datapath.name}.{module.name}" for module in datapath.modules}
        self.modules |= here
        self.fired |= here - {f"{datapath.name}.{name}" for name in seen.silent}

    def assert_enough_happened(self, *, modules, fired, fires, of_each_case):
        """Check how much has happened; `fired` is a share of the modules."""
        assert len(self.modules) >= modules
        assert len(self.fired) >= fired * len(self.modules), sorted(self.modules - self.fired)
        assert self.totals["fires"] >= fires
        assert {name: count for name, count in self.totals.items() if count < of_each_case} == {}


@pytest.fixture
def verilated(verilated_top, simulator_of, random_datapaths):
    """Return a function that runs tops under Verilator and in the simulator."""

    def run(tops, episodes):
        tally = Tally()
        for seed, modules in tops.items():
            datapath, rtl = verilated_top(seed, modules)
            simulator = simulator_of(datapath)
            for episode in range(episodes):
                inputs = random_datapaths.constructive_stimulus(datapath, EPISODE, episode)
                rtl.reset()
                simulator.reset()
                tally.add(datapath, inputs, simulator.run(inputs), rtl.run(inputs))
        assert tally.mismatches == []
        return tally

    return run


@pytest.mark.translates
@pytest.mark.timeout(600)
def test_verilator_equals_the_simulator(verilated, daily_tops):
    tally = verilated(daily_tops, DAILY_EPISODES)
    assert tally.cycles >= 6000
    tally.assert_enough_happened(modules=24, fired=0.9, fires=1000, of_each_case=20)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_verilator_equals_the_simulator_for_a_million_cycles(verilated, large_tops):
    tally = verilated(large_tops, EPISODES)
    assert tally.cycles >= 1_000_000
    tally.assert_enough_happened(modules=200, fired=0.95, fires=5000, of_each_case=100)


@pytest.fixture
def under_icarus(icarus, simulator_of, random_datapaths):
    """Return a function that runs small tops under Icarus and in the simulator."""

    def run(tops):
        tally = Tally()
        for place in tops:
            datapath = random_datapaths.random_datapath(place, SMALL, f"small_{place}")
            simulator = simulator_of(datapath)
            stimuli = [
                random_datapaths.constructive_stimulus(datapath, SMALL_EPISODE, seed)
                for seed in range(SMALL_EPISODES)
            ]
            outputs = icarus.run(datapath, np.concatenate(stimuli), episode_cycles=SMALL_EPISODE)
            for inputs, rows in zip(stimuli, np.split(outputs, SMALL_EPISODES), strict=True):
                simulator.reset()
                tally.add(datapath, inputs, simulator.run(inputs), rows)
        assert tally.mismatches == []
        return tally

    return run


@pytest.mark.long
def test_icarus_equals_the_simulator(under_icarus):
    tally = under_icarus(DAILY_SMALL_TOPS)
    assert tally.cycles >= 4800
    tally.assert_enough_happened(modules=48, fired=0.8, fires=1000, of_each_case=15)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_icarus_equals_the_simulator_for_two_hundred_modules(under_icarus):
    tally = under_icarus(SMALL_TOPS)
    assert tally.cycles >= 20_000
    tally.assert_enough_happened(modules=200, fired=0.85, fires=5000, of_each_case=100)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_any_small_datapath_under_icarus(icarus, simulate, random_datapaths):
    fires = []

    @settings(max_examples=8)
    @given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 200))
    def equal(seed, modules, cycles):
        datapath = random_datapaths.random_datapath(seed, modules)
        inputs = random_datapaths.constructive_stimulus(datapath, cycles, seed)
        expected = simulate(datapath, inputs)
        assert find_first_mismatch(datapath, expected, icarus.run(datapath, inputs)) is None
        fires.append(int(unpack_bits(expected, make_ports(datapath).find_output("fire_o")).sum()))

    equal()
    assert sum(fires) >= 50
