"""The flow engine: fair shares against a linear program, bytes that add up, links that fail and change."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.models.network.execution import Change, StalledError
from sim.models.network.execution.flows import Flow, compute_max_min_rates, simulate_transfers
from sim.models.network.fabrics import make_direct_fabric, make_fat_tree, make_ideal_switch
from sim.models.network.results.traces import make_flow_table, make_link_table

ROOT = Path(__file__).parents[4]


def successive_lp(paths, capacity):
    """Max-min rates by linear programs: raise the least rate, fix those that cannot rise further, go on."""
    linprog = pytest.importorskip("scipy.optimize").linprog
    flows = len(paths)
    usage = np.zeros((capacity.size, flows))
    for flow, path in enumerate(paths):
        usage[list(path), flow] = 1
    fixed = {}
    while len(fixed) < flows:
        rising = [flow for flow in range(flows) if flow not in fixed]
        room = capacity - sum(
            (usage[:, flow] * rate for flow, rate in fixed.items()), np.zeros(capacity.size)
        )
        level = -linprog([-1], A_ub=usage[:, rising].sum(axis=1)[:, None], b_ub=room).fun
        for flow in rising:  # the most this one can have while the others keep the level
            others = [other for other in rising if other != flow]
            most = -linprog(
                [-1],
                A_ub=usage[:, [flow]],
                b_ub=room - usage[:, others].sum(axis=1) * level,
                bounds=(0, None),
            ).fun
            if most <= level * (1 + 1e-7):
                fixed[flow] = level
    return np.array([fixed[flow] for flow in range(flows)])


@pytest.mark.long
def test_fair_rates_are_those_of_linear_programs():
    """500 random instances; most have flows of different rates."""
    random = np.random.default_rng(3)
    different = 0
    for _ in range(500):
        links, flows = random.integers(1, 5), random.integers(1, 6)
        capacity = random.integers(1, 40, links).astype(float)
        paths = [random.choice(links, random.integers(1, links + 1), replace=False) for _ in range(flows)]
        rates = compute_max_min_rates([tuple(path.tolist()) for path in paths], capacity)
        np.testing.assert_allclose(rates, successive_lp(paths, capacity), rtol=1e-6)
        different += rates.max() > rates.min() * 1.01
    assert different > 120


def test_a_flow_without_links_is_not_limited():
    assert compute_max_min_rates([(), (0,)], np.array([2.0])).tolist() == [np.inf, 2.0]


@pytest.mark.parametrize("path", [(0, 0), (1,), (-1,)])
def test_a_path_that_cannot_be_is_refused(path):
    with pytest.raises(ValueError, match=r"different links of 0\.\.0"):
        compute_max_min_rates([path], np.array([1.0]))


@pytest.mark.long
def test_every_byte_asked_for_is_carried_once_by_each_link_of_its_path():
    seen = Counter()

    @settings(max_examples=150, deadline=None)
    @given(st.data())
    def check(data):
        nodes = data.draw(st.integers(2, 6))
        fabric = make_fat_tree(nodes, 100.0, balance=data.draw(st.sampled_from(["hash", "spread"])))
        node = st.integers(0, nodes - 1)
        one = st.builds(Flow, node, node, st.integers(0, 10**9), st.floats(0, 0.02))
        flows = data.draw(st.lists(one, min_size=3, max_size=10))
        done = simulate_transfers(fabric, flows, trace=True)
        asked = np.zeros(fabric.link_count, dtype=np.int64)
        for number, flow in enumerate(flows):
            asked[list(fabric.find_path(flow.source, flow.target, number))] += flow.size_bytes
        assert done.link_bytes.tolist() == asked.tolist()
        table = make_link_table(done.execution)
        moved = table["rate_bps"] * (table["end_s"] - table["begin_s"]) / 8
        by_rate = np.bincount(table["link"], weights=moved, minlength=fabric.link_count)
        np.testing.assert_allclose(by_rate, asked, atol=0.5)  # sums of floats: half a byte in 10^9
        assert (table["rate_bps"] <= table["capacity_bps"] * (1 + 1e-9)).all()
        moving = [f for f in flows if f.source != f.target and f.size_bytes]
        assert sorted(make_flow_table(done.execution)["size_bytes"].tolist()) == sorted(
            f.size_bytes for f in moving
        )
        seen["shared link"] += len({f.source for f in moving}) < len(moving)
        seen["several rates"] += len(np.unique(table["rate_bps"].round())) > 1

    check()
    assert min(seen["shared link"], seen["several rates"]) >= 15, seen


def test_a_late_flow_halves_the_other():
    """8 Gbit/s is 1 GB/s: alone until 1 ms, then shared until 3 ms, then alone."""
    flows = [Flow(0, 1, 2_000_000), Flow(0, 2, 3_000_000, begin_s=1e-3)]
    assert simulate_transfers(make_ideal_switch(3, 8), flows).end_s == pytest.approx([3e-3, 5e-3], rel=1e-12)


def test_equal_flows_end_together():
    flows = [Flow(0, target, 1_000_003) for target in range(1, 12)]
    done = simulate_transfers(make_ideal_switch(12, 100), flows)
    assert np.ptp(done.end_s) == 0
    assert done.end_s[0] == pytest.approx(11 * 1_000_003 * 8 / 1e11, rel=1e-12)


def test_a_failed_link_holds_its_flows_until_it_lives_again():
    fabric = make_ideal_switch(2, 8)
    up = fabric.find_link(0, 2)
    changes = [Change(1e-3, up, 0.0), Change(5e-3, up, 4e9)]
    done = simulate_transfers(fabric, [Flow(0, 1, 2_000_000), Flow(1, 0, 2_000_000)], changes=changes)
    assert done.end_s == pytest.approx([7e-3, 2e-3])  # 1 MB at 1 GB/s, 4 ms dark, 1 MB at 0.5 GB/s
    assert done.link_bytes[up] == 2_000_000


def test_a_link_that_stays_dead_is_named():
    fabric = make_ideal_switch(2, 8)
    dead = Change(1e-3, fabric.find_link(0, 2), 0.0)
    with pytest.raises(StalledError, match=r"flow 0 -> 1 waits for link 0 \(0 -> 2\)"):
        simulate_transfers(fabric, [Flow(0, 1, 2_000_000)], changes=[dead])


def test_a_change_of_no_link_is_refused():
    with pytest.raises(ValueError, match=r"links 0\.\.3, not 4"):
        simulate_transfers(make_ideal_switch(2, 8), [Flow(0, 1, 1)], changes=[Change(0.0, 4, 1.0)])


def test_a_link_may_become_faster_than_it_was():
    fabric = make_fat_tree(16, 8)
    faster = [Change(0.0, link, 16e9) for link in (fabric.find_path(0, 15)[0], fabric.find_path(0, 15)[-1])]
    done = simulate_transfers(fabric, [Flow(0, 15, 2_000_000)], changes=faster)
    assert done.end_s == pytest.approx([1e-3])


def test_a_node_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"0\.\.1"):
        simulate_transfers(make_ideal_switch(2, 8), [Flow(0, 2, 1)])


def test_no_flows_take_no_time():
    assert simulate_transfers(make_ideal_switch(2, 8), []).end_s.size == 0


def test_parallel_links_add_up():
    fabric = make_direct_fabric(2, [(0, 1), (0, 1), (1, 0)], 8)
    assert simulate_transfers(fabric, [Flow(0, 1, 2_000_000)]).end_s == pytest.approx([1e-3])


def test_a_long_trace_is_emptied_on_the_way(monkeypatch):
    monkeypatch.setattr("sim.models.network.execution.simulation._TRACE_ROWS", 0)
    flows = [Flow(i % 5, (i + 1 + i % 3) % 5, 1000 * i, begin_s=i * 1e-6) for i in range(1, 60)]
    done = simulate_transfers(make_ideal_switch(5, 8), flows, trace=True)
    assert len(make_flow_table(done.execution)["task"]) == sum(flow.source != flow.target for flow in flows)
    table = make_link_table(done.execution)
    moved = table["rate_bps"] * (table["end_s"] - table["begin_s"]) / 8
    np.testing.assert_allclose(
        np.bincount(table["link"], weights=moved, minlength=10), done.link_bytes, atol=1e-3
    )


WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = None
import numpy as np
from lightbed import compiled
from sim.models.network.engine import loop
from sim.models.network.fabrics import make_fat_tree
from sim.models.network.execution.flows import Flow, simulate_transfers
assert not compiled.IS_AVAILABLE and not hasattr(loop.run, "py_func")
random = np.random.default_rng(5)
flows = [Flow(*random.integers(0, 16, 2).tolist(), int(random.integers(1, 10**8)), float(random.random() * 1e-3))
         for _ in range(200)]
done = simulate_transfers(make_fat_tree(16, 100, balance="hash", oversubscription=2), flows)
print(*(time.hex() for time in done.end_s.tolist()), *done.link_bytes.tolist())
"""


@pytest.mark.process
def test_with_and_without_numba_the_times_are_the_same():
    """One engine works out the rates a change reaches, the other all with numpy; 200 flows collide at random."""
    pytest.importorskip("numba")
    alone = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMBA], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert alone.stderr == ""
    random = np.random.default_rng(5)
    flows = [
        Flow(
            *random.integers(0, 16, 2).tolist(), int(random.integers(1, 10**8)), float(random.random() * 1e-3)
        )
        for _ in range(200)
    ]
    done = simulate_transfers(make_fat_tree(16, 100, balance="hash", oversubscription=2), flows)
    words = alone.stdout.split()
    np.testing.assert_allclose([float.fromhex(word) for word in words[:200]], done.end_s, rtol=1e-9)
    assert [int(word) for word in words[200:]] == done.link_bytes.tolist()
