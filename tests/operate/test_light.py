"""Light against the loss budget: every fault is named with its place, by readings and on the simulated fibres."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from ocs_drivers.model import CrossConnects, Power, Snapshot
from testbed.design.patching.wiring import make_wiring
from testbed.design.topology.circulants import find_topology
from testbed.operate.apply import apply_plan
from testbed.operate.journal import Journal
from testbed.operate.light import TOLERANCE_DB, SwitchReading, compute_budget, judge_circuits
from testbed.operate.plan import list_circuits, plan_lab
from testbed.operate.proof.judge import verify_circuits, verify_lab

WIRING = make_wiring(find_topology(12, 4))
DARK = Power(-60.0, below_floor=True)


def healthy(lab):
    """Return connections and powers as the lab file has them, to be spoilt by the test."""
    circuits = list_circuits(lab, WIRING)
    power = {}
    for circuit in circuits:
        budget = compute_budget(lab, circuit)
        power[circuit.input_port] = Power(budget.input_dbm)
        power[circuit.output_port] = Power(budget.output_dbm)
    return circuits, {c.input_port: c.output_port for c in circuits}, power


def judge(lab, circuits, connections, power):
    reading = SwitchReading(Snapshot(CrossConnects(connections), 0.0), power)
    return [(f.kind, f.subject, f.detail) for f in judge_circuits(lab, circuits, {"ocs1": reading})]


def test_the_budget_is_source_less_fibre_less_insertion_less_fibre(testbed12):
    budget = compute_budget(testbed12, list_circuits(testbed12, WIRING)[0])
    assert budget.input_dbm == pytest.approx(0.0 - 0.3)
    assert budget.output_dbm == pytest.approx(0.0 - 0.3 - 1.2)
    assert budget.receiver_dbm == pytest.approx(0.0 - 0.3 - 1.2 - 0.3)


def test_a_healthy_lab_has_no_findings(testbed12):
    assert judge(testbed12, *healthy(testbed12)) == []


def test_a_missing_circuit_says_what_holds_its_ports(testbed12):
    circuits, connections, power = healthy(testbed12)
    connections[1], connections[2] = connections[2], connections[1]
    findings = judge(testbed12, circuits, connections, power)
    assert [kind for kind, _, _ in findings] == [
        "missing_circuit",
        "missing_circuit",
        "extra_circuit",
        "extra_circuit",
    ]
    _, subject, detail = findings[0]
    assert subject == "a/nic1 -> b/nic1"
    assert detail.startswith(
        "ocs1 does not connect 1 -> 53; input 1 goes to output 93; output 53 is fed by input 2"
    )
    assert findings[2][1:] == (
        "a/nic1 -> l/nic1",
        "ocs1 connects 1 -> 93, which is not planned; run `testbed apply`",
    )


def test_a_switch_that_holds_nothing_is_one_finding_with_all_its_circuits(testbed12):
    circuits, _, power = healthy(testbed12)
    power |= {circuit.output_port: DARK for circuit in circuits}
    reading = SwitchReading(Snapshot(CrossConnects({}), 0.0), power)
    (finding,) = judge_circuits(testbed12, circuits, {"ocs1": reading})
    assert (finding.kind, finding.subject) == ("missing_circuit", "ocs1")
    assert finding.parts == tuple(testbed12.link_label(circuit.link) for circuit in circuits)
    assert finding.detail == (
        "48 planned circuits are missing at ocs1: "
        + ", ".join(finding.parts[:5])
        + " and 43 more; run `testbed apply`"
    )


def test_few_circuits_are_told_one_by_one_and_more_than_five_as_one(testbed12):
    circuits, connections, power = healthy(testbed12)
    for circuit in circuits[:5]:
        del connections[circuit.input_port]
    assert [kind for kind, _, _ in judge(testbed12, circuits, connections, power)] == ["missing_circuit"] * 5
    del connections[circuits[5].input_port]
    assert [told[:2] for told in judge(testbed12, circuits, connections, power)] == [
        ("missing_circuit", "ocs1")
    ]


def test_circuits_of_other_people_are_theirs(testbed12):
    lab = testbed12.__class__(
        **{name: getattr(testbed12, name) for name in testbed12.__slots__} | {"hosts": testbed12.hosts[:4]}
    )
    wiring = make_wiring(find_topology(4, 4 - 1))
    circuits = list_circuits(lab, wiring)
    connections = {c.input_port: c.output_port for c in circuits} | {40: 90}
    assert judge(lab, circuits, connections, {}) == []


@pytest.mark.parametrize(
    ("port", "power", "kind", "words"),
    [
        (
            1,
            Power(-2.0),
            "excess_loss",
            "the transmit fibre from a/nic1 to input 1 of ocs1 loses 1.7 dB more than planned (-2.0 dBm, not -0.3)",
        ),
        (
            1,
            DARK,
            "no_light",
            "no light enters input 1 of ocs1: a/nic1 does not send, or its transmit fibre is cut",
        ),
        (53, Power(-4.0), "excess_loss", "the cross-connect 1 -> 53 of ocs1 loses 2.5 dB more than planned"),
        (53, DARK, "no_light", "no light leaves output 53: the cross-connect 1 -> 53 of ocs1 passes none"),
    ],
)
def test_a_fault_of_the_light_is_named_with_its_place(testbed12, port, power, kind, words):
    circuits, connections, powers = healthy(testbed12)
    powers[port] = power
    if port == 1:  # what the input lacks, the output lacks too
        powers[53] = DARK if power.below_floor else Power(power.dbm - 1.2)
    ((found, subject, detail),) = judge(testbed12, circuits, connections, powers)
    assert (found, subject) == (kind, "a/nic1 -> b/nic1")
    assert words in detail


def test_without_an_input_monitor_the_place_is_left_open(testbed12):
    circuits, connections, power = healthy(testbed12)
    power[1], power[53] = None, Power(-4.0)
    ((kind, _, detail),) = judge(testbed12, circuits, connections, power)
    assert kind == "excess_loss"
    assert detail.startswith("the transmit fibre or the cross-connect 1 -> 53 of ocs1 loses 2.5 dB more")


def test_without_monitors_only_circuits_are_judged(testbed12):
    circuits, connections, _ = healthy(testbed12)
    assert judge(testbed12, circuits, connections, {}) == []


@given(fibre_db=st.floats(0, 20), cross_db=st.floats(0, 20))
def test_exactly_what_exceeds_the_tolerance_is_named(testbed12, fibre_db, cross_db):
    circuits, connections, power = healthy(testbed12)
    power[1] = Power(power[1].dbm - fibre_db)
    power[53] = Power(power[53].dbm - fibre_db - cross_db)
    details = [detail for _, _, detail in judge(testbed12, circuits, connections, power)]
    near = min(abs(fibre_db - TOLERANCE_DB), abs(cross_db - TOLERANCE_DB)) < 1e-6
    if not near:  # on the very border rounding decides
        assert any("transmit fibre" in detail for detail in details) == (fibre_db > TOLERANCE_DB)
        assert any("the cross-connect" in detail for detail in details) == (cross_db > TOLERANCE_DB)


# On the simulated fibres.


@pytest.fixture
def patched(modelled, switches, tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        plan = plan_lab(modelled.lab, WIRING, switches)
        apply_plan(modelled.lab, plan, switches, journal)
    return plan


def test_a_patched_lab_is_as_planned(modelled, switches, patched):
    report = verify_lab(modelled.lab, patched, switches)
    assert report.ok
    assert (report.circuits, report.links_received) == (48, 0)


def findings(modelled, switches, patched):
    return [(f.kind, f.subject) for f in verify_circuits(modelled.lab, patched.circuits, switches)]


def test_a_lossy_fibre_a_lossy_mirror_and_a_dark_laser_are_told_apart(modelled, switches, patched, ask_twin):
    ask_twin("loss", of="plant", fibre="a/nic1:transmit", loss_db=3.0)
    ask_twin("set_fault", fault="lossy", pair=[2, dict(patched.switches[0].target)[2]], loss_db=2.0)
    ask_twin("laser", of="plant", nic="c/nic1", on=False)
    try:
        found = verify_circuits(modelled.lab, patched.circuits, switches)
        told = {finding.subject.partition(" ")[0]: (finding.kind, finding.detail) for finding in found}
        assert sorted(told) == ["a/nic1", "a/nic2", "c/nic1"]
        assert told["a/nic1"][0] == "excess_loss"
        assert "transmit fibre from a/nic1 to input 1 of ocs1 loses 3.0 dB" in told["a/nic1"][1]
        assert told["a/nic2"][0] == "excess_loss"
        assert "the cross-connect 2 -> 93 of ocs1 loses 2.0 dB" in told["a/nic2"][1]
        assert told["c/nic1"] == (
            "no_light",
            "no light enters input 9 of ocs1: c/nic1 does not send, or its transmit fibre is cut",
        )
    finally:
        ask_twin("loss", of="plant", fibre="a/nic1:transmit", loss_db=0.0)
        ask_twin("laser", of="plant", nic="c/nic1", on=True)
    ask_twin("clear_fault", fault="all")
    assert findings(modelled, switches, patched) == []


def test_a_circuit_taken_down_by_a_second_operator_is_named(modelled, switches, patched, ask_twin):
    ask_twin("operator", disconnect=[1])
    assert findings(modelled, switches, patched) == [("missing_circuit", "a/nic1 -> b/nic1")]
