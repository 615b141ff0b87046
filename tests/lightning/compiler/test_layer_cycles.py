"""The cost of a layer: the datapath's own lines, and what wavelengths, cores, passes and skipped zeros change."""

from __future__ import annotations

import numpy as np
import pytest

from fpga.photonic_mac import cycles as datapath
from lightning.compiler import (
    Geometry,
    Hardware,
    Options,
    PhotonicLayer,
    compile_network,
    compute_layer_work,
    count_layer_cycles,
)
from lightning.compiler.datapath.schedule import count_model_cycles
from lightning.errors import OutOfRange

SHAPES = ((300, 784), (100, 300), (10, 100))


def layer(weights, **more):
    weights = np.asarray(weights, np.int16)
    rows = weights.shape[:2]
    return PhotonicLayer("fc", weights, np.zeros(rows, np.int32), 1.0, np.ones(rows, np.float32), **more)


def test_lenet_costs_the_datapath_s_cycles_line_by_line(chain):
    network = chain([np.ones(shape) for shape in SHAPES])
    model = compile_network(network, options=Options("published"))
    assert tuple(
        count_layer_cycles(each, Hardware()) for each in model.layers.values()
    ) == datapath.calculate_cycles(SHAPES)
    assert count_model_cycles(model) == 16_769


@pytest.mark.parametrize(
    ("hardware", "beats"),
    [
        (Hardware(), 10 * 3),
        (Hardware(lanes=8), 10 * 5),
        (Hardware(wavelengths=2), 10 * 2),
        (Hardware(wavelengths=4), 10 * 1),
        (Hardware(cores=3), 4 * 3),
        (Hardware(cores=16), 1 * 3),
    ],
)
def test_beats_are_rows_a_core_times_readouts_a_beat(hardware, beats):
    assert compute_layer_work(layer(np.full((1, 10, 40), 7)), hardware).beats == beats


def test_the_slowest_core_counts_where_zeros_are_left_out():
    weights = np.zeros((1, 4, 64))
    weights[0, 0] = 1
    weights[0, 2, :16] = 1
    assert compute_layer_work(layer(weights), Hardware(skip_zeros=True)).beats == 5
    assert compute_layer_work(layer(weights), Hardware(skip_zeros=True, cores=2)).beats == 5
    assert compute_layer_work(layer(weights[:, [0, 1, 3, 2]]), Hardware(skip_zeros=True, cores=2)).beats == 4


def test_signed_activations_cost_a_second_pass_of_everything_but_macs():
    one, two = (
        compute_layer_work(layer(np.full((1, 5, 20), 3), signed=signed), Hardware())
        for signed in (False, True)
    )
    assert (two.macs, two.passes) == (one.macs, 2)
    assert (two.products, two.readouts, two.beats, two.overhead) == (
        2 * one.products, 2 * one.readouts, 2 * one.beats, 2 * one.overhead,
    )  # fmt: skip
    assert two.cycles == 2 * one.cycles


def test_a_convolution_is_its_rows_at_every_position_and_in_every_group():
    geometry = Geometry(4, 8, 8, (3, 3), (2, 2), (1, 1, 1, 1))
    work = compute_layer_work(layer(np.ones((2, 3, 18)), geometry=geometry), Hardware())
    assert geometry.output == (4, 4)
    assert (work.macs, work.beats, work.readouts) == (2 * 3 * 18 * 16, 2 * 3 * 2 * 16, 2 * 3 * 18 * 16)
    assert work.overhead == 33


def test_products_and_readouts_part_ways_with_wavelengths_and_zeros():
    weights = [[[1, 1, 1, 0, -1, 0, 0, 0]]]
    work = compute_layer_work(layer(weights), Hardware(wavelengths=2, skip_zeros=True))
    assert (work.macs, work.products, work.readouts, work.beats) == (8, 4, 3, 1)


def test_a_dense_layer_of_a_sequence_is_sent_once_for_every_vector():
    assert compute_layer_work(layer(np.ones((1, 4, 16)), vectors=5), Hardware()).beats == 20


@pytest.mark.parametrize(
    "wrong", [{"lanes": 0}, {"wavelengths": -1}, {"cores": 0}, {"clock_hz": 0.0}, {"lanes": 2.5}]
)
def test_hardware_that_cannot_be(wrong):
    with pytest.raises(OutOfRange, match=next(iter(wrong))):
        Hardware(**wrong)
