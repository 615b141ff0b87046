"""Networks made of numbers at hand, and what is measured on them without the room of execution."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from lightning.compiler import compile_network
from lightning.compiler.lowering import compute_integer_sums, lower_node, make_vectors
from lightning.compiler.schemes.scaled import quantise
from lightning.networks.network import Network, Node, Preprocessing
from lightning.networks.operations.operation_list import compute_node, run_float
from lightning.networks.preprocess import preprocess


@pytest.fixture
def chain():
    """`chain([w1, w2], [b1, None])`: fully connected layers, Relu between them."""
    return dense_chain


def dense_chain(weights, biases=None, preprocessing=None, rectified=True):
    nodes, constants, shapes, tensor = [], {}, {"input": (np.shape(weights[0])[1],)}, "input"
    for number, values in enumerate(weights, 1):
        constants[f"w{number}"] = np.asarray(values, np.float32)
        inputs = [tensor, f"w{number}"]
        if biases is not None and biases[number - 1] is not None:
            constants[f"b{number}"] = np.asarray(biases[number - 1], np.float32)
            inputs.append(f"b{number}")
        tensor = f"fc{number}"
        nodes.append(Node(tensor, "Gemm", tuple(inputs), tensor))
        shapes[tensor] = (len(values),)
        if number < len(weights) and rectified:
            nodes.append(Node(f"relu{number}", "Relu", (tensor,), f"relu{number}"))
            shapes[f"relu{number}"] = shapes[tensor]
            tensor = f"relu{number}"
    return Network(
        "chain", tuple(nodes), constants, "input", tensor, shapes, preprocessing or Preprocessing(1 / 255)
    )


@pytest.fixture(scope="session")
def residual():
    """Return random weights: a convolution, a grouped and strided one plus a plain one, then dense."""
    random = np.random.default_rng(11)

    def weights(*shape):
        return random.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape).astype(np.float32)

    window = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 1}
    nodes = (
        Node("stem", "Conv", ("image", "ws", "bs"), "s", window),
        Node("rectify", "Relu", ("s",), "r"),
        Node("wide", "Conv", ("r", "ww", "bw"), "w", {**window, "strides": (2, 2), "groups": 2}),
        Node("short", "Conv", ("r", "wk"), "k", {**window, "strides": (2, 2), "pads": (0, 0, 0, 0)}),
        Node("join", "Add", ("w", "k"), "j"),
        Node("pool", "GlobalAveragePool", ("j",), "p"),
        Node("flat", "Flatten", ("p",), "f", {"axis": 1}),
        Node("head", "Gemm", ("f", "wh", "bh"), "h"),
        Node("share", "Softmax", ("h",), "answer", {"axis": 1}),
    )
    constants = {
        "ws": weights(4, 2, 3, 3), "bs": weights(4), "ww": weights(6, 2, 3, 3), "bw": weights(6),
        "wk": weights(6, 4, 1, 1), "wh": weights(5, 6), "bh": weights(5),
    }  # fmt: skip
    shapes = {
        "image": (2, 6, 6), "s": (4, 6, 6), "r": (4, 6, 6), "w": (6, 3, 3), "k": (6, 3, 3), "j": (6, 3, 3),
        "p": (6, 1, 1), "f": (6,), "h": (5,), "answer": (5,),
    }  # fmt: skip
    given = Preprocessing(1 / 255, (0.4, 0.6), (0.3, 0.2))
    return Network("residual", nodes, constants, "image", "answer", shapes, given, ("a note",))


@pytest.fixture(scope="session")
def images():
    return np.random.default_rng(3).integers(0, 256, (60, 2, 6, 6)).astype(np.uint8)


@pytest.fixture(scope="session")
def compiled_residual(residual, images):
    return compile_network(residual, images)


@pytest.fixture
def measured():
    """`measured(model, raw)`: integer scores, float scores, and their signal-to-noise ratio in dB."""

    def measure(model, raw):
        exact = integer_scores(model, raw)
        wanted = run_float(model.network, preprocess(model.network, raw))
        with np.errstate(divide="ignore", invalid="ignore"):  # where nothing differs, or nothing is there
            snr_db = 10 * np.log10(wanted.var() / ((exact - wanted) ** 2).mean())
        return SimpleNamespace(exact=exact, float=wanted, snr_db=snr_db)

    return measure


def integer_scores(model, raw):
    """Return the meaning of a compiled model as its docstring has it, node by node."""
    network = model.network
    tensors = {network.input: preprocess(network, raw)}
    for node in network.nodes:
        if node.name not in model.layers:
            tensors[node.output] = compute_node(node, tensors, network.constants)
            continue
        layer = model.layers[node.name]
        real = tensors[node.inputs[0]]
        steps = quantise(real, layer.input_scale, is_signed=layer.signed)
        vectors = make_vectors(lower_node(network, node), steps)
        sums = np.stack(
            [compute_integer_sums(vectors[:, group], rows) for group, rows in enumerate(layer.weights)],
            axis=1,
        )
        scaled = ((sums + layer.bias) * layer.output_scale).reshape(len(raw), layer.position_count, -1)
        shaped = scaled if layer.geometry is None else scaled.transpose(0, 2, 1)
        tensors[node.output] = shaped.reshape(len(raw), *network.shapes[node.output]).astype(np.float32)
    return tensors[network.output]
