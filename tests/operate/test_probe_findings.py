"""Findings of the probe against the wiring: dark, silent, swapped and foreign, by construction."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from patch_lists import wiring_of

from testbed.design.model import Link, Nic
from testbed.design.patching.wiring import make_wiring
from testbed.design.topology.circulants import find_topology
from testbed.lab.hosts.probe import Frame, NicReport, ProbeReport
from testbed.operate.probe_findings import count_received_links, judge_probe

EPOCH = 7
RING = make_wiring(find_topology(12, 4))
ONE_WAY = make_wiring(find_topology(12, 4, simplex=True))


def label(lab, nic):
    return lab.hosts[nic.node].name, lab.get_nic(nic).name


def heard(lab, wiring, *, moved=None, dark=()):
    """Return what is heard when fibres are as planned, except that `moved[target]` hears another source.

    As in the kernel and on real NICs, one that receives no light does not send either.
    """
    hears = {link.target: link.source for link in wiring.links} | (moved or {})
    nics = {}
    for target, source in hears.items():
        carries = target not in dark
        arrives = carries and source not in dark
        frames = (Frame(*label(lab, source), EPOCH),) if arrives else ()
        nics[label(lab, target)] = NicReport(carries, 3, frames)
    return ProbeReport(EPOCH, nics)


def kinds(findings):
    return [(finding.kind, finding.subject) for finding in findings]


def test_all_received_is_no_finding(testbed12):
    everything = heard(testbed12, RING)
    assert judge_probe(testbed12, RING, everything) == ()
    assert count_received_links(testbed12, RING, everything) == 48


def test_nothing_received_names_every_link(testbed12):
    nothing = ProbeReport(EPOCH, {})
    assert [kind for kind, _ in kinds(judge_probe(testbed12, RING, nothing))] == ["no_carrier"] * 48
    assert count_received_links(testbed12, RING, nothing) == 0


def test_a_dark_receiver_is_one_finding_and_its_own_silence_is_told_with_it(testbed12):
    target = RING.links[0].target
    found = judge_probe(testbed12, RING, heard(testbed12, RING, dark={target}))
    assert kinds(found) == [("no_carrier", "a/nic1 -> b/nic1")]
    assert found[0].detail == "b/nic1 receives no light and so cannot send on b/nic1 -> a/nic1"


def test_light_without_a_frame_is_not_received(testbed12):
    nics = dict(heard(testbed12, RING).nics)
    nics["b", "nic1"] = NicReport(has_carrier=True, sent_count=3, frames=())
    (found,) = judge_probe(testbed12, RING, ProbeReport(EPOCH, nics))
    assert (found.kind, found.subject) == ("not_heard", "a/nic1 -> b/nic1")
    assert "check the transmit fibre at ocs1:1 and the receive fibre at ocs1:53" in found.detail


@pytest.mark.parametrize(
    ("sent", "received", "words"),
    [
        (
            {"tx_packets": 3},
            {"rx_packets": 0, "rx_errors": 0},
            "it counts no packet received; check the",
        ),
        (
            {"tx_packets": 3},
            {"rx_packets": 0, "rx_errors": 7},
            "it counts 7 packets with errors; check the",
        ),
        (
            {"tx_packets": 3},
            {"rx_packets": 5},
            "it counts 5 packets received, so check what drops them on b",
        ),
        (
            {"tx_packets": 0},
            {"rx_packets": 0},
            "a/nic1 counts no packet sent; check queues and filters on a",
        ),
    ],
)
def test_counters_at_both_ends_tell_a_fibre_from_a_host(testbed12, sent, received, words):
    nics = dict(heard(testbed12, RING).nics)
    nics["a", "nic1"] = replace(nics["a", "nic1"], counters=sent)
    nics["b", "nic1"] = NicReport(has_carrier=True, sent_count=3, frames=(), counters=received)
    (found,) = judge_probe(testbed12, RING, ProbeReport(EPOCH, nics))
    assert words in found.detail


def test_swapped_fibres_of_the_same_two_hosts_are_named(testbed12):
    """Two parallel links between a and b: every ping is answered, only the NICs are wrong."""
    wiring = wiring_of(["A1-B1", "A2-B2"], 12, 4)
    one, two = Link(Nic(0, 0), Nic(1, 0)), Link(Nic(0, 1), Nic(1, 1))
    moved = {one.target: two.source, two.target: one.source}
    (found,) = judge_probe(testbed12, wiring, heard(testbed12, wiring, moved=moved))
    assert found.kind == "swapped"
    assert found.subject == "a/nic1 -> b/nic1 and a/nic2 -> b/nic2"
    assert found.detail == (
        "b/nic1 hears a/nic2 and b/nic2 hears a/nic1: two fibres are swapped, either the transmit fibres at "
        "ocs1:1 and ocs1:2 or the receive fibres at ocs1:53 and ocs1:54"
    )


def test_three_fibres_in_a_circle_are_three_findings(testbed12):
    one, two, three = ONE_WAY.links[:3]
    moved = {one.target: two.source, two.target: three.source, three.target: one.source}
    found = judge_probe(testbed12, ONE_WAY, heard(testbed12, ONE_WAY, moved=moved))
    assert kinds(found) == [("swapped", testbed12.link_label(link)) for link in (one, two, three)]
    assert "instead of" in found[0].detail


def test_a_frame_of_another_epoch_or_lab_is_foreign(testbed12):
    nics = dict(heard(testbed12, RING).nics)
    own = nics["b", "nic1"].frames
    nics["b", "nic1"] = NicReport(True, 3, (*own, Frame("a", "nic1", EPOCH - 1), Frame("zz", "nic1", EPOCH)))
    found = judge_probe(testbed12, RING, ProbeReport(EPOCH, nics))
    assert kinds(found) == [("foreign", "a/nic1 -> b/nic1"), ("foreign", "zz/nic1 -> b/nic1")]
    assert found[0].detail.startswith("a frame of epoch 6, not 7")


def test_a_frame_where_no_link_is_planned_is_an_extra_circuit(testbed12):
    wiring = wiring_of(["A1-B1"], 12, 4)
    nics = dict(heard(testbed12, wiring).nics)
    nics["c", "nic1"] = NicReport(True, 3, (Frame("d", "nic2", EPOCH),))
    (found,) = judge_probe(testbed12, wiring, ProbeReport(EPOCH, nics))
    assert (found.kind, found.subject) == ("extra_circuit", "d/nic2 -> c/nic1")


def test_any_permutation_of_fibres_is_found_and_only_what_moved_is_named(testbed12):
    tried = Counter()

    @given(st.permutations(ONE_WAY.links[:8]))
    def holds(permuted):
        planned = ONE_WAY.links[:8]
        moved = {link.target: other.source for link, other in zip(planned, permuted, strict=True)}
        wrong = {
            testbed12.link_label(link) for link, other in zip(planned, permuted, strict=True) if link != other
        }
        findings = judge_probe(testbed12, ONE_WAY, heard(testbed12, ONE_WAY, moved=moved))
        named = {name for finding in findings for name in finding.subject.split(" and ")}
        assert named == wrong
        assert {finding.kind for finding in findings} <= {"swapped"}
        pairs = sum(" and " in finding.subject for finding in findings)
        tried["pair" if pairs else "circle" if wrong else "none"] += 1

    holds()
    assert min(tried["pair"], tried["circle"]) >= 10


def test_any_set_of_dark_receivers_is_named_exactly(testbed12):
    tried = Counter()

    @settings(max_examples=60)
    @given(st.sets(st.sampled_from(ONE_WAY.links)))
    def holds(cut):
        dark = {link.target for link in cut}
        found = judge_probe(testbed12, ONE_WAY, heard(testbed12, ONE_WAY, dark=dark))
        assert kinds(found) == [
            ("no_carrier", testbed12.link_label(link)) for link in ONE_WAY.links if link in cut
        ]
        tried[bool(cut)] += 1

    holds()
    assert tried[True] >= 50
