"""Latency and energy are sums of stated figures, and the published model costs what its cycles say."""

from __future__ import annotations

import numpy as np
import pytest

from lightning.compiler import Options, compile_network, load_or_compile
from lightning.compiler.lng_file import model_hash
from lightning.compiler.model import Hardware
from lightning.costs import BASELINES, PRESETS, estimate_costs
from lightning.costs.shot_noise import make_shot_noise, measure_shot_noise
from lightning.errors import OutOfRange
from lightning.networks import load_network
from lightning.networks.network import Network, Node


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """Return a network of the sizes of LeNet-300-100, with random weights."""
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
    costs = estimate_costs(model, "chip")
    assert costs.work.cycles == 16_769
    assert costs.latency_s == pytest.approx(16_769 / 253.44e6)
    assert sum(work.cycles for work in costs.layers.values()) == 16_769


@pytest.mark.parametrize("preset", PRESETS)
def test_every_line_has_a_source_and_lines_add_up(model, preset):
    costs = estimate_costs(model, preset)
    assert all(line.unit_energy.source and line.unit_energy.unit in {"W", "J"} for line in costs.lines)
    assert all(
        (line.unit_energy.unit == "W") == line.counted_work.endswith("seconds") for line in costs.lines
    )
    assert costs.joules_per_image == pytest.approx(sum(line.joules for line in costs.lines))
    converters = sum(line.joules for line in costs.lines if line.group == "converters")
    assert converters > 0
    assert costs.joules_per_image - costs.joules_without_converters == pytest.approx(converters)


def test_the_prototype_is_its_table_times_its_time(model):
    """250 + 220 + 0.001 + 1350 W for 66.166 us are 120.4 mJ."""
    assert estimate_costs(model, "prototype").joules_per_image == pytest.approx(1820.001 * 16_769 / 253.44e6)


SECONDS = 16_769 / 253.44e6
SAMPLES = 16_769 * 16
PRODUCTS = 300 * 784 + 100 * 300 + 10 * 100
CHIP = {
    "laser": 1e-3 * 10 ** (2 * 3 / 10) / 0.2 * SECONDS,
    "modulators": 2 * SAMPLES * 0.45e-12,
    "digital-to-analogue converters": 2 * SAMPLES * 50e-3 / 14e9,
    "receiver": 3e-3 * SECONDS,
    "analogue-to-digital converters": SAMPLES * 14.8e-3 / 10e9,
    "additions": PRODUCTS * 0.1e-12,
    "digital multiply-accumulates": 0.0,
    "memory": 2 * PRODUCTS * 100e-12 / 8,
}
"""By hand, one core and one wavelength: two converters and two modulators for each of 16 samples a cycle, a readout and
two bytes for each product."""


def test_the_chip_by_hand(model):
    assert {line.name: line.joules for line in estimate_costs(model, "chip").lines} == pytest.approx(CHIP)


def test_what_grows_with_cores_and_wavelengths(network):
    """Per second: a laser for each core and wavelength, a receiver and 16 readings a cycle for each core, and 16 times
    two modulators a cycle for each of both."""
    costs = estimate_costs(compiled(network, Hardware(cores=3, wavelengths=2)), "chip")
    cycles, seconds = costs.work.cycles, costs.work.cycles / 253.44e6
    lines = {line.name: line.joules for line in costs.lines}
    laser = CHIP["laser"] / SECONDS
    assert lines["laser"] == pytest.approx(3 * 2 * laser * seconds)
    assert lines["receiver"] == pytest.approx(3 * 3e-3 * seconds)
    assert lines["analogue-to-digital converters"] == pytest.approx(3 * 16 * cycles * 1.48e-12)
    assert lines["digital-to-analogue converters"] == pytest.approx(3 * 2 * 2 * 16 * cycles * 50e-3 / 14e9)
    assert lines["modulators"] == pytest.approx(3 * 2 * 2 * 16 * cycles * 0.45e-12)


def test_only_digital_nodes_count_as_digital():
    """Queries by light, then a product of activations: 4 x 4 sums of 4 terms, 0.3 pJ each."""
    nodes = (Node("query", "Gemm", ("x", "w"), "q"), Node("scores", "MatMul", ("q", "x"), "s"))
    shapes = {"x": (4, 4), "q": (4, 4), "s": (4, 4)}
    network = Network("attention", nodes, {"w": np.eye(4, dtype=np.float32)}, "x", "s", shapes)
    costs = estimate_costs(compile_network(network, np.ones((2, 4, 4))), "chip")
    lines = {line.name: line.joules for line in costs.lines}
    assert lines["digital multiply-accumulates"] == pytest.approx(4 * 4 * 4 * 0.3e-12)
    assert costs.work.macs == 4 * 4 * 4


def test_more_cores_take_less_time_and_wavelengths_share_detectors(network):
    one, four = (estimate_costs(compiled(network, Hardware(cores=cores)), "chip") for cores in (1, 4))
    wide = estimate_costs(compiled(network, Hardware(wavelengths=4)), "chip")
    assert four.latency_s < one.latency_s / 3
    assert wide.latency_s < one.latency_s / 3
    analogue = "analogue-to-digital converters"
    of = {
        name: {line.name: line.joules for line in each.lines} for name, each in [("one", one), ("wide", wide)]
    }
    assert of["wide"][analogue] < of["one"][analogue] / 3


def test_baselines_are_both_ways_to_count_an_a100():
    cuda, tensor = BASELINES[:2]
    assert cuda.joules_per_mac == pytest.approx(25.65e-12, rel=1e-3, abs=0)
    assert cuda.joules_per_mac / tensor.joules_per_mac == pytest.approx(32.0, rel=0.01)
    assert all(each.assumption and each.source for each in BASELINES)


def test_an_unknown_preset_is_refused_by_name(model):
    with pytest.raises(OutOfRange, match=r"preset 'moon' is not known.*prototype"):
        estimate_costs(model, "moon")


@pytest.mark.parametrize(("photons", "efficiency"), [(0.0, 0.8), (-1.0, 0.8), (1.0, 0.0), (1.0, 1.5)])
def test_no_light_is_refused(photons, efficiency):
    with pytest.raises(OutOfRange, match="no light"):
        make_shot_noise(photons, efficiency)


@pytest.mark.slow
def test_accuracy_rises_with_photons(model):
    pytest.importorskip("numba")
    from lightning.execution import open_executor

    images = np.random.default_rng(2).integers(0, 256, (300, 784), dtype=np.uint8)
    labels = open_executor(model, "exact").run(images).classes
    few, many = measure_shot_noise(model, images, labels, (0.01, 1e6), seed_count=2)
    assert few.accuracy < 0.6 < 0.95 < many.accuracy
    assert few.joules == pytest.approx(0.01 * 0.1282e-18, rel=1e-3, abs=0)
    assert few.spread > 0


def test_shot_noise_is_of_the_photons_that_are_detected():
    """A product of 255 and 255 of 100 photons, half of them detected: 50 +- sqrt(50), so 255 sqrt(50) / 50 steps."""
    noise = make_shot_noise(100.0, 0.5)
    assert noise.sigma == 0.0
    assert (noise.shot * 255) ** 0.5 == pytest.approx(255 * 50**0.5 / 50)


def test_command_prints_every_part_and_a_document(model, tmp_path, capsys):
    pytest.importorskip("typer")
    import json

    from lightning.cli import run_app

    file = tmp_path / "net.npz"
    np.savez(file, w1=np.eye(3, 4, dtype=np.float32), w2=np.ones((2, 3), np.float32))
    assert run_app(["energy", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["presets"]) == set(PRESETS)
    assert document["model_hash"] == model_hash(load_or_compile(file))
    assert {"version", "scheme"} <= set(document)
    assert len(document["baselines"]) == len(BASELINES)
    assert run_app(["energy", str(file), "--preset", "chip"]) == 0
    printed = capsys.readouterr().out
    assert all(line.name in printed for line in estimate_costs(model, "chip").lines)
    assert "without converters" in printed
