"""A repair moves nothing that was not meant: judged on readings of what the switches hold, and on a modelled lab."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from libraries import library

from ocs_drivers.model import CrossConnects, Power, Snapshot
from testbed.cli.app import run_app
from testbed.design.model import Nic
from testbed.design.patching.wiring import make_wiring
from testbed.design.plans.file import Plan, WorkloadChoice, plan_to_json, write_plan
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import find_topology
from testbed.design.topology.demand import make_matrix_demand
from testbed.design.workloads.sharding import Strategy, make_data_sharding
from testbed.errors import DriftError, TopologyError
from testbed.lab.inventory import render_lab
from testbed.operate.design import Design, build_design, load_design
from testbed.operate.intent import TopologySource
from testbed.operate.journal import Journal
from testbed.operate.light import SwitchReading, find_held_circuits, judge_losses
from testbed.operate.plan import list_circuits
from testbed.operate.repair import (
    RepairRecord,
    carry_out,
    describe_repair,
    describe_unpatched_circuits,
    observe_design,
    plan_lab_repair,
    reroute,
)
from testbed.operate.session import LabSession

balancing = library("testbed.design.routing.balancing")

FIBRES = ("transmit", "receive")
DARK, LIT = Power(-60.0, below_floor=True), Power(-2.0)


@pytest.fixture
def see(testbed12):
    """Return what a look would see of a design with these links patched and these fibres cut."""

    def look(design, held, cut, *, monitors=True):
        snapshot = Snapshot(
            CrossConnects(
                {
                    c.input_port: c.output_port
                    for c in list_circuits(testbed12, with_links(design, held).wiring)
                }
            ),
            0.0,
        )
        circuits = find_held_circuits(testbed12, {"ocs1": snapshot})
        assert {one.link for one in circuits} == set(held)
        source_of = {link.target: link.source for link in held}
        power, carriers = {}, {}
        for nic in (Nic(node, index) for node in range(12) for index in range(4)):
            source = source_of.get(nic)
            leaves = source is not None and (source, "transmit") not in cut
            power[testbed12.get_nic(nic).transmit.port] = DARK if (nic, "transmit") in cut else LIT
            power[testbed12.get_nic(nic).receive.port] = LIT if leaves else DARK
            carriers[nic] = leaves and (nic, "receive") not in cut
        reading = SwitchReading(snapshot, power if monitors else dict.fromkeys(power))
        planned = list_circuits(testbed12, design.wiring)
        return judge_losses(planned, circuits, {"ocs1": reading}, carriers)

    return look


def with_links(design, links):
    return replace(design, wiring=replace(design.wiring, degree=4, links=tuple(sorted(links))))


def ring_edges(links):
    return Counter(
        (link.source.node, link.target.node)
        for link in links
        if abs(link.source.node - link.target.node) in (1, 11)
    )


@pytest.mark.long
@pytest.mark.parametrize("monitors", [True, False], ids=["monitors", "no monitors"])
@pytest.mark.parametrize("simplex", [False, True], ids=["duplex", "one-way"])
@pytest.mark.parametrize("fibre", FIBRES)
def test_a_second_loss_is_repaired_from_what_the_first_repair_left(
    testbed12, ring_and_pairs, see, fibre, simplex, monitors
):
    design, seen = ring_and_pairs(simplex=simplex), Counter()
    rings = ring_edges(design.wiring.links)
    for first in (Nic(0, 0), Nic(5, 1), Nic(8, 2)):
        cut = {(first, fibre)}
        once = plan_lab_repair(testbed12, design, see(design, design.wiring.links, cut, monitors=monitors))
        assert not once.unexpected_circuits
        if once.repatched_design is None:
            continue
        record = RepairRecord.from_json(testbed12, json.loads(json.dumps(once.record.to_json(testbed12))))
        held = once.repatched_design.wiring.links
        assert not uses(held, cut)
        observation = see(design, held, cut, monitors=monitors)
        assert record.is_in_force(testbed12, design.wiring, observation.snapshots)
        again = plan_lab_repair(testbed12, design, observation, record)
        assert (again.is_repaired, again.repair.new_links, again.repair.removed_links) == (True, (), ())
        for second in (
            (Nic(node, index), other) for node in (1, 6, 7) for index in (0, 1) for other in FIBRES
        ):
            both = {*cut, second}
            observation = see(design, held, both, monitors=monitors)
            twice = plan_lab_repair(testbed12, design, observation, record)
            assert not twice.unexpected_circuits
            assert (
                set(twice.detour_design.routes.first_link.values()) <= observation.carrying_links <= set(held)
            )
            left = (
                twice.repatched_design.wiring.links if twice.repatched_design else observation.carrying_links
            )
            assert ring_edges(left) >= rings & ring_edges(observation.carrying_links), (
                "what works is not traded"
            )
            if twice.repatched_design and not twice.is_repaired:
                assert not uses(left, both), "dead NICs stay dead"
                seen["re-patched"] += 1
            seen["second losses"] += 1
    assert seen["second losses"] >= 24, seen
    assert seen["re-patched"] >= 12, seen


def uses(links, cut):
    """Return links that need a fibre that is cut."""
    return [one for one in links if (one.source, "transmit") in cut or (one.target, "receive") in cut]


def test_a_link_that_the_repair_made_is_missed_when_it_is_cut(testbed12, ring_and_pairs, see):
    design, cut = ring_and_pairs(), {(Nic(2, 0), "transmit")}
    once = plan_lab_repair(testbed12, design, see(design, design.wiring.links, cut))
    made = once.repair.new_links[0]
    both = {*cut, (made.target, "receive")}
    twice = plan_lab_repair(
        testbed12, design, see(design, once.repatched_design.wiring.links, both), once.record
    )
    assert made.target in {loss.nic for loss in twice.record.losses}
    assert not uses(twice.repatched_design.wiring.links, both)


def test_a_plan_is_repaired_with_all_its_sets_of_routes(testbed12, ring_and_pairs, see):
    random = np.random.default_rng(2)
    sent = make_matrix_demand(random.random((12, 12)) * (1 - np.eye(12)))
    design, cut = ring_and_pairs(), {(Nic(2, 0), "transmit")}
    observation = see(design, design.wiring.links, cut)
    planned = plan_lab_repair(
        testbed12,
        design,
        observation,
        choose_routes=lambda topology: balancing.find_balanced_routes(topology, sent, try_count=1),
    )
    for stage in (planned.detour_design, planned.repatched_design):
        assert len(stage.further_routes) == stage.route_sets.set_count - 1 == 3
        taken = {
            link for routes in (stage.routes, *stage.further_routes) for link in routes.first_link.values()
        }
        assert taken <= set(stage.wiring.links)
        assert not uses(taken, cut)
        assert len(stage.routes.first_link) == 12 * 11
        assert stage.further_routes[0].first_link


@pytest.mark.slow
def test_a_repaired_epoch_has_routes_for_its_own_links(testbed12, ring_and_pairs, see, monkeypatch):
    """The plan is the one before the repair: its routes may lead over what is lost."""
    design = ring_and_pairs()
    observation = see(design, design.wiring.links, {(Nic(2, 0), "transmit")})
    repaired = plan_lab_repair(testbed12, design, observation).repatched_design
    strategy = Strategy((make_data_sharding(range(12)),), 1)
    plan = Plan(WorkloadChoice("job"), design.topology, 25.0, ("sum",), strategy, {"iteration_ms": 1.0})
    everybody = make_matrix_demand(1.0 - np.eye(12))
    monkeypatch.setattr(
        "testbed.design.evaluation.job.find_routes_for",
        lambda _plan, topology: balancing.find_balanced_routes(topology, everybody),
    )
    topology_source = TopologySource("repair of epoch 1", json.dumps(plan_to_json(plan)), repaired_epoch=1)
    intent = SimpleNamespace(
        name="job", topology=repaired.topology, wiring=repaired.wiring, topology_source=topology_source
    )
    found = load_design(intent)
    assert found.route_sets.topology == repaired.topology
    assert len(found.further_routes) == 3


def test_a_record_counts_for_its_own_topology_and_only_while_its_circuits_stand(
    testbed12, ring_and_pairs, see
):
    design, other, cut = ring_and_pairs(), build_design(testbed12), {(Nic(2, 0), "receive")}
    once = plan_lab_repair(testbed12, design, see(design, design.wiring.links, cut))
    held = once.repatched_design.wiring.links
    assert once.record.is_in_force(testbed12, design.wiring, see(design, held, cut).snapshots)
    assert not once.record.is_in_force(testbed12, design.wiring, see(design, held[2:], cut).snapshots)
    assert not once.record.is_in_force(testbed12, other.wiring, see(other, held, cut).snapshots)
    renamed = json.loads(json.dumps(once.record.to_json(testbed12)).replace("a/nic1", "z/nic9"))
    assert RepairRecord.from_json(testbed12, renamed) is None


def test_no_detour_leads_over_a_circuit_that_is_missing_and_nothing_is_done_then(testbed12, see):
    design, cut = build_design(testbed12), {(Nic(0, 0), "transmit")}
    usual = plan_lab_repair(testbed12, design, see(design, design.wiring.links, cut))
    missing = usual.repair.detours[0].path[1]
    held = [link for link in design.wiring.links if link != missing]
    planned = plan_lab_repair(testbed12, design, see(design, held, cut))
    assert missing not in {link for detour in planned.repair.detours for link in detour.path}
    assert missing not in planned.detour_design.routes.first_link.values()
    assert planned.unexpected_circuits == (f"-{testbed12.link_label(missing)}",)
    for act in (carry_out, reroute):
        with pytest.raises(DriftError, match=r"1 circuit is missing.*`testbed apply`; nothing was done"):
            act(LabSession(testbed12, {}, None, None), planned)


def test_a_repair_of_another_topology_is_no_repair_of_this_one(testbed12, ring_and_pairs, see):
    """The plan is forgotten after a repair of its topology: the dead transmitter shows, and is on no circuit."""
    cut = {(Nic(0, 0), "transmit")}
    meant, named = ring_and_pairs(), build_design(testbed12)
    held = plan_lab_repair(
        testbed12, meant, see(meant, meant.wiring.links, cut)
    ).repatched_design.wiring.links
    planned = plan_lab_repair(testbed12, named, see(named, held, cut))
    assert not planned.is_repaired
    assert len(planned.unexpected_circuits) > 40


def test_where_nothing_stands_the_fibre_is_not_blamed(testbed12, see):
    design = build_design(testbed12)
    with pytest.raises(DriftError, match="48 circuits are missing and 0 others"):
        plan_lab_repair(testbed12, design, see(design, (), {(Nic(0, 0), "transmit")}))


def test_a_host_that_only_circuits_can_join_again_waits_for_them(testbed12, see):
    """A one-way ring over one NIC of each host: no detour, and a NIC that is idle."""
    topology = find_topology(12, 1, simplex=True)
    wiring = make_wiring(topology)
    design = Design("one ring", topology, wiring, find_routes(wiring))
    planned = plan_lab_repair(testbed12, design, see(design, wiring.links, {(Nic(0, 0), "transmit")}))
    assert (planned.detour_design, planned.unexpected_circuits) == (None, ())
    assert any("over nothing: no path is left" in line for line in describe_repair(testbed12, planned))
    assert ring_edges(planned.repatched_design.wiring.links) == ring_edges(wiring.links)
    notes = []
    assert reroute(LabSession(testbed12, {}, None, None), planned, notes.append) == 0.0
    assert notes == ["no detour joins all hosts: their traffic waits for the circuits"]


def test_a_host_of_one_nic_that_is_cut_off_is_named(testbed12, see):
    lab = replace(testbed12, hosts=tuple(replace(host, nics=host.nics[:1]) for host in testbed12.hosts))
    topology = find_topology(12, 1, simplex=True)
    wiring = make_wiring(topology)
    design = Design("one ring", topology, wiring, find_routes(wiring))
    observation = see(design, wiring.links, {(Nic(0, 0), "transmit")})
    with pytest.raises(TopologyError, match="replace the fibre"):
        plan_lab_repair(lab, design, observation)


def test_what_is_said_when_no_fibre_is_lost_and_the_circuits_differ(testbed12, ring_and_pairs, see):
    design, cut = ring_and_pairs(), {(Nic(2, 0), "receive")}
    links = design.wiring.links
    (line,) = describe_unpatched_circuits(testbed12, design, see(design, links[1:], ()))
    assert line.startswith("not patched: a/nic1 -> b/nic1, ocs1 passes no light 1 -> ")
    repaired = plan_lab_repair(testbed12, design, see(design, links, cut)).repatched_design.wiring.links
    observation = see(design, repaired, cut)
    assert plan_lab_repair(testbed12, design, observation) is None, (
        "the dead receiver is on no circuit any more"
    )
    (line,) = describe_unpatched_circuits(testbed12, design, observation)
    assert "--runs-dir of its repair" in line
    assert list(describe_unpatched_circuits(testbed12, design, see(design, links, ()))) == []


# ------------------------------------------------------------------------------ on a modelled lab


@pytest.fixture
def session(modelled, switches, tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        yield LabSession(modelled.lab, switches, None, journal)


@pytest.fixture
def cut(ask_twin):
    """Cut the transmit fibre of a/nic1 until the test ends."""
    yield lambda: ask_twin("cut", of="plant", fibre="a/nic1:transmit")
    ask_twin("uncut", of="plant", fibre="a/nic1:transmit")


@pytest.mark.long
@pytest.mark.parametrize("plan_is_meant", [True, False], ids=["the plan is meant", "the plan is forgotten"])
def test_the_command_refuses_a_topology_that_is_not_in_force(
    session, switches, cut, ring_and_pairs, tmp_path, capsys, plan_is_meant
):
    design, default = ring_and_pairs(), build_design(session.lab)
    session.bring_up(default if plan_is_meant else design)
    lab_file, plan_file = tmp_path / "lab.yaml", tmp_path / "plan.json"
    lab_file.write_text(render_lab(session.lab))
    strategy = Strategy((make_data_sharding(range(12)),), 1)
    write_plan(
        Plan(WorkloadChoice("pairs"), design.topology, 25.0, ("sum",), strategy, {"iteration_ms": 1.0}),
        plan_file,
    )
    cut()
    before = switches["ocs1"].read().connections
    asked = ["repair", str(lab_file), "--runs-dir", str(tmp_path / "runs")]
    asked += ["--plan", str(plan_file)] if plan_is_meant else []
    assert run_app(asked) == 2
    meant, standing = (design, default) if plan_is_meant else (default, design)
    differ = len(set(meant.wiring.links) - set(standing.wiring.links))
    said = f"{differ} circuits are missing and {differ} others are there"
    assert said in capsys.readouterr().out
    assert run_app([*asked, "--apply"]) not in (0, 2)
    refused = capsys.readouterr().err
    assert said in refused
    assert "Give the --plan or options of the topology in force" in refused
    assert switches["ocs1"].read().connections == before


def test_the_command_refuses_a_real_lab_that_nobody_said_to_move(session, tmp_path, capsys):
    lab_file = tmp_path / "lab.yaml"
    lab_file.write_text(render_lab(replace(session.lab, simulated=False, twins={})))
    asked = ["repair", str(lab_file), "--runs-dir", str(tmp_path / "runs"), "--apply"]
    for more in ([], ["--really-move", "another"]):
        assert run_app([*asked, *more]) not in (0, 2)
        assert f"--really-move {session.lab.name}" in capsys.readouterr().err


def test_a_lab_that_changed_after_the_look_is_left_alone(session, switches, cut, ring_and_pairs):
    design = ring_and_pairs()
    session.bring_up(design)
    cut()
    planned = plan_lab_repair(session.lab, design, observe_design(session, design))
    session.bring_up(build_design(session.lab))
    before = switches["ocs1"].read().connections
    with pytest.raises(DriftError, match="nothing was sent"):
        carry_out(session, planned)
    assert switches["ocs1"].read().connections == before


def test_the_proof_of_detours_finds_a_second_fibre(session, ask_twin, cut):
    """Detours alone are proved as well: a fibre that goes dark after the look is found."""
    design = build_design(session.lab)
    session.bring_up(design)
    cut()
    planned = plan_lab_repair(session.lab, design, observe_design(session, design))
    ask_twin("cut", of="plant", fibre="f/nic1:transmit")
    try:
        done = carry_out(session, planned)
    finally:
        ask_twin("uncut", of="plant", fibre="f/nic1:transmit")
    assert [(one.kind, one.subject.split()[0]) for one in done.verified.findings] == [("no_light", "f/nic1")]
