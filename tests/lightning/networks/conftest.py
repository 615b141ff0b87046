"""Models of ONNX from a few nodes, and the question whether everybody computes the same."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="session")
def onnx_model():
    """Return a function (nodes, constants, input shape, opset) -> ModelProto.

    Nodes are (operation, inputs, output, attributes).
    """
    onnx = pytest.importorskip("onnx", reason="pip install 'lightbed[inference]'")
    helper, from_array = onnx.helper, onnx.numpy_helper.from_array

    def build(nodes, constants, shape, opset=17, batch="n"):
        made = [
            helper.make_node(operation, inputs, [output], name=f"{operation}_{output}", **attributes)
            for operation, inputs, output, attributes in nodes
        ]
        entry = helper.make_tensor_value_info("x", 1, [batch, *shape])
        result = helper.make_tensor_value_info(nodes[-1][2], 1, None)
        held = [from_array(value, name) for name, value in constants.items()]
        graph = helper.make_graph(made, "g", [entry], [result], held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)

    return build


@pytest.fixture(scope="session")
def answers():
    """Return a function (ModelProto, inputs) -> what ONNX Runtime says, in float32 on one thread."""
    runtime = pytest.importorskip("onnxruntime", reason="pip install 'lightbed[inference]'")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4

    def run(model, x):
        session = runtime.InferenceSession(model.SerializeToString(), options)
        return session.run(None, {session.get_inputs()[0].name: x})[0]

    return run


@pytest.fixture(scope="session")
def agree(answers):
    """Return a function (ModelProto, seed, images) that asserts that file, network and re-export agree."""
    from lightning.networks import run_float, to_onnx
    from lightning.networks.imports.onnx.file import from_bytes

    def check(model, seed=0, images=2):
        network = from_bytes(model.SerializeToString(), "m")
        x = np.random.default_rng(seed).standard_normal((images, *network.input_shape)).astype(np.float32)
        expected, found = answers(model, x), run_float(network, x)
        tolerance = 1e-4 * max(float(np.abs(expected).max()), 1e-3)
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
        assert found.shape == (images, *network.output_shape)
        np.testing.assert_allclose(answers(to_onnx(network), x), expected, rtol=0, atol=tolerance)
        return network

    return check
