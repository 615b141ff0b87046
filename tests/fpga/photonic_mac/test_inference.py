"""Whole networks on the RTL with simulated optics: numbers bit by bit, cycles line by line."""

from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from witnesses.mac_hardware import PORTS, inference, load_rows, loopback_design, run_rows

from fpga.hdl.design import make_block_design
from fpga.hdl.tools import BadOutput
from fpga.photonic_mac import Network, Optics, Timing, calculate_cycles, layer_results, sum_cycles
from fpga.photonic_mac.cycles import list_light_cycles, measure_layers
from fpga.photonic_mac.network import simulate_noisy_results


def random_case(seed, *sizes, density=1.0):
    random = np.random.default_rng(seed)
    layers = [
        random.integers(-255, 256, (out, into)) * (random.random((out, into)) < density)
        for into, out in pairwise(sizes)
    ]
    return Network(tuple(layer.astype(np.int32) for layer in layers)), random.integers(0, 256, sizes[0])


SMALL = [
    # sizes, optics, preamble
    ((40, 20, 10), Optics(), 10),
    ((16, 1), Optics(delay=0, shift=0), 1),
    ((1, 1, 1, 1, 1), Optics(delay=15, shift=15), 2),
    ((33, 17, 16, 3), Optics(delay=4, shift=8), 1),
    ((64, 5), Optics(delay=1, shift=1, sparsity=True), 3),
]
IMPERFECT = [
    ((40, 20, 10), Optics(noise=True, seed=5), 10),
    ((33, 17, 3), Optics(delay=2, shift=9, noise=True, seed=77, sparsity=True), 4),
    ((48, 6, 4), Optics(gain=190), 10),
]


def agree(found, expected, shapes, timing):
    assert [each.tolist() for each in found.results] == [each.tolist() for each in expected]
    assert found.chosen == int(expected[-1].argmax())
    assert found.cycles == sum_cycles(calculate_cycles(shapes, timing))
    assert not found.fault


@pytest.mark.long
@pytest.mark.hdl
@pytest.mark.parametrize(("sizes", "optics", "preamble"), SMALL)
def test_icarus_gives_the_numbers_and_cycles_of_the_model(icarus, sizes, optics, preamble):
    network, image = random_case(1, *sizes)
    timing = Timing(preamble, optics.delay)
    rows = np.concatenate([load_rows(network), run_rows(network, image, optics, timing)])
    found = inference(icarus.run(loopback_design(), rows))
    agree(found, [each[0] for each in layer_results(network, image)], network.shapes, timing)
    assert measure_layers(found.trace) == calculate_cycles(network.shapes, timing)


@pytest.mark.hdl
@pytest.mark.parametrize(("sizes", "optics", "preamble"), IMPERFECT)
def test_noise_and_loss_are_those_of_the_model(icarus, sizes, optics, preamble):
    network, image = random_case(2, *sizes)
    timing = Timing(preamble, optics.delay)
    rows = np.concatenate([load_rows(network), run_rows(network, image, optics, timing)])
    found = inference(icarus.run(loopback_design(), rows))
    lit = list(list_light_cycles(calculate_cycles(network.shapes, timing)))
    expected = list(simulate_noisy_results(network, image, optics, lit))
    agree(found, expected, network.shapes, timing)
    ideal = layer_results(network, image)[0][0]
    assert (expected[0] != ideal).mean() > 0.5


@pytest.mark.translates
def test_verilator_runs_network_after_network_without_a_reset(verilated):
    verilated.reset()
    shifts, raised, lowered = set(), 0, 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        sizes = random.integers(1, 120, random.integers(2, 6)).tolist()
        network, image = random_case(seed, *sizes, density=random.choice([0.1, 1.0]))
        optics = Optics(delay=int(random.integers(16)), shift=seed % 16, sparsity=bool(seed % 3 == 0))
        timing = Timing(int(random.integers(1, 12)), optics.delay)
        verilated.run(load_rows(network))
        found = inference(verilated.run(run_rows(network, image, optics, timing)))
        agree(found, [each[0] for each in layer_results(network, image)], network.shapes, timing)
        assert measure_layers(found.trace) == calculate_cycles(network.shapes, timing)
        shifts.add(optics.shift)
        raised += any(0 < each.max() < 128 for each in found.results[:-1])
        lowered += any(each.max() > 255 for each in found.results[:-1])
    assert shifts == set(range(16))
    assert (raised >= 2, lowered >= 20) == (
        True,
        True,
    )  # activations were shifted to the left, and to the right


def test_two_images_one_after_the_other_need_no_new_weights(verilated):
    verilated.reset()
    network, image = random_case(3, 50, 30, 10)
    verilated.run(load_rows(network))
    for pixels in (image, image[::-1], np.zeros(50, int), np.full(50, 255)):
        found = inference(verilated.run(run_rows(network, pixels)))
        agree(found, [each[0] for each in layer_results(network, pixels)], network.shapes, Timing())


def test_lenet_under_verilator_is_the_model_bit_by_bit(verilated, lenet, mnist):
    images, _ = mnist
    images = images[:20]
    expected = layer_results(lenet, images)
    verilated.reset()
    verilated.run(load_rows(lenet))
    for number, image in enumerate(images):
        optics = Optics(delay=7, shift=number % 16)
        found = inference(verilated.run(run_rows(lenet, image, optics)))
        agree(found, [each[number] for each in expected], lenet.shapes, Timing())
        assert measure_layers(found.trace) == calculate_cycles(lenet.shapes)
        assert found.cycles == 16_769


FAULTS = [
    # block, what stands there, what is planted
    ("signed_products", "signs_i[i] ? magnitude : -magnitude", "magnitude"),
    ("adder_tree", "sums[2*n] + sums[2*n+1]", "sums[2*n] + sums[2*n]"),
    ("running_maximum", "!any_q || ($signed", "($signed"),
    ("running_maximum", "$signed(sample_i) > $signed(largest_q)", "sample_i > largest_q"),
    ("normalised_activation", "result_i[Width-1] ? 8'd0 : ", ""),
    ("highest_bit", "word_i[i] ? i[", "word_i[i] && place[i-1] == '0 ? i["),
    ("activation_memory", "(mine || lane == '0)", "mine"),
    ("beat_queue", "if (pop_i && valid_o) read_q", "if (valid_o) read_q"),
    ("preamble_window", "assign next_o    = history[Stages];", "assign next_o    = history[Stages+1];"),
    ("preamble_detector", "window[int'(place_o)*Width+:Lanes*Width]", "current"),
    ("photonic_mac", "samples[i*16+7+:8]", "samples[i*16+8+:8]"),
    ("photonic_inference", ".result_write_i(result_valid_o && !layer_o[0])", ".result_write_i(result_valid_o)"),
    ("photonic_inference", "if (rst_i || run_i) highest_q", "if (rst_i) highest_q"),
    ("photonic_inference", "assign results = layer_o[0] ?", "assign results = !layer_o[0] ?"),
    ("photonic_sample", "product[15:8]", "product[15:8] + {7'd0, product[7]}"),
]  # fmt: skip

DAILY = {"photonic_mac", "photonic_sample"}
"""Blocks that no other test looks at alone; faults in the others are planted in `make test-long`."""


def _differs(icarus, design):
    """Return whether a network run twice on this design is not what the model says."""
    network, image = random_case(12, 33, 17, 40, 5)
    network = Network(
        (*network.layers[:2], -np.abs(network.layers[2]))
    )  # the largest of the last layer is negative
    timing = Timing(3, 2)
    once = run_rows(network, image, Optics(delay=2, shift=5), timing)
    outputs = icarus.run(design, np.concatenate([load_rows(network), once, once]))
    first, second = outputs[-2 * len(once) : -len(once)], outputs[-len(once) :]
    expected = [each[0] for each in layer_results(network, image)]
    assert expected[-1].max() < 0 < expected[-1].argmax()
    try:
        for each in (first, second):
            agree(inference(each), expected, network.shapes, timing)
    except (AssertionError, ValueError):
        return True
    return False


def test_what_a_fault_replaces_stands_once_in_its_block():
    sources = dict(loopback_design().sources)
    assert [block for block, sound, _ in FAULTS if sources[f"{block}.sv"].count(sound) != 1] == []


@pytest.mark.long
@pytest.mark.hdl
def test_the_case_of_the_planted_faults_is_sound(icarus):
    assert not _differs(icarus, loopback_design())


@pytest.mark.hdl
@pytest.mark.parametrize(
    ("block", "sound", "fault"),
    [pytest.param(*fault, marks=() if fault[0] in DAILY else pytest.mark.long) for fault in FAULTS],
)
def test_a_planted_fault_is_found(icarus, block, sound, fault):
    design = loopback_design()
    sources = dict(design.sources)
    assert sources[f"{block}.sv"].count(sound) == 1
    sources[f"{block}.sv"] = sources[f"{block}.sv"].replace(sound, fault)
    with suppress(BadOutput):  # an X that came out is found, too
        assert _differs(icarus, replace(design, sources=tuple(sources.items())))


def test_light_that_does_not_come_back_is_a_fault_and_a_reset_mends_it(verilated):
    verilated.reset()
    network, image = random_case(4, 20, 10)
    verilated.run(load_rows(network))
    with pytest.raises(ValueError, match="light did not come back"):
        inference(verilated.run(run_rows(network, image, Optics(gain=0))))
    verilated.reset()
    found = inference(verilated.run(run_rows(network, image)))
    agree(found, [each[0] for each in layer_results(network, image)], network.shapes, Timing())


def test_the_top_reads_the_counts_where_the_control_has_them():
    pytest.importorskip("lark", reason="needs lark: pip install 'lightbed[fpga]'")
    from fpga.photonic_mac.control import load_library_datapath

    places, low = {}, 0
    for module, count in load_library_datapath("photonic_mac_control").list_counts():
        places[f"{module.name}.{count.name}"] = (low, low + count.width - 1)
        low += count.width
    assert places["sequencer.row"] == (32, 47)
    assert places["sequencer.results"] == (72, 87)
    assert places["layers.layer"][0] == 120
    assert places["latency.cycles"] == (168, 199)
    assert low == 200


def test_what_does_not_finish_is_reported():
    with pytest.raises(ValueError, match=r"did not finish\. Was the run long enough"):
        inference(np.zeros((9, PORTS.output_column_count), np.uint64))


@pytest.mark.parametrize("sizes", [(1025, 1), (1, 1025), (1000, 300), (1, 1, 1, 1, 1, 1)])
def test_a_network_that_the_memories_do_not_hold_is_refused(sizes):
    network, _ = random_case(0, *sizes)
    with pytest.raises(ValueError, match="the memories hold"):
        load_rows(network)


def test_optics_and_timing_must_agree():
    network, image = random_case(0, 4, 2)
    with pytest.raises(ValueError, match="late by 3 cycles, not 7"):
        run_rows(network, image, Optics(delay=3), Timing())


@pytest.mark.long
@pytest.mark.hdl
def test_the_datapath_is_clean(lint, yosys_accepts):
    assert lint.lint(loopback_design()) == ()
    assert yosys_accepts(loopback_design()) == ()


@pytest.mark.long
@pytest.mark.hdl
def test_the_published_detector_is_clean(lint, yosys_accepts):
    design = make_block_design("preamble_detector")
    sources = {name: text.replace("Published = 1'b0", "Published = 1'b1") for name, text in design.sources}
    assert sources["preamble_detector.sv"] != dict(design.sources)["preamble_detector.sv"]
    published = replace(design, sources=tuple(sources.items()))
    assert lint.lint(published) == ()
    assert yosys_accepts(published) == ()
