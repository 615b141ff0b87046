"""`testbed reproduce`: files, document, and what a wrong figure gets."""

from __future__ import annotations

import pytest
from libraries import skip_without

skip_without("typer")
skip_without("matplotlib")

from testbed.design.reproductions.figure import Table


def test_a_figure_leaves_its_files_and_prints_what_was_compared(testbed, tmp_path):
    ran = testbed("reproduce", "topoopt", "--figure", 10, "--quick", "--out", tmp_path, "--json")

    assert (ran.code, ran.json["paper"], ran.json["quick"]) == (0, "topoopt", True)
    (done,) = ran.json["figures"]
    assert (done["figure"], done["title"]) == (10, "Cost of interconnects")
    assert list(done["comparison"][0]) == ["quantity", "published", "ours", "difference", "note"]
    folder = tmp_path / "topoopt"
    assert sorted(path.name for path in folder.iterdir()) == ["figure10.csv", "figure10.md", "figure10.svg"]
    assert len(Table.from_csv((folder / "figure10.csv").read_text()).rows) == 2 * (2 * 2 * 5 + 2 * 5), (
        "two readings of each table; MixNet's has one of the rates"
    )


def test_people_get_a_table(testbed, tmp_path):
    ran = testbed("reproduce", "topoopt", "--figure", 10, "--quick", "--picture", "png", "--out", tmp_path)

    assert ran.code == 0
    assert "3.2 x [S]" in ran.out
    assert (tmp_path / "topoopt" / "figure10.png").exists()


@pytest.mark.parametrize(
    "arguments", [("topoopt", "--figure", 9), ("unfairness", "--figure", 7), ("nopaper",)]
)
def test_what_is_not_reproduced_is_told(testbed, tmp_path, arguments):
    ran = testbed("reproduce", *arguments, "--out", tmp_path)

    assert ran.code == 1
    assert str(arguments[-1]) in ran.err
    assert list(tmp_path.iterdir()) == []


def test_sip_ml_has_iterations_on_every_fabric(testbed, tmp_path):
    skip_without("scipy")
    ran = testbed("reproduce", "sip-ml", "--quick", "--out", tmp_path, "--json")

    assert (ran.code, [one["figure"] for one in ran.json["figures"]]) == (0, [1, 2, 3])
    assert {"model", "fabric", "wavelengths", "iteration_ms"} <= set(ran.json["iterations"][0])
    assert len({(row["model"], row["fabric"]) for row in ran.json["iterations"]}) == 3 * 5
    assert "counts" not in ran.json
    assert (tmp_path / "sip-ml" / "figure2.svg").exists()


@pytest.mark.long
def test_the_study_of_unfairness_has_the_same_keys(testbed, tmp_path):
    ran = testbed("reproduce", "unfairness", "--quick", "--out", tmp_path, "--json")

    assert (ran.code, ran.json["paper"]) == (0, "unfairness")
    assert [found["figure"] for found in ran.json["figures"]] == [1, 2]
    for found in ran.json["figures"]:
        assert {"quantity", "published", "ours", "difference", "note"} == set(found["comparison"][0])
    assert (tmp_path / "unfairness" / "figure2.svg").exists()


@pytest.mark.slow
@pytest.mark.translates
def test_sharing_has_models_of_all_policies_and_jobs(testbed, tmp_path):
    ran = testbed("reproduce", "sharing", "--quick", "--out", tmp_path, "--json")

    assert ran.code == 0
    (found,) = ran.json["figures"]
    quantities = [line["quantity"] for line in found["comparison"]]
    assert quantities[0] == "Cassini over fair: mean iteration"
    assert len(quantities) == 2 + 2 * 5 * (4 + 1)
    assert "0.5 + 0.5, shifts, model: mean iteration" in quantities
    assert "0.3 + 0.3 + 0.3, mltcp, packets: p99 iteration" in quantities


@pytest.mark.long
def test_mixnet_has_the_section_of_each_figure(testbed, tmp_path):
    ran = testbed("reproduce", "mixnet", "--figure", 2, "--quick", "--out", tmp_path, "--json")

    assert (ran.code, ran.json["paper"]) == (0, "mixnet")
    assert {row["gbps"] for row in ran.json["cost"]} == {100, 400}
    assert not {"table", "sensitivity", "counts"} & set(ran.json)
    assert (tmp_path / "mixnet" / "figure2.svg").exists()


def test_hosts_are_for_sharing_alone(testbed, tmp_path):
    ran = testbed("reproduce", "unfairness", "--lab", "lab.yaml", "--out", tmp_path)

    assert ran.code == 1
    assert "--lab is only for `testbed reproduce sharing`" in ran.err
