"""Data unlike those that a model was made for are run, and doubted."""

import numpy as np
import pytest

from lightning.compiler import compile_network, load_or_compile
from lightning.evaluation.warnings import (
    count_clippable_activations,
    find_clipping_warnings,
    find_data_warnings,
    find_largest_expected_input,
)
from lightning.execution import open_executor
from lightning.networks import Network, Node, Preprocessing, to_onnx

BRIGHT = np.full((4, 6), 255, np.uint8)
LEVELS = np.random.default_rng(1).integers(0, 256, (50, 6)).astype(np.uint8)


def network(preprocessing, *, scaled_inside=False):
    """Six inputs, three hidden, two scores; with a factor of its own in front or without."""
    rng = np.random.default_rng(3)
    constants = {"w1": rng.random((3, 6), np.float32), "w2": rng.random((2, 3), np.float32)}
    shapes = {"x": (6,), "h": (3,), "r": (3,), "y": (2,)}
    first = "x"
    before = ()
    if scaled_inside:
        constants["f"] = np.float32(1 / 255).reshape(1)
        shapes["s"], first = (6,), "s"
        before = (Node("scale", "Mul", ("x", "f"), "s"),)
    chain = (
        Node("fc1", "Gemm", (first, "w1"), "h"),
        Node("relu", "Relu", ("h",), "r"),
        Node("fc2", "Gemm", ("r", "w2"), "y"),
    )
    return Network("small", before + chain, constants, "x", "y", shapes, preprocessing)


@pytest.fixture
def of_levels():
    """Compiled for 0 to 255."""
    return compile_network(network(Preprocessing(scale=1 / 255)), LEVELS)


@pytest.mark.parametrize(
    ("largest", "doubted"), [(255, False), (2000, False), (2100, True), (40, False), (16, True), (1, True)]
)
def test_data_of_another_range_than_the_samples_are_warned_of(of_levels, largest, doubted):
    made_for = find_largest_expected_input(of_levels)
    assert 250 <= made_for <= 255
    reported = list(find_data_warnings(of_levels, "mine", np.full((2, 6), largest, np.float32)))
    assert bool(reported) is doubted
    if doubted:
        assert reported[0].startswith(
            f"mine holds values up to {largest}, and small was compiled for values up to 25"
        )


def test_negative_data_count_by_their_magnitude(of_levels):
    assert not list(find_data_warnings(of_levels, "mine", np.full((2, 6), -200.0)))
    assert list(find_data_warnings(of_levels, "mine", np.full((2, 6), -20_000.0)))


def test_the_published_scheme_is_made_for_bytes(tmp_path):
    np.savez(tmp_path / "net.npz", w1=np.eye(6))
    model = load_or_compile(tmp_path / "net.npz")
    assert not list(find_data_warnings(model, "mine", BRIGHT))
    assert list(find_data_warnings(model, "mine", BRIGHT / 255))


@pytest.mark.parametrize(
    ("preprocessing", "inside", "doubted"),
    [
        (Preprocessing(), False, True),
        (Preprocessing(scale=1 / 255), False, False),
        (Preprocessing(mean=(127.0,)), False, False),
        (Preprocessing(), True, False),
    ],
)
def test_levels_that_nothing_scales_are_warned_of(preprocessing, inside, doubted):
    model = compile_network(network(preprocessing, scaled_inside=inside), BRIGHT)
    reported = list(find_data_warnings(model, "pictures", BRIGHT))
    assert bool(reported) is doubted
    assert not list(find_data_warnings(model, "counts", BRIGHT.astype(np.int32)))
    if doubted:
        assert "--scale 0.00392157" in reported[0]


def test_a_file_without_a_range_is_not_warned_of(of_levels):
    from dataclasses import replace

    old = replace(of_levels, origin={**of_levels.origin, "samples": {"images": 50}})
    assert find_largest_expected_input(old) is None
    assert not list(find_data_warnings(old, "mine", BRIGHT / 255))


def test_clipping_is_counted_from_all_that_could_clip(of_levels):
    assert count_clippable_activations(of_levels) == 6 + 3
    executor = open_executor(of_levels)
    few = executor.run(LEVELS).counters
    many = executor.run(BRIGHT.astype(np.float32) * 1000).counters
    assert few["clipped_activations"] <= 0.1 * 50 * 9
    assert not list(find_clipping_warnings(of_levels, 50, few))
    assert many["clipped_activations"] == 4 * 9
    (reported,) = find_clipping_warnings(of_levels, 4, many)
    assert reported.startswith("100 % of all activations are clipped")


def test_later_layers_of_the_published_scheme_cannot_clip(tmp_path):
    np.savez(tmp_path / "net.npz", w1=np.eye(6), w2=np.eye(6))
    model = load_or_compile(tmp_path / "net.npz")
    assert count_clippable_activations(model) == 6
    found = open_executor(model).run(BRIGHT.astype(np.float32) * 2)
    assert found.counters["clipped_activations"] == 4 * 6


@pytest.mark.slow
def test_compiling_says_so_unless_somebody_has_asked_for_it(tmp_path, capsys):
    """An ONNX file of elsewhere says nothing of its inputs."""
    pytest.importorskip("typer", reason="the command line needs lightbed[kit]")
    onnx = pytest.importorskip("onnx", reason="pip install 'lightbed[inference]'")
    from lightning.cli import run_app

    np.save(tmp_path / "samples.npy", LEVELS)
    model = to_onnx(network(Preprocessing(scale=1 / 255)))
    onnx.save(model, tmp_path / "ours.onnx")
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "theirs.onnx")

    def warned(name, *options):
        words = ["compile", tmp_path / name, "--samples", tmp_path / "samples.npy", "-o", tmp_path / "a.lng"]
        assert run_app([*map(str, words), *options]) == 0
        return "takes them as they are" in capsys.readouterr().err

    assert warned("theirs.onnx")
    assert not warned("theirs.onnx", "--scale", "1")
    assert not warned("ours.onnx")
