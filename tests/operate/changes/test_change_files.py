"""Change files: written, read, refused when the lab is not as it was, and what they say is touched."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from ocs_drivers.model import Capabilities, CrossConnects
from testbed.errors import PlanFileError, PlanStale
from testbed.operate.change_file import (
    ObservedState,
    check_expected,
    make_change_document,
    observe_plan,
    parse_observed_state,
    read_change,
    write_change,
)
from testbed.operate.design import build_design, build_intent_design
from testbed.operate.durations import Durations
from testbed.operate.intent import TopologySource
from testbed.operate.plan import plan_lab
from testbed.operate.planned_change import HostedDesign, describe_effects, find_touched_elements
from testbed.operate.session import READING_METHODS, make_read_only

STATED = TopologySource("--simplex")


@pytest.fixture
def switch(memory_switch):
    return memory_switch()


@pytest.fixture
def simplex(testbed12):
    return build_design(testbed12, simplex=True)


@pytest.fixture
def planned(testbed12, switch, simplex):
    return plan_lab(testbed12, simplex.wiring, {"ocs1": switch})


@pytest.fixture
def change_file(testbed12, simplex, planned, tmp_path):
    path = tmp_path / "change.json"
    observed = observe_plan(planned, epochs=(3,), revision=testbed12.revision)
    document = make_change_document(testbed12, simplex, STATED, planned, observed)
    write_change(path, document | describe_effects(planned, (), Durations()))
    return path


def test_a_file_brings_back_the_design_and_the_state(change_file, testbed12, simplex, planned):
    change = read_change(change_file)
    lab, design = build_intent_design(testbed12, change.intent)
    assert (design.topology, design.wiring, design.routes) == (
        simplex.topology,
        simplex.wiring,
        simplex.routes,
    )
    assert [host.name for host in lab.hosts] == [host.name for host in testbed12.hosts]
    assert change.intent.topology_source == STATED
    now = observe_plan(planned, epochs=(3,), revision=testbed12.revision)
    assert change.observed_state == now
    change.check_current(planned, now)


@pytest.mark.parametrize(
    ("changed", "field", "values"),
    [
        ({"epochs": (4,)}, "epochs in force", ([3], [4])),
        ({"revision": "other"}, "lab file revision", (None, "other")),
        ({"lease_token": 7}, "lease token", (None, 7)),
    ],
)
def test_another_state_is_refused_with_the_field(change_file, testbed12, planned, changed, field, values):
    now = observe_plan(planned, epochs=(3,), revision=testbed12.revision)
    with pytest.raises(PlanStale, match="nothing was sent") as stale:
        read_change(change_file).check_current(planned, replace(now, **changed))
    (difference,) = stale.value.differences
    assert difference.field_name == field
    assert (difference.planned_value, difference.current_value) == (
        values[0] or testbed12.revision,
        values[1],
    ) or field == ("lease token")


def test_circuits_that_differ_are_named_one_by_one(change_file, testbed12, switch, simplex):
    switch.held = CrossConnects({1: 60, 5: 49})
    planned = plan_lab(testbed12, simplex.wiring, {"ocs1": switch})
    now = observe_plan(planned, epochs=(3,), revision=testbed12.revision)
    with pytest.raises(PlanStale) as stale:
        read_change(change_file).check_current(planned, now)
    assert [one.json() for one in stale.value.differences] == [
        {"field": "ocs1 input 1", "planned": None, "found": 60},
        {"field": "ocs1 input 5", "planned": None, "found": 49},
    ]


def test_other_steps_than_those_that_were_read_are_refused(change_file, testbed12, planned):
    """A driver of another release may do it in other steps: nobody has seen those."""
    (part,) = planned.switches
    other = replace(planned, switches=(replace(part, steps=part.steps * 2),))
    now = observe_plan(other, epochs=(3,), revision=testbed12.revision)
    with pytest.raises(PlanStale, match="ocs1 steps"):
        read_change(change_file).check_current(other, now)


def test_a_message_names_the_first_fields_and_counts_the_rest(planned):
    (many,) = ({"ocs1": {port: 48 + port for port in range(1, 21)}},)
    differences = ObservedState({}).find_differences(ObservedState(many))
    assert len(differences) == 20
    assert "; and 15 more; nothing was sent" in str(PlanStale("stale", differences=differences))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda text: text[:-20], "not JSON"),
        (lambda text: text.replace("lightbed change 1", "lightbed change 9"), "of this release"),
        (
            lambda text: text.replace('"take_over": false', '"take_over": true'),
            "was modified after it was written",
        ),
        (lambda _: "[]", "not a change file"),
    ],
)
def test_a_file_that_was_edited_or_is_another_is_refused(change_file, edit, message):
    change_file.write_text(edit(change_file.read_text()))
    with pytest.raises(PlanFileError, match=message):
        read_change(change_file)


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(OSError):
        write_change(tmp_path / "absent" / "change.json", {})
    assert list(tmp_path.iterdir()) == []


def test_a_state_survives_its_file(testbed12):
    state = ObservedState({"ocs1": {3: 51}, "ocs2": {}}, (1, 4), "abc", 9)
    assert parse_observed_state(json.loads(json.dumps(state.json()))) == state


def test_an_expected_revision_is_of_circuits_and_epochs():
    now = ObservedState({"ocs1": {1: 49}}, (3,))
    check_expected(now.fingerprint, now)
    for other in (ObservedState({"ocs1": {1: 50}}, (3,)), ObservedState({"ocs1": {1: 49}}, (4,))):
        with pytest.raises(PlanStale, match="revision: planned"):
            check_expected(now.fingerprint, other)


def test_every_element_is_listed_both_ends_and_hosts_that_forward(testbed12, planned, simplex):
    here = HostedDesign(testbed12, simplex)
    elements = find_touched_elements(testbed12, planned, (here,))
    by_kind = {kind: [one for one in elements if one.kind == kind] for kind in ("circuit", "nic", "host")}
    assert len(by_kind["circuit"]) == 48
    assert {one.touch for one in by_kind["circuit"]} == {"made"}
    ends = [(one.name, one.touch) for one in by_kind["nic"]]
    nics = [f"{host.name}/{nic.name}" for host in testbed12.hosts for nic in host.nics]
    assert sorted(ends) == sorted((nic, touch) for nic in nics for touch in ("transmits", "receives"))
    forwarding = {
        testbed12.hosts[hop.target.node].name
        for source, target in simplex.routes.first_link
        for hop in simplex.routes.path(source, target)[:-1]
    }
    assert {one.name for one in by_kind["host"]} == forwarding != set()
    assert [one.is_direct for one in elements] == [one.kind == "circuit" for one in elements]


def test_hosts_that_forward_over_a_changed_circuit_are_listed_and_those_that_receive_are_not(
    testbed12, memory_switch, simplex
):
    bulk = Capabilities(48, 48, bulk_add=True)
    first, *others = plan_lab(testbed12, simplex.wiring, {"ocs1": memory_switch()}).circuits
    held = CrossConnects({one.input_port: one.output_port for one in others})
    planned = plan_lab(testbed12, simplex.wiring, {"ocs1": memory_switch(capabilities=bulk, held=held)})
    ways = [simplex.routes.path(*pair) for pair in simplex.routes.first_link]
    over = [way for way in ways if first.link in way]
    forwarding = {testbed12.hosts[hop.target.node].name for way in over for hop in way[:-1]}
    later = {testbed12.hosts[hop.target.node].name for way in over for hop in way[1:]}
    elements = find_touched_elements(testbed12, planned, (HostedDesign(testbed12, simplex),))
    assert {one.name for one in elements if one.kind == "host"} == forwarding != later


def test_circuits_that_are_kept_but_disturbed_are_touched_too(testbed12, switch, simplex):
    """Two circuits are crossed; the switch takes whole configurations, so all others may lose light."""
    circuits = plan_lab(testbed12, simplex.wiring, {"ocs1": switch}).circuits
    held = {one.input_port: one.output_port for one in circuits}
    switch.held = CrossConnects(held | {1: held[2], 2: held[1]})
    planned = plan_lab(testbed12, simplex.wiring, {"ocs1": switch})
    touches = [one.touch for one in find_touched_elements(testbed12, planned, ()) if one.kind == "circuit"]
    assert [touches.count(touch) for touch in ("made", "removed", "disturbed")] == [2, 2, 46]


def test_packets_of_the_topology_before_count_too(testbed12, switch, simplex):
    circuits = plan_lab(testbed12, simplex.wiring, {"ocs1": switch}).circuits
    switch.held = CrossConnects({one.input_port: one.output_port for one in circuits})
    duplex = build_design(testbed12)
    planned = plan_lab(testbed12, duplex.wiring, {"ocs1": switch})
    alone, both = (
        find_touched_elements(testbed12, planned, standing)
        for standing in (
            [HostedDesign(testbed12, duplex)],
            [HostedDesign(testbed12, duplex), HostedDesign(testbed12, simplex)],
        )
    )
    reasons = [{one.name: one.reason for one in found if one.kind == "host"} for found in (alone, both)]
    assert reasons[0] != reasons[1]


def test_a_reader_has_no_method_that_writes(switch):
    from inspect import getmembers

    from ocs_drivers.contract import OpticalSwitch

    writing = {"execute", "apply", "connect", "disconnect", "set_attenuation", "shutter", "open", "close"}
    contract = {name for name, _ in getmembers(OpticalSwitch) if not name.startswith("_")}
    assert contract == writing | set(READING_METHODS)
    for name in set(READING_METHODS) - {"address", "capabilities"}:
        if not hasattr(switch, name):
            setattr(switch, name, len)
    reader = make_read_only(switch)
    assert [name for name in writing if hasattr(reader, name)] == []
    assert reader.read().connections == switch.held
