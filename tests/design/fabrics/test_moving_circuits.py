"""SiP-ML, MixNet and their controllers as fabrics: every workload runs, and circuits are where they may be."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.design.circuits import wavelengths
from testbed.design.evaluation.job import open_job
from testbed.design.evaluation.simulation import simulate_on
from testbed.design.fabrics.fabric_list import build_fabric
from testbed.design.fabrics.kind import FabricOptions, FabricRequest
from testbed.design.workloads.catalogue import MODELS
from testbed.design.workloads.choice import WorkloadChoice
from testbed.errors import TopologyError, WorkloadError

NEW = ("sip-ocs", "sip-ring", "mixnet")
DAILY = ("moe", "gpt")


def run(workload: str, fabric: str, nodes: int = 8, degree: int = 4, skew: float = 0.0, **options):
    settings = {"layers": "2"} if workload == "moe" else {}
    job = open_job(WorkloadChoice(workload, settings=settings, skew=skew), nodes)
    chosen = job.build_fabric(fabric, degree, 100.0, FabricOptions(fluid=True, **options))
    return chosen, simulate_on(chosen, job.graph)


@pytest.mark.slow
@pytest.mark.parametrize("fabric", NEW)
@pytest.mark.parametrize(
    "workload", [pytest.param(name, marks=() if name in DAILY else pytest.mark.long) for name in MODELS]
)
def test_every_workload_runs_on_every_fabric_of_circuits(workload, fabric):
    _, execution = run(workload, fabric)

    _, ideal = run(workload, "ideal", degree=4)
    assert execution.iteration_s >= ideal.iteration_s * 0.99  # one hop instead of two
    assert execution.payload_bytes == ideal.payload_bytes
    assert execution.received_bytes == execution.wire_bytes + execution.forwarded_bytes


def test_experts_have_circuits_and_all_else_uses_packets():
    chosen, execution = run("moe", "mixnet", nodes=16)
    pairs = execution.link_bytes[: 16**2].reshape(16, 16)

    assert execution.reconfiguration_count >= 1
    assert chosen.circuits.degree == 3
    regions = open_job(WorkloadChoice("moe", settings={"layers": "2"}), 16).regions
    inside = np.zeros((16, 16), dtype=bool)
    for region in regions:
        inside[np.ix_(region, region)] = True
    assert pairs[inside].sum() > 0
    assert pairs[~inside].sum() == 0


def test_without_experts_there_are_packets_alone():
    _, execution = run("dlrm", "mixnet")

    assert execution.reconfiguration_count == 0
    assert execution.link_bytes[: 8**2].sum() == 0


def test_a_packet_switch_between_hosts_of_several_gpus_does_not_forward():
    job = open_job(WorkloadChoice("gpt", settings={"layers": "2"}), 4, hb_domain=2)
    chosen = job.build_fabric("mixnet", 4, 100.0, FabricOptions(fluid=True, hb_domain=2))
    execution = simulate_on(chosen, job.graph)

    assert execution.received_bytes == execution.wire_bytes
    assert execution.forwarded_bytes == 0
    first, paths = chosen.fabric.find_routes(np.array([0]), np.array([7]), np.array([0]))
    assert chosen.fabric.count_relays(first, paths).tolist() == [0]


def test_popular_experts_move_circuits_of_mixnet():
    _, even = run("moe", "mixnet", nodes=16, reconfiguration_s=1e-6)
    _, uneven = run("moe", "mixnet", nodes=16, skew=1.0, reconfiguration_s=1e-6)

    assert uneven.reconfiguration_count > even.reconfiguration_count
    assert uneven.iteration_s > even.iteration_s


@pytest.mark.parametrize("fabric", NEW[:2])
def test_more_wavelengths_are_never_slower(fabric):
    times = [run("gpt", fabric, wavelengths=waves)[1].iteration_s for waves in (8, 16, 64)]

    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]


@pytest.mark.parametrize(
    ("fabric", "waves", "host_gbps"),
    [
        ("sip-ocs", 7, 175),
        ("sip-ring", 7, 150),
        ("sip-ocs", 0, 400),
        ("sip-ring", 0, 400),
        ("mixnet", 0, 400),
    ],
)
def test_a_host_has_the_rate_of_its_circuits_and_packets(fabric, waves, host_gbps):
    request = FabricRequest(fabric, 8, 4, 100.0, options=FabricOptions(wavelengths=waves))

    assert build_fabric(request).host_gbps == host_gbps


def test_a_controller_moves_circuits_of_any_fabric():
    moves = {
        controller: run("moe", "mixnet", skew=1.0, controller=controller)[1].reconfiguration_count
        for controller in ("once", "per-iteration", "every:50", "per-layer")
    }

    assert (moves["once"], moves["per-iteration"]) == (0, 1)
    assert min(moves["every:50"], moves["per-layer"]) > 1


@pytest.mark.parametrize(
    ("controller", "programmes"), [("per-iteration", 1), ("once", 1), ("per-layer", 0), ("every:50", 0)]
)
def test_circuits_that_move_often_are_rounded_without_integer_programming(
    monkeypatch, controller, programmes
):
    called = []
    monkeypatch.setattr(wavelengths, "_improve_exactly", lambda _, rounded: called.append(1) or rounded)

    _, execution = run("moe", "sip-ring", skew=1.0, controller=controller)

    assert execution.payload_bytes > 0
    assert len(called) == programmes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"controller": "sometimes"}, "choose once, every:MS, per-iteration or per-layer"),
        ({"controller": "once:3"}, "choose once, every:MS, per-iteration or per-layer"),
        ({"controller": "every:soon"}, "give the period in ms"),
        ({"controller": "every:0"}, "above 0 s"),
        ({"controller": "every:5"}, "choose a longer period"),
        ({"controller": "every:nan"}, "above 0 s"),
        ({"controller": "once", "hysteresis": 1.0}, "has no hysteresis"),
        ({"look_ahead": 1}, "choose per-layer"),
    ],
)
def test_controllers_that_cannot_be_are_refused(options, message):
    with pytest.raises(TopologyError, match=message):
        build_fabric(FabricRequest("circuits", 8, 4, 100.0, options=FabricOptions(**options)))


@pytest.mark.parametrize(
    ("fabric", "degree", "options", "message"),
    [
        ("sip-ring", 4, {"wavelengths": 3}, "needs 4 or more"),
        ("sip-ring", 4, {"wavelengths": 10**8}, "10000 or fewer"),
        ("mixnet", 1, {}, "2 links or more"),
    ],
)
def test_fabrics_that_cannot_be_are_refused(fabric, degree, options, message):
    with pytest.raises(TopologyError, match=message):
        build_fabric(FabricRequest(fabric, 8, degree, 100.0, options=FabricOptions(**options)))


def test_circuits_that_never_move_do_not_serve_an_all_to_all():
    with pytest.raises(WorkloadError, match="choose a controller that moves them more often"):
        run("dlrm", "sip-ocs", degree=2, controller="once")
