"""The published figures of Lightning, computed again: the event simulator by hand, and the command."""

import csv
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from libraries import library

from lightning.cli import run_app
from lightning.reproductions.published_models import MODELS

simulator = library("lightning.reproductions.event_simulator")
CORES = 11
LOADS = st.lists(
    st.tuples(st.integers(0, CORES - 1), st.integers(1, CORES), st.integers(0, 40), st.integers(1, 9)),
    max_size=30,
)


@pytest.mark.parametrize(
    ("name", "giga_products"),
    [("AlexNet", 0.714), ("ResNet-18", 1.81), ("VGG-16", 15.5), ("VGG-19", 19.6), ("DLRM", 2.51)],
)
def test_networks_have_the_products_of_their_papers(name, giga_products):
    (model,) = (each for each in MODELS if each.name == name)
    assert model.product_count / 1e9 == pytest.approx(giga_products, rel=0.005)


@given(loads=LOADS)
def test_ranges_of_cores_do_what_single_cores_do(loads):
    begins, free, ranges = np.zeros(CORES, np.int64), np.zeros(CORES, np.int64), 1
    single, now = [0] * CORES, 0
    for first, count, later, cycles in loads:
        end, now = min(first + count, CORES), now + later
        single[first:end] = [max(each, now) + cycles for each in single[first:end]]
        ranges, last = simulator.add_load(begins, free, ranges, first, end, now, cycles, 0)
        assert last == max(single[first:end])
        spans = np.diff([*begins[:ranges], CORES])
        assert np.repeat(free[:ranges], spans).tolist() == single
        assert (np.diff(free[:ranges]) != 0).all()


@pytest.mark.parametrize("processor", range(5))
@pytest.mark.parametrize("place", [0, *(pytest.param(other, marks=pytest.mark.long) for other in (1, 2))])
def test_a_request_alone_takes_the_time_of_its_layers(processor, place):
    model, processor = MODELS[place], simulator.PROCESSORS[processor]
    latency = math.ceil(processor.latency_ns.get(model.name, 0) * processor.clock_ghz)
    cycles = sum(
        math.ceil(layer.dot_product_count / processor.core_count) * layer.dot_product_length
        if layer.dot_product_length >= simulator.PIECE_PRODUCTS
        else math.ceil(math.ceil(layer.product_count / simulator.PIECE_PRODUCTS) / processor.core_count)
        * simulator.PIECE_PRODUCTS
        for layer in model.layers
    )
    found = simulator.simulate(processor, [simulator.Arrival(place, 0.0)])
    assert found == {model.name: pytest.approx((latency + cycles) / processor.clock_ghz)}


def test_a_request_waits_for_the_one_before_it():
    slow = simulator.Processor("one core", 1, 1.0, {})
    alone = simulator.simulate(slow, [simulator.Arrival(0, 0.0)])["AlexNet"]
    assert simulator.simulate(slow, [simulator.Arrival(0, 0.0)] * 3)["AlexNet"] > 2.5 * alone


def test_arrivals_come_as_fast_as_the_network():
    arrivals = simulator.draw_arrivals(2000, 0.06, 1)
    bits = sum(MODELS[each.model_index].request_bytes * 8 for each in arrivals)
    assert arrivals[-1].time_ns == pytest.approx(bits / 0.06, rel=0.1)
    assert {each.model_index for each in arrivals} == set(range(len(MODELS)))


def test_the_difference_is_in_per_cent():
    from lightning.reproductions.smartnic import Row

    assert Row(1, "q", 50.0, 60.0).difference_percent == pytest.approx(20)
    assert Row(1, "q", None, 60.0).difference_percent is None


@pytest.mark.hdl
@pytest.mark.translates
def test_cycles_of_the_rtl_are_those_of_products_memory_and_the_rest():
    from fpga.hdl import explain_missing
    from lightning.reproductions.smartnic import _measure_rtl_cycles

    if reason := explain_missing("verilator", "make", "g++"):
        pytest.skip(reason)
    rows = {row.quantity.removeprefix("RTL, "): row.ours for row in _measure_rtl_cycles()}
    dram, ideal = "DRAM: 160 ns, refresh 4.5 %", "ideal memory"
    assert rows[f"{dram}: cycles of products"] == rows[f"{ideal}: cycles of products"] == 16_670
    assert rows[f"{ideal}: cycles that wait for memory"] == 0
    assert 0.03 < rows[f"{dram}: cycles that wait for memory"] / 16_670 < 0.06
    more = rows[f"{dram}: cycles in all"] - rows[f"{ideal}: cycles in all"]
    assert more == rows[f"{dram}: cycles that wait for memory"]


def test_the_command_writes_every_figure(tmp_path, capsys):
    assert run_app(["reproduce", "smartnic", "--quick", "--out", str(tmp_path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = document["rows"]
    assert document["ok"]
    assert document["quick"]
    assert {each["figure"] for each in rows} == {1, 2, 3, 4}
    assert all(
        list(each) == ["figure", "quantity", "published", "ours", "difference", "note"] for each in rows
    )
    published = {each["published"] for each in rows}
    assert {337, 329, 42, 352, 419, 54} <= published
    (beats,) = (each for each in rows if each["quantity"] == "cycles of products")
    assert (beats["ours"], beats["difference"]) == (16_670, 0)
    with (tmp_path / "smartnic" / "figures.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    assert (tmp_path / "smartnic" / "serve_times.png").stat().st_size > 10_000
