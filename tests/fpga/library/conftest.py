"""Library modules in the fast simulator, driven and read by names of ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from needs import needs

import fpga
from fpga.count_action import load
from fpga.count_action.ports import make_ports
from fpga.hdl import explain_missing

LIBRARY = Path(fpga.__file__).parent / "library"


class Played:
    """A run as the ports of a datapath showed it; `beats` are those of a stream that left."""

    def __init__(self, datapath, inputs, outputs):
        from fpga.hdl.cosimulation import read_values

        ports = make_ports(datapath)
        self._seen = {port.name: read_values(outputs, port) for port in ports.outputs}
        self._given = {port.name: read_values(inputs, port) for port in ports.inputs}
        self.names = [f"{module.name}.{count.name}" for module, count in datapath.list_counts()]
        self._counts = datapath.list_counts

    def __getitem__(self, port: str) -> list[int]:
        return self._seen[port]

    def beats(self, stream: str) -> list[int]:
        taken = zip(
            self[f"{stream}_valid_o"], self._given[f"{stream}_ready_i"], self[f"{stream}_data_o"], strict=True
        )
        return [data for valid, ready, data in taken if valid and ready]

    def count(self, name: str) -> list[int]:
        low = 0
        for module, count in self._counts():
            if f"{module.name}.{count.name}" == name:
                return [value >> low & (1 << count.width) - 1 for value in self["count_o"]]
            low += count.width
        raise KeyError(name)


@pytest.fixture(scope="session")
def play():
    """Run a library module: series of inputs by port, continued with 0; `ready` inputs are 1 unless they are given."""
    pytest.importorskip("lark", reason="needs lark: pip install 'lightbed[fpga]'")
    pytest.importorskip("numba", reason="needs numba: pip install 'lightbed[fpga]'")
    from fpga.count_action.simulate import simulate
    from fpga.count_action.simulate.port_values import write_series

    def run(name: str, driven: Mapping[str, Sequence[int]], cycles: int, **parameters: int) -> Played:
        datapath = load(LIBRARY / f"{name}.ca", parameters).datapath
        ports = make_ports(datapath)
        rows = np.zeros((cycles, ports.input_column_count), np.uint64)
        ready = {port.name: [1] * cycles for port in ports.inputs if port.name.endswith("_ready_i")}
        for port, series in {**ready, **driven}.items():
            write_series(rows, ports.find_input(port), list(series))
        return Played(datapath, rows, simulate(datapath, rows))

    return run


@pytest.fixture(scope="session")
@needs("hdl")
def icarus():
    if reason := explain_missing("iverilog", "vvp"):
        pytest.skip(reason)
    from fpga.hdl import icarus

    return icarus
