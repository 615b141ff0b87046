"""The table's digital half: ONNX Runtime computes the same network, and int8 never sees what it is tested on."""

from pathlib import Path

import numpy as np
import pytest
from libraries import library, skip_without

skip_without("onnx", reason="the comparison needs lightbed[inference]")
skip_without("onnxruntime", reason="the comparison needs lightbed[inference]")
skip_without("numba", reason="noise needs lightbed[inference]")


from lightning.evaluation import Dataset, load_dataset, onnx_runtime
from lightning.evaluation.models import load_model_and_data
from lightning.evaluation.onnx_runtime import (
    EXACT_SUMS_OPTION,
    has_saturating_products,
    open_float32_session,
    open_int8_session,
    split_samples,
)
from lightning.evaluation.table import compare, format_table
from lightning.execution import Noise
from lightning.networks import Network, Node, preprocess, run_float

onnx = library("onnx")
onnxruntime = library("onnxruntime")


@pytest.fixture
def model_and_data(digits_npz):
    return load_model_and_data(digits_npz, load_dataset("digits"))


def test_float32_is_our_own_reference(model_and_data):
    model, data = model_and_data
    raw = data.x.reshape(500, 64)
    found = open_float32_session(model.network).compute_scores(raw)
    own = run_float(model.network, preprocess(model.network, raw))
    assert np.abs(found - own).max() < 1e-4
    assert open_float32_session(model.network).count_correct(data) == (own.argmax(axis=1) == data.y).sum()


def test_int8_is_near_float32_and_is_not_float32(model_and_data):
    model, data = model_and_data
    session = open_int8_session(model.network, data.train_x[:200])
    operations = {node.operation for node in model.network.nodes}
    assert operations == {"Gemm", "Relu"}
    raw = data.x.reshape(500, 64)
    exact, found = open_float32_session(model.network).compute_scores(raw), session.compute_scores(raw)
    assert 0 < np.abs(found - exact).max() < 0.2 * np.abs(exact).max()
    assert abs(session.count_correct(data) - open_float32_session(model.network).count_correct(data)) <= 10


def test_samples_are_of_training_where_there_is_such_a_part(model_and_data):
    _, data = model_and_data
    ((samples, tests),) = split_samples(data)
    assert tests is data
    assert len(samples) == 500
    train = {image.tobytes() for image in data.train_x}
    assert all(image.tobytes() in train for image in samples)


def test_without_a_training_part_no_image_is_tested_on_its_own_ranges():
    x, y = np.arange(41).reshape(41, 1), np.zeros(41)
    pairs = list(split_samples(Dataset("own", x, y.astype(np.int64), x[:0], y[:0].astype(np.int64))))
    assert sorted(np.concatenate([tests.x for _, tests in pairs]).ravel()) == list(range(41))
    for samples, tests in pairs:
        assert not set(samples.ravel()) & set(tests.x.ravel())
        assert len(samples) >= 20


def test_the_table_has_all_four(model_and_data):
    model, data = model_and_data
    rows = compare(model, data.take_first(200), Noise(sigma=6.0), (0, 1, 2), duration_s=0.01)
    assert [row.name for row in rows] == [
        "float32, ONNX Runtime",
        "int8, ONNX Runtime",
        "photonic, exact",
        "photonic, noisy",
    ]
    float32, int8, exact, noisy = rows
    assert abs(float32.accuracy - exact.accuracy) < 0.05
    assert noisy.accuracy < exact.accuracy
    assert [row.spread is None for row in rows] == [True, True, True, False]
    assert noisy.spread > 0
    assert all(row.images_per_s > 0 for row in rows)
    assert float32.joules is int8.joules is None
    assert 0 < exact.joules_without_converters < exact.joules == noisy.joules
    lines = format_table(rows).splitlines()
    assert lines[0].split() == ["accuracy", "spread", "images/s", "energy/image", "without", "converters"]
    assert lines[4].startswith(f"photonic, noisy        {100 * noisy.accuracy:6.2f} %")


@pytest.fixture
def pools():
    """Return a convolution and two pools, with inputs."""
    rng = np.random.default_rng(5)
    weights = rng.normal(size=(4, 1, 3, 3)).astype(np.float32)
    same = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    halved = {"kernel": (2, 2), "strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
    nodes = (
        Node("conv", "Conv", ("x", "w"), "conv", {**same, "groups": 1}),
        Node("largest", "MaxPool", ("conv",), "largest", halved),
        Node("mean", "AveragePool", ("largest",), "mean", {**halved, "count_include_pad": False}),
    )
    shapes = {"x": (1, 8, 8), "conv": (4, 8, 8), "largest": (4, 4, 4), "mean": (4, 2, 2)}
    return Network("pools", nodes, {"w": weights}, "x", "mean", shapes), rng.random((64, 1, 8, 8)).astype(
        np.float32
    )


def test_int8_takes_pools(pools):
    network, x = pools
    exact = run_float(network, x)
    found = open_int8_session(network, x).compute_scores(x)
    assert np.abs(open_float32_session(network).compute_scores(x) - exact).max() < 1e-4
    assert 0 < np.abs(found - exact).max() < 0.05 * np.abs(exact).max()


def test_int8_has_a_scale_for_each_row():
    """Next to a weight of 1 those of 0.0115 would be 1 or 2 steps of one scale for all, a third off."""
    weights = np.zeros((2, 64), np.float32)
    weights[0, 0], weights[1] = 1.0, 0.0115
    network = Network(
        "rows", (Node("a", "Gemm", ("x", "w"), "a"),), {"w": weights}, "x", "a", {"x": (64,), "a": (2,)}
    )
    x = np.random.default_rng(6).random((64, 64)).astype(np.float32)
    wanted = run_float(network, x)[:, 1]
    assert np.abs(open_int8_session(network, x).compute_scores(x)[:, 1] / wanted - 1).max() < 0.05


@pytest.fixture
def weights_that_run(monkeypatch, tmp_path):
    """Types of the weights that ONNX Runtime multiplies, and the option of exact sums, on a processor as given."""

    def found(network, x, *, saturates=None):
        if saturates is not None:
            monkeypatch.setattr(onnx_runtime, "has_saturating_products", lambda: saturates)
        models, opened = [], onnx_runtime._open_session
        monkeypatch.setattr(
            onnx_runtime, "_open_session", lambda model, **how: models.append(model) or opened(model, **how)
        )
        options = open_int8_session(network, x).session.get_session_options()
        options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
        onnxruntime.InferenceSession(models[-1], options, providers=["CPUExecutionProvider"])
        held = onnx.load(tmp_path / "optimised.onnx").graph.initializer
        types = {onnx.TensorProto.DataType.Name(tensor.data_type) for tensor in held if len(tensor.dims) > 1}
        try:
            return types, options.get_session_config_entry(EXACT_SUMS_OPTION) == "1"
        except RuntimeError:  # no such entry
            return types, False

    return found


def test_int8_weights_run_as_they_are_where_sums_are_exact(model_and_data, weights_that_run):
    model, data = model_and_data
    assert weights_that_run(model.network, data.train_x[:50], saturates=False) == ({"INT8"}, False)


def test_int8_weights_run_as_uint8_where_sums_saturate(model_and_data, pools, weights_that_run):
    """uint8 x uint8 is added in 32 bits on every processor; those without AVX2 add so anyway, and nothing changes."""
    model, data = model_and_data
    expected = {"UINT8"} if " avx2 " in Path("/proc/cpuinfo").read_text() else {"INT8"}
    assert weights_that_run(model.network, data.train_x[:50], saturates=True) == (expected, True)
    assert weights_that_run(*pools, saturates=True) == (expected, True)


def test_no_int8_weight_runs_on_this_processor_if_its_sums_saturate(model_and_data, weights_that_run):
    has_saturating_products.cache_clear()
    model, data = model_and_data
    types, exact = weights_that_run(model.network, data.train_x[:50])
    assert exact == has_saturating_products() == (types == {"UINT8"})


@pytest.mark.parametrize(("largest_pair", "expected"), [(2 * 255 * 127, False), (2**15 - 1, True)])
def test_saturated_sums_are_found(monkeypatch, largest_pair, expected):
    """A processor is played that adds two products, then pairs: in 32 bits, or in 16 and saturating."""

    class Processor:
        def run(self, _outputs, inputs):
            (x,) = inputs.values()
            return [np.full((len(x), 16), x.shape[1] // 2 * min(largest_pair, 2 * 255 * 127), np.int32)]

    monkeypatch.setattr(onnx_runtime, "_open_session", lambda _model: Processor())
    assert has_saturating_products.__wrapped__() is expected


def test_int8_is_as_good_with_exact_sums(model_and_data, monkeypatch):
    """Asking for exact sums where nothing saturates changes no score: the same integers, added otherwise."""
    model, data = model_and_data
    raw = data.x.reshape(500, 64)
    own = open_int8_session(model.network, data.train_x[:200]).compute_scores(raw)
    monkeypatch.setattr(onnx_runtime, "has_saturating_products", lambda: True)
    exact = open_int8_session(model.network, data.train_x[:200]).compute_scores(raw)
    assert np.abs(own - exact).max() < 1e-4 * np.abs(own).max()
