"""A small network as a compiled model, and executors that the test shapes."""

import threading

import numpy as np
import pytest

from lightning.compiler import Options, compile_network
from lightning.execution.inputs import checked_keys
from lightning.execution.seam import Answers
from lightning.networks.network import Network, Node, Preprocessing
from lightning.networks.preprocess import preprocess

TERMS, HIDDEN, CLASSES = 20, 12, 5


def network_of(seed=3, name="small"):
    """Twenty bytes, a hidden layer, five scores."""
    random = np.random.default_rng(seed)
    constants = {
        "w1": random.normal(size=(HIDDEN, TERMS)).astype(np.float32),
        "w2": random.normal(size=(CLASSES, HIDDEN)).astype(np.float32),
    }
    nodes = (
        Node("fc1", "Gemm", ("image", "w1"), "sums"),
        Node("relu1", "Relu", ("sums",), "hidden"),
        Node("fc2", "Gemm", ("hidden", "w2"), "scores"),
    )
    shapes = {"image": (TERMS,), "sums": (HIDDEN,), "hidden": (HIDDEN,), "scores": (CLASSES,)}
    return Network(name, nodes, constants, "image", "scores", shapes, Preprocessing(scale=1 / 255))


def model_of(seed=3, name="small"):
    return compile_network(network_of(seed, name), None, Options(scheme="published"))


@pytest.fixture(scope="session")
def model():
    return model_of()


@pytest.fixture(scope="session")
def other_model():
    """Of the same shapes, with other weights."""
    return model_of(seed=4, name="other")


class Double:
    """An executor whose answers are the key and the first number; it says when it is closed, and may wait."""

    fidelity = "exact"

    def __init__(self, model):
        self.model = model
        self.closed = False
        self.warmed = []
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Event()

    def run(self, inputs, keys=None):
        assert not self.closed
        preprocess(self.model.network, inputs)  # it refuses
        keys = checked_keys(keys, len(inputs))
        self.warmed.append((inputs.dtype.name, inputs.shape[0], inputs.flags.writeable))
        self.started.set()
        assert self.gate.wait(20)
        scores = np.stack([keys.astype(np.float32), inputs.reshape(len(inputs), -1)[:, 0]], axis=1)
        return Answers(scores.astype(np.float32), 7, {"clipped_readouts": len(inputs)})

    def warm(self):
        self.warmed.append("warm")

    def close(self):
        assert not self.closed
        self.closed = True


@pytest.fixture
def double():
    return Double


@pytest.fixture
def opened():
    """Makes doubles for a repository, and keeps them in the order in which models were opened."""

    class Opener(list):
        def __call__(self, model):
            self.append(Double(model))
            return self[-1]

    return Opener()
