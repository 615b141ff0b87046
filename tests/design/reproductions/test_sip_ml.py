"""SiP-ML reproduced: placement and traffic by hand, rates of both fabrics, trends over wavelengths, the document."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from libraries import skip_without

skip_without("scipy")

from testbed.design.reproductions.figure import ignore_progress
from testbed.design.reproductions.sip_ml import MODULES, describe, load_figure
from testbed.design.reproductions.sip_ml.fastest import FABRICS, find_fastest
from testbed.design.reproductions.sip_ml.iteration_times import compute_speed_ups, count_slowdowns
from testbed.design.reproductions.sip_ml.model import (
    GPU,
    MESSAGE_LATENCY_S,
    RECONFIGURATION_S,
    WAVELENGTH_GBPS,
    compute_iteration,
    compute_ring_bytes,
    make_fat_tree_rates,
    make_ocs_rates,
    make_ring_rates,
    place_operators,
)
from testbed.design.reproductions.sip_ml.setup import MODELS, PAPER, QUICK
from testbed.design.workloads.catalogue import workload
from testbed.design.workloads.model import Operator, Workload
from testbed.errors import OutOfMemory

RESNET50, TRANSFORMER, GPT = (model.build() for model in MODELS)


def chain(*names: str, output_bytes: int = 1_000_000, parameter_bytes: int = 4_000_000) -> Workload:
    """Return operators one after the other, that compute for the overhead of a pass and little more."""
    operators = tuple(
        Operator(name, "dense", 1.0, 2.0, parameter_bytes, output_bytes, gradient_bytes=parameter_bytes)
        for name in names
    )
    return Workload("chain", operators, tuple((i, i + 1) for i in range(len(names) - 1)), 8)


@pytest.fixture(scope="module")
def tables():
    return {number: load_figure(number).make_table(QUICK, ignore_progress) for number in MODULES}


def test_models_have_the_published_sizes():
    assert RESNET50.parameter_bytes == pytest.approx(102.2e6, rel=0.01)
    assert TRANSFORMER.parameter_bytes == pytest.approx(MODELS[1].released_weight_bytes, rel=0.06)
    assert GPT.parameter_bytes / 2 == pytest.approx(355e6, rel=0.01)
    assert [one.batch for one in (RESNET50, TRANSFORMER, GPT)] == [8192, 1024, 1024]


def test_pieces_of_an_operator_go_to_all_gpus_of_a_copy():
    placement = place_operators(RESNET50, 64, 8, 8, 20)

    assert all(sorted(gpus) == list(range(8)) for gpus in placement.gpus_by_operator)
    assert placement.gradient_bytes.sum() == pytest.approx(RESNET50.parameter_bytes)
    assert placement.gradient_bytes.max() == pytest.approx(RESNET50.parameter_bytes / 8)


def test_pieces_stay_within_reach_of_their_inputs():
    placement = place_operators(chain("a", "b", "c", parameter_bytes=60_000_000_000), 1, 8, 1, 2)

    # Memory is for one operator, so each goes to another GPU, two further at most.
    (a,), (b,), (c,) = placement.gpus_by_operator
    assert len({a, b, c}) == 3
    assert max(abs(a - b), abs(b - c)) <= 2


def test_a_model_without_room_within_reach_is_refused():
    with pytest.raises(OutOfMemory, match="no GPU within 1 of its inputs has memory for a piece of c"):
        place_operators(chain("a", "b", "c", parameter_bytes=60_000_000_000), 1, 2, 1, 1)


def test_traffic_of_a_cut_chain():
    traffic = place_operators(chain("a", "b"), 8, 4, 4, 20).compute_traffic()

    # Each GPU sends a quarter of the output to each other one, and the same of the gradient.
    assert (traffic[~np.eye(4, dtype=bool)] == 2 * 8 * 1_000_000 / 4).all()
    assert not np.diag(traffic).any()


def test_sums_over_pieces_are_sent_twice():
    gpt = workload("gpt", 1, batch=8)
    attention = gpt.index_by_operator["attention0"]
    placement = place_operators(gpt, 8, 4, 4, 20)

    edge = (attention, attention + 1)
    assert placement.compute_message_bytes(edge) == 2 * gpt.compute_edge_bytes(edge) * 8 / 4


def test_an_iteration_by_hand():
    placement = place_operators(chain("a", "b"), 8, 2, 2, 20)
    iteration = compute_iteration(placement, 4, make_fat_tree_rates(100, 50))

    message_s = 8 * 1_000_000 / 2 * 8e-9 / 100 + MESSAGE_LATENCY_S
    computed_s = sum(sum(placement.compute_piece_seconds(number)) for number in (0, 1))
    assert iteration.passes_s == pytest.approx(computed_s + 2 * message_s)
    data_s = 2 * 3 / 4 * 4_000_000 * 8e-9 / 50 + 2 * 3 * MESSAGE_LATENCY_S
    assert iteration.gradient_sum_s == pytest.approx(data_s)
    assert iteration.total_s == iteration.passes_s + iteration.gradient_sum_s


def test_gradients_alone_get_every_wavelength():
    placement = place_operators(chain("a"), 8, 1, 1, 20)

    for rates in (make_ocs_rates(placement, 64, 40), make_ring_rates(placement, 64, 40)):
        assert rates.gradient_gbps.tolist() == [40 * WAVELENGTH_GBPS]
        assert rates.outage_s == 0


def test_arcs_of_gradients_share_segments():
    # Every node of a copy of 4 sends over 4 segments, so each circuit has a fourth of the wavelengths.
    placement = place_operators(chain("a"), 8, 4, 4, 20)

    assert make_ring_rates(placement, 64, 40).gradient_gbps.tolist() == [40 * WAVELENGTH_GBPS / 4] * 4
    assert make_ocs_rates(placement, 64, 40).gradient_gbps.tolist() == [40 * WAVELENGTH_GBPS] * 4


def test_switches_that_change_have_all_wavelengths_for_each_kind_of_traffic():
    placement = place_operators(TRANSFORMER, 8, 8, 8, 20)
    once, changing = (make_ocs_rates(placement, 128, 80, delay_s) for delay_s in (None, 1e-3))

    assert (changing.gradient_gbps > once.gradient_gbps).all()
    assert (changing.circuit_gbps >= once.circuit_gbps).all()
    assert (once.outage_s, changing.outage_s) == (0, 2e-3)
    assert make_ring_rates(placement, 128, 80).outage_s == 2 * RECONFIGURATION_S


def test_fast_switches_gain_and_slow_ones_lose(tables):
    for line in load_figure(3).compare_with_paper(tables[3]):
        assert (line.ours < 1.001) if "20 us" in line.quantity else (line.ours > 1)


def test_switches_are_divided_between_all_traffic():
    placement = place_operators(TRANSFORMER, 8, 8, 8, 20)
    rates = make_ocs_rates(placement, 128, 80)

    assert (rates.circuit_gbps[~np.eye(8, dtype=bool)] > 0).all()
    assert (rates.circuit_gbps.sum(axis=1) + rates.gradient_gbps <= 80 * WAVELENGTH_GBPS + 1e-6).all()


def test_pairs_take_turns_if_wavelengths_do_not_suffice():
    # 16 pairs cross the middle of a copy of 8, with 10 wavelengths in each direction.
    placement = place_operators(TRANSFORMER, 8, 8, 8, 16)
    rates = make_ring_rates(placement, 128, 20)

    assert rates.circuit_gbps[0, 7] == pytest.approx(0.8 * 10 / 16 * WAVELENGTH_GBPS, rel=0.01)


def test_a_pair_without_a_circuit_never_ends():
    placement = place_operators(chain("a", "b"), 8, 2, 2, 20)
    rates = make_fat_tree_rates(100)

    assert compute_iteration(placement, 4, replace(rates, circuit_gbps=np.zeros((2, 2)))).passes_s == np.inf
    assert compute_iteration(placement, 4, replace(rates, gradient_gbps=np.zeros(2))).gradient_sum_s == np.inf


def test_one_copy_sums_nothing():
    assert compute_ring_bytes(np.array([5e9]), 1).tolist() == [0]
    assert (
        compute_iteration(
            place_operators(chain("a"), 8, 1, 1, 20), 1, make_fat_tree_rates(100)
        ).gradient_sum_s
        == 0
    )


def test_higher_rates_and_more_wavelengths_are_never_slower(tables):
    assert count_slowdowns(tables[1]) == 0


def test_an_ideal_fat_tree_of_the_same_rate_is_a_bound(tables):
    for row in tables[1].records:
        if row["wavelengths"] == 80:
            model = next(one for one in MODELS if one.name == row["model"])
            bound, _ = find_fastest(model, model.build(), 4, 16, "fat-tree", float(row["gbps"]))
            assert float(row["iteration_ms"]) >= 1e3 * bound.total_s * (1 - 1e-6)


@pytest.mark.long
def test_trends_at_the_sizes_of_the_paper():
    table = load_figure(1).make_table(PAPER, ignore_progress)
    of_scripts = [
        row[-1]
        for row in compute_speed_ups(table, uses_released_weights=True)
        if row[2] >= 80 and row[3] == 400
    ]

    assert count_slowdowns(table) == 0
    assert 1.2 < min(of_scripts) < 1.5
    assert 8 < max(of_scripts) < 11
    for model in table.list_values("model"):
        part = table.select_rows(model=model, wavelengths=320)
        ring, ocs = (part.get_number("iteration_ms", fabric=fabric) for fabric in ("sip-ring", "sip-ocs"))
        assert 1 <= ring / ocs <= 2


def test_the_document_has_an_iteration_for_each_model_and_fabric(tables):
    (name, iterations), *others = describe(tables).items()

    assert (name, others) == ("iterations", [])
    assert {(row["model"], row["fabric"]) for row in iterations} == {
        (model.name, fabric) for model in MODELS for fabric in FABRICS
    }
    assert {row["wavelengths"] for row in iterations} == {None, *QUICK.wavelength_counts}
    assert all(
        row["iteration_ms"] == pytest.approx(row["model_ms"] + row["data_ms"], rel=1e-5) for row in iterations
    )
    assert describe({2: tables[2]}) == {}


def test_every_figure_is_compared_and_drawn(tables):
    for number in MODULES:
        one = load_figure(number)
        assert len({line.quantity for line in one.compare_with_paper(tables[number])}) == len(
            one.compare_with_paper(tables[number])
        )
        assert len(one.make_plot(tables[number]).panels) == len(MODELS)


def test_memory_is_that_of_the_scripts():
    assert GPU.memory_bytes == 100e9


def test_other_figures_are_refused():
    with pytest.raises(ValueError, match="figure 4 of sip-ml is not reproduced: choose from 1, 2, 3"):
        load_figure(4)
