"""A plan as a job on hosts that are real to the kernel: links carry what the plan and the simulator say."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from libraries import skip_without
from needs import needs

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from sim.models.network.taskgraph import TaskGraphBuilder
from testbed.design.evaluation.host_job import make_host_job, make_host_scripts
from testbed.design.fabrics.direct import route_job
from testbed.design.model import Routes
from testbed.design.patching.wiring import make_wiring
from testbed.design.topology.circulants import find_topology
from testbed.errors import CollectiveError
from testbed.lab.inventory import load_lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.measure.plan_job import (
    LinkCount,
    RecordedJob,
    compute_payload,
    count_links_since,
    find_largest_deviation,
    find_last_job,
    run_on_hosts,
    run_plan,
    to_json,
)
from testbed.measure.results.store import RunStore
from testbed.operate.design import Design, lay_out, replace_routes
from testbed.operate.journal import Journal
from testbed.operate.session import open_lab

LAB = Path(__file__).parents[2] / "labs" / "testbed12.yaml"
HOSTS, NICS = 6, 3
PAYLOAD = 0.03


@pytest.fixture(scope="module")
@needs("kernel")
def session(tmp_path_factory):
    """Provide six hosts of three NICs with a topology in force."""
    whole, python = load_lab(LAB), str(Path(sys.executable).resolve())
    hosts = tuple(replace(host, nics=host.nics[:NICS], python=python) for host in whole.hosts[:HOSTS])
    lab = replace(whole, name=f"job-{os.getpid()}", hosts=hosts)
    with (
        start_lab(lab, hosts="kernel", may_move=True) as up,
        Journal(tmp_path_factory.mktemp("journal") / "journal.sqlite") as journal,
        open_lab(up.lab, journal) as opened,
    ):
        assert opened.bring_up(lay_out(up.lab, "job", find_topology(HOSTS, NICS))).verify_report.ok
        yield opened


def an_iteration(seed):
    """Return computing on every host, transfers of drawn sizes, and an AllReduce of all."""
    random, job = np.random.default_rng(seed), TaskGraphBuilder(HOSTS)
    last = [job.add_compute(host, 0.002) for host in range(HOSTS)]
    for _ in range(3):
        order = random.permutation(HOSTS).tolist()
        moved = [
            job.add_transfer(host, target, int(random.integers(10**6, 10**7)), predecessors=[last[host]])
            for host, target in enumerate(order)
            if host != target
        ]
    job.add_allreduce(tuple(range(HOSTS)), 10**7, predecessors=[*last, *moved])
    return job.build()


def planned(session, seed):
    """Return a drawn job, and its design with the routes installed."""
    design = lay_out(session.lab, f"job {seed}", find_topology(HOSTS, NICS))
    graph = an_iteration(seed)
    design = replace_routes(design, route_job(design.topology, graph, try_count=1))
    session.install_routes(design)
    return make_host_job(graph, design.route_sets, session.lab.link.rate_mbps, target_s=0.5), design


def check_payload(session, seed):
    job, design = planned(session, seed)
    done = run_on_hosts(session.fleet, session.lab, design.wiring, job, iterations=2)
    assert len(done.links) == len(design.wiring.links)
    for link in done.links:
        assert link.simulated_bytes == pytest.approx(link.planned_bytes, abs=100)
    assert find_largest_deviation(done.links) <= PAYLOAD, done.links
    return done


def test_links_carry_what_is_planned_and_simulated_and_verify_counts_it(session, tmp_path):
    done = check_payload(session, 0)
    assert done.measured_s >= 0.4
    store = RunStore(tmp_path)
    with store.begin_run(session.lab, True, "kernel", seeds={}) as run:
        run.add_phase("plan job", to_json(done, 4))
    record = find_last_job(store, session.lab.name, 4)
    assert record == RecordedJob(
        done.links, {nic: list(counts) for nic, counts in done.counters_before.items()}
    )
    assert find_last_job(store, session.lab.name, 5) is None
    assert find_largest_deviation(count_links_since(record, session.fleet, session.lab)) <= PAYLOAD


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 21))
def test_payload_is_within_three_parts_in_a_hundred_over_twenty_plans(session, seed):
    check_payload(session, seed)


def test_the_header_of_each_message_is_planned():
    """Of many short messages headers are a part of what links carry; the hosts send each part by its set of routes."""
    topology, job = find_topology(5, 2), TaskGraphBuilder(5)
    for target in (1, 1, 1, 2, 2):
        job.add_transfer(0, target, 100)
    graph = job.build()
    made = make_host_job(graph, route_job(topology, graph, try_count=1), 100.0, factor=1.0)
    passed = np.zeros(len(topology.edges), dtype=int)
    for host, part in enumerate(make_host_scripts(made)):
        for target, number, _ in (sent for task in part["tasks"] for sent in task["send"]):
            passed[list(made.routes.find_path(host, target, number))] += 1
    assert made.link_message_counts.tolist() == passed.tolist()
    assert passed.max() == 5


def test_bytes_that_were_sent_again_may_have_been_lost_before_a_link():
    """It then carried them once, as planned; only what more or less of them cannot explain is a difference."""
    link = LinkCount("a/nic1 -> b/nic1", 1000, 1000, 1000, 50)
    assert find_largest_deviation([link]) == 0
    assert find_largest_deviation([replace(link, counted_bytes=1050)]) == 0
    assert find_largest_deviation([replace(link, counted_bytes=900)]) == pytest.approx(0.1)


def test_a_job_needs_a_plan():
    bare = Design("bare", find_topology(4, 2), make_wiring(find_topology(4, 2)), Routes({}))
    with pytest.raises(CollectiveError, match="a job needs a plan"):
        run_plan(None, bare, None, iterations=1, iteration_s=1.0, factor=None, deadline_s=1.0)


def test_counters_that_began_again_count_nothing():
    assert compute_payload([5000, 50], [100, 1]) is None
    link = LinkCount("a/nic1 -> b/nic1", 1000, 1000, None, 0)
    assert find_largest_deviation([link]) is None
    assert find_largest_deviation(
        [replace(link, counted_bytes=1100, retransmitted_bytes=50)]
    ) == pytest.approx(0.05)
