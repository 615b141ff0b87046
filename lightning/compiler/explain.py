"""A report on every node: photonic or digital, why, and at what cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import numpy as np

from fpga.photonic_mac.cycles import LayerCycles
from lightning.compiler.datapath.memory import MemoryPlan, memory_plan
from lightning.compiler.datapath.schedule import compute_layer_work, count_layer_cycles
from lightning.compiler.lng_file import model_hash
from lightning.compiler.model import CompiledModel, LayerWork
from lightning.networks.network import Node
from lightning.networks.work import count_macs

_PHOTONIC_REASON = "constant weights: sums of products"
_MOVING_OPERATIONS = frozenset({"Flatten", "Reshape", "Transpose", "Slice", "Concat", "Pad", "Gather"})
_DIGITAL_REASONS = {
    "MatMul": "both factors are activations, and light multiplies by constant weights",
    "Relu": "rectified after the converter",
    "MaxPool": "compares neighbours",
    "AveragePool": "adds neighbours up, without products",
    "GlobalAveragePool": "adds up each channel, without products",
    "Softmax": "needs the sum of all its exponentials",
    "LogSoftmax": "needs the sum of all its exponentials",
    "LayerNormalization": "needs mean and variance of its own inputs",
    "Add": "adds without products",
}
_DEFAULT_DIGITAL_REASON = "computed value by value, after the converter"


@dataclass(frozen=True)
class NodeReport:
    """One node of the network."""

    name: str
    operation: str
    photonic: bool
    why: str
    shape: tuple[int, ...]
    """Shape of the output, for one image."""
    macs: int
    work: LayerWork | None = None
    """Work of a photonic node; None for a digital node."""
    cycles: LayerCycles | None = None
    zeros: float = 0.0
    """Share of the weights that are 0."""
    signed: bool = False
    """True if activations may be negative."""


@dataclass(frozen=True)
class Report:
    """The report on a compiled model."""

    name: str
    scheme: str
    sha256: str
    nodes: tuple[NodeReport, ...]
    memory: MemoryPlan
    notes: tuple[str, ...]
    """Changes that the importer made."""
    clock_hz: float

    @property
    def photonic_macs(self) -> int:
        """Photonic multiply-accumulates of one image, including zero weights."""
        return sum(node.macs for node in self.nodes if node.photonic)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all nodes."""
        return sum(node.macs for node in self.nodes)

    @property
    def photonic_share(self) -> float:
        """Photonic share of the multiply-accumulates, 0 .. 1; 1 for a network without any."""
        return self.photonic_macs / self.macs if self.macs else 1.0

    @property
    def cycles(self) -> int:
        """Cycles of the datapath for one image, without digital operations."""
        return sum(node.work.cycles for node in self.nodes if node.work is not None)

    @property
    def latency_s(self) -> float:
        """Time of `cycles` in seconds."""
        return self.cycles / self.clock_hz

    @property
    def document(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "name": self.name,
            "scheme": self.scheme,
            "sha256": self.sha256,
            "macs": self.macs,
            "photonic_macs": self.photonic_macs,
            "photonic_share": self.photonic_share,
            "cycles": self.cycles,
            "clock_hz": self.clock_hz,
            "latency_s": self.latency_s,
            "memory_bytes": self.memory.size_bytes,
            "memory_bytes_unshared": self.memory.unshared_bytes,
            "buffers": [asdict(buffer) for buffer in self.memory.buffers],
            "nodes": [_make_node_document(node) for node in self.nodes],
            "notes": list(self.notes),
        }


def report(model: CompiledModel) -> Report:
    """Return the report on a model: its photonic nodes, and their costs."""
    network, macs_by_node = model.network, count_macs(model.network)
    return Report(
        network.name,
        model.scheme_in_words,
        model_hash(model),
        tuple(_report_node(model, node, macs_by_node.get(node.name, 0)) for node in network.nodes),
        memory_plan(model),
        network.notes,
        model.hardware.clock_hz,
    )


def _report_node(model: CompiledModel, node: Node, macs: int) -> NodeReport:
    shape = model.network.shapes[node.output]
    layer = model.layers.get(node.name)
    if layer is None:
        return NodeReport(node.name, node.operation, False, explain_digital(node), shape, macs)
    return NodeReport(
        node.name,
        node.operation,
        True,
        _PHOTONIC_REASON,
        shape,
        macs,
        compute_layer_work(layer, model.hardware),
        count_layer_cycles(layer, model.hardware),
        1.0 - np.count_nonzero(layer.weights) / max(prod(layer.weights.shape), 1),
        layer.signed,
    )


def explain_digital(node: Node) -> str:
    """Return the reason why a node is digital."""
    if node.operation in _MOVING_OPERATIONS:
        return "moves values, computes nothing"
    return _DIGITAL_REASONS.get(node.operation, _DEFAULT_DIGITAL_REASON)


def _make_node_document(node: NodeReport) -> dict[str, Any]:
    document = {**asdict(node), "shape": list(node.shape)}
    if node.work is not None and node.cycles is not None:
        document["work"]["cycles"] = node.work.cycles
        document["cycles"]["total"] = node.cycles.total
    return document
