"""An ONNX file carries how its raw inputs are prepared, and an import takes it up."""

import numpy as np
import pytest

from lightning.errors import NetworkError, OutOfRange
from lightning.networks import Preprocessing, load_network, preprocess, run_float, to_onnx
from lightning.networks.network import Network, Node
from lightning.networks.onnx_writer import PREPROCESSING_KEY

onnx = pytest.importorskip("onnx", reason="pip install 'lightbed[inference]'")

GIVEN = Preprocessing(scale=1 / 255, mean=(0.1, 0.2), deviation=(0.5, 0.25), layout="HWC")


def network(preprocessing):
    """Return a network of two channels of 2 x 2, added up row by row."""
    weights = np.ones((3, 2, 2, 2), np.float32)
    attributes = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1}
    node = Node("conv", "Conv", ("x", "w"), "y", attributes)
    return Network("sum", (node,), {"w": weights}, "x", "y", {"x": (2, 2, 2), "y": (3, 1, 1)}, preprocessing)


def saved(model, path):
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("preprocessing", [GIVEN, Preprocessing()], ids=["some", "none"])
def test_preprocessing_survives_the_file(preprocessing, tmp_path):
    first = network(preprocessing)
    again = load_network(saved(to_onnx(first), tmp_path / "sum.onnx"))
    assert again.preprocessing == preprocessing
    raw = np.random.default_rng(2).integers(0, 256, (3, 2, 2, 2)).astype(np.uint8)
    assert np.array_equal(run_float(again, preprocess(again, raw)), run_float(first, preprocess(first, raw)))


def test_what_is_asked_for_goes_before_what_the_file_says(tmp_path):
    path = saved(to_onnx(network(GIVEN)), tmp_path / "sum.onnx")
    assert load_network(path, Preprocessing(scale=2.0)).preprocessing == Preprocessing(scale=2.0)


def test_metadata_of_others_are_passed_over(tmp_path):
    model = to_onnx(network(GIVEN))
    onnx.helper.set_model_props(model, {"author": "somebody"})
    assert load_network(saved(model, tmp_path / "sum.onnx")).preprocessing == Preprocessing()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "[]",
        "{",
        "{}",
        "[" * 100_000,
        '{"scale": "x", "mean": [0], "deviation": [1], "layout": "as-is"}',
    ],
    ids=["empty", "number", "list", "open", "nothing", "deep", "text"],
)
def test_damaged_metadata_are_refused_by_name(text, tmp_path):
    model = to_onnx(network(GIVEN))
    onnx.helper.set_model_props(model, {PREPROCESSING_KEY: text})
    with pytest.raises(NetworkError, match=PREPROCESSING_KEY) as refused:
        load_network(saved(model, tmp_path / "sum.onnx"))
    assert refused.value.hint


def test_metadata_that_do_not_fit_are_refused(tmp_path):
    path = saved(to_onnx(network(Preprocessing(mean=(1.0, 2.0, 3.0)))), tmp_path / "sum.onnx")
    with pytest.raises(OutOfRange, match="mean has 3 entries"):
        load_network(path)
