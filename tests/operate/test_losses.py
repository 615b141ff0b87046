"""What counts as a lost fibre, and what is done about it: by readings, and on a modelled lab with a real twin."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ocs_drivers.model import CrossConnects, Power, Snapshot
from testbed.cli.output import run_app
from testbed.design.model import Link, Nic
from testbed.design.plan_file import Plan, WorkloadChoice, write_plan
from testbed.design.repair import bought_pairs
from testbed.design.routes import find_routes
from testbed.design.topology import find_topology
from testbed.design.wiring import wire
from testbed.design.workloads.layout import Strategy
from testbed.lab.inventory import render_lab
from testbed.measure.store import RunStore
from testbed.operate.journal import Journal
from testbed.operate.light import SwitchReading
from testbed.operate.loss import Loss, judge_losses
from testbed.operate.model import Circuit
from testbed.operate.repair import carry_out, is_mended, look_at, plan_lab_repair
from testbed.operate.session import Design, LabSession, design_for

DARK, LIT = Power(-60.0, below_floor=True), Power(-2.0)
THERE, BACK = Link(Nic(0, 0), Nic(1, 0)), Link(Nic(1, 0), Nic(0, 0))
CIRCUITS = (Circuit(THERE, "ocs1", 1, 12), Circuit(BACK, "ocs1", 2, 11))


def judged(*, held=((1, 12), (2, 11)), power=(), dark=()):
    """The pair of circuits with these readings; monitors not named read light, dark NICs have no carrier."""
    readings = dict.fromkeys((1, 2, 11, 12), LIT) | dict(power)
    reading = SwitchReading(Snapshot(CrossConnects(dict(held)), 0.0), readings)
    carriers = {nic: nic not in dark for nic in (Nic(0, 0), Nic(1, 0))}
    return judge_losses(CIRCUITS, {"ocs1": reading}, carriers)


def test_a_lit_pair_has_lost_nothing():
    assert judged() == judge_losses((), {}, {})


def test_no_light_at_the_input_is_the_transmit_fibre_of_the_source_and_silences_the_way_back():
    sight = judged(power={1: DARK, 12: DARK}, dark=[Nic(1, 0)])
    assert sight.losses == (Loss(Nic(0, 0), "transmit", THERE),)
    assert (sight.dark, sight.unpatched) == ((THERE, BACK), ())


def test_light_that_leaves_and_does_not_arrive_is_the_receive_fibre_of_the_target():
    for monitors in ({}, dict.fromkeys((1, 2, 11, 12))):  # and without any monitor
        sight = judged(power=monitors, dark=[Nic(1, 0)])
        assert sight.losses == (Loss(Nic(1, 0), "receive", THERE),)
        assert (sight.dark, sight.unpatched) == ((THERE, BACK), ())


@pytest.mark.parametrize("fault", [{"held": ((2, 11),)}, {"power": {12: DARK}}], ids=["missing", "shuttered"])
def test_a_circuit_that_passes_nothing_is_no_lost_fibre(fault):
    sight = judged(dark=[Nic(1, 0)], **fault)
    assert (sight.losses, sight.unpatched) == ((), (CIRCUITS[0],))
    assert sight.dark == ()


def ring_and_pairs(*, simplex=False):
    """Rings of all nodes on two NICs, and two NICs for pairs three and six apart."""
    rings = find_topology(12, 2, simplex=simplex)
    pairs = [(node, (node + step) % 12) for step in (3, 6) for node in range(12)]
    if not simplex:  # the first half of each six joins the second
        pairs = [
            (one, other) for one, other in pairs if one < other and one % (2 * (other - one)) < other - one
        ]
        pairs += [(other, one) for one, other in pairs]
    topology = replace(rings, degree=4, edges=tuple(sorted((*rings.edges, *pairs))))
    wiring = wire(topology)
    assert len(wiring.links) == 48
    return Design("rings and pairs", topology, wiring, find_routes(wiring))


@pytest.fixture
def session(modelled, switches, tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        yield LabSession(modelled.lab, switches, None, journal)


@pytest.mark.parametrize("simplex", [False, True], ids=["duplex", "one-way"])
def test_a_lab_is_mended_once_and_stays_so_until_the_fibre_is_replaced(session, ask_twin, simplex):
    design, lab = ring_and_pairs(simplex=simplex), session.lab
    assert session.bring_up(design).verified.ok
    assert plan_lab_repair(lab, design, look_at(session, design)) is None
    ask_twin("cut", of="plant", fibre="c/nic1:transmit")
    try:
        planned = plan_lab_repair(lab, design, look_at(session, design))
        assert [(lab.nic_label(loss.nic), loss.fibre) for loss in planned.sight.losses] == [
            ("c/nic1", "transmit")
        ]
        assert not is_mended(session, planned)
        done = carry_out(session, planned)
        assert done.verified.findings == ()
        assert done.dark_s > 0
        again = plan_lab_repair(lab, design, look_at(session, design))
        assert is_mended(session, again)
        assert carry_out(session, again).verified.ok
    finally:
        ask_twin("uncut", of="plant", fibre="c/nic1:transmit")
    rings = find_topology(12, 2, simplex=simplex).edges
    mended = [(link.source.node, link.target.node) for link in planned.repatched.wiring.links]
    assert set(rings) <= set(mended)
    assert session.bring_up(design).verified.ok


def test_without_links_to_give_the_detour_is_all(session, ask_twin):
    design = design_for(session.lab)
    session.bring_up(design)
    assert bought_pairs(design.topology) == ()
    ask_twin("cut", of="plant", fibre="a/nic1:transmit")
    try:
        planned = plan_lab_repair(session.lab, design, look_at(session, design))
        done = carry_out(session, planned)
    finally:
        ask_twin("uncut", of="plant", fibre="a/nic1:transmit")
    assert (planned.repatched, done.verified, done.dark_s) == (None, None, 0.0)
    assert [len(detour.path) for detour in planned.repair.detours] == [3, 3]


def test_an_idle_nic_steps_in_before_any_link_is_given_up(session):
    topology = find_topology(12, 2)
    wiring = wire(topology)
    design = Design("narrow", topology, wiring, find_routes(wiring))
    lost = wiring.link_from[Nic(0, 0)]
    circuit = Circuit(lost, "ocs1", 1, 2)
    dark = SwitchReading(Snapshot(CrossConnects({1: 2}), 0.0), {1: DARK})
    planned = plan_lab_repair(session.lab, design, judge_losses((circuit,), {"ocs1": dark}, {}))
    assert planned.repair.remove == ()
    assert {nic for link in planned.repair.make for nic in link} == {Nic(0, 2), lost.target}


def test_the_command_says_what_is_lost_and_does_it_when_told(session, ask_twin, tmp_path, capsys):
    design = ring_and_pairs()
    session.bring_up(design)
    lab_file, plan_file = tmp_path / "lab.yaml", tmp_path / "plan.json"
    lab_file.write_text(render_lab(session.lab))
    write_plan(Plan(WorkloadChoice("pairs"), design.topology, 25.0, (), Strategy((), 1), {}), plan_file)
    asked = ["repair", str(lab_file), "--plan", str(plan_file), "--runs-dir", str(tmp_path / "runs")]

    def said(*more):
        code = run_app([*asked, *more])
        return code, capsys.readouterr().out

    ask_twin("cut", of="plant", fibre="a/nic1:transmit")
    try:
        code, lines = said()
        assert code == 2
        assert lines.startswith(
            "lost: the transmit fibre of a/nic1 at ocs1:1, for a/nic1 -> b/nic1\nat once: "
        )
        assert lines.endswith("the ring is closed by a link of its own again\n")
        code, document = said("--apply", "--json")
        done = json.loads(document)
        lost = {"nic": "a/nic1", "fibre": "transmit", "link": "a/nic1 -> b/nic1"}
        assert (code, done["lost"], done["mended"], len(done["remove"])) == (0, [lost], False, 2)
        assert done["repaired"]["verified"]["findings"] == []
        code, lines = said()
        assert (code, lines.splitlines()[-1]) == (
            2,
            "this has been done: when the fibre is replaced, `testbed apply`",
        )
    finally:
        ask_twin("uncut", of="plant", fibre="a/nic1:transmit")
    (phase,) = RunStore(tmp_path / "runs").load("last").phases
    assert (phase.name, phase.data["lost"]) == ("repair", [lost])
    assert phase.data["repatch_s"] >= phase.data["dark_s"] > 0
