"""The page on adding a fabric: its example works as the page says, in less than 100 lines."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from testbed.design.evaluation.job import Job
from testbed.design.evaluation.simulation import simulate_on
from testbed.design.fabrics import fabric_list
from testbed.design.fabrics.kind import FabricOptions
from testbed.design.workloads.iteration.totals import sum_graph_traffic

PAGE = Path(__file__).parents[3] / "docs/how-to/change/add-a-fabric.md"


@pytest.fixture
def two_switches(monkeypatch):
    code = PAGE.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    assert len(code.splitlines()) < 100
    module = ModuleType("testbed.design.fabrics.two_switches")
    exec(compile(code, str(PAGE), "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(fabric_list.FABRICS, "two-switches", "two_switches:TWO_SWITCHES")


def test_the_example_of_the_page_runs_and_its_cable_is_the_limit(two_switches):
    from sim.models.network.taskgraph import TaskGraphBuilder

    builder = TaskGraphBuilder(4)
    for source, target in ((0, 2), (1, 3), (0, 1)):
        builder.add_transfer(source, target, 10_000_000)
    graph = builder.build()
    job = Job("pairs", graph, sum_graph_traffic(graph), {})
    execution = simulate_on(job.build_fabric("two-switches", 1, 100, FabricOptions()), graph)

    assert fabric_list.is_switched("two-switches")
    assert execution.received_bytes == execution.wire_bytes
    assert execution.iteration_s == pytest.approx(1.6e-3, rel=0.05)
