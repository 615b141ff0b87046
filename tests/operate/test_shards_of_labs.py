"""Several jobs on one lab: each plan moves the circuits of its own hosts, and of nobody else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from ocs_drivers.errors import PortBusy
from testbed.design.patching.wiring import make_wiring
from testbed.design.plans.file import Plan
from testbed.design.topology.circulants import find_topology
from testbed.design.workloads.choice import WorkloadChoice
from testbed.design.workloads.sharding import Strategy
from testbed.errors import PlanFileError, TopologyError
from testbed.lab.model import make_shard
from testbed.operate.apply import apply_plan
from testbed.operate.design import build_plan_design, check_fits, find_plan_lab
from testbed.operate.journal import Journal
from testbed.operate.plan import describe_plan, list_circuits, plan_lab

FIRST, SECOND = tuple("abcdef"), tuple("ghijkl")


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        yield journal


def planned(hosts, *, degree=4, lab="testbed12"):
    """Return a plan for these hosts."""
    topology = find_topology(len(hosts), degree)
    return Plan(WorkloadChoice("job"), topology, 25.0, (), Strategy(()), {}, lab=lab, hosts=tuple(hosts))


def patch(lab, hosts, switch, journal, **options):
    """Apply the plan for these hosts; return the circuits that it made, as they are then."""
    plan = planned(hosts)
    here = find_plan_lab(lab, plan)
    laid = plan_lab(here, build_plan_design(here, plan).wiring, {"ocs1": switch}, **options)
    apply_plan(here, laid, {"ocs1": switch}, journal)
    return laid.switches[0].target.pairs


def test_the_second_job_leaves_the_circuits_of_the_first_untouched(testbed12, memory_switch, journal):
    switch = memory_switch()
    touched = []
    one = patch(testbed12, FIRST, switch, journal)
    switch.obey = lambda step: touched.append(step) or step.after
    two = patch(testbed12, SECOND, switch, journal)

    assert switch.held.pairs == one | two
    assert len(one) == len(two) == 24
    assert touched
    for step in touched:
        assert not (step.before.pairs ^ step.after.pairs) & one
        assert not step.disturbed & one


@given(st.sets(st.sampled_from([*FIRST, *SECOND]), min_size=5, max_size=7))
def test_jobs_on_any_hosts_share_no_port(testbed12, memory_switch, some):
    switch = memory_switch()
    ports = []
    for hosts in (sorted(some), [host.name for host in testbed12.hosts if host.name not in some]):
        plan = planned(hosts)
        here = find_plan_lab(testbed12, plan)
        made = plan_lab(here, build_plan_design(here, plan).wiring, {"ocs1": switch}).switches[0]
        ports.append({port for pair in made.target.pairs for port in pair})
        switch.held = made.steps[-1].after

    assert not ports[0] & ports[1]
    assert len(switch.held.pairs) == 48


def test_circuits_of_others_that_light_our_receivers_are_in_the_way(testbed12, memory_switch, journal):
    switch = memory_switch()
    whole = plan_lab(testbed12, make_wiring(find_topology(12, 4)), {"ocs1": switch})
    apply_plan(testbed12, whole, {"ocs1": switch}, journal)
    with pytest.raises(PortBusy):
        patch(testbed12, FIRST, switch, journal)

    held = switch.held.pairs
    ours = patch(testbed12, FIRST, switch, journal, take_over=True)

    assert ours <= switch.held.pairs
    outputs = range(49, 49 + 24)  # receivers of hosts a to f
    inputs = range(1, 25)
    kept = {pair for pair in held if pair[0] not in inputs and pair[1] not in outputs}
    assert switch.held.pairs == ours | kept
    assert kept


def test_a_plan_names_foreign_hosts_by_their_names(testbed12, memory_switch, journal):
    switch = memory_switch()
    whole = plan_lab(testbed12, make_wiring(find_topology(12, 4)), {"ocs1": switch})
    apply_plan(testbed12, whole, {"ocs1": switch}, journal)
    here = make_shard(testbed12, FIRST)
    laid = plan_lab(here, make_wiring(find_topology(6, 4)), {"ocs1": switch}, take_over=True)

    lines = describe_plan(here, laid)

    assert any(line.startswith("- ") and "l/nic" in line and " -> a/nic" in line for line in lines)
    assert "of others untouched" in lines[-1]


def test_hosts_of_a_plan_come_in_its_order(testbed12):
    here = find_plan_lab(testbed12, planned("fedcba"))

    assert [host.name for host in here.hosts] == list("fedcba")
    assert [host.name for host in here.other_hosts] == list("ghijkl")


def test_a_plan_without_a_lab_fits_any_of_its_size(testbed12):
    plan = replace(planned("abcdefghijkl", lab=""), hosts=())

    assert find_plan_lab(testbed12, plan) is testbed12


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (planned("abcdef", lab="other"), "for lab 'other', not for 'testbed12'"),
        (planned(["a", "b", "zz"], degree=2), "no host 'zz'"),
        (replace(planned("abcdef"), hosts=()), "6 hosts with 4 NICs, but lab 'testbed12' has 12 with 4"),
        (planned("abcdefg", degree=6), "7 hosts with 6 NICs"),
    ],
)
def test_a_plan_for_another_lab_is_refused(testbed12, plan, words):
    with pytest.raises(PlanFileError, match=words):
        find_plan_lab(testbed12, plan)


def a_switch_for_each_nic(lab):
    """Return the same hosts and ports, NIC i of each on switch i."""
    switches = tuple(replace(lab.switches[0], name=f"ocs{number}") for number in range(1, 5))

    def moved(host):
        pairs = zip(host.nics, switches, strict=True)
        return replace(host, nics=tuple(on(nic, switch.name) for nic, switch in pairs))

    def on(nic, switch):
        ends = {end: replace(getattr(nic, end), switch=switch) for end in ("transmit", "receive")}
        return replace(nic, **ends)

    return replace(lab, switches=switches, hosts=tuple(moved(host) for host in lab.hosts))


@pytest.mark.parametrize("degree", [2, 4])
def test_a_plan_of_fewer_links_takes_the_first_nics(testbed12, degree):
    for lab in (testbed12, a_switch_for_each_nic(testbed12)):
        check_fits(lab, degree)
        here = find_plan_lab(lab, planned("abcdefghijkl", degree=degree))
        wiring = build_plan_design(here, planned("abcdefghijkl", degree=degree)).wiring

        assert {circuit.switch for circuit in list_circuits(here, wiring)} == {
            switch.name for switch in lab.switches[:degree]
        }
        assert {end.index for link in wiring.links for end in link} == set(range(degree))


@pytest.mark.parametrize(
    ("hosts", "degree", "word"),
    [
        ("abcdef", 5, "hosts have 4 NICs, not 5: lower --degree"),
        ("abcde", 4, "an odd number cannot be paired"),
    ],
)
def test_what_a_lab_cannot_hold_is_told_before_a_search(testbed12, hosts, degree, word):
    lab = a_switch_for_each_nic(testbed12)

    with pytest.raises(TopologyError, match=word):
        check_fits(make_shard(lab, hosts), degree)
    check_fits(make_shard(lab, hosts[:1]), 4)


def test_a_job_names_each_host_once(testbed12):
    for names in ((), ("a", "a")):
        with pytest.raises(TopologyError, match="name each host of the job once"):
            make_shard(testbed12, names)
