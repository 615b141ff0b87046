"""The same network under ONNX Runtime, in float32 and in int8, as a digital baseline.

int8 is ONNX Runtime's static quantisation in QDQ form, with one weight scale per channel and activation ranges measured
on samples (https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html).

Activations are uint8 and weights int8. Both keep all 8 bits on every processor. An x86 processor without VNNI adds two
of their products in saturating 16-bit arithmetic. On such a processor, ONNX Runtime is configured to use uint8 weights,
which is exact but slower. The table is for LeNet-300-100 on MNIST (96.03 % in float32), on one core of one processor,
with VNNI and with VNNI masked:

| | signal to noise | accuracy | images/s, VNNI | AVX2 only |
|---|---|---|---|---|
| uint8 x int8, saturating | 36.6 dB, AVX2 only 21.1 dB | 95.99 %, AVX2 only 95.18 % | 932,000 | 319,000 |
| uint8 x int8, exact sums if it would saturate (used here) | 36.6 dB | 95.99 % | 932,000 | 266,000 |
| weights of 7 bits (`reduce_range`) | 34.3 dB | 95.98 % | 989,000 | 314,000 |
| uint8 x uint8 everywhere | 36.3 dB | 96.03 % | 506,000 | 250,000 |
| int8 x int8 | as saturating | as saturating | 991,000 | 307,000 |
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import DatasetError
from lightning.evaluation.accuracy import BATCH_SIZE, count_correct
from lightning.evaluation.dataset import SAMPLE_COUNT, Dataset, Raw, spread_indices
from lightning.evaluation.images import fit_axes
from lightning.networks.network import Network
from lightning.networks.onnx_writer import IR_VERSION, OPSET, to_onnx
from lightning.optional import require

Floats = npt.NDArray[np.float32]

EXACT_SUMS_OPTION = "session.x64quantprecision"
"""ONNX Runtime's option to use uint8 weights instead of int8 weights, on x86 processors only."""

_SAMPLE_BATCH = 50


@dataclass(frozen=True)
class Session:
    """A network in ONNX Runtime, on one thread, from raw inputs to scores like an executor."""

    network: Network
    session: Any

    def compute_scores(self, raw: Raw) -> Floats:
        """Return the scores (images, ...) of raw inputs (images, ...)."""
        from lightning.networks.preprocess import preprocess

        (output,) = self.session.run(None, {self.session.get_inputs()[0].name: preprocess(self.network, raw)})
        scores: Floats = output
        return scores

    def count_correct(self, dataset: Dataset) -> int:
        """Return the number of correctly classified test images."""
        inputs = fit_axes(dataset.x, self.network)
        batch_slices = [slice(start, start + BATCH_SIZE) for start in range(0, len(inputs), BATCH_SIZE)]
        return sum(
            count_correct(self.compute_scores(inputs[batch_slice]), dataset.y[batch_slice])
            for batch_slice in batch_slices
        )


def open_float32_session(network: Network) -> Session:
    """Return a session of the network in float32."""
    return Session(network, _open_session(to_onnx(network).SerializeToString()))


def open_int8_session(network: Network, samples: Raw) -> Session:
    """Return a session of the network in int8, with ranges measured on raw `samples` (n, ...).

    The samples must not be test images.
    """
    quantization = require("onnxruntime.quantization", "to compare with int8")
    shape_inference = require("onnxruntime.quantization.shape_inference", "to compare with int8")
    onnx = require("onnx", "to compare with int8")
    with tempfile.TemporaryDirectory() as folder:
        plain_path, prepared_path, int8_path = (
            str(Path(folder) / name) for name in ("plain", "prepared", "int8")
        )
        onnx.save(to_onnx(network), plain_path)
        shape_inference.quant_pre_process(plain_path, prepared_path, skip_symbolic_shape=True)
        quantization.quantize_static(
            prepared_path,
            int8_path,
            _SampleReader(network, fit_axes(samples, network)),
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            per_channel=True,
        )
        return Session(
            network, _open_session(Path(int8_path).read_bytes(), needs_exact_sums=has_saturating_products())
        )


@cache
def has_saturating_products() -> bool:
    """Multiply the largest values; return whether ONNX Runtime's sums of uint8 x int8 saturate on this processor."""
    onnx = require("onnx", "to compare with int8")
    helper, tensor_proto = onnx.helper, onnx.TensorProto
    x, weights = np.full((4, 64), 255, np.uint8), np.full((64, 16), 127, np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "products",
        [helper.make_tensor_value_info("x", tensor_proto.UINT8, x.shape)],
        [helper.make_tensor_value_info("y", tensor_proto.INT32, (4, 16))],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    (sums,) = _open_session(model.SerializeToString()).run(None, {"x": x})
    return bool((sums != x.astype(np.int32) @ weights.astype(np.int32)).any())


def split_samples(dataset: Dataset) -> Iterator[tuple[Raw, Dataset]]:
    """Yield (samples for ranges, data to test with these ranges). Every test image occurs once.

    The samples are from the training part. Without a training part, each half of the test images determines the ranges
    of the other half, so that no image is tested with its own ranges. Raise `DatasetError` if there is only one image.
    """
    if len(dataset.train_x):
        yield _take_samples(dataset.train_x), dataset
        return
    if len(dataset.x) < 2:
        raise DatasetError(
            f"{dataset.name} has no training part, and a single image cannot set its own ranges",
            hint="Test at least two images: raise --limit",
        )
    half = (len(dataset.x) + 1) // 2
    halves = (slice(None, half), slice(half, None))
    for test_part, sample_part in (halves, halves[::-1]):
        yield _take_samples(dataset.x[sample_part]), _select_part(dataset, test_part)


def _take_samples(x: Raw) -> Raw:
    return x[spread_indices(len(x), SAMPLE_COUNT)]


def _select_part(dataset: Dataset, index_range: slice) -> Dataset:
    return Dataset(
        dataset.name, dataset.x[index_range], dataset.y[index_range], dataset.train_x, dataset.train_y
    )


class _SampleReader:
    """Batches of preprocessed samples: a `CalibrationDataReader` of ONNX Runtime."""

    def __init__(self, network: Network, raw: Raw) -> None:
        starts = range(0, len(raw), _SAMPLE_BATCH)
        self._batches = iter([raw[start : start + _SAMPLE_BATCH] for start in starts])
        self._network = network

    def get_next(self) -> dict[str, Floats] | None:
        """Return the next batch by the name of the input, or None after the last batch."""
        from lightning.networks.preprocess import preprocess

        batch = next(self._batches, None)
        return None if batch is None else {self._network.input: preprocess(self._network, batch)}


def _open_session(model: bytes, *, needs_exact_sums: bool = False) -> Any:
    runtime = require("onnxruntime", "to compare with ONNX Runtime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors only
    if needs_exact_sums:
        options.add_session_config_entry(EXACT_SUMS_OPTION, "1")
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
