"""Rows of a lab file get their fibres; everything else of its text stays."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from libraries import skip_without

skip_without("pydantic")

from testbed.errors import LabFileError, LabStartError
from testbed.lab.inventory import load_bare_lab, load_lab, parse_lab, render_lab
from testbed.lab.model import UNKNOWN_FIBRE
from testbed.lab.simulated.fibre_draw import draw_fibres, remove_fibres
from testbed.lab.wired_file import NicWiring, write_new_file, write_wired_text
from testbed.operate.design import count_usable_nics

TESTBED12 = Path(__file__).parents[2] / "labs" / "testbed12.yaml"
MISSING = r":39: 'transmit' is missing in 'hosts\[0\].nics\[0\]'.*testbed discover"
BARE = re.sub(r", transmit: '[^']*', receive: '[^']*'", "", TESTBED12.read_text(encoding="utf-8"))

BLOCK = """\
hosts:
  - name: a   # rack 3
    nics:
      - name: nic1
        # the upper one
        address: 10.100.1.1
        unused: 'cable lost'  # since May

      - address: 10.100.1.2
        name: nic2
        transmit:
          port: ocs1:9
          loss_db: 0.7
# the end
"""


@pytest.fixture
def bare(tmp_path):
    path = tmp_path / "bare.yaml"
    path.write_text(BARE, encoding="utf-8")
    return path


def rows_of(lab):
    return {
        (host.name, nic.name): NicWiring(
            f"{nic.transmit.switch}:{nic.transmit.port}", f"{nic.receive.switch}:{nic.receive.port}"
        )
        for host in lab.hosts
        for nic in host.nics
    }


def test_the_rows_of_testbed12_get_their_fibres_back_to_the_byte(bare):
    assert write_wired_text(bare.read_text("utf-8"), rows_of(load_lab(TESTBED12))) == TESTBED12.read_text(
        "utf-8"
    )


def test_keys_of_block_rows_are_replaced_and_comments_stay():
    rows = {
        ("a", "nic1"): NicWiring("ocs1:1", "ocs1:49"),
        ("a", "nic2"): NicWiring(None, "ocs1:50", "it's dead"),
    }
    assert (
        write_wired_text(BLOCK, rows)
        == """\
hosts:
  - name: a   # rack 3
    nics:
      - name: nic1
        # the upper one
        address: 10.100.1.1
        transmit: 'ocs1:1'
        receive: 'ocs1:49'  # since May

      - address: 10.100.1.2
        name: nic2
        receive: 'ocs1:50'
        unused: 'it''s dead'
# the end
"""
    )


def test_a_key_that_comes_first_is_taken_out():
    text = "hosts: [{name: a, nics: [{unused: x, name: n, address: 1.2.3.4}]}]\n"
    assert write_wired_text(text, {("a", "n"): NicWiring("s:1", "s:2")}) == (
        "hosts: [{name: a, nics: [{name: n, address: 1.2.3.4, transmit: 's:1', receive: 's:2'}]}]\n"
    )


def test_a_bare_row_is_refused_by_name_and_the_hint_names_discover(bare):
    with pytest.raises(LabFileError, match=MISSING):
        load_lab(bare)


def test_a_bare_lab_has_unknown_fibres_and_is_written_without_them(bare):
    lab = load_bare_lab(bare)
    assert {nic.transmit for host in lab.hosts for nic in host.nics} == {UNKNOWN_FIBRE}
    assert "transmit:" not in render_lab(lab)
    with pytest.raises(LabFileError, match="testbed discover"):
        parse_lab(render_lab(lab), bare)


def test_unused_nics_stay_out_of_topologies(bare):
    rows = rows_of(load_lab(TESTBED12)) | {
        ("c", "nic2"): NicWiring("ocs1:10", None, "the receive fibre is dead")
    }
    lab = parse_lab(write_wired_text(BARE, rows), bare)
    assert [nic.name for nic in lab.hosts[2].nics] == ["nic1", "nic3", "nic4"]
    assert [nic.name for nic in lab.hosts[2].unused_nics] == ["nic2"]
    assert count_usable_nics(lab) == 3
    assert count_usable_nics(parse_lab(render_lab(lab), bare)) == 3


def test_a_file_is_not_overwritten_unless_that_is_said(tmp_path):
    path = tmp_path / "new" / "out.yaml"
    write_new_file(path, "one")
    with pytest.raises(LabFileError, match="already exists; give another -o, or --force"):
        write_new_file(path, "two")
    assert path.read_text() == "one"
    write_new_file(path, "two", replace=True)
    assert path.read_text() == "two"
    assert [each.name for each in path.parent.iterdir()] == ["out.yaml"]


@pytest.mark.long
@given(st.integers(0, 10_000))
def test_drawn_fibres_use_every_port_once_and_the_same_seed_gives_the_same(seed):
    lab = remove_fibres(load_lab(TESTBED12))
    drawn = draw_fibres(lab, seed, crossed_count=5, dead_count=3)
    assert drawn == draw_fibres(lab, seed, crossed_count=5, dead_count=3)
    ends = [
        (end.switch, end.port)
        for host in drawn.lab.hosts
        for nic in host.nics
        for end in (nic.transmit, nic.receive)
    ]
    assert sorted(ends) == [("ocs1", port) for port in range(1, 97)]
    split = [
        nic for host in drawn.lab.hosts for nic in host.nics if nic.receive.port - nic.transmit.port != 48
    ]
    assert 5 <= len(split) <= 10, "crossed fibres part the two of a NIC"
    assert len(set(drawn.dead_fibre_names) | {name for pair in drawn.crossed_pairs for name in pair}) == 13


def test_too_many_faults_are_refused():
    lab = load_lab(TESTBED12)
    with pytest.raises(LabStartError, match="lower --crossed or --dead"):
        draw_fibres(lab, 1, crossed_count=40, dead_count=30)
