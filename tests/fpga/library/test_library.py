"""The purpose of each module of the library, as facts."""

from pathlib import Path

import numpy as np
import pytest
from libraries import skip_without

import fpga

skip_without("lark", reason="needs lark: pip install 'lightbed[fpga]'")

from fpga.count_action import load
from fpga.hdl.cosimulation import measure_coverage

LIBRARY = sorted((Path(fpga.__file__).parent / "library").glob("*.ca"))
NAMES = [path.stem for path in LIBRARY]
SHORT = {"cross_cycle_accumulator": {"beats": 2}, "photonic_dot": {"beats": 2, "products": 6}}
"""Parameters with which something happens in few cycles."""

DIGESTS = {
    "averager": "c45af1ce",
    "cross_cycle_accumulator": "b808cca8",
    "latency_counter": "a75c81de",
    "layer_counter": "1c96d325",
    "layer_sequencer": "3b24c138",
    "photonic_dot": "0f882629",
    "photonic_mac_control": "b1c90221",
    "preamble_control": "d6277eb4",
    "sparsity_gate": "802afd03",
    "synchronous_data_streamer": "7ab3876c",
}
"""Digests of the modules that were there before the language had formulas: built hardware has them."""


@pytest.mark.parametrize("name", DIGESTS)
def test_old_texts_mean_what_they_did(name):
    datapath = load(LIBRARY[NAMES.index(name)]).datapath
    assert f"{datapath.digest:08x}" == DIGESTS[name]


def test_the_library_is_what_the_page_lists():
    assert NAMES == [
        "argmax", "averager", "cross_cycle_accumulator", "dag_loader", "header_parser", "latency_counter",
        "layer_counter", "layer_sequencer", "max_pool", "mean_pool", "packet_assembler", "packet_outcomes",
        "photonic_dot", "photonic_mac_control", "preamble_control", "preamble_finder", "relu", "round_robin_arbiter",
        "sign_aware_adder", "smartnic_control", "sparsity_gate", "streamed_sequencer", "synchronous_data_streamer",
        "token_bucket",
    ]  # fmt: skip


@pytest.mark.parametrize("path", LIBRARY, ids=NAMES)
def test_a_module_has_no_errors_and_only_the_warnings_we_know(path):
    checked = load(path)
    assert checked.inferences == ()
    assert [str(each) for each in checked.warnings] == []


@pytest.mark.long
@pytest.mark.hdl
@pytest.mark.parametrize("name", NAMES)
def test_the_rtl_of_a_module_is_the_simulator_cycle_by_cycle(icarus, name):
    pytest.importorskip("numba", reason="needs numba: pip install 'lightbed[fpga]'")
    from fpga.count_action.simulate import compile_datapath
    from fpga.hdl.cosimulation import find_first_mismatch
    from fpga.hdl.stimulus import generate_stimulus

    short = SHORT.get(name, {})
    datapath = load(LIBRARY[NAMES.index(name)], short).datapath
    # Each from reset: a count that has overshot its target may never fire again.
    simulator, stimuli = compile_datapath(datapath), [generate_stimulus(datapath, 200, n) for n in range(4)]
    seen, fires = np.split(icarus.run(datapath, np.concatenate(stimuli), episode_cycles=200), 4), 0
    for rows, outputs in zip(stimuli, seen, strict=True):
        simulator.reset()
        expected = simulator.run(rows)
        assert find_first_mismatch(datapath, expected, outputs) is None
        fires += measure_coverage(datapath, rows, expected).fires
    assert fires >= 20


def test_the_streamer_waits_for_the_last_converter(play):
    played = play(
        "synchronous_data_streamer",
        {"DAC_valid_i": [0b01, 0b01, 0b11, 0b10, 0b11], "DAC_data_i": [0x5, 0x5, 0x95, 0x90, 0x97]},
        8, streams=2, bits=4,
    )  # fmt: skip
    assert played["DAC_ready_o"][:5] == [0, 0, 0b11, 0, 0b11]
    assert played.beats("synchronous_data_streamer_beat") == [0x95, 0x97]


def test_preamble_control_finds_the_place_that_matched_often_enough(play):
    matches = [0, 1 << 3, 1 << 3, 1 << 5, 0, 1 << 3, 1 << 5, 1 << 5]
    played = play("preamble_control", {"match_i": matches}, 10, samples=8, length=3)
    assert played["preamble_control_found_3_o"] == [0] * 6 + [1] * 4
    assert played["preamble_control_locked_o"] == [0] * 6 + [1] * 4
    assert played["preamble_control_found_5_o"] == [0] * 10  # its third match came after the lock


def test_preamble_control_begins_again_at_a_restart(play):
    driven = {"match_i": [1, 1, 0, 0, 1, 0, 2, 2], "restart_i": [0, 0, 0, 1]}
    played = play("preamble_control", driven, 10, samples=4, length=2)
    assert played["preamble_control_found_0_o"] == [0, 0, 1, 1, 0, 0, 0, 0, 0, 0]
    assert played["preamble_control_found_1_o"] == [0] * 8 + [1] * 2


def test_the_averager_stops_after_its_averages_and_goes_on_after_a_restart(play):
    wave = list(range(1, 21))
    driven = {"wave_valid_i": [1] * 20, "wave_data_i": wave, "restart_i": [0] * 14 + [1]}
    played = play("averager", driven, 24, samples=4, places=2, averages=2, bits=8)
    # Samples 1..4, 5..8; nothing until the restart (cycle 14) is seen; then 16..19.
    assert played.beats("averager_mean") == [10 // 4, 26 // 4, 70 // 4]


@pytest.mark.parametrize(
    ("partials", "beats", "results"),
    [
        ([1, 2, 3, 4, 5, 6], 3, [6, 15]),
        ([-5, 2, -4095, 4095], 2, [-3, 0]),
        ([4000] * 12, 12, [48000 - 65536]),  # 16 bits wrap
    ],
)
def test_the_accumulator_adds_signed_partial_sums(play, partials, beats, results):
    driven = {"partial_valid_i": [1] * len(partials), "partial_data_i": [each % 2**13 for each in partials]}
    played = play("cross_cycle_accumulator", driven, len(partials) + 3, beats=beats)
    assert played.beats("cross_cycle_accumulator_result") == [each % 2**16 for each in results]


def test_the_accumulator_loses_nothing_while_its_result_waits(play):
    driven = {
        "partial_valid_i": [1, 1, 1, 1, 1, 1, 1], "partial_data_i": [1, 2, 3, 3, 3, 3, 4],
        "cross_cycle_accumulator_result_ready_i": [1, 1, 0, 0, 0, 1, 1, 1, 1, 1],
    }  # fmt: skip
    played = play("cross_cycle_accumulator", driven, 10, beats=2)
    assert played["partial_ready_o"][:7] == [1, 1, 0, 0, 0, 1, 1]
    assert played.beats("cross_cycle_accumulator_result") == [3, 7]


def test_the_sequencer_sends_a_preamble_then_every_beat_then_waits_for_results(play):
    driven = {"start_i": [0, 1], "result_valid_i": [0] * 12 + [1, 0, 1]}
    played = play("layer_sequencer", driven, 18, preamble=3, beats=2, products=4, results=2)
    assert played["layer_sequencer_heading_o"] == [0, 0, 1, 1, 1] + [0] * 13
    assert played["layer_sequencer_sending_o"] == [0] * 5 + [1, 1, 1, 1] + [0] * 9
    assert played.count("layer_sequencer.row")[5:9] == [0, 1, 0, 1]  # which row of activations is due
    assert played["layer_sequencer_row_done_o"] == [0] * 7 + [1, 0, 1] + [0] * 8
    assert played["layer_sequencer_layer_done_o"] == [0] * 15 + [1, 0, 0]


def test_the_layer_counter_says_next_after_each_and_finished_after_the_last(play):
    played = play("layer_counter", {"layer_done_i": [0, 1, 0, 1, 1, 1]}, 8, layers=3)
    assert played["layer_counter_next_o"] == [0, 0, 1, 0, 1, 1, 1, 0]
    assert played["layer_counter_finished_o"] == [0, 0, 0, 0, 0, 1, 0, 0]
    assert played.count("layer_counter.layer") == [0, 0, 1, 1, 2, 0, 1, 1]


def test_the_sparsity_gate_drops_beats_without_work_and_counts_them(play):
    driven = {
        "product_valid_i": [1, 1, 1, 0, 1], "product_data_i": [0x21, 0, 0x43, 0, 0],
        "nonzero_i": [1, 0, 1, 1, 0],
    }  # fmt: skip
    played = play("sparsity_gate", driven, 7, lanes=2, bits=4)
    assert played["product_ready_o"][:5] == [1, 1, 1, 1, 1]
    assert played.beats("sparsity_gate_kept") == [0x21, 0x43]
    assert played.count("sparsity_gate.skipped")[-1] == 2


def test_the_latency_counter_counts_from_start_to_stop(play):
    driven = {"start_i": [0, 0, 1], "stop_i": [0] * 9 + [1]}
    played = play("latency_counter", driven, 14)
    assert played.count("latency_counter.cycles")[-1] == 9 - 2
    assert played["latency_counter_running_o"] == [0] * 3 + [1] * 7 + [0] * 4


def test_the_latency_counter_says_late_when_the_limit_is_reached(play):
    driven = {
        "start_i": [0, 1], "target_shadow_i": [5 << 16 | 1], "commit_i": [1],
    }  # fmt: skip
    played = play("latency_counter", driven, 10)
    assert played["latency_counter_late_o"] == [0] * 7 + [1] * 3


def test_the_control_runs_two_layers_one_after_the_other(play):
    # A layer of two outputs of one beat; what it asks for comes back four cycles later.
    one_layer = {"preamble": 1, "beats": 1, "products": 2, "results": 2, "layers": 2}
    driven = {
        "start_i": [1],
        "run_i": [1],
        "partial_valid_i": [0] * 6 + [1, 1],
        "partial_data_i": [0] * 6 + [5, 6],
    }
    played = play("photonic_mac_control", driven, 14, **one_layer)
    assert played["sequencer_heading_o"][:5] == [0, 1, 0, 0, 0]
    assert played["sequencer_sending_o"][:6] == [0, 0, 1, 1, 0, 0]
    results = zip(played["accumulator_result_valid_o"], played["accumulator_result_data_o"], strict=True)
    assert [data for valid, data in results if valid] == [5, 6]
    assert played["sequencer_layer_done_o"][9] == 1
    assert (played["layers_next_o"][10], played["layers_finished_o"][10]) == (1, 0)
    assert played["latency_running_o"][1:] == [1] * 13


def test_a_dot_product_leaves_when_both_operands_are_there(play):
    played = play(
        "photonic_dot",
        {"operand_valid_i": [0b01, 0b01, 0b11, 0b11], "operand_data_i": [0x21, 0x21, 0x8721, 0xFF43]},
        6, lanes=2, bits=4,
    )  # fmt: skip
    assert played["operand_ready_o"][:4] == [0, 0, 0b11, 0b11]
    assert played.beats("converters_light") == [0x8721, 0xFF43]


def test_signed_products_are_added_over_lanes_and_beats_and_layers_are_counted(play):
    def beat(one: int, other: int) -> int:
        return one % 2**5 | other % 2**5 << 5

    driven = {
        "product_valid_i": [1, 1, 0, 1, 1, 1, 1],
        "product_data_i": [
            beat(15, -3), beat(1, 1), 0, beat(-15, -15), beat(-2, 0), beat(7, 7), beat(0, -16),
        ],
    }  # fmt: skip
    played = play("photonic_dot", driven, 12, lanes=2, bits=4, beats=2, products=4, width=8, layers=2)
    assert played.beats("adder_dot") == [14, -32 % 2**8, -2 % 2**8]
    assert played["adder_layer_done_o"] == [0] * 5 + [1] + [0] * 6
    assert played.count("layers.layer")[-1] == 1
    assert played.count("adder.layer")[-1] == 2  # of the second layer


def test_a_dot_product_of_sixteen_bits_wraps(play):
    driven = {"product_valid_i": [1] * 9, "product_data_i": [2**8 - 1 | (2**8 - 1) << 9] * 9}
    wide = play("photonic_dot", driven, 11, lanes=2, beats=9)
    narrow = play("photonic_dot", driven, 11, lanes=2, beats=9, width=12)
    assert wide.beats("adder_dot") == [18 * 255]
    assert narrow.beats("adder_dot") == [18 * 255 - 2**12]


def samples(beat: int, lanes: int, bits: int) -> list[int]:
    """Return the lanes of a beat as signed numbers."""
    values = [beat >> place * bits & (1 << bits) - 1 for place in range(lanes)]
    return [value - (value >> (bits - 1) << bits) for value in values]


def beat_of(values, bits: int) -> int:
    """Return numbers as the lanes of a beat."""
    return sum(value % 2**bits << place * bits for place, value in enumerate(values))


def test_relu_makes_negative_samples_0(play):
    beats = [[-8, 7, 0, -1], [3, -3, 1, 2]]
    driven = {"x_valid_i": [1, 1], "x_data_i": [beat_of(each, 4) for each in beats]}
    played = play("relu", driven, 4, lanes=4, bits=4)
    assert [samples(each, 4, 4) for each in played.beats("relu_y")] == [[0, 7, 0, 0], [3, 0, 1, 2]]


def test_pools_take_the_largest_and_the_mean_of_a_window(play):
    beats = [[-8, -7], [-2, -3], [5, 1], [7, -7], [0, 0], [0, 0]]
    driven = {"x_valid_i": [1] * 6, "x_data_i": [beat_of(each, 4) for each in beats]}
    largest = play("max_pool", driven, 8, lanes=2, bits=4, beats=2)
    assert [samples(each, 1, 4) for each in largest.beats("max_pool_pooled")] == [[-2], [7], [0]]
    mean = play("mean_pool", driven, 8, lanes=2, bits=4, beats=2, places=2)
    assert [samples(each, 1, 6) for each in mean.beats("mean_pool_pooled")] == [[-5], [1], [0]]


def test_argmax_is_the_first_of_the_largest(play):
    scores = [-5, -2, -2, -7, 4, 7, 7, -8]
    driven = {
        "score_valid_i": [1, 1, 0, 1, 1, 1, 1, 1, 1],
        "score_data_i": [s % 16 for s in [*scores[:2], 15, *scores[2:]]],
    }
    played = play("argmax", driven, 11, outputs=4, bits=4)
    assert [samples(each, 2, 4) for each in played.beats("argmax_best")] == [[-2, 1], [7, 1]]


def test_products_are_added_or_taken_away_as_their_signs_say(play):
    magnitudes, signs = [[5, 3], [15, 15], [1, 2], [0, 9]], [[1, 0], [0, 0], [1, 1], [0, 1]]
    driven = {
        "product_valid_i": [1] * 4, "product_data_i": [beat_of(each, 4) for each in magnitudes],
        "sign_valid_i": [1] * 4, "sign_data_i": [beat_of(each, 1) for each in signs],
    }  # fmt: skip
    played = play("sign_aware_adder", driven, 8, lanes=2, bits=4, beats=2, width=8)
    assert [samples(each, 1, 8) for each in played.beats("adder_result")] == [[2 - 30], [12]]


def test_the_preamble_finder_finds_the_place_after_enough_beats(play):
    high = [1 <= lane - 3 <= 8 for lane in range(1, 17)]  # begins at place 3
    light = beat_of([200 if each else 20 for each in high], 8)
    driven = {"light_valid_i": [1, 1, 0, 1, 1], "light_data_i": [light] * 5, "restart_i": [0] * 6 + [1]}
    played = play("preamble_finder", driven, 9, length=3)
    assert played["preamble_finder_risen_3_o"] == [0] * 4 + [1] * 3 + [0, 0]
    assert played["preamble_finder_locked_o"] == [0] * 4 + [1] * 3 + [0, 0]


def test_the_loader_takes_the_lengths_of_each_layer_from_its_tables(play):
    beats, products, layers = [2, 1, 3], [4, 3, 3], 3
    shadow = layers
    for place, value in enumerate(beats):
        shadow |= value << 16 + 16 * place
    for place, value in enumerate(products):
        shadow |= value << 16 + 3 * 16 + 24 * place
    driven = {"target_shadow_i": [shadow], "commit_i": [1], "product_valid_i": [0, *[1] * 10, 0]}
    played = play("dag_loader", driven, 15, layers=3)
    rows = [cycle for cycle, done in enumerate(played["dag_loader_row_done_o"]) if done]
    assert rows == [3, 5, 6, 7, 8, 11]  # 2 + 2 products of layer 0 from cycle 1 on, three of 1, one of 3
    assert [c for c, done in enumerate(played["dag_loader_layer_done_o"]) if done] == [5, 8, 11]
    assert played["dag_loader_layer_o"] == [0] * 5 + [1] * 3 + [2] * 3 + [0] * 4
    assert played["dag_loader_finished_o"] == [0] * 12 + [1] + [0] * 2
