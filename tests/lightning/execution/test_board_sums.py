"""Sums of a model on the simulated board, asked by stock pynq over the network: PYNQ.remote."""

import warnings

import numpy as np
import pytest
from libraries import skip_without

pytestmark = pytest.mark.board

skip_without("lark", reason="the library of modules is text: pip install lark")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # pynq's own, at its import
    pytest.importorskip("pynq", reason="needs pynq 4: environment of a board")

from fpga.bus import make_simulated_bus
from fpga.photonic_mac.control import load_library_datapath
from lightning import errors
from lightning.compiler.model import CompiledModel, PhotonicLayer
from lightning.execution.multipliers.datapath import DatapathMultiplier
from lightning.execution.multipliers.exact import ExactMultiplier
from lightning.networks.network import Network, Node
from sim.twins.board.memory import DEFAULT_BASE, Slot
from sim.twins.board.server import BoardServer


@pytest.fixture
def layer():
    weights = np.random.default_rng(1).integers(-255, 256, (1, 2, 20)).astype(np.int16)
    return PhotonicLayer("one", weights, np.zeros((1, 2), np.int32), 1.0, np.ones((1, 2), np.float32))


@pytest.fixture
def model(layer):
    network = Network("made", (Node("one", "Gemm", ("x",), "y"),), {}, "x", "y", {})
    return CompiledModel(network, {"one": layer})


def serving(width):
    datapath = load_library_datapath("photonic_dot", {"width": width})
    return BoardServer(Slot(lambda: make_simulated_bus(datapath, "reference")))


def test_a_board_gives_the_sums_of_exact(model, layer):
    activations = np.random.default_rng(2).integers(0, 256, (1, 1, 1, 20)).astype(np.int16)
    keys = np.zeros(1, np.uint64)
    with serving(32) as server:
        multiplier = DatapathMultiplier(model, f"pynq://127.0.0.1:{server.port}/{DEFAULT_BASE:#x}")
        found = multiplier.compute_sums(layer, activations, keys)
        assert multiplier.read_counts() == {"layers": 1, "inferences": 1}
    assert np.array_equal(found, ExactMultiplier().compute_sums(layer, activations, keys))


def test_a_bitstream_of_another_width_is_refused(model):
    with serving(16) as server, pytest.raises(errors.ProgramError, match="they come from different modules"):
        DatapathMultiplier(model, f"pynq://127.0.0.1:{server.port}/{DEFAULT_BASE:#x}")
