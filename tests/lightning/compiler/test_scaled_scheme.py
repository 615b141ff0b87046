"""Ranges from samples, biases, signs, and how near the integers come to float32."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lightning.compiler import Options, compile_network
from lightning.compiler.schemes.ranges import (
    RANGE_SHARES,
    find_candidates,
    find_least_divergent_limit,
    find_nonnegative_tensors,
)
from lightning.errors import CompileError, InputError, OutOfRange
from lightning.networks.network import Node, Preprocessing

RANDOM = np.random.default_rng(8)
WEIGHTS = [RANDOM.normal(0, 0.2, (40, 30)), RANDOM.normal(0, 0.3, (5, 40))]
BIASES = [RANDOM.normal(0, 0.3, 40), RANDOM.normal(0, 0.3, 5)]
RAW = RANDOM.integers(0, 256, (300, 30)).astype(np.uint8)
TRAINING, TEST = RAW[:150], RAW[150:]


def test_a_dense_network_with_biases_comes_out_within_three_percent(chain, measured):
    found = measured(compile_network(chain(WEIGHTS, BIASES), TRAINING), TEST)
    assert found.snr_db > 30
    assert (found.exact.argmax(axis=1) == found.float.argmax(axis=1)).mean() > 0.97


def test_convolutions_groups_strides_and_signed_inputs_come_out_as_near(compiled_residual, images, measured):
    assert measured(compiled_residual, images).snr_db > 30


@pytest.mark.parametrize("ranges", ["error", "min-max", "percentile", "entropy"])
def test_every_way_of_choosing_ranges_gives_a_usable_network(chain, measured, ranges):
    assert (
        measured(compile_network(chain(WEIGHTS, BIASES), TRAINING, Options(ranges=ranges)), TEST).snr_db > 24
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("worse", "margin_db"), [({"correct_floor": False}, 1.5), ({"per_channel": False}, 3)]
)
def test_what_each_refinement_is_worth(chain, measured, worse, margin_db):
    """Most weights small and a few large, some rows larger than others, as training leaves them."""
    heavy = np.random.default_rng(8).standard_t(2.5, (40, 30))
    rows = np.geomspace(0.05, 1, 40)[:, None] if "per_channel" in worse else 0.2
    network = chain([heavy * rows, WEIGHTS[1]], BIASES)
    best, without = (
        measured(compile_network(network, TRAINING, Options(sigma=0, **chosen)), TEST).snr_db
        for chosen in ({}, worse)
    )
    assert without < best - margin_db


@pytest.mark.slow
def test_fitted_rounding_is_worth_most_where_neighbours_are_lit_together(chain, measured):
    """As in pictures: what the products of lit inputs lose adds up."""
    gains = []
    for seed in range(3):
        random = np.random.default_rng(seed)
        centres, widths = random.uniform(0, 60, (400, 1)), random.uniform(3, 30, (400, 1))
        strokes = (np.abs(np.arange(60) - centres) < widths) * random.uniform(150, 255, (400, 60))
        raw = strokes.astype(np.uint8)
        network = chain([random.standard_t(2.5, (24, 60)) * 0.25, random.normal(0, 0.3, (8, 24))])
        fitted, nearest = (
            measured(compile_network(network, raw[:200], Options(rounding=rounding)), raw[200:]).snr_db
            for rounding in ("fitted", "nearest")
        )
        gains.append(fitted - nearest)
    assert np.mean(gains) > 1


def test_a_layer_by_hand(chain):
    """Sums 254 and -127 stand for 1 and -0.5, which are 254.0 and -127.0 steps of 256 / 255 / 255."""
    raw = np.array([[255, 0], [0, 255]], np.uint8)
    model = compile_network(
        chain([[[1.0, -0.5]]], [[0.25]]), raw, Options(ranges="min-max", rounding="nearest")
    )
    layer = model.layers["fc1"]
    assert layer.weights.tolist() == [[[255, -128]]]
    assert layer.input_scale == 1 / 255
    assert layer.output_scale.tolist() == [[pytest.approx(256 / 255 / 255)]]
    assert layer.bias.tolist() == [[64]]
    assert not layer.signed


def test_the_mean_that_lost_bits_take_away_is_in_the_bias(chain):
    plain, corrected = (
        compile_network(
            chain([np.ones((1, 64))]), TRAINING[:, :1].repeat(64, 1), Options(correct_floor=correct)
        )
        for correct in (False, True)
    )
    lost = corrected.layers["fc1"].bias - plain.layers["fc1"].bias
    assert plain.layers["fc1"].bias.tolist() == [[0]]
    assert 0 < lost.item() < 64


def test_signs_are_expected_only_where_they_come(compiled_residual):
    assert {name: layer.signed for name, layer in compiled_residual.layers.items()} == {
        "stem": True, "wide": False, "short": False, "head": True,
    }  # fmt: skip


def test_a_rectifier_s_tensor_stays_positive_through_pooling_and_sums(residual):
    plain = replace(
        residual,
        nodes=tuple(
            replace(node, operation="Relu") if node.name == "share" else node for node in residual.nodes
        ),
    )
    assert find_nonnegative_tensors(plain) == {"r", "answer"}
    assert find_nonnegative_tensors(residual) == {"r", "answer"}


def test_a_negative_constant_makes_a_sum_negative(chain):
    network = chain(WEIGHTS)
    for constant, expected in ((np.float32(0.5), {"relu1", "sum"}), (np.float32(-0.5), {"relu1"})):
        added = Node("added", "Add", ("relu1", "shift"), "sum")
        longer = replace(
            network,
            nodes=(*network.nodes[:2], added, *network.nodes[2:]),
            constants={**network.constants, "shift": constant},
        )
        assert find_nonnegative_tensors(longer) == expected


def test_a_clip_that_begins_at_zero_rectifies(chain):
    network = chain(WEIGHTS)
    clipped = tuple(
        replace(node, operation="Clip", attributes={"min": 0.0, "max": 6.0})
        if node.operation == "Relu"
        else node
        for node in network.nodes
    )
    assert find_nonnegative_tensors(replace(network, nodes=clipped)) == {"relu1"}


def test_rows_without_weights_keep_their_bias(chain, measured):
    model = compile_network(
        chain([np.diag([1.0, 0.0])], [[0.0, 0.7]]), np.array([[0, 9], [255, 3]], np.uint8)
    )
    assert measured(model, np.array([[0, 0]], np.uint8)).exact == pytest.approx(
        np.array([[0, 0.7]]), abs=0.01
    )


def test_a_bias_that_is_far_larger_than_the_weights_is_kept(chain, measured):
    raw = np.array([[0], [255]], np.uint8)
    model = compile_network(chain([[[1e-9]]], [[2.0]]), raw)
    assert measured(model, raw).exact == pytest.approx(np.full((2, 1), 2.0), rel=1e-5)


def test_activations_that_are_all_zero_do_not_stop_the_compiler(chain):
    model = compile_network(chain(WEIGHTS), np.zeros((3, 30), np.uint8))
    assert [layer.input_scale for layer in model.layers.values()] == [1 / 255, 1 / 255]


def test_the_same_samples_give_the_same_model_and_the_seed_chooses_among_many(chain):
    network, many = chain(WEIGHTS), np.concatenate([RAW, RAW // 2])
    first, again, other = (
        compile_network(network, many, Options(ranges="percentile", seed=seed)) for seed in (1, 1, 2)
    )
    assert first.layers["fc2"].bias.tolist() == again.layers["fc2"].bias.tolist()
    assert first.layers["fc2"].input_scale != other.layers["fc2"].input_scale


def test_the_origin_names_options_and_samples(chain):
    origin = compile_network(chain(WEIGHTS), TRAINING, source={"file": "net.npz"}).origin
    assert origin["source"] == {"file": "net.npz"}
    assert origin["samples"]["images"] == 150
    assert len(origin["samples"]["sha256"]) == 64
    assert origin["options"]["ranges"] == "error"


@pytest.mark.parametrize(
    ("samples", "error", "words"),
    [
        (None, CompileError, "there are none"),
        (np.full((3, 30), np.nan), InputError, "NaN"),
        (np.zeros((3, 7)), InputError, "takes"),
        (np.zeros((0, 30)), InputError, "empty"),
        (7.0, InputError, "single number"),
        ([[1, 2], [3]], InputError, "different shapes"),
        (
            np.full((3, 30), 1e10),
            CompileError,
            "Gemm fc1 gives values that are infinite, NaN or close to overflow",
        ),
    ],
)
def test_samples_that_cannot_be_measured_on(chain, samples, error, words):
    network = chain([np.full((40, 30), 1e30), WEIGHTS[1]], preprocessing=Preprocessing())
    with pytest.raises(error, match=words):
        compile_network(network, samples)


@pytest.mark.parametrize(
    "wrong",
    [
        {"scheme": "best"},
        {"ranges": "max"},
        {"rounding": "up"},
        {"percentile": 12.0},
        {"sigma": -1.0},
        {"sigma": float("nan")},
    ],
)
def test_options_that_there_are_not(wrong):
    with pytest.raises(OutOfRange):
        Options(**wrong)


# ------------------------------------------------------------------------------------- ranges


def test_the_largest_kept_of_known_magnitudes():
    magnitudes = np.arange(1001, dtype=np.float32)
    assert find_candidates(magnitudes, Options(ranges="min-max")) == (1000.0,)
    assert find_candidates(magnitudes, Options(ranges="percentile", percentile=90.0)) == pytest.approx(
        (900.1,)
    )
    assert find_candidates(magnitudes, Options(ranges="error")) == tuple(part * 1000 for part in RANGE_SHARES)


def test_entropy_keeps_what_is_spread_evenly_and_cuts_a_long_thin_tail():
    even = np.linspace(0, 1, 50_000, dtype=np.float32)
    tailed = np.abs(np.random.default_rng(2).standard_cauchy(50_000)).astype(np.float32)
    assert find_least_divergent_limit(even) > 0.98
    assert find_least_divergent_limit(tailed[tailed < 500]) < 0.5 * 500


def test_entropy_does_not_mind_how_many_values_are_nearly_0():
    tailed = np.abs(np.random.default_rng(2).normal(size=20_000)).astype(np.float32)
    nearly = np.full(500_000, 1e-6, np.float32)
    few, many = (np.concatenate([tailed, nearly[:count]]) for count in (10, len(nearly)))
    assert find_least_divergent_limit(few) == find_least_divergent_limit(many) > 1


def test_a_loud_and_unimportant_input_is_cut_off_where_the_error_decides(chain, measured):
    """One input is thirty times the others, and its weights are small: the others are worth more."""
    random = np.random.default_rng(4)
    raw = np.abs(random.normal(0, 1, (300, 30))) * np.where(np.arange(30) == 0, 30, 1)
    weights = WEIGHTS[0] * np.where(np.arange(30) == 0, 1 / 300, 1)
    network = chain([weights, WEIGHTS[1]], BIASES, Preprocessing())
    whole, cut = (compile_network(network, raw, Options(ranges=ranges)) for ranges in ("min-max", "error"))
    assert cut.layers["fc1"].input_scale < 0.5 * whole.layers["fc1"].input_scale
    assert measured(cut, raw).snr_db > measured(whole, raw).snr_db + 3
