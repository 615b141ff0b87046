"""Fabrics by name: what they cost and carry, and on which rings AllReduces run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sim.models.network.fabrics.cost import compute_fat_tree_cost, compute_patch_panel_cost
from sim.models.network.taskgraph import TaskGraphBuilder
from testbed.design.evaluation.comparison import COMPARED_FABRICS, compare_fabrics, parse_fabric_names
from testbed.design.evaluation.job import Job, open_job
from testbed.design.evaluation.simulation import compute_figures, read_graph, simulate_on
from testbed.design.fabrics.direct import build_direct_fabric, list_ring_strides
from testbed.design.fabrics.fabric_list import FABRICS, build_fabric, find_kind, has_gpu_nodes, is_switched
from testbed.design.fabrics.kind import DEFAULT_OPTIONS, FabricOptions, FabricRequest
from testbed.design.plans.file import Plan, write_plan
from testbed.design.plans.planning import Servers
from testbed.design.topology.circulants import find_topology
from testbed.design.topology.demand import AllReduceDemand, make_demand
from testbed.design.topology.finder import plan_topology
from testbed.design.workloads.choice import WorkloadChoice
from testbed.design.workloads.iteration.totals import sum_graph_traffic
from testbed.design.workloads.sharding import Strategy, make_data_sharding, make_placed_sharding
from testbed.errors import OutOfMemory, PlanFileError, TopologyError, WorkloadError

NODES, DEGREE, RATE = 12, 4, 100.0
COPIED = make_data_sharding(range(4))


def make_allreduce_graph(nodes: int = NODES, size: int = 100_000_000):
    job = TaskGraphBuilder(nodes)
    forward = job.add_compute(0, 1e-3)
    job.add_allreduce(tuple(range(nodes)), size, predecessors=[forward])
    return job.build()


@pytest.mark.parametrize("name", FABRICS)
def test_every_fabric_runs_a_job(name):
    chosen = build_fabric(FabricRequest(name, NODES, DEGREE, RATE))
    told = compute_figures(chosen, simulate_on(chosen, make_allreduce_graph()))

    ideal_ms = 1 + 2 * 11 / 12 * 100e6 * 8 / (DEGREE * RATE * 1e9) * 1e3
    assert told["iteration_ms"] >= ideal_ms
    assert told["compute_ms"] == pytest.approx(1.0)
    assert told["bandwidth_tax"] >= 1.0
    assert told["cost_usd"] > 0


@pytest.mark.parametrize("name", FABRICS)
def test_one_server_needs_no_network(name):
    chosen = build_fabric(FabricRequest(name, 1, DEGREE, RATE))

    assert simulate_on(chosen, make_allreduce_graph(1)).iteration_s == pytest.approx(1e-3)


def test_rings_on_links_of_their_own_are_as_fast_as_the_ideal_switch():
    graph = make_allreduce_graph()
    times = [
        simulate_on(build_fabric(FabricRequest(name, NODES, DEGREE, RATE)), graph).iteration_s
        for name in ("direct", "ideal")
    ]

    assert times[0] == pytest.approx(times[1], rel=0.15)


def test_a_fat_tree_of_equal_cost_costs_the_same_and_carries_less():
    cheap = build_fabric(FabricRequest("fattree", NODES, DEGREE, RATE, equal_cost=True))
    full = build_fabric(FabricRequest("fattree", NODES, DEGREE, RATE))

    assert cheap.fabric.cost.total_usd == pytest.approx(
        compute_patch_panel_cost(NODES, DEGREE, RATE).total_usd
    )
    assert full.fabric.cost == compute_fat_tree_cost(NODES, DEGREE * RATE)
    assert cheap.host_gbps < full.host_gbps == DEGREE * RATE


def test_direct_connect_is_made_for_its_demand():
    demand = make_demand(NODES, [AllReduceDemand(4, 1 << 30), AllReduceDemand(12, 1 << 20)])
    chosen = build_fabric(FabricRequest("direct", NODES, DEGREE, RATE, demand=demand))

    assert chosen.topology == plan_topology(demand, DEGREE).topology
    assert chosen.topology.strides == (1, 3)
    assert set(list_ring_strides(chosen.topology, range(12))) == {1, 11}
    assert set(list_ring_strides(chosen.topology, (1, 4, 7, 10))) == {1, 3}


def test_links_bought_for_pairs_are_links_of_the_fabric():
    demand = make_demand(6, [AllReduceDemand(6, 1 << 20)], [(0, 3, 1e9), (1, 4, 1e9), (2, 5, 1e9)])
    topology = plan_topology(demand, 3, matching_degree=1).topology
    fabric = build_direct_fabric(topology, RATE)

    assert {(0, 3), (3, 0), (1, 4)} <= set(topology.edges)
    assert fabric.find_path(0, 3) == (fabric.find_link(0, 3),)


@pytest.mark.parametrize("members", [(0, 1), (0, 1, 2), (3, 4, 8, 9), tuple(range(7))])
def test_groups_that_no_stride_joins_have_a_ring_each_way(members):
    strides = list_ring_strides(find_topology(NODES, DEGREE), members)

    assert strides == ((1,) if len(members) == 2 else (1, len(members) - 1))


def test_all_rounds_of_a_ring_may_flow_as_one():
    chosen = build_fabric(FabricRequest("direct", NODES, DEGREE, RATE))
    exact, merged = (simulate_on(one, make_allreduce_graph()) for one in (chosen, chosen.as_fluid()))

    assert merged.iteration_s == pytest.approx(exact.iteration_s, rel=1e-3)
    assert merged.event_count < exact.event_count


def test_a_planned_job_runs_as_its_planner_simulated_it_unless_told_otherwise():
    graph = make_allreduce_graph()
    free = Job("one", graph, sum_graph_traffic(graph), {})
    plan = Plan(WorkloadChoice("vgg16"), find_topology(NODES, DEGREE), RATE, (), Strategy(()), {})
    planned = replace(free, plan=plan)

    def events(fluid, job):
        return simulate_on(
            job.build_fabric("direct", DEGREE, RATE, FabricOptions(fluid=fluid)), graph
        ).event_count

    assert events(None, planned) == events(True, planned) < events(False, planned)
    assert events(True, free) < events(None, free) == events(False, free)


@pytest.mark.parametrize(
    ("name", "nodes", "degree", "word"),
    [
        ("cloud", 12, 4, "choose ideal, fattree"),
        ("direct", 5, 3, "odd"),
        ("expander", 5, 3, "even"),
        ("circuits", 12, 0, "degree"),
        ("ideal", 0, 1, "at least 1"),
    ],
)
def test_fabrics_that_cannot_be_are_named(name, nodes, degree, word):
    with pytest.raises(TopologyError, match=word):
        build_fabric(FabricRequest(name, nodes, degree, RATE))


def test_a_comparison_has_the_ideal_switch_for_its_measure():
    graph = make_allreduce_graph()
    job = Job("one", graph, sum_graph_traffic(graph), {})
    rows = compare_fabrics(job, parse_fabric_names("fattree-equal-cost,fattree,ideal,direct"), DEGREE, RATE)

    assert [row.name for row in rows] == ["fattree-equal-cost", "fattree", "ideal", "direct"]
    assert rows[2].slowdown == 1.0
    assert rows[0].slowdown > rows[1].slowdown >= 1.0
    assert (rows[0].basis, rows[1].basis) == ("cost", "rate")
    assert rows[0].figures["cost_usd"] == rows[3].figures["cost_usd"]


def test_a_fabric_that_cannot_be_is_a_row_that_says_why():
    graph = make_allreduce_graph(5)
    rows = compare_fabrics(
        Job("five", graph, sum_graph_traffic(graph), {}), parse_fabric_names("all"), 3, RATE
    )
    failed = {row.name: row for row in rows if row.failure}

    assert set(failed) == {"direct", "expander"}
    assert "odd" in failed["direct"].failure
    assert len(rows) == len([name for name in COMPARED_FABRICS if not has_gpu_nodes(name)])


def test_fabrics_to_compare_are_known_ones():
    with pytest.raises(TopologyError, match="unknown fabric 'x'"):
        parse_fabric_names("ideal,x")


def test_a_workload_is_a_job_with_its_memory():
    job = open_job(WorkloadChoice("vgg16", settings={"batch_per_device": "2"}), 3, "data")

    assert job.graph.node_count == 3
    assert job.about["batch"] == 2 * 4 * 3
    assert job.traffic.pairs.sum() == 0
    assert 0 < job.about["memory_bytes"] < job.about["memory_limit_bytes"]


def test_a_strategy_that_no_server_holds_is_told():
    with pytest.raises(OutOfMemory):
        open_job(WorkloadChoice("dlrm"), 4, "data")


@pytest.mark.parametrize(
    ("choice", "nodes", "strategy", "error", "word"),
    [
        (WorkloadChoice("x.npz"), 4, "", WorkloadError, "leave out"),
        (WorkloadChoice("x.npz", preset="fig11"), None, "", WorkloadError, "leave out"),
        (WorkloadChoice("vgg16", device="tpu"), 2, "", WorkloadError, "unknown device 'tpu'; known"),
        (WorkloadChoice("vgg17"), 2, "", WorkloadError, "vgg16"),
    ],
)
def test_jobs_that_cannot_be_are_named(choice, nodes, strategy, error, word):
    with pytest.raises(error, match=word):
        open_job(choice, nodes, strategy)


@pytest.fixture
def planned(tmp_path):
    """Return a function that writes a plan for VGG16 on 4 servers with 2 links, other in what is given; says where."""

    def write(sharding=COPIED, **changed):
        choice = WorkloadChoice("vgg16", "fig11", {"batch_per_device": "2"}, "a100-80gb")
        names = tuple(operator.name for operator in choice.make_workload(4).operators)
        strategy = Strategy((sharding,) * len(names))
        plan = Plan(choice, find_topology(4, 2), 7.0, names, strategy, {"iteration_ms": 1.0})
        write_plan(replace(plan, **changed), tmp_path / "p.json")
        return str(tmp_path / "p.json")

    return write


def test_a_plan_says_what_the_choice_leaves_out(planned):
    job = open_job(WorkloadChoice("vgg16"), None, planned())
    same = open_job(WorkloadChoice("vgg16", "fig11", {"batch_per_device": "2"}), 4, planned())
    elsewhere = open_job(WorkloadChoice("vgg16", device="a100"), None, planned())

    assert (job.about["batch"], job.about["device"]) == (2 * 4 * 4, "a100-80gb")
    assert job.about == same.about
    assert elsewhere.about == {**job.about, "device": "a100", "memory_limit_bytes": 160_000_000_000}
    assert (job.choose_degree(None, default_degree=4), job.choose_degree(2, default_degree=4)) == (2, 2)
    assert (job.choose_rate_gbps(None), job.choose_rate_gbps(5.0)) == (7.0, 5.0)
    with pytest.raises(PlanFileError, match="the plan is for 2 links per server, not 8: leave out --degree"):
        job.choose_degree(8, default_degree=4)


@pytest.mark.parametrize(
    ("choice", "word"),
    [
        (
            WorkloadChoice("vgg16", settings={"batch_per_device": "3"}),
            "the plan has --set batch_per_device 2, not 3",
        ),
        (WorkloadChoice("vgg16", settings={"batch": "3"}), "the plan has --set batch the default, not 3"),
        (WorkloadChoice("vgg16", "fig16"), "the plan has --preset fig11, not fig16"),
        (WorkloadChoice("resnet50"), r"vgg16 with \d+ operators on 4 servers, not for resnet50"),
    ],
)
def test_a_plan_is_for_its_own_job(planned, choice, word):
    with pytest.raises(PlanFileError, match=word):
        open_job(choice, None, planned())


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"topology": find_topology(6, 2)}, r"on 6 servers, not for vgg16:fig11 with \d+ operators on 4"),
        ({"sharding": make_placed_sharding([0])}, "laid out as place, it can be data"),
    ],
)
def test_a_plan_that_does_not_fit_its_workload_is_refused(planned, changed, word):
    with pytest.raises(PlanFileError, match=word):
        open_job(WorkloadChoice("vgg16"), 4, planned(**changed))


@pytest.mark.parametrize("rate", [0.0, -5.0, float("nan"), 1e300, 1e-300])
def test_a_rate_that_no_link_has_is_told(rate):
    graph = make_allreduce_graph()
    for name in FABRICS:
        with pytest.raises(TopologyError, match=r"Gbit/s: give 1e-06 to 1e\+06"):
            build_fabric(FabricRequest(name, NODES, DEGREE, rate))
    with pytest.raises(TopologyError, match="Gbit/s: give"):
        compare_fabrics(
            Job("one", graph, sum_graph_traffic(graph), {}), parse_fabric_names("direct"), DEGREE, rate
        )
    with pytest.raises(TopologyError, match="Gbit/s: give"):
        Servers(NODES, DEGREE, rate)


@pytest.mark.parametrize("name", sorted(set(FABRICS) - {"fattree"}))
def test_only_a_fat_tree_is_made_at_equal_cost(name):
    with pytest.raises(TopologyError, match="only a Fat-tree"):
        build_fabric(FabricRequest(name, NODES, DEGREE, RATE, equal_cost=True))


def test_a_host_has_the_links_of_its_topology():
    topology = find_topology(NODES, 2)

    assert build_fabric(FabricRequest("direct", NODES, 8, RATE, topology=topology)).host_gbps == 2 * RATE


def test_a_damaged_task_graph_is_named(tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"PK nothing")

    with pytest.raises(WorkloadError, match=r"bad\.npz"):
        read_graph(tmp_path / "bad.npz")


class ReadOptions:
    """Default options that note which of them are read."""

    def __init__(self):
        self.read = set()

    def __getattr__(self, name):
        self.read.add(name)
        return getattr(DEFAULT_OPTIONS, name)


@pytest.mark.parametrize("name", FABRICS)
def test_a_builder_reads_the_options_of_its_kind(name):
    options = ReadOptions()
    find_kind(name).build(FabricRequest(name, NODES, DEGREE, RATE, options=options))

    assert options.read == set(find_kind(name).option_names)


def test_the_page_has_the_sentence_of_every_fabric():
    page = (Path(__file__).parents[3] / "docs/reference/command-line.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `(\S+)` \| (.*) \|$", page.partition("### Fabrics")[2].partition("\n#")[0], re.MULTILINE
    )

    assert rows == [(name, find_kind(name).description) for name in FABRICS]
    assert sum(map(is_switched, FABRICS)) == 5
