"""Latency and energy are sums of stated figures, and the published model costs what its cycles say."""

from __future__ import annotations

import numpy as np
import pytest

from lightning.compiler import Options, compile_network
from lightning.compiler.hardware import Hardware
from lightning.costs import BASELINES, PRESETS, costs_of
from lightning.costs.shot_noise import photons_for_bits, shot_noise, shot_noise_curve
from lightning.errors import OutOfRange
from lightning.networks import load_network


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """The sizes of LeNet-300-100, random weights."""
    rng = np.random.default_rng(1)
    shapes = [(300, 784), (100, 300), (10, 100)]
    weights = [rng.normal(0, 0.05, shape) * (rng.random(shape) < 0.1) for shape in shapes]
    file = tmp_path_factory.mktemp("costs") / "lenet.npz"
    np.savez(file, **{f"w{number}": each.astype(np.float32) for number, each in enumerate(weights, 1)})
    return load_network(file)


def compiled(network, hardware: Hardware | None = None):
    return compile_network(network, options=Options(scheme="published", hardware=hardware or Hardware()))


@pytest.fixture(scope="module")
def model(network):
    return compiled(network)


def test_latency_is_the_datapaths_cycles_over_its_clock(model):
    costs = costs_of(model, "chip")
    assert costs.work.cycles == 16_769
    assert costs.latency_s == pytest.approx(16_769 / 253.44e6)
    assert sum(work.cycles for work in costs.layers.values()) == 16_769


@pytest.mark.parametrize("preset", PRESETS)
def test_every_line_has_a_source_and_lines_add_up(model, preset):
    costs = costs_of(model, preset)
    assert all(line.each.source and line.each.unit in {"W", "J"} for line in costs.lines)
    assert all((line.each.unit == "W") == line.per.endswith("seconds") for line in costs.lines)
    assert costs.joules_per_image == pytest.approx(sum(line.joules for line in costs.lines))
    converters = sum(line.joules for line in costs.lines if line.group == "converters")
    assert converters > 0
    assert costs.joules_per_image - costs.joules_without_converters == pytest.approx(converters)


def test_the_prototype_is_its_table_times_its_time(model):
    """250 + 220 + 0.001 + 1350 W for 66.166 us are 120.4 mJ."""
    assert costs_of(model, "prototype").joules_per_image == pytest.approx(1820.001 * 16_769 / 253.44e6)


def test_the_chip_by_hand(model):
    """Two converters for each of 16 samples in 16,769 cycles, 3.571 pJ each: 1.916 uJ."""
    lines = {line.name: line.joules for line in costs_of(model, "chip").lines}
    assert lines["digital-to-analogue converters"] == pytest.approx(1.9165e-6, rel=1e-4)
    assert lines["memory"] == pytest.approx(266_200 * 2 * 12.5e-12)


def test_more_cores_take_less_time_and_wavelengths_share_detectors(network):
    one, four = (costs_of(compiled(network, Hardware(cores=cores)), "chip") for cores in (1, 4))
    wide = costs_of(compiled(network, Hardware(wavelengths=4)), "chip")
    assert four.latency_s < one.latency_s / 3
    assert wide.latency_s < one.latency_s / 3
    analogue = "analogue-to-digital converters"
    of = {
        name: {line.name: line.joules for line in each.lines} for name, each in [("one", one), ("wide", wide)]
    }
    assert of["wide"][analogue] < of["one"][analogue] / 3


def test_baselines_are_both_ways_to_count_an_a100():
    cuda, tensor = BASELINES[:2]
    assert cuda.joules_per_mac == pytest.approx(25.65e-12, rel=1e-3)
    assert cuda.joules_per_mac / tensor.joules_per_mac == pytest.approx(32.0, rel=0.01)
    assert all(each.assumption and each.source for each in BASELINES)


def test_an_unknown_preset_is_refused_by_name(model):
    with pytest.raises(OutOfRange, match=r"no preset 'moon'.*prototype"):
        costs_of(model, "moon")


def test_photons_for_bits_by_hand():
    assert photons_for_bits(8, 784) == pytest.approx(12 * 65536 / 784)
    assert photons_for_bits(4, 784) < 4


@pytest.mark.parametrize(("photons", "efficiency"), [(0.0, 0.8), (-1.0, 0.8), (1.0, 0.0), (1.0, 1.5)])
def test_no_light_is_refused(photons, efficiency):
    with pytest.raises(OutOfRange, match="no light"):
        shot_noise(photons, efficiency)


def test_accuracy_rises_with_photons(model):
    pytest.importorskip("numba")
    from lightning.execution import open_executor

    images = np.random.default_rng(2).integers(0, 256, (300, 784), dtype=np.uint8)
    labels = open_executor(model, "exact").run(images).classes
    few, many = shot_noise_curve(model, images, labels, (0.01, 1e6), seeds=2)
    assert few.accuracy < 0.6 < 0.95 < many.accuracy
    assert few.joules == pytest.approx(0.01 * 0.1282e-18, rel=1e-3)


def test_command_prints_every_part_and_a_document(model, tmp_path, capsys):
    pytest.importorskip("typer")
    import json

    from lightning.cli import run_app

    file = tmp_path / "net.npz"
    np.savez(file, w1=np.eye(3, 4, dtype=np.float32), w2=np.ones((2, 3), np.float32))
    assert run_app(["energy", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["presets"]) == set(PRESETS)
    assert len(document["baselines"]) == len(BASELINES)
    assert run_app(["energy", str(file), "--preset", "chip"]) == 0
    printed = capsys.readouterr().out
    assert all(line.name in printed for line in costs_of(model, "chip").lines)
    assert "without converters" in printed
