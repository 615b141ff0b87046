"""Checkpoints to storage hosts: bytes per parameter, shares, times in closed form, and conservation on every fabric."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.models.network.latency import NO_LATENCY
from sim.models.network.taskgraph import TaskGraphBuilder
from testbed.design.evaluation.job import Job
from testbed.design.evaluation.simulation import simulate_on
from testbed.design.fabrics.fabric_list import FABRICS
from testbed.design.fabrics.kind import FabricOptions
from testbed.design.sharing import checkpoints
from testbed.design.sharing.checkpoints import Checkpoint, add_checkpoint_graphs, run_checkpoint
from testbed.design.workloads.catalogue import workload
from testbed.design.workloads.checkpoint import Storage, add_checkpoint, divide_checkpoint, divide_evenly
from testbed.design.workloads.choice import apply_savings
from testbed.design.workloads.iteration.totals import sum_graph_traffic
from testbed.design.workloads.roofline import Cluster
from testbed.design.workloads.strategies import make_named_strategy
from testbed.errors import WorkloadError

NODES, NICS = 4, 2
SERVERS = NODES * NICS
HALF_PRECISION_BYTES = {"weight": 2, "master copy": 4, "first moment": 4, "second moment": 4}


def computing_job(compute_s: float = 1e-3) -> Job:
    """Return a job whose nodes compute, and then each send 1 MB to the next."""
    job = TaskGraphBuilder(SERVERS)
    for node in range(SERVERS):
        job.add_transfer(node, (node + 1) % SERVERS, 10**6, predecessors=[job.add_compute(node, compute_s)])
    graph = job.build()
    return Job("ring", graph, sum_graph_traffic(graph), {})


def test_half_precision_with_adam_saves_14_bytes_a_parameter():
    gpt = workload("gpt", 4, layers=2)
    shares = divide_checkpoint(gpt, make_named_strategy("default", gpt, Cluster(4)), 4)

    assert sum(shares) == gpt.parameter_bytes // 2 * sum(HALF_PRECISION_BYTES.values())


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_zero_saves_the_same_bytes(zero):
    gpt = workload("gpt", 4, layers=2)
    saved = apply_savings(gpt, zero=zero)
    strategy = make_named_strategy("default", gpt, Cluster(4))

    assert divide_checkpoint(saved, strategy, 4) == divide_checkpoint(gpt, strategy, 4)


@pytest.mark.parametrize("strategy", ["data", "pipeline:2:4", "hybrid:2:2:2"])
def test_replicas_divide_what_they_hold_and_write_every_byte_once(strategy):
    gpt = workload("gpt", 8, layers=4)
    cluster = Cluster(8, devices_per_server=1, domain=4)
    shares = divide_checkpoint(gpt, make_named_strategy(strategy, gpt, cluster), 8)

    assert sum(shares) == gpt.parameter_bytes // 2 * 14
    assert min(shares) > 0
    if strategy == "data":
        assert max(shares) - min(shares) <= len(gpt.operators)


def test_a_served_model_has_nothing_to_save():
    served = workload("serve", 4)
    shares = divide_checkpoint(served, make_named_strategy("default", served, Cluster(4)), 4)

    with pytest.raises(WorkloadError, match="has nothing to save: it does not train"):
        add_checkpoint(computing_job().graph, (0,) * SERVERS, Storage(1), "blocking")
    assert set(shares) == {0}


def test_bytes_of_a_graph_must_be_given():
    job = computing_job()

    with pytest.raises(WorkloadError, match="of ring are not known: give --checkpoint-bytes"):
        add_checkpoint_graphs(job, Checkpoint(10, Storage(1)))
    with pytest.raises(WorkloadError, match="2 shares for 8 nodes"):
        add_checkpoint(job.graph, (1, 1), Storage(1), "blocking")


@pytest.mark.parametrize(("storage", "senders_per_link"), [(1, 8), (2, 4), (4, 2)])
def test_a_blocking_write_takes_its_bytes_over_the_links_of_the_storage_hosts(storage, senders_per_link):
    """On an ideal switch with 8 senders the storage hosts' links are the limit, one link each."""
    job, size = computing_job(), 80_000_000
    plain, writing = add_checkpoint_graphs(job, Checkpoint(10, Storage(storage), "blocking", size))
    fabric = plain.build_fabric("ideal", 1, 100.0, FabricOptions())
    plain_s, writing_s = (fabric.run(one.graph, latency=NO_LATENCY).iteration_s for one in (plain, writing))

    assert writing_s - plain_s == pytest.approx(senders_per_link * size / 8 * 8 / 100e9, rel=1e-6)


def run_on_ideal(job, checkpoint):
    """Return the run of a checkpoint on an ideal switch without latency."""
    fabric = add_checkpoint_graphs(job, checkpoint).baseline_job.build_fabric(
        "ideal", 1, 100.0, FabricOptions()
    )
    return run_checkpoint(job, checkpoint, lambda graph: fabric.run(graph, latency=NO_LATENCY))


def test_a_blocking_write_makes_one_iteration_longer():
    run = run_on_ideal(computing_job(), Checkpoint(10, Storage(2), "blocking", 80_000_000))

    assert run.write_s == pytest.approx(80_000_000 * 8 / 200e9)
    assert run.longest_s == pytest.approx(run.baseline_execution.iteration_s + run.write_s)
    assert run.mean_s == pytest.approx(run.baseline_execution.iteration_s + run.write_s / 10)


def test_an_overlapped_write_hides_behind_computation():
    run = run_on_ideal(computing_job(compute_s=0.1), Checkpoint(10, Storage(2), "overlapped", 80_000_000))

    assert (run.write_s, run.is_extrapolated) == (pytest.approx(3.2e-3), False)
    assert (run.longest_s, run.mean_s) == pytest.approx((run.baseline_execution.iteration_s,) * 2)


def test_the_next_checkpoint_waits_for_an_overlapped_write():
    """A write of 32 ms, and two iterations of 1.08 ms: the second takes until the end of the write."""
    run = run_on_ideal(computing_job(), Checkpoint(2, Storage(2), "overlapped", 800_000_000))

    assert run.write_s == pytest.approx(0.032)
    assert run.mean_s == pytest.approx(0.016)
    assert run.longest_s > 0.029


@pytest.mark.parametrize("every", [20, 40, 200])
def test_a_long_write_goes_on_at_the_progress_of_the_simulated_iterations(monkeypatch, every):
    """Simulated with 8 iterations, and with all: about 28 while 800 MB are written, of 1.08 ms or more."""
    checkpoint = Checkpoint(every, Storage(2), "overlapped", 800_000_000)
    run = run_on_ideal(computing_job(), checkpoint)
    monkeypatch.setattr(checkpoints, "MAX_WINDOW", 60)
    whole = run_on_ideal(computing_job(), checkpoint)

    assert (run.iteration_count, run.is_extrapolated, whole.is_extrapolated) == (8, True, False)
    assert run.mean_s == pytest.approx(whole.mean_s, rel=0.01)
    assert run.write_s == pytest.approx(whole.write_s, rel=0.03)
    assert whole.mean_s > whole.baseline_execution.iteration_s * (1.4 if every == 20 else 1.001)


def test_writes_stay_on_their_rails():
    graph = computing_job().graph
    written = add_checkpoint(graph, divide_evenly(10**6, SERVERS), Storage(2, NICS), "blocking")
    writes = written.target >= SERVERS

    assert (written.node_count, int(writes.sum())) == (SERVERS + 2 * NICS, SERVERS * 2)
    assert (written.source[writes] % NICS == written.target[writes] % NICS).all()


@pytest.mark.parametrize("name", FABRICS)
@settings(max_examples=12, deadline=None)
@given(
    count=st.integers(1, 3),
    mode=st.sampled_from(["blocking", "overlapped"]),
    shares=st.lists(st.integers(0, 3_000_000), min_size=SERVERS, max_size=SERVERS).filter(any),
)
def test_bytes_are_kept_on_every_fabric_and_each_is_written_once(name, count, mode, shares):
    job = replace(computing_job(1e-4), checkpoint=tuple(shares))
    plain, writing = add_checkpoint_graphs(job, Checkpoint(5, Storage(count, NICS), mode))
    of_gpus = name.startswith("rail")
    options = FabricOptions(hb_domain=NICS if of_gpus else 1, reconfiguration_s=1e-4)
    fabric = plain.build_fabric(name, 1 if of_gpus else 3, 100.0, options)
    without, execution = simulate_on(fabric, plain.graph), simulate_on(fabric, writing.graph)

    assert execution.received_bytes == execution.wire_bytes + execution.forwarded_bytes
    assert execution.payload_bytes - without.payload_bytes == sum(shares)
    if fabric.circuits is None and mode == "blocking":
        # Moving circuits follow the demand every 50 ms, so more demand may bring a circuit earlier.
        assert execution.iteration_s > without.iteration_s
