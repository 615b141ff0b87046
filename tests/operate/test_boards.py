"""Boards in plans and proofs: circuits that are kept, named, and judged. Nothing is asked of a device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from ocs_drivers.errors import PortBusy
from ocs_drivers.model import Capabilities, CrossConnects, Power, Snapshot
from testbed.design.patching.wiring import make_wiring
from testbed.design.topology.circulants import find_topology
from testbed.errors import TopologyError, VerifyFailed
from testbed.lab.inventory import load_lab
from testbed.lab.model import make_shard
from testbed.operate.attach import Attachment, attach, make_attachment_lab
from testbed.operate.boards import find_board_links, find_free_links
from testbed.operate.journal import Journal
from testbed.operate.light import SwitchReading, judge_circuits
from testbed.operate.plan import (
    describe_plan,
    find_port_owners,
    find_scope,
    list_circuits,
    list_used_ports,
    plan_lab,
)
from testbed.operate.proof.board_findings import judge_boards
from testbed.operate.repair import find_differences
from testbed.operate.session import LabSession

FOUR, THREE = make_wiring(find_topology(12, 4)), make_wiring(find_topology(12, 3))
AT_NIC4 = {4: 99, 49: 54}
"""Circuits of an attachment of a/nic4: to the board, and back."""


@pytest.fixture(scope="module")
def lab():
    return load_lab(Path(__file__).parents[2] / "labs" / "testbed12-board.yaml")


@pytest.fixture
def switch(memory_switch):
    return memory_switch(
        capabilities=Capabilities(50, 50, atomic_whole=True, bulk_add=True, power_monitor=True)
    )


def held_of(lab, wiring):
    return {one.input_port: one.output_port for one in list_circuits(lab, wiring)}


def test_ports_of_boards_have_names(lab):
    owners = find_port_owners(lab)
    assert (owners["ocs1", 49], owners["ocs1", 99]) == ("board1/port1", "board1/port1")
    assert 49 not in find_scope(lab, lab.switches[0])


def test_a_topology_that_leaves_the_nic_free_keeps_the_board(lab, switch):
    switch.held = CrossConnects(AT_NIC4)
    plan = plan_lab(lab, THREE, {"ocs1": switch})
    (part,) = plan.switches
    assert {pair for step in part.steps for pair in step.before.pairs - step.after.pairs} == set()
    assert part.steps[-1].after.pairs >= set(AT_NIC4.items())
    assert describe_plan(lab, plan)[-1].startswith(
        "ocs1: 36 to make, 0 to remove, 0 kept, 2 of others untouched"
    )


def test_a_topology_that_needs_the_nic_takes_it_back(lab, switch):
    switch.held = CrossConnects(AT_NIC4)
    lines = describe_plan(lab, plan_lab(lab, FOUR, {"ocs1": switch}))
    assert [line.split(maxsplit=5)[-1] for line in lines if line.startswith("-")] == [
        "a/nic4 -> board1/port1",
        "board1/port1 -> a/nic4",
    ]


@pytest.mark.parametrize("held", [{4: 99}, {49: 54}, {4: 99, 49: 98}])
def test_half_an_attachment_is_removed(lab, switch, held):
    """`testbed verify` reports it as an extra circuit, whose hint is `testbed apply`."""
    circuits = list_circuits(lab, THREE)
    planned = held_of(lab, THREE)
    switch.held = CrossConnects(planned | held)
    reading = SwitchReading(Snapshot(switch.held, 0.0), {})
    assert {one.kind for one in judge_circuits(lab, circuits, {"ocs1": reading})} == {"extra_circuit"}
    (part,) = plan_lab(lab, THREE, {"ocs1": switch}).switches
    left = part.steps[-1].after
    reading = SwitchReading(Snapshot(left, 0.0), {})
    assert list(judge_circuits(lab, circuits, {"ocs1": reading})) == []
    assert left.pairs >= set(planned.items())


def test_a_board_at_another_jobs_nic_is_not_ours(lab, switch):
    switch.held = CrossConnects(AT_NIC4)
    shard = make_shard(lab, ["b", "c", "d"])
    (part,) = plan_lab(shard, make_wiring(find_topology(3, 2)), {"ocs1": switch}).switches
    assert part.steps[-1].after.pairs >= set(AT_NIC4.items())


def test_an_attachment_changes_four_ports_and_what_lights_them(lab, switch):
    switch.held = CrossConnects(held_of(lab, FOUR))
    shard = make_attachment_lab(lab, Attachment("a", "nic4", "board1", "port1"))
    assert find_scope(shard, shard.switches[0]) == {4, 49}
    wiring = make_wiring(find_topology(2, 1))
    with pytest.raises(PortBusy):
        plan_lab(shard, wiring, {"ocs1": switch})
    plan = plan_lab(shard, wiring, {"ocs1": switch}, take_over=True)
    (part,) = plan.switches
    assert part.target == CrossConnects(AT_NIC4)
    lights_nic4 = CrossConnects(switch.held).inputs_by_output[54]
    removed = switch.held.pairs - part.steps[-1].after.pairs
    assert removed == {(4, switch.held[4]), (lights_nic4, 54)}


def test_an_attachment_is_journalled_and_reported(lab, switch, tmp_path):
    switch.held = CrossConnects(held_of(lab, FOUR))
    lines = []
    with Journal(tmp_path / "journal.sqlite") as journal:
        session = LabSession(lab, {"ocs1": switch}, None, journal)
        report = attach(session, Attachment("a", "nic4", "board1", "port1"), lines.append)
        again = attach(session, Attachment("a", "nic4", "board1", "port1"))
        (first, second) = (
            row for row in journal.read_steps(report.apply_result.operation) if row["change"] == "circuits"
        )
    assert switch.held.pairs >= set(AT_NIC4.items())
    assert [(one.input_port, one.output_port) for one in report.circuits] == [(4, 99), (49, 54)]
    assert report.replaced_labels == ("a/nic4 -> h/nic1", "h/nic1 -> a/nic4")
    assert (again.replaced_labels, again.dark_duration_s) == ((), 0.0)
    assert {first["state"], second["state"]} == {"verified"}
    assert lines[0] == "attach a/nic4 -> board1/port1: 2 circuits to remove"


def test_an_attachment_to_a_dark_board_is_an_error(lab, switch, tmp_path):
    switch.readings = {49: Power(-60.0, below_floor=True)}
    with Journal(tmp_path / "journal.sqlite") as journal:
        session = LabSession(lab, {"ocs1": switch}, None, journal)
        with pytest.raises(
            VerifyFailed, match="no light enters input 49 of ocs1: board1/port1 does not send"
        ):
            attach(session, Attachment("a", "nic4", "board1", "port1"))
    assert switch.held == CrossConnects(AT_NIC4)


@pytest.mark.parametrize(
    ("attachment", "message"),
    [
        (Attachment("m", "nic4", "board1", "port1"), "no host 'm'; hosts are a, b, c"),
        (Attachment("a", "nic5", "board1", "port1"), "host 'a' has no NIC 'nic5'; it has nic1, nic2"),
        (
            Attachment("a", "nic4", "board2", "port1"),
            "no port 'port1' of a board 'board2'; ports of boards are",
        ),
    ],
)
def test_unknown_names_are_refused(lab, attachment, message):
    with pytest.raises(TopologyError, match=message):
        make_attachment_lab(lab, attachment)


def test_links_are_those_with_circuits_in_both_directions(lab):
    (link,) = find_board_links(lab, {"ocs1": CrossConnects(AT_NIC4)})
    assert (link.host.name, link.nic.name, link.label) == ("a", "nic4", "board1/port1")
    assert link.pairs == {("ocs1", 4, 99), ("ocs1", 49, 54)}
    for held in ({}, {4: 99}, {49: 54}, {4: 99, 49: 53}):
        assert find_board_links(lab, {"ocs1": CrossConnects(held)}) == ()
    assert find_free_links([link], list_used_ports(list_circuits(lab, THREE))) == (link,)
    assert find_free_links([link], list_used_ports(list_circuits(lab, FOUR))) == ()


@pytest.mark.parametrize(
    ("wiring", "kinds"), [(THREE, []), (FOUR, ["missing_circuit"] * 2 + ["extra_circuit"] * 2)]
)
def test_circuits_to_boards_are_extra_only_at_nics_that_the_plan_needs(lab, wiring, kinds):
    circuits = list_circuits(lab, wiring)
    held = held_of(lab, wiring)
    taken = {source for source, output in held.items() if source == 4 or output == 54}
    held = {source: output for source, output in held.items() if source not in taken} | AT_NIC4
    reading = SwitchReading(Snapshot(CrossConnects(held), 0.0), {})
    assert [one.kind for one in judge_circuits(lab, circuits, {"ocs1": reading})] == kinds


def test_a_repair_does_not_mind_a_board_at_a_free_nic(lab):
    held = CrossConnects(held_of(lab, THREE) | AT_NIC4)
    assert find_differences(lab, THREE, {"ocs1": Snapshot(held, 0.0)}) == ()
    stray = CrossConnects(held_of(lab, THREE) | {4: 99})
    assert find_differences(lab, THREE, {"ocs1": Snapshot(stray, 0.0)}) == ("+a/nic4 -> board1/port1",)


@pytest.mark.parametrize(
    ("power", "answers", "told"),
    [
        (Power(-0.3), {"board1/port1": True}, None),
        (None, {}, None),
        (
            Power(-60.0, below_floor=True),
            {"board1/port1": False},
            ("board_dark", "no light enters input 49 of ocs1"),
        ),
        (Power(-0.3), {"board1/port1": False}, ("board_silent", "10.100.20.1 does not answer a")),
    ],
)
def test_a_board_is_judged_by_its_light_and_its_answer(lab, power, answers, told):
    links = find_board_links(lab, {"ocs1": CrossConnects(AT_NIC4)})
    reading = SwitchReading(Snapshot(CrossConnects(AT_NIC4), 0.0), {49: power})
    findings = [(one.kind, one.detail) for one in judge_boards(links, {"ocs1": reading}, answers)]
    assert len(findings) == (told is not None)
    assert all(kind == told[0] and detail.startswith(told[1]) for kind, detail in findings)


def test_a_board_outside_the_lab_is_no_part_of_a_plan(lab, switch):
    without = replace(lab, boards=())
    switch.held = CrossConnects(AT_NIC4)
    with pytest.raises(PortBusy):
        plan_lab(without, FOUR, {"ocs1": switch})
