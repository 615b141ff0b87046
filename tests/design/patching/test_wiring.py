from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patch_lists import wiring_of

from testbed.design.model import Link, Nic, Topology
from testbed.design.patching.wiring import label_node, list_patches, make_wiring
from testbed.design.topology.circulants import find_topology
from testbed.errors import TopologyError

# topoopt.md 1.10: the list of the original testbed.
GOLDEN = (
    "A1-B1 A2-L1 A3-F1 A4-H1 B2-C1 B3-G1 B4-I1 C2-D1 C3-H2 C4-J1 D2-E1 D3-I2 D4-K1 E2-F2 E3-J2 E4-L2 "
    "F3-G2 F4-K2 G3-H3 G4-L3 H4-I3 I4-J3 J4-K3 K4-L4"
)


def test_the_original_testbed_is_patched_as_it_was():
    assert " ".join(list_patches(make_wiring(find_topology(12, 4)))) == GOLDEN


def test_one_way_links_are_written_with_an_arrow():
    assert list_patches(make_wiring(find_topology(3, 2, simplex=True))) == [
        "A1>B1",
        "A2>C1",
        "B1>C2",
        "B2>A1",
        "C1>A2",
        "C2>B2",
    ]


def test_after_z_comes_aa():
    lines = list_patches(make_wiring(find_topology(28, 2)))
    assert lines[-1] == "AA2-AB2"
    assert lines[1] == "A2-AB1"


@st.composite
def topologies(draw):
    nodes = draw(st.integers(2, 40))
    simplex = draw(st.booleans())
    degrees = [
        degree
        for degree in range(1, min(nodes, 9))
        if simplex or (nodes * degree % 2 == 0 and (degree > 1 or nodes == 2))
    ] or [1]
    degree = draw(st.sampled_from(degrees))
    return find_topology(nodes, degree, simplex=simplex or degree == 1)


def assert_realises(wiring, topology):
    assert Counter((link.source.node, link.target.node) for link in wiring.links) == Counter(topology.edges)
    every_nic = {Nic(node, index) for node in range(topology.nodes) for index in range(topology.degree)}
    assert Counter(link.source for link in wiring.links) == dict.fromkeys(every_nic, 1)
    assert Counter(link.target for link in wiring.links) == dict.fromkeys(every_nic, 1)
    assert all(
        wiring.link_by_transmitter[link.source] == wiring.link_by_receiver[link.target] == link
        for link in wiring.links
    )
    if not topology.simplex:
        assert {Link(link.target, link.source) for link in wiring.links} == set(wiring.links)


@pytest.mark.long
def test_wiring_uses_each_transmitter_and_receiver_once_for_exactly_the_edges():
    seen = Counter()

    @settings(max_examples=150)
    @given(topologies())
    def check(topology):
        wiring = make_wiring(topology)
        assert_realises(wiring, topology)
        assert make_wiring(topology) == wiring
        seen["simplex" if topology.simplex else "duplex"] += topology.degree > 2

    check()
    assert min(seen["simplex"], seen["duplex"]) >= 25, seen


@pytest.mark.long
def test_planes_join_interface_i_only_to_interface_i():
    seen = Counter()

    @settings(max_examples=150)
    @given(topologies())
    def check(topology):
        degree = topology.degree
        if degree > 1 and not topology.simplex and topology.nodes % 2:
            with pytest.raises(TopologyError, match="an odd number cannot be paired"):
                make_wiring(topology, plane_count=degree)
            seen["odd"] += 1
            return
        wiring = make_wiring(topology, plane_count=degree)
        assert_realises(wiring, topology)
        assert all(link.source.index == link.target.index for link in wiring.links) or degree == 1
        seen["simplex" if topology.simplex else "duplex"] += degree > 1

    check()
    assert min(seen["simplex"], seen["duplex"], seen["odd"]) >= 15, seen


def test_simplex_planes_of_a_circulant_are_its_strides():
    wiring = make_wiring(find_topology(16, 3, simplex=True), plane_count=3)
    strides = {(link.source.index, (link.target.node - link.source.node) % 16) for link in wiring.links}
    assert strides == {(0, 1), (1, 3), (2, 7)}


@pytest.mark.parametrize("planes", [0, 2, 3, 5])
def test_another_number_of_planes_is_refused(planes):
    with pytest.raises(TopologyError, match=r"use one plane \(one shared switch\) or 4 planes"):
        make_wiring(find_topology(12, 4), plane_count=planes)


def test_a_topology_without_strides_is_wired_too():
    edges = ((0, 1), (0, 1), (0, 2), (1, 0), (1, 0), (1, 3), (2, 0), (2, 3), (2, 3), (3, 1), (3, 2), (3, 2))
    topology = Topology(4, 3, False, (), edges)
    assert_realises(make_wiring(topology), topology)
    assert_realises(make_wiring(topology, plane_count=3), topology)


@pytest.mark.long
def test_patch_lists_name_every_link():
    seen = Counter()

    @settings(max_examples=100)
    @given(topologies())
    def check(topology):
        wiring = make_wiring(topology)
        lines = list_patches(wiring)
        assert len(lines) == len(topology.links)
        assert wiring_of(lines, topology.nodes, topology.degree) == wiring
        seen["double letters"] += any(line.startswith("AA") for line in lines)
        seen["simplex"] += topology.simplex

    check()
    assert min(seen["double letters"], seen["simplex"]) >= 10, seen


@given(st.integers(0, 20_000))
def test_node_labels_are_unique_and_ordered_by_length(node):
    label, following = label_node(node), label_node(node + 1)
    assert (len(label), label) < (len(following), following)
