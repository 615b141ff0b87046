"""Lost fibres and their repair: by readings, and on a modelled lab with a real twin."""

from __future__ import annotations

import json

import pytest

from ocs_drivers.model import CrossConnects, Power, Snapshot
from testbed.cli.app import run_app
from testbed.design.model import Link, Nic
from testbed.design.patching.wiring import make_wiring
from testbed.design.plans.file import Plan, WorkloadChoice, write_plan
from testbed.design.repair import find_non_ring_pairs
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import find_topology
from testbed.design.workloads.sharding import Strategy, make_data_sharding
from testbed.lab.hosts.launch import CommandResult
from testbed.lab.inventory import render_lab
from testbed.measure.results.store import RunStore
from testbed.operate.design import Design, build_design
from testbed.operate.journal import Journal
from testbed.operate.light import Loss, SwitchReading, judge_losses, read_carriers
from testbed.operate.model import Circuit
from testbed.operate.plan import list_circuits
from testbed.operate.repair import carry_out, observe_design, plan_lab_repair
from testbed.operate.session import LabSession

DARK, LIT = Power(-60.0, below_floor=True), Power(-2.0)
THERE, BACK = Link(Nic(0, 0), Nic(1, 0)), Link(Nic(1, 0), Nic(0, 0))
CIRCUITS = (Circuit(THERE, "ocs1", 1, 12), Circuit(BACK, "ocs1", 2, 11))


def judged(*, held=((1, 12), (2, 11)), power=(), dark=()):
    """Return the pair of circuits with these readings; monitors not named read light, dark NICs have no carrier."""
    readings = dict.fromkeys((1, 2, 11, 12), LIT) | dict(power)
    reading = SwitchReading(Snapshot(CrossConnects(dict(held)), 0.0), readings)
    carriers = {nic: nic not in dark for nic in (Nic(0, 0), Nic(1, 0))}
    there = tuple(one for one in CIRCUITS if (one.input_port, one.output_port) in held)
    return judge_losses(CIRCUITS, there, {"ocs1": reading}, carriers)


class OneDarkNic:
    """Hosts whose kernels have carrier on all NICs of the command but the very first."""

    def __init__(self, lab):
        self.hosts = lab.hosts

    def run(self, commands):
        words = {
            host: ["1"] * command.partition(";")[0].count("/sys/class/net/")
            for host, command in commands.items()
        }
        words[next(iter(words))][0] = "0"
        return {host: CommandResult(host, 0, "\n".join(each), "") for host, each in words.items()}


def test_a_nic_receives_light_where_the_kernel_says_1(testbed12):
    carriers = read_carriers(OneDarkNic(testbed12), testbed12)
    assert len(carriers) == 48
    assert [nic for nic, is_lit in carriers.items() if not is_lit] == [Nic(0, 0)]


def test_a_lit_pair_has_lost_nothing():
    observation = judged()
    assert (observation.losses, observation.unpatched_circuits) == ((), ())
    assert observation.carrying_links == observation.held_links == {THERE, BACK}


def test_no_light_at_the_input_is_the_transmit_fibre_of_the_source_and_silences_the_way_back():
    observation = judged(power={1: DARK, 12: DARK}, dark=[Nic(1, 0)])
    assert observation.losses == (Loss(Nic(0, 0), "transmit", THERE),)
    assert (observation.carrying_links, observation.unpatched_circuits) == (frozenset(), ())


@pytest.mark.parametrize("monitors", [{}, {12: None}, {1: None}], ids=["both", "input", "output"])
def test_light_that_passes_and_does_not_arrive_is_the_receive_fibre_of_the_target(monitors):
    observation = judged(power=monitors, dark=[Nic(1, 0)])
    assert observation.losses == (Loss(Nic(1, 0), "receive", THERE),)
    assert (observation.carrying_links, observation.unpatched_circuits) == (frozenset(), ())


def test_without_a_monitor_neither_end_of_a_dark_link_is_trusted():
    observation = judged(power=dict.fromkeys((1, 2, 11, 12)), dark=[Nic(1, 0)])
    either = (
        Loss(Nic(0, 0), "transmit", THERE, is_certain=False),
        Loss(Nic(1, 0), "receive", THERE, is_certain=False),
    )
    assert (observation.losses, observation.unpatched_circuits) == (either, ())


def test_nothing_leaves_and_no_monitor_says_whether_light_enters():
    observation = judged(power={1: None, 12: DARK}, dark=[Nic(1, 0)])
    assert observation.losses == (Loss(Nic(0, 0), "transmit", THERE),)


@pytest.mark.parametrize("fault", [{"held": ((2, 11),)}, {"power": {12: DARK}}], ids=["missing", "shuttered"])
def test_a_circuit_that_passes_nothing_is_no_lost_fibre(fault):
    observation = judged(dark=[Nic(1, 0)], **fault)
    assert (observation.losses, observation.unpatched_circuits) == ((), (CIRCUITS[0],))
    assert observation.carrying_links == frozenset(), "the NIC in the dark does not send either"


@pytest.fixture
def session(modelled, switches, tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        yield LabSession(modelled.lab, switches, None, journal)


@pytest.mark.long
@pytest.mark.parametrize("simplex", [False, True], ids=["duplex", "one-way"])
def test_a_lab_is_repaired_once_and_stays_so_until_the_fibre_is_replaced(
    session, ask_twin, ring_and_pairs, simplex
):
    design, lab = ring_and_pairs(simplex=simplex), session.lab
    assert session.bring_up(design).verify_report.ok
    assert plan_lab_repair(lab, design, observe_design(session, design)) is None
    ask_twin("cut", of="plant", fibre="c/nic1:transmit")
    try:
        planned = plan_lab_repair(lab, design, observe_design(session, design))
        assert [(lab.nic_label(loss.nic), loss.lost_part) for loss in planned.observation.losses] == [
            ("c/nic1", "transmit")
        ]
        assert not planned.is_repaired
        done = carry_out(session, planned)
        assert done.verified.findings == ()
        assert done.outage_s > 0
        again = plan_lab_repair(lab, design, observe_design(session, design))
        assert again.is_repaired
        assert carry_out(session, again).verified.ok
    finally:
        ask_twin("uncut", of="plant", fibre="c/nic1:transmit")
    rings = find_topology(12, 2, simplex=simplex).edges
    repaired = [(link.source.node, link.target.node) for link in planned.repatched_design.wiring.links]
    assert set(rings) <= set(repaired)
    assert session.bring_up(design).verify_report.ok


def test_without_links_to_give_the_detour_is_all(session, ask_twin):
    design = build_design(session.lab)
    session.bring_up(design)
    assert find_non_ring_pairs(design.topology) == ()
    notes = []
    ask_twin("cut", of="plant", fibre="a/nic1:transmit")
    try:
        planned = plan_lab_repair(session.lab, design, observe_design(session, design))
        done = carry_out(session, planned, notes.append)
    finally:
        ask_twin("uncut", of="plant", fibre="a/nic1:transmit")
    assert (planned.repatched_design, done.outage_s) == (None, 0.0)
    assert (done.verified.circuits, done.verified.findings) == (46, ())
    assert notes == ["hosts are modelled: no routes", "verified: 0 findings on 46 remaining circuits"]
    assert [len(detour.path) for detour in planned.repair.detours] == [3, 3]


def test_an_idle_nic_steps_in_before_any_link_is_given_up(session):
    topology = find_topology(12, 2)
    wiring = make_wiring(topology)
    design = Design("narrow", topology, wiring, find_routes(wiring))
    lost = wiring.link_by_transmitter[Nic(0, 0)]
    held = list_circuits(session.lab, wiring)
    snapshot = Snapshot(CrossConnects({one.input_port: one.output_port for one in held}), 0.0)
    dark = SwitchReading(snapshot, {session.lab.get_nic(Nic(0, 0)).transmit.port: DARK})
    planned = plan_lab_repair(session.lab, design, judge_losses(held, held, {"ocs1": dark}, {}))
    assert planned.repair.removed_links == ()
    assert {nic for link in planned.repair.new_links for nic in link} == {Nic(0, 2), lost.target}


def test_the_command_says_what_is_lost_and_does_it_when_told(
    session, ask_twin, ring_and_pairs, tmp_path, capsys
):
    design = ring_and_pairs()
    session.bring_up(design)
    lab_file, plan_file = tmp_path / "lab.yaml", tmp_path / "plan.json"
    lab_file.write_text(render_lab(session.lab))
    strategy = Strategy((make_data_sharding(range(12)),), 1)
    write_plan(
        Plan(WorkloadChoice("pairs"), design.topology, 25.0, ("sum",), strategy, {"iteration_ms": 1.0}),
        plan_file,
    )
    asked = ["repair", str(lab_file), "--plan", str(plan_file), "--runs-dir", str(tmp_path / "runs")]

    def said(*more):
        code = run_app([*asked, *more])
        return code, capsys.readouterr().out

    ask_twin("cut", of="plant", fibre="a/nic1:transmit")
    try:
        code, lines = said()
        assert code == 2
        assert lines.startswith(
            f"named: --plan {plan_file}\n"
            "the plan has no routes: they are computed now; `testbed optimise` writes plans with routes\n"
            "lost: the transmit fibre of a/nic1 at ocs1:1, for a/nic1 -> b/nic1\nat once: "
        )
        assert lines.endswith("the ring is closed by a link of its own again\n")
        code, document = said("--apply", "--json")
        done = json.loads(document)
        lost = {"nic": "a/nic1", "fibre": "transmit", "link": "a/nic1 -> b/nic1", "sure": True}
        assert (code, done["lost"], done["repair_record"], len(done["remove"])) == (0, [lost], False, 2)
        assert done["repaired"]["outage_s"] > 0, "the name of the release before"
        assert done["repaired"]["verified"]["findings"] == []
        code, lines = said()
        assert (code, lines.splitlines()[-1]) == (
            2,
            "this repair is in force: after replacing the fibre, run `testbed apply --epoch 1`",
        )
        assert run_app(["verify", str(lab_file), *asked[-2:], "--json"]) == 0
        meant = json.loads(capsys.readouterr().out)
        assert (meant["epoch"], meant["findings"]) == (2, []), "the repaired topology is what is meant now"
        assert run_app(["repair", str(lab_file), *asked[-2:], "--json"]) == 2
        meant = json.loads(capsys.readouterr().out)
        assert (meant["epoch"], meant["repair_record"]) == (1, True), "repair means what was repaired"
        ask_twin("cut", of="plant", fibre="g/nic1:transmit")
        code, document = said("--apply", "--json")
        done = json.loads(document)
        assert (code, done["strange"], done["repair_record"]) == (0, [], False)
        assert {loss["nic"] for loss in done["lost"]} == {"a/nic1", "g/nic1"}
        assert done["repaired"]["verified"]["findings"] == []
        assert run_app([*asked[:-1], str(tmp_path / "elsewhere"), "--apply"]) == 0, (
            "it stands: no record needed"
        )
    finally:
        for fibre in ("a/nic1:transmit", "g/nic1:transmit"):
            ask_twin("uncut", of="plant", fibre=fibre)
    begun, phase = RunStore(tmp_path / "runs").load_run("last").phases
    assert (begun.name, begun.data["losses"][0]) == ("repair begun", lost)
    assert (phase.name, phase.data["lost"]) == ("repair", begun.data["losses"])
    assert phase.data["repatch_s"] >= phase.data["outage_s"] > 0
