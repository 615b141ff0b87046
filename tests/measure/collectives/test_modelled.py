"""Modelled timings say so everywhere, and both kinds are written as nccl-tests documents."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")

from testbed.design.topology.strides import list_rings
from testbed.lab.inventory import load_lab
from testbed.measure.collectives.ranks import model_collectives
from testbed.measure.collectives.spec import CollectiveSpec, Configuration, make_all_to_all
from testbed.measure.nccl.json_output import make_nccl_document, parse_json
from testbed.operate.design import build_design

SIZES = (1024, 65536, 8 << 20)


@pytest.fixture(scope="module")
def lab():
    return load_lab(Path(__file__).parents[3] / "labs" / "testbed12.yaml")


@pytest.fixture(scope="module")
def modelled(lab):
    design = build_design(lab)
    rings = list_rings(design.topology)
    configurations = (
        Configuration("one ring", rings[:1], SIZES),
        Configuration("four rings", rings, SIZES),
    )
    told = []
    spec = CollectiveSpec("run", "t", configurations, hosts_in_use="model")
    result = model_collectives(lab, design.wiring, design.routes, spec, lambda *row: told.append(row))
    return result, told


def test_every_row_says_that_it_is_modelled(modelled):
    result, told = modelled
    assert len(result.timings) == 6
    for timing in result.timings:
        assert (timing.hosts, timing.simulated, timing.iterations, timing.cpu_limited) == (
            "model",
            True,
            0,
            False,
        )
    assert all(text.endswith("(modelled)") for _, _, text in told)
    assert [done for done, _, _ in told] == [1, 2, 3, 4, 5, 6]
    assert result.nic_bytes == ()
    assert result.versions["host_python"].startswith("model")


def test_four_rings_reach_nearly_four_times_one_ring_and_never_the_limit(modelled):
    largest = {t.configuration: t for t in modelled[0].timings if t.size_bytes == 8 << 20}
    one, four = largest["one ring"].busbw_mbps, largest["four rings"].busbw_mbps
    assert 3.6 <= four / one <= 4
    for timing in modelled[0].timings:
        assert 0 < timing.busbw_mbps <= timing.limit_mbps
        assert timing.busbw_mbps == pytest.approx(timing.algbw_mbps * 22 / 12)


def test_an_exchange_is_modelled_by_the_simulator(lab):
    design = build_design(lab)
    to_all = make_all_to_all("all", 12, (11 << 20,))
    one = Configuration("one", (), (8 << 20,), ((0, 3),))
    spec = CollectiveSpec("run", "t", (to_all, one), hosts_in_use="model")
    all_pairs, single = model_collectives(lab, design.wiring, design.routes, spec, lambda *_: None).timings
    assert (all_pairs.collective, single.collective) == ("all_to_all", "sendrecv")
    assert (all_pairs.ranks, single.ranks, single.limit_mbps) == (12, 2, 100)
    assert 0.8 <= all_pairs.busbw_mbps / all_pairs.limit_mbps < 1
    assert single.time_us == pytest.approx((8 << 20) * 8 / 100 * 9014 / 8948, rel=0.002)


def measured_like(timing):
    return replace(timing, hosts="kernel", iterations=7)


def test_a_document_reads_back_as_the_same_rows(lab, modelled):
    rows = [measured_like(t) for t in modelled[0].timings if t.configuration == "four rings"]
    text = json.dumps(make_nccl_document(lab, rows, {"torch": "2.13.0"}))
    table = parse_json(text)
    assert (table.problems, table.failed, table.complete, table.ranks) == ((), False, True, 12)
    assert [row.size_bytes for row in table.rows] == list(SIZES)
    for row, timing in zip(table.rows, rows, strict=True):
        half = row.in_place
        assert half.time_us == pytest.approx(timing.time_us)
        assert half.busbw_gbytes_per_s == pytest.approx(timing.busbw_mbps / 8000)
        assert half.wrong == 0


def test_a_document_says_simulated_and_holds_no_environment(lab, modelled):
    rows = modelled[0].timings[:3]
    document = make_nccl_document(lab, rows, modelled[0].versions)
    assert document["version"] == 3
    assert document["env"] == []
    assert document["lightbed"]["marking"] == "SIMULATED"
    assert document["lightbed"]["hosts"] == "model"
    assert (document["lightbed"]["rate_mbps"], document["lightbed"]["represents_gbps"]) == (100, 25)
    assert {row["experiment_name"] for row in document["results"]} == {"t/one ring"}
