"""Links of jobs on a topology, and what each policy makes of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("pydantic")

from testbed.design.sharing.cassini.schedule import Scheduler
from testbed.design.sharing.jobs import Burst, LabLinks, SharedJob
from testbed.errors import TopologyError
from testbed.lab.inventory import load_lab
from testbed.measure.sharing.agents import group_jobs_by_nic
from testbed.measure.sharing.policies import (
    Conditions,
    Schedule,
    convert_cassini_schedule,
    find_job_links,
    make_schedule,
    predict_jobs,
)
from testbed.operate.design import build_design


@cache
def lab12():
    return load_lab(Path(__file__).resolve().parents[3] / "labs" / "testbed12.yaml")


@cache
def wiring():
    return build_design(lab12()).wiring


def rate_gbps():
    return lab12().link.represents_gbps


def a_job(name: str, hosts: str, fraction: float = 0.5, traffic: str = "") -> SharedJob:
    burst = Burst(300 - 300 * fraction, 300 * fraction, rate_gbps())
    return SharedJob(name, 300.0, (burst,), tuple(hosts), len(hosts), traffic)


def placed(*jobs: SharedJob):
    return find_job_links(lab12(), wiring(), jobs, {job.name: job.hosts for job in jobs})


def test_jobs_on_the_same_two_hosts_send_on_one_link_in_one_direction():
    x, y = placed(a_job("x", "ab"), a_job("y", "ba"))

    assert (x.hosts, x.outgoing_links) == (y.hosts, y.outgoing_links)
    assert (x.step_count, len(x.links), x.outgoing_links[1]) == (1, 1, None)
    assert group_jobs_by_nic([x, y]) == {x.links[0].source: ["x", "y"]}


def test_an_allreduce_goes_round_its_hosts_in_parts():
    lab = replace(lab12(), hosts=lab12().hosts[:3])
    jobs = [a_job("r", "abc"), a_job("t", "ab", traffic="allreduce")]
    ring, two = find_job_links(lab, build_design(lab).wiring, jobs, {job.name: job.hosts for job in jobs})

    assert (ring.step_count, len(ring.links)) == (4, 3)
    assert [link.target.node for link in ring.links] == [1, 2, 0]
    assert (two.step_count, [link.target.node for link in two.links]) == (2, [1, 0])


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ("ag", "no circuits join the hosts of job 'x'"),
        ("a", "job 'x' sends nothing on a single host: give it at least two"),
    ],
)
def test_hosts_that_no_link_joins_are_named(hosts, words):
    joined = {(link.source.node, link.target.node) for link in wiring().links}
    assert (0, 6) not in joined
    with pytest.raises(TopologyError, match=words):
        placed(a_job("x", hosts))


def test_policies_have_queues_starts_and_slots():
    x, y = a_job("x", "ab"), a_job("y", "ab")
    shifted = Schedule({"x": 0.0, "y": 150.0}, {"x": 300.0, "y": 300.0})
    conditions = Conditions(weights={"y": 3.0})

    assert conditions.compute_shares("fair", ["x", "y"]) == [0.5, 0.5]
    assert conditions.compute_shares("weights", ["x", "y"]) == [0.25, 0.75]
    assert Conditions().compute_shares("weights", ["x", "y"]) == [0.75, 0.25]
    assert conditions.compute_shares("mltcp", ["x", "y"]) == []
    assert [conditions.choose_queue_length(policy) for policy in ("fair", "mltcp")] == [50, 16]
    assert [conditions.choose_transport(policy) for policy in ("fair", "mltcp")] == ["tcp", "udp"]
    held = make_schedule("shifts", [x, y], shifted, conditions)
    assert held.starts_ms["y"] == pytest.approx(154.5)
    assert held.slots_ms["x"] == pytest.approx(309.0)
    assert make_schedule("mltcp", [x, y], shifted, conditions).starts_ms == {"x": 0.0, "y": 3.0}
    assert make_schedule("fair", [x, y], shifted, conditions).slots_ms == {"x": 0.0, "y": 0.0}


@pytest.mark.parametrize(("fraction", "slot_ms"), [(0.5, 300.0), (0.7, 0.0)])
def test_jobs_that_cannot_hold_their_slots_hold_none(fraction, slot_ms):
    jobs = [a_job("x", "ab", fraction), a_job("y", "ab", fraction)]
    links = LabLinks(("a", "b"), rate_gbps())

    found = Scheduler(jobs, links).schedule([{"x": ("a", "b"), "y": ("a", "b")}])

    assert convert_cassini_schedule(found).slots_ms == {"x": slot_ms, "y": slot_ms}


@pytest.mark.parametrize(
    ("policy", "fraction", "means_ms"),
    [
        ("fair", 0.5, (450, 450)),
        ("shifts", 0.5, (309, 309)),
        ("weights", 0.7, (360, 600)),
        ("fair", 0.7, (510, 510)),
    ],
)
def test_predictions_of_policies(policy, fraction, means_ms):
    """Two jobs of 300 ms; at 0.7 weights of 3 to 1 give 1.20 and 2.00, fair 1.70 (the issue's model)."""
    jobs = [a_job("x", "ab", fraction), a_job("y", "ab", fraction)]
    conditions = Conditions(iterations=400)
    shifted = Schedule({"x": 0.0, "y": 150.0}, {"x": 300.0, "y": 300.0})
    schedule = make_schedule(policy, jobs, shifted, conditions)

    found = predict_jobs(policy, placed(*jobs), rate_gbps(), schedule, conditions)

    assert [one.mean_ms for one in found] == pytest.approx(means_ms, rel=0.02)
