"""Sums by the count-action datapath, through registers: the integers of `exact`, and what goes wrong."""

from dataclasses import replace

import numpy as np
import pytest
from libraries import skip_without

skip_without("lark", reason="needs lark: pip install 'lightbed[fpga]'")
skip_without("numba", reason="needs numba: pip install 'lightbed[fpga]'")

from fpga.bus import BusFault, make_simulated_bus
from fpga.bus.pynq import PynqBus
from fpga.hdl import explain_missing
from fpga.photonic_mac.control import load_library_datapath
from lightning import errors
from lightning.compiler import compile_network, make_program
from lightning.compiler.datapath.schedule import compute_layer_work
from lightning.compiler.model import CompiledModel, Hardware, PhotonicLayer
from lightning.compiler.options import Options
from lightning.execution import open_executor
from lightning.execution.multipliers.datapath import DatapathMultiplier
from lightning.execution.multipliers.exact import ExactMultiplier
from lightning.networks.network import Network, Node, Preprocessing

KEYS = np.arange(2, dtype=np.uint64)


def layer(rng, name, shape, *, signed=False, vectors=1, zeros=0.5):
    weights = rng.integers(-255, 256, shape)
    weights[rng.random(shape) < zeros] = 0
    ones = np.ones(shape[:2], np.float32)
    return PhotonicLayer(
        name, weights.astype(np.int16), np.zeros(shape[:2], np.int32), 1.0, ones, signed, None, vectors
    )


def model_of(*layers, **chosen):
    nodes = tuple(Node(each.name, "Gemm", ("x",), "y") for each in layers)
    return CompiledModel(
        Network("made", nodes, {}, "x", "y", {}), {each.name: each for each in layers}, **chosen
    )


def some(rng, layer, images=2):
    shape = (images, layer.position_count, layer.weights.shape[0], layer.weights.shape[2])
    return rng.integers(-255 if layer.signed else 0, 256, shape).astype(np.int16)


@pytest.fixture(scope="module")
def bus():
    """Return a simulator for all tests: `load` resets it."""
    return make_simulated_bus(load_library_datapath("photonic_dot", {"width": 32}))


@pytest.mark.long
@pytest.mark.parametrize("skip_zeros", [False, True])
def test_sums_are_those_of_exact(bus, skip_zeros):
    """Dense, grouped, of several positions, signed: two passes; rows of unequal length, and rows of nothing."""
    rng = np.random.default_rng(3)
    unequal = 0
    for _ in range(6):
        groups, rows, terms = rng.integers((1, 2, 40), (3, 6, 90))
        one = layer(rng, "one", (groups, rows, terms), vectors=int(rng.integers(1, 4)), zeros=0.7)
        other = layer(rng, "other", (1, 4, 40), signed=True, zeros=0.9)
        model = model_of(one, other, hardware=Hardware(skip_zeros=skip_zeros))
        unequal += len(make_program(model).layers) > 3
        multiplier = DatapathMultiplier(model, bus)
        for each in (one, other):
            activations = some(rng, each)
            found = multiplier.compute_sums(each, activations, KEYS)
            assert found.dtype == np.int32
            assert np.array_equal(found, ExactMultiplier().compute_sums(each, activations, KEYS))
    assert unequal >= 3 if skip_zeros else unequal == 0


def test_layers_and_inferences_are_counted_by_the_hardware(bus):
    rng = np.random.default_rng(4)
    layers = [layer(rng, "one", (1, 3, 20), signed=True), layer(rng, "other", (2, 2, 17), vectors=3)]
    multiplier = DatapathMultiplier(model_of(*layers), bus)
    for each in layers:
        multiplier.compute_sums(each, some(rng, each), KEYS)
    assert multiplier.read_counts() == {
        "layers": 2 * 3,
        "inferences": 2,
    }  # signed activations take two passes


@pytest.mark.parametrize("skip_zeros", [False, True])
def test_beats_that_are_sent_are_those_that_work_is_counted_by(bus, skip_zeros):
    rng = np.random.default_rng(5)
    each = layer(rng, "one", (2, 5, 40), signed=True, vectors=2, zeros=0.7)
    hardware = Hardware(skip_zeros=skip_zeros)
    sent = []

    def light(activations, magnitudes):
        sent.append(len(activations))
        return activations * magnitudes >> 8

    DatapathMultiplier(model_of(each, hardware=hardware), bus, light_model=light).compute_sums(
        each, some(rng, each, 1), KEYS[:1]
    )
    assert sum(sent) == compute_layer_work(each, hardware).beats


def test_light_is_what_is_put_between_the_converters(bus):
    rng = np.random.default_rng(6)
    each = layer(rng, "one", (1, 3, 32))
    activations = some(rng, each, 1)
    dark = DatapathMultiplier(model_of(each), bus, light_model=lambda a, b: 0 * a)
    assert not dark.compute_sums(each, activations, KEYS[:1]).any()
    full = DatapathMultiplier(model_of(each), bus, light_model=lambda a, b: 255 * (b > 0))
    assert (
        full.compute_sums(each, activations, KEYS[:1])[0, 0, 0].tolist()
        == (255 * np.sign(each.weights[0].astype(int)).sum(axis=1)).tolist()
    )


def test_sums_of_sixteen_bits_wrap_as_the_published_ones_do():
    each = PhotonicLayer("one", np.full((1, 1, 160), 255, np.int16), np.zeros((1, 1), np.int32), 1.0, None)
    multiplier = DatapathMultiplier(model_of(each, wrap=True), "fastsim://")
    activations = np.full((1, 1, 1, 160), 255, np.int16)
    assert multiplier.compute_sums(each, activations, KEYS[:1]).item() == 160 * 254 - 2**16
    assert multiplier.identity.startswith("fastsim:// photonic_dot ")


@pytest.mark.slow
def test_a_convolutional_network_answers_as_exact_does():
    rng = np.random.default_rng(7)
    conv = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1}
    network = Network(
        "small",
        (
            Node("stem", "Conv", ("image", "w1"), "a", conv),
            Node("rectify", "Relu", ("a",), "b"),
            Node("flat", "Flatten", ("b",), "c", {"axis": 1}),
            Node("head", "Gemm", ("c", "w2", "b2"), "d"),
        ),
        {
            "w1": rng.normal(size=(3, 1, 2, 2)).astype(np.float32),
            "w2": rng.normal(size=(4, 27)).astype(np.float32),
            "b2": rng.normal(size=4).astype(np.float32),
        },
        "image", "d", {"image": (1, 4, 4), "a": (3, 3, 3), "b": (3, 3, 3), "c": (27,), "d": (4,)},
        Preprocessing(1 / 255),
    )  # fmt: skip
    images = rng.integers(0, 256, (8, 1, 4, 4)).astype(np.uint8)
    model = compile_network(network, images, Options(hardware=Hardware(skip_zeros=True)))
    expected = open_executor(model, "exact").run(images)
    found = open_executor(model, "datapath", bus="fastsim://").run(images)
    assert np.array_equal(found.scores, expected.scores)
    assert found.cycles == expected.cycles > 0


@pytest.mark.parametrize("hardware", [Hardware(lanes=8), Hardware(wavelengths=2), Hardware(cores=2)])
def test_other_hardware_is_refused_by_name(hardware):
    rng = np.random.default_rng(8)
    with pytest.raises(errors.CompileError, match="16 lanes, 1 wavelength and 1 core") as caught:
        DatapathMultiplier(model_of(layer(rng, "one", (1, 1, 4)), hardware=hardware))
    assert "--wavelengths" in caught.value.hint


def test_another_datapath_behind_the_bus_is_refused():
    other = make_simulated_bus(load_library_datapath("layer_counter"), "reference")
    with pytest.raises(errors.ProgramError, match="come from different modules"):
        DatapathMultiplier(model_of(layer(np.random.default_rng(9), "one", (1, 1, 4))), other)


@pytest.mark.parametrize(
    "address", ["nowhere://", "fastsim://?engine=slow", "fastsim://none.ca", "pynq://x/y"]
)
def test_an_address_that_is_none_says_what_to_give(address):
    with pytest.raises(errors.AddressError, match="Give fastsim://, verilator:// or pynq://HOST/0xBASE"):
        DatapathMultiplier(model_of(layer(np.random.default_rng(9), "one", (1, 1, 4))), address)


def test_a_bus_that_was_opened_here_is_let_go_when_the_program_is_refused(monkeypatch):
    other, closed = make_simulated_bus(load_library_datapath("layer_counter"), "reference"), []
    monkeypatch.setattr(other, "close", lambda: closed.append(True))
    monkeypatch.setattr("lightning.execution.multipliers.datapath._open_bus", lambda address, datapath: other)
    model = model_of(layer(np.random.default_rng(9), "one", (1, 1, 4)))
    for address, times in (("fastsim://", 1), (other, 1)):  # the second is somebody else's
        with pytest.raises(errors.ProgramError):
            DatapathMultiplier(model, address)
        assert len(closed) == times


def test_what_the_hardware_wraps_is_not_counted_as_none():
    ones = PhotonicLayer(
        "one", np.full((1, 1, 160), 255, np.int16), np.zeros((1, 1), np.int32), 1 / 255, None
    )
    ones = replace(ones, output_scale=np.ones((1, 1), np.float32))
    network = Network("made", (Node("one", "Gemm", ("x", "w"), "y"),), {}, "x", "y", {"x": (160,), "y": (1,)})
    model = CompiledModel(replace(network, preprocessing=Preprocessing(1 / 255)), {"one": ones}, wrap=True)
    bright = np.full((2, 160), 255, np.uint8)
    exact, found = (open_executor(model, each).run(bright) for each in ("exact", "datapath"))
    assert found.scores.tolist() == exact.scores.tolist()
    assert (exact.counters["wrapped_sums"], "wrapped_sums" in found.counters) == (2, False)


class Broken:
    """A bus that stops answering, or forgets what is pushed, after the program was loaded."""

    def __init__(self, bus):
        self._bus = bus
        self.gone = self.forgetful = False

    def read32(self, offset):
        if self.gone:
            raise BusFault("the cable is out")
        return self._bus.read32(offset)

    def write32(self, offset, value):
        if not self.forgetful:
            self._bus.write32(offset, value)

    def close(self):
        self._bus.close()


@pytest.mark.parametrize(("fault", "error"), [("gone", errors.DeviceGone), ("forgetful", errors.DeviceStuck)])
def test_a_bus_that_fails_is_the_devices_fault_and_the_next_sum_is_right(bus, fault, error):
    rng = np.random.default_rng(10)
    each, broken = layer(rng, "one", (1, 2, 40)), Broken(bus)
    multiplier = DatapathMultiplier(model_of(each), broken)
    activations = some(rng, each, 1)
    setattr(broken, fault, True)
    with pytest.raises(error):
        multiplier.compute_sums(each, activations, KEYS[:1])
    setattr(broken, fault, False)
    expected = ExactMultiplier().compute_sums(each, activations, KEYS[:1])
    assert np.array_equal(multiplier.compute_sums(each, activations, KEYS[:1]), expected)


class Mmio:
    """A `pynq.MMIO` as a driver sees it, around another bus."""

    def __init__(self, bus):
        self._bus = bus

    def read(self, offset=0):
        return self._bus.read32(offset)

    def write(self, offset, value):
        self._bus.write32(offset, value)


def test_registers_of_a_board_give_the_same_sums(bus):
    rng = np.random.default_rng(11)
    each = layer(rng, "one", (1, 3, 40))
    activations = some(rng, each, 1)
    multiplier = DatapathMultiplier(model_of(each), PynqBus(Mmio(bus)))
    assert np.array_equal(
        multiplier.compute_sums(each, activations, KEYS[:1]),
        ExactMultiplier().compute_sums(each, activations, KEYS[:1]),
    )


@pytest.mark.translates
@pytest.mark.hdl
@pytest.mark.skipif(bool(explain_missing("verilator")), reason=explain_missing("verilator"))
def test_the_rtl_gives_the_same_sums():
    rng = np.random.default_rng(12)
    each = layer(rng, "one", (1, 4, 40), signed=True)
    activations = some(rng, each, 1)
    multiplier = DatapathMultiplier(model_of(each), "verilator://")
    assert np.array_equal(
        multiplier.compute_sums(each, activations, KEYS[:1]),
        ExactMultiplier().compute_sums(each, activations, KEYS[:1]),
    )
    assert multiplier.read_counts()["inferences"] == 1
    multiplier.close()
