"""Faults of light on a lab whose hosts are real to the kernel: each is told once, and narrowed to its place."""

from __future__ import annotations

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from testbed.operate.narrow import narrow

pytestmark = pytest.mark.kernel

A1 = "a/nic1 -> b/nic1"
LIGHT_FAULTS = {
    "dirty": ([("loss", {"fibre": "a/nic1:transmit", "loss_db": 3})], [("excess_loss", A1)]),
    **{
        f"receiver dirty by {db} dB": (
            [("loss", {"fibre": "b/nic1:receive", "loss_db": db})],
            [("excess_loss", A1)],
        )
        for db in (1, 3, 10, 18)
    },
    "transmit fibre cut": ([("loss", {"fibre": "a/nic1:transmit", "loss_db": 99})], [("no_light", A1)]),
    "receive fibre cut": ([("loss", {"fibre": "b/nic1:receive", "loss_db": 99})], [("no_carrier", A1)]),
    "laser off": ([("laser", {"nic": "a/nic1", "on": False})], [("no_light", A1)]),
    "cable cut": (
        [("loss", {"fibre": f"a/nic1:{side}", "loss_db": 99}) for side in ("transmit", "receive")],
        [("dark_cable", "a/nic1")],
    ),
    "fibres swapped": ([("swap", {"fibres": ["a/nic1:transmit", "c/nic1:transmit"]})], [("swapped", None)]),
    "cables swapped": (
        [("swap", {"fibres": [f"a/nic1:{s}", f"c/nic1:{s}"]}) for s in ("transmit", "receive")],
        [("swapped", None)],
    ),
}
OTHERS_OF_A_KIND = {f"receiver dirty by {db} dB" for db in (1, 3, 10, 18)} | {"laser off", "cables swapped"}
"""Each is told by the same lines as another here."""


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            name,
            marks=pytest.mark.long if name in OTHERS_OF_A_KIND else (),
        )
        for name in LIGHT_FAULTS
    ],
)
def test_a_fault_of_the_light_is_told_once_and_rightly(ring, fault):
    plants, expected = LIGHT_FAULTS[fault]
    for do, details in plants:
        ring.ask("plant", do, **details)
    found = ring.told()
    if expected[0][1] is None:
        assert [kind for kind, _ in found] == [kind for kind, _ in expected]
    else:
        assert found == expected


def test_circuits_of_somebody_else_are_told_by_circuits_alone(ring):
    pairs = dict(ring.session.switches["ocs1"].read().connections)
    one, other = sorted(pairs)[:2]
    ring.ask("ocs1", "operator", connect=[[one, pairs[other]]], disconnect=[other])
    assert {kind for kind, _ in ring.told()} == {"missing_circuit", "extra_circuit"}


def test_a_switch_that_was_off_and_on_is_one_finding(ring):
    inputs = sorted(ring.session.switches["ocs1"].read().connections)
    ring.ask("ocs1", "operator", disconnect=inputs)
    assert ring.told() == [("missing_circuit", "ocs1")]


@pytest.mark.parametrize("side", ["transmit", "receive"])
def test_swapped_fibres_are_narrowed_to_one_end_and_the_circuit_is_put_back(ring, side):
    ring.ask("plant", "swap", fibres=[f"a/nic1:{side}", f"c/nic1:{side}"])
    report = ring.session.prove(ring.design)
    before = ring.session.switches["ocs1"].read().revision
    (finding,) = narrow(ring.session, ring.design, report).findings
    assert f"the {side} fibres at" in finding.detail
    assert ring.session.switches["ocs1"].read().revision == before


def test_exchanged_cables_are_narrowed_to_those_of_two_nics(ring):
    for side in ("transmit", "receive"):
        ring.ask("plant", "swap", fibres=[f"a/nic1:{side}", f"c/nic1:{side}"])
    report = ring.session.prove(ring.design)
    assert "or those of" in report.findings[0].detail, "links run both ways: two exchanges look the same"
    notes = []
    (finding,) = narrow(ring.session, ring.design, report, notes.append).findings
    assert finding.detail.startswith(
        "the whole cables of a/nic1 and c/nic1 are exchanged: without the circuit"
    )
    assert [note.split(" is ")[1] for note in notes] == ["removed for a moment", "restored"]
