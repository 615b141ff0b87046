"""Models in integers, made by hand: nothing of the compiler is in between."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lightning.compiler import CompiledModel, Geometry, PhotonicLayer
from lightning.networks.network import Network, Node, Preprocessing


@pytest.fixture(scope="session")
def dense_model():
    """`dense_model([w1, w2, ...], scheme="published")`: dense layers of whole weights, ReLU between them."""
    return _dense_model


@pytest.fixture(scope="session")
def random_model():
    """`random_model(seed, (20, 12, 5))`: a dense model with weights of which some are 0."""

    def make(seed, sizes, zeros=0.5, **chosen):
        rng = np.random.default_rng(seed)
        weights = [
            rng.integers(-255, 256, (rows, terms)) * (rng.random((rows, terms)) >= zeros)
            for terms, rows in itertools.pairwise(sizes)
        ]
        return _dense_model(weights, **chosen)

    return make


def _dense_model(weights, scheme="published", *, signed=(), bias=0, tail=(), **chosen):
    weights = [np.asarray(each, np.int16) for each in weights]
    nodes, layers, shapes, tensor = [], {}, {"x": (weights[0].shape[1],)}, "x"
    for place, values in enumerate(weights):
        name = f"fc{place}"
        nodes.append(Node(name, "Gemm", (tensor, f"w{place}"), name))
        layers[name] = _layer(name, values, place, scheme, signed=place in signed, bias=bias)
        tensor, shapes[name] = name, (len(values),)
        if place + 1 < len(weights) and place + 1 not in signed:
            nodes.append(Node(f"relu{place}", "Relu", (tensor,), f"r{place}"))
            tensor, shapes[f"r{place}"] = f"r{place}", (len(values),)
    for operation in tail:
        nodes.append(Node(operation, operation, (tensor,), operation, {"axis": 1}))
        tensor, shapes[operation] = operation, shapes[tensor]
    network = Network("dense", tuple(nodes), {}, "x", tensor, shapes, Preprocessing(1 / 255))
    return CompiledModel(network, layers, scheme=scheme, **chosen)


def _layer(name, values, place, scheme, *, signed, bias):
    rows = (1, len(values))
    if scheme == "published":
        step, scale = (1 / 255 if place == 0 else 1.0), np.ones(rows, np.float32)
    else:
        step = 1 / 255 if place == 0 else 0.002 * values.shape[1] ** 0.5
        scale = np.linspace(0.005, 0.01, len(values), dtype=np.float32).reshape(rows)
    biases = np.full(rows, bias, np.int32) + np.arange(len(values), dtype=np.int32) * (bias != 0)
    return PhotonicLayer(name, values[None], biases, step, scale, signed=signed)


@pytest.fixture(scope="session")
def convolution():
    """Return a grouped, strided, dilated, padded convolution of 4 channels of 7 x 6 to 6, weights and all."""
    rng = np.random.default_rng(3)
    geometry = Geometry(4, 7, 6, (3, 2), strides=(2, 1), pads=(1, 0, 2, 1), dilations=(1, 2))
    weights = rng.integers(-255, 256, (2, 3, 2 * 3 * 2)).astype(np.int16)
    bias = rng.integers(-300, 300, (2, 3)).astype(np.int32)
    scale = np.full((2, 3), 0.5, np.float32)
    return PhotonicLayer("conv", weights, bias, 1.0, scale, signed=True, geometry=geometry)


@pytest.fixture
def convolving(convolution):
    """Return a model of one convolution and a ReLU."""
    nodes = (Node("conv", "Conv", ("x", "w"), "c"), Node("relu", "Relu", ("c",), "y"))
    tall, wide = convolution.geometry.output
    shapes = {"x": (4, 7, 6), "c": (6, tall, wide), "y": (6, tall, wide)}
    return CompiledModel(Network("conv", nodes, {}, "x", "y", shapes), {"conv": convolution})
