"""Tools, units under test, and the published network for the photonic datapath."""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from needs import needs

from fpga.hdl import explain_missing


def _needs(*tools: str) -> None:
    pytest.importorskip("lark", reason="needs lark: pip install 'lightbed[fpga]'")
    if reason := explain_missing(*tools):
        pytest.skip(reason)


@pytest.fixture(scope="session")
@needs("hdl")
def icarus():
    _needs("iverilog", "vvp")
    from fpga.hdl import icarus

    return icarus


@pytest.fixture(scope="session")
@needs("hdl")
def verilated():
    """Return the whole datapath with simulated optics: one build for all networks."""
    _needs("verilator", "make", "g++")
    from witnesses.mac_hardware import loopback_design

    from fpga.hdl import verilator

    return verilator.build(loopback_design(), optimise_flag="-O1")


class Unit:
    """A block with its parameters as the only thing in a bench; series of inputs in, series of outputs out."""

    def __init__(self, icarus, block, parameters, inputs, outputs, clocks, shown_from):
        from fpga.count_action.ports import Port, Ports
        from fpga.hdl.design import make_block_design

        self._icarus = icarus
        self.ports = Ports(*(_placed(Port, widths) for widths in (inputs, outputs)))
        text = _wrapper(block, parameters, inputs, outputs, clocks, shown_from)
        self.design = make_block_design("unit", self.ports, {"unit": text})

    def run(self, driven: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
        from fpga.count_action.simulate.port_values import read_series, write_series

        cycles = max(len(series) for series in driven.values())
        rows = np.zeros((cycles, self.ports.input_column_count), np.uint64)
        for name, series in driven.items():
            write_series(rows, self.ports.find_input(name), [int(value) for value in series])
        outputs = self._icarus.run(self.design, rows)
        return {port.name: read_series(port, outputs) for port in self.ports.outputs}


def _placed(port, widths):
    placed = []
    for name, width in widths.items():
        placed.append(port(name, width, placed[-1].column + placed[-1].word_count if placed else 0))
    return tuple(placed)


def _wrapper(block, parameters, inputs, outputs, clocks, shown_from):
    """Return a module without parameters around the block.

    Outputs are 0 before the cycle `shown_from`: what a memory holds before it is written nobody knows, and Icarus
    says so.
    """
    sides = [("input", name, width) for name, width in [("clk_i", 1), ("rst_i", 1), *inputs.items()]]
    sides += [("output", name, width) for name, width in outputs.items()]
    ports = ",\n".join(f"  {side} logic [{width - 1}:0] {name}" for side, name, width in sides)
    given = ", ".join(f".{name}({value})" for name, value in parameters.items())
    wired = [f".{name}({name})" for name in [*clocks, *inputs]] + [
        f".{name}({name}_made)" for name in outputs
    ]
    made = "".join(f"  logic [{width - 1}:0] {name}_made;\n" for name, width in outputs.items())
    shown = "".join(f"  assign {name} = cycle_q < {shown_from} ? '0 : {name}_made;\n" for name in outputs)
    return (
        f"module unit (\n{ports}\n);\n{made}  logic [31:0] cycle_q;\n"
        "  always_ff @(posedge clk_i) cycle_q <= rst_i ? 32'd0 : cycle_q + 32'd1;\n"
        f"{shown}  {block} #(\n{given}) u_block (\n{', '.join(wired)});\nendmodule\n"
    )


@pytest.fixture(scope="session")
def unit(icarus):
    """Make a block the unit under test: `unit(block, inputs, outputs, **parameters)`."""

    def make(block, inputs, outputs, clocks=("clk_i", "rst_i"), shown_from=0, **parameters):
        return Unit(icarus, block, parameters, inputs, outputs, clocks, shown_from)

    return make


@pytest.fixture(scope="session")
@needs("hdl")
def lint():
    _needs("iverilog", "verilator", "verible-verilog-lint")
    from witnesses import lint

    return lint


@pytest.fixture(scope="session")
def data() -> Path:
    if not os.environ.get("LIGHTBED_DATA"):
        pytest.skip("needs LIGHTBED_DATA: the folder with mnist/ and lenet/ of the measurements")
    return Path(os.environ["LIGHTBED_DATA"])


@pytest.fixture(scope="session")
def lenet(data):
    """Return the published weights as a network."""
    from fpga.photonic_mac import quantise

    with np.load(data / "lenet" / "lenet_w.npz") as weights:
        return quantise([weights[name] for name in ("w1", "w2", "w3")])


@pytest.fixture(scope="session")
def mnist(data):
    """Return 10,000 images (rows of 784 magnitudes) and their labels."""
    images = gzip.decompress((data / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((data / "mnist" / "t10k-labels-idx1-ubyte.gz").read_bytes())
    return np.frombuffer(images, np.uint8, offset=16).reshape(-1, 784), np.frombuffer(
        labels, np.uint8, offset=8
    )
