"""Circuits of a wiring, plans for switches, and how a plan is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from ocs_drivers.model import CrossConnects
from testbed.design.patching.wiring import make_wiring
from testbed.design.topology.circulants import find_topology
from testbed.errors import TopologyError
from testbed.lab.model import FibreEnd
from testbed.operate.plan import (
    describe_plan,
    find_port_owners,
    find_scope,
    list_circuits,
    make_plan_json,
    plan_lab,
)

WIRING = make_wiring(find_topology(12, 4))


def test_every_link_becomes_one_circuit_between_its_own_ports(testbed12):
    circuits = list_circuits(testbed12, WIRING)
    assert len(circuits) == len(WIRING.links) == 48
    for circuit in circuits:
        source, target = circuit.link
        assert circuit.input_port == 4 * source.node + source.index + 1
        assert circuit.output_port == 48 + 4 * target.node + target.index + 1
    assert sorted(c.input_port for c in circuits) == list(range(1, 49))
    assert sorted(c.output_port for c in circuits) == list(range(49, 97))


def test_a_topology_with_more_nodes_than_hosts_is_refused(testbed12):
    with pytest.raises(
        TopologyError, match=r"testbed12.yaml: the topology has 13 nodes, lab 'testbed12' has 12 hosts"
    ):
        list_circuits(testbed12, make_wiring(find_topology(13, 4)))


def test_a_topology_with_more_links_than_nics_is_refused(testbed12):
    with pytest.raises(TopologyError, match="the topology has degree 6, host 'a' has 4 NICs; add NICs"):
        list_circuits(testbed12, make_wiring(find_topology(12, 6)))


def test_a_link_between_two_switches_is_refused(testbed12):
    host = testbed12.hosts[0]
    astray = replace(host.nics[0], transmit=FibreEnd("ocs2", 1, 0.3))
    lab = replace(testbed12, hosts=(replace(host, nics=(astray, *host.nics[1:])), *testbed12.hosts[1:]))
    with pytest.raises(
        TopologyError, match=r"link a/nic1 -> b/nic1 cannot be patched: .* ocs2:1 and ocs1:53"
    ):
        list_circuits(lab, WIRING)


def test_a_lab_that_feeds_every_input_owns_the_whole_switch(testbed12):
    assert find_scope(testbed12, testbed12.switches[0]) is None


def test_a_lab_on_part_of_a_switch_touches_its_own_inputs_only(testbed12, memory_switch):
    lab = replace(testbed12, hosts=testbed12.hosts[:4])
    assert find_scope(lab, lab.switches[0]) == frozenset(range(1, 17))
    switch = memory_switch(held=CrossConnects({40: 90, 1: 49}))
    plan = plan_lab(lab, make_wiring(find_topology(4, 2)), {"ocs1": switch})
    assert [step.kind for step in plan.switches[0].steps] == ["remove", "add"]
    assert plan.switches[0].steps[-1].after[40] == 90
    lines = describe_plan(lab, plan)
    assert lines[0] == "- ocs1    1 -> 49    a/nic1 -> a/nic1"
    assert lines[-1].startswith(
        "ocs1: 8 to make, 1 to remove, 0 kept, 1 of others untouched; 2 steps, about 0.04 s"
    )


def test_planning_reads_once_and_writes_nothing(testbed12, memory_switch):
    switch = memory_switch()
    plan = plan_lab(testbed12, WIRING, {"ocs1": switch})
    assert (switch.reads, switch.writes) == (1, 0)
    assert plan.has_changes
    assert [step.kind for step in plan.switches[0].steps] == ["replace"]


def test_a_plan_for_what_is_there_has_no_changes(testbed12, memory_switch):
    target = CrossConnects({c.input_port: c.output_port for c in list_circuits(testbed12, WIRING)})
    plan = plan_lab(testbed12, WIRING, {"ocs1": memory_switch(held=target)})
    assert not plan.has_changes
    assert describe_plan(testbed12, plan)[-1] == "ocs1: 0 to make, 0 to remove, 48 kept; nothing to do"
    assert describe_plan(testbed12, plan)[0] == "= ocs1    1 -> 53    a/nic1 -> b/nic1"


def test_a_replacement_says_that_kept_circuits_may_blink(testbed12, memory_switch):
    target = {c.input_port: c.output_port for c in list_circuits(testbed12, WIRING)}
    del target[1]
    plan = plan_lab(testbed12, WIRING, {"ocs1": memory_switch(held=CrossConnects(target))})
    lines = describe_plan(testbed12, plan)
    assert [line[0] for line in lines[:-1]] == ["+"] + ["="] * 47
    assert lines[-1].endswith("the 47 kept may lose light meanwhile")


def test_ports_of_nobody_are_named_by_number(testbed12, memory_switch):
    lab = replace(testbed12, hosts=testbed12.hosts[:2])
    plan = plan_lab(
        lab, make_wiring(find_topology(2, 1)), {"ocs1": memory_switch(held=CrossConnects({1: 90}))}
    )
    assert "- ocs1    1 -> 90    a/nic1 -> port 90" in describe_plan(lab, plan)


def test_every_port_of_the_lab_has_its_owner(testbed12):
    owners = find_port_owners(testbed12)
    assert len(owners) == 96
    assert (owners["ocs1", 1], owners["ocs1", 96]) == ("a/nic1", "l/nic4")


@pytest.mark.slow
@given(held=st.lists(st.integers(49, 96), unique=True, max_size=48), data=st.data())
def test_rows_and_json_tell_exactly_the_difference(testbed12, memory_switch, held, data):
    inputs = data.draw(st.permutations(range(1, 49)))
    switch = memory_switch(held=CrossConnects(dict(zip(inputs, held, strict=False))))
    plan = plan_lab(testbed12, WIRING, {"ocs1": switch})
    rows = make_plan_json(testbed12, plan)["switches"][0]["circuits"]
    now = {(row["input_port"], row["output_port"]) for row in rows if row["change"] != "make"}
    then = {(row["input_port"], row["output_port"]) for row in rows if row["change"] != "remove"}
    assert now == switch.held.pairs
    assert then == plan.switches[0].target.pairs
    assert len(describe_plan(testbed12, plan)) == len(rows) + 1
