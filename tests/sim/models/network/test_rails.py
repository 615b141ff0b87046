"""Domains of high bandwidth and rails: closed forms of collectives, conservation of bytes, one rail is a switch."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.models.network.allreduce import plan_rings
from sim.models.network.allreduce.domains import reduce_over_domains
from sim.models.network.allreduce.fluid import make_fluid
from sim.models.network.execution import simulate
from sim.models.network.execution.circuits import CircuitSwitch, Controller, simulate_circuits
from sim.models.network.fabrics import (
    join_domains,
    make_circulant,
    make_expander,
    make_fat_tree,
    make_ideal_switch,
    make_rail_only,
    make_rail_optimized,
    share_hosts,
)
from sim.models.network.latency import NO_LATENCY, Latency
from sim.models.network.taskgraph import TaskGraphBuilder

DOMAIN, DOMAINS, RAIL_GBPS, DOMAIN_GBPS = 4, 3, 200.0, 2400.0
GPUS = DOMAIN * DOMAINS

FABRICS = {
    "rail-only": make_rail_only(GPUS, DOMAIN, RAIL_GBPS, DOMAIN_GBPS),
    "rail-optimized": make_rail_optimized(GPUS, DOMAIN, RAIL_GBPS, DOMAIN_GBPS),
    "ideal with domains": join_domains(make_ideal_switch(GPUS, RAIL_GBPS), DOMAIN, DOMAIN_GBPS),
    "Fat-tree with domains": join_domains(make_fat_tree(GPUS, RAIL_GBPS), DOMAIN, DOMAIN_GBPS),
    "oversubscribed": make_fat_tree(GPUS, RAIL_GBPS, oversubscription=2),
    "hashed": make_fat_tree(GPUS, RAIL_GBPS, balance="hash"),
    "expander": make_expander(GPUS, 4, 50, seed=1),
    "expander of hosts": share_hosts(make_expander(6, 3, 50, seed=1), 2, DOMAIN_GBPS),
    "circulant of hosts": share_hosts(make_circulant(DOMAINS, (1,), 50), DOMAIN, DOMAIN_GBPS),
}


def all_to_all(gpus, size=100_000):
    job = TaskGraphBuilder(gpus)
    for source, target in product(range(gpus), repeat=2):
        if source != target:
            job.add_transfer(source, target, size)
    return job.build()


def seconds(graph, fabric, **options):
    return simulate(graph, fabric, latency=NO_LATENCY, **options).iteration_s


@pytest.mark.parametrize("name", FABRICS)
def test_paths_lead_from_source_to_target(name):
    fabric = FABRICS[name]
    for source, target in product(range(GPUS), repeat=2):
        path, at = fabric.find_path(source, target), source
        for link in path:
            assert fabric.sources[link] == at
            at = fabric.targets[link]
        assert at == target


@pytest.mark.parametrize("build", [make_rail_only, make_rail_optimized])
@pytest.mark.parametrize(("domain", "domains"), [(8, 4), (4, 8), (8, 2), (2, 2), (4, 1), (1, 4)])
@pytest.mark.parametrize("form", [lambda one: one, make_fluid])
def test_an_allreduce_takes_twice_the_published_all_gather(build, domain, domains, form):
    gpus, size = domain * domains, 8 * domain * domains * 1000
    job = TaskGraphBuilder(gpus)
    job.add_allreduce(tuple(range(gpus)), size)
    took_s = seconds(
        job.build(), build(gpus, domain, RAIL_GBPS, DOMAIN_GBPS), allreduce=form(reduce_over_domains(domain))
    )

    on_rail = (domains - 1) / gpus / RAIL_GBPS
    inside = (domain - 1) / domain / DOMAIN_GBPS
    assert took_s == pytest.approx(2 * size * 8e-9 * (on_rail + inside), rel=1e-9)


def test_groups_that_are_not_alike_in_their_domains_form_a_ring():
    members = (0, 1, 4, 6, 8)
    (own,), (plain,) = reduce_over_domains(DOMAIN)(members, 1000), plan_rings(members, 1000)

    assert (own[0].targets.tolist(), own[0].round_count) == (plain[0].targets.tolist(), plain[0].round_count)


def test_one_rail_is_full_bisection():
    graph = all_to_all(6)

    for build in (make_rail_only, make_rail_optimized):
        fabric = build(6, 1, RAIL_GBPS, DOMAIN_GBPS)
        assert seconds(graph, fabric) == pytest.approx(seconds(graph, make_ideal_switch(6, RAIL_GBPS)))


def test_messages_between_rails_are_forwarded_once_without_a_spine():
    graph = all_to_all(GPUS)
    kept, forwarded = (simulate(graph, FABRICS[name]) for name in ("rail-optimized", "rail-only"))

    crossing = GPUS * (GPUS - DOMAIN) * (DOMAIN - 1) // DOMAIN
    assert kept.forwarded_bytes == 0
    assert forwarded.forwarded_bytes == crossing * 12 * Latency().packet_bytes


def test_a_gpu_that_forwards_adds_its_latency():
    job = TaskGraphBuilder(GPUS)
    job.add_transfer(0, 5, 1000)
    graph, relay_s = job.build(), 1e-3
    direct, relayed = (
        simulate(graph, FABRICS["rail-only"], latency=Latency(relay_delay_s=each)).iteration_s
        for each in (0.0, relay_s)
    )

    assert relayed - direct == pytest.approx(4 * relay_s)


@st.composite
def jobs(draw):
    """Transfers and sums among nodes, some after others."""
    job = TaskGraphBuilder(GPUS)
    tasks: list[int] = []
    node = st.integers(0, GPUS - 1)
    for _ in range(draw(st.integers(1, 12))):
        after = draw(st.lists(st.sampled_from(tasks), max_size=2, unique=True)) if tasks else []
        size = draw(st.integers(0, 5_000_000))
        if draw(st.booleans()):
            tasks.append(job.add_transfer(draw(node), draw(node), size, predecessors=after))
        else:
            members = draw(st.lists(node, min_size=2, max_size=GPUS, unique=True))
            tasks.append(job.add_allreduce(tuple(members), size, predecessors=after))
    return job.build()


@settings(max_examples=60, deadline=None)
@given(jobs(), st.sampled_from(sorted(FABRICS)))
def test_bytes_are_kept_and_no_link_carries_more_than_it_can(graph, name):
    fabric = FABRICS[name]
    execution = simulate(graph, fabric, allreduce=reduce_over_domains(DOMAIN), trace=True)

    assert execution.received_bytes == execution.wire_bytes + execution.forwarded_bytes
    assert execution.forwarded_bytes >= 0
    rates = execution.trace.rates
    assert (rates[:, 2] <= fabric.capacity_bps[rates[:, 1].astype(int)] / 8 * (1 + 1e-9)).all()

    gained = np.bincount(fabric.targets, execution.link_bytes) - np.bincount(
        fabric.sources, execution.link_bytes
    )
    assert not gained[GPUS:].any()


@settings(max_examples=30, deadline=None)
@given(jobs(), st.booleans(), st.sampled_from([1, 2, 4]))
def test_moving_circuits_keep_bytes_and_count_their_moves(graph, forwarding, domain):
    switch = CircuitSwitch(
        GPUS // domain,
        3,
        100,
        Controller(period_s=2e-3),
        1e-3,
        forwarding,
        domain_size=domain,
        domain_gbps=DOMAIN_GBPS,
    )
    execution = simulate_circuits(graph, switch, allreduce=reduce_over_domains(domain))

    assert execution.received_bytes == execution.wire_bytes + execution.forwarded_bytes
    assert execution.outage_s <= min(execution.reconfiguration_count * 1e-3, execution.iteration_s) + 1e-12
    assert (
        execution.reconfiguration_count > 0
        or not execution.link_bytes[execution.fabric.capacity_bps == 0].any()
    )


def test_domains_must_divide_the_gpus():
    for build in (make_rail_only, make_rail_optimized):
        with pytest.raises(ValueError, match="10 GPUs cannot be divided into domains of 4"):
            build(10, 4, 100, 1000)
    with pytest.raises(ValueError, match="10 GPUs cannot be divided"):
        join_domains(make_ideal_switch(10, 100), 4, 1000)


def test_rails_cost_as_many_small_networks():
    with_spine, without = (FABRICS[name].cost for name in ("rail-optimized", "rail-only"))

    assert with_spine.total_usd == pytest.approx(without.total_usd)
    assert np.isfinite(without.total_usd)


def test_gpus_of_a_host_share_its_links_and_forward_between_hosts():
    """Hosts 0, 1, 2 in a one-way ring of 8 Gbit/s, two GPUs each: GPUs 0 and 1 send 1 GB to host 2 through host 1."""
    job = TaskGraphBuilder(6)
    for gpu in (0, 1):
        job.add_transfer(gpu, gpu + 4, 10**9)
    job.add_transfer(2, 3, 10**9)
    done = simulate(job.build(), share_hosts(make_circulant(3, (1,), 8), 2, 80), latency=NO_LATENCY)

    assert done.end_s == pytest.approx([2.0, 2.0, 0.1])
    assert (done.received_bytes, done.wire_bytes, done.forwarded_bytes) == (5 * 10**9, 3 * 10**9, 2 * 10**9)


@pytest.mark.parametrize("strides", [(1,), (1, 2)])
def test_an_allreduce_over_shared_hosts_takes_that_of_the_hosts_and_of_the_domains(strides):
    """Three hosts of four GPUs: each ring of hosts carries its part of the whole tensor, whatever the GPU."""
    job = TaskGraphBuilder(GPUS)
    job.add_allreduce(tuple(range(GPUS)), 12_000_000)
    fabric = share_hosts(make_circulant(DOMAINS, strides, 8), DOMAIN, 80)

    def rings(members, size):
        return plan_rings(members, size, strides=strides)

    took_s = seconds(job.build(), fabric, allreduce=reduce_over_domains(DOMAIN, rings))
    between = 2 * 12e6 * 2 / 3 * 8e-9 / 8 / len(strides)
    inside = 2 * 12e6 * 3 / 4 * 8e-9 / 80
    assert took_s == pytest.approx(between + inside, rel=1e-6)
