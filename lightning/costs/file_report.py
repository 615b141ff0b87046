"""Report on an ONNX file without samples: where every node runs, why, and at which cost.

`sketch_model` quantises the network without samples. Sizes and signs of its weights are right, but its scales are
placeholders. That suffices for cycles, energy and memory, which do not depend on activations. Activations count as
signed unless the network guarantees that they are not negative, so the number of passes is an upper bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from lightning.compiler.explain import explain_digital
from lightning.compiler.lowering import LoweredNode, list_photonic_nodes, lower_node
from lightning.compiler.model import CompiledModel, Hardware, PhotonicLayer
from lightning.compiler.schemes.ranges import find_nonnegative_tensors
from lightning.compiler.schemes.scaled import compute_weight_scales, quantise_weights
from lightning.costs.cost import sum_work
from lightning.costs.presets import PRESETS
from lightning.networks.electronic import ELECTRONIC
from lightning.networks.imports.onnx.choices import Choices
from lightning.networks.imports.onnx.inspection import Inspection, inspect_model
from lightning.networks.network import Network, Node
from lightning.networks.work import compute_photonic_share, count_macs

PRESET_NAME = "chip"
_PHOTONIC_REASON = "constant weights: sums of products"
_RUNTIME_REASON = "no product with constant weights: computed by ONNX Runtime"
_ACTIVATION_PRODUCT_REASON = "multiplies activations by activations: computed by ONNX Runtime"


@dataclass(frozen=True)
class FileReport:
    """Report on an ONNX file."""

    inspection: Inspection
    nodes: tuple[dict[str, Any], ...]
    photonic_share: float

    @property
    def document(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
        inspection = self.inspection
        return {
            "opset": inspection.opset,
            "converted_to": inspection.converted_opset,
            "inputs": list(inspection.inputs),
            "outputs": list(inspection.outputs),
            "nodes": list(self.nodes),
            "photonic_share": self.photonic_share,
            "refusals": [
                {
                    "node": refusal.node,
                    "operation": refusal.operation,
                    "reason": refusal.reason,
                    "advice": refusal.advice,
                }
                for refusal in inspection.refusals
            ],
            "notes": list(inspection.network.notes) if inspection.network else [],
        }


def report_file(path: Path, choices: Choices | None = None) -> FileReport:
    """Return a report on where the nodes of an ONNX file run.

    The report includes nodes that cannot run. Raise `NetworkError` if the file is not a valid ONNX file.
    """
    inspection = inspect_model(path, choices)
    refused_nodes = [
        _report_refused_node(refusal.node, refusal.operation, refusal.reason)
        for refusal in inspection.refusals
        if refusal.node
    ]
    if inspection.network is None:
        return FileReport(inspection, tuple(refused_nodes), 0.0)
    model, macs_by_node = sketch_model(inspection.network), count_macs(inspection.network)
    nodes = [_report_node(model, node, macs_by_node) for node in inspection.network.nodes]
    return FileReport(inspection, (*nodes, *refused_nodes), compute_photonic_share(inspection.network))


def _report_refused_node(node: str, operation: str, reason: str) -> dict[str, Any]:
    entry = {"name": node, "operation": operation, "where": "refused", "reason": reason}
    return {**entry, "macs": 0, "cycles": 0, "energy_j": 0.0}


def _report_node(model: CompiledModel, node: Node, macs_by_node: Mapping[str, int]) -> dict[str, Any]:
    layer, mac_count = model.layers.get(node.name), macs_by_node.get(node.name, 0)
    node_model = replace(model, layers={} if layer is None else {node.name: layer})
    work = sum_work(node_model, 0 if layer is not None else mac_count)
    energy_j = sum(
        getattr(work, part.work_kind) * part.unit_energy.value for part in PRESETS[PRESET_NAME].parts
    )
    return {
        "name": node.name,
        "operation": node.attributes["operation"] if node.operation == ELECTRONIC else node.operation,
        "where": "light" if layer is not None else "electronic",
        "reason": _PHOTONIC_REASON if layer is not None else _explain_electronic(node),
        "shape": list(model.network.shapes[node.output]),
        "values": prod(model.network.shapes[node.output]),
        "macs": mac_count,
        "cycles": work.cycles,
        "energy_j": energy_j,
    }


def _explain_electronic(node: Node) -> str:
    if node.operation != ELECTRONIC:
        return explain_digital(node)
    return _ACTIVATION_PRODUCT_REASON if node.attributes["macs"] else _RUNTIME_REASON


def sketch_model(network: Network, hardware: Hardware | None = None) -> CompiledModel:
    """Return a model of the network for cost estimates. Its scales are placeholders, so it must not be executed."""
    nonnegative_tensors = find_nonnegative_tensors(network)
    layers = {
        node.name: _sketch_layer(
            lower_node(network, node), is_signed=node.inputs[0] not in nonnegative_tensors
        )
        for node in list_photonic_nodes(network)
    }
    return CompiledModel(network, layers, hardware or Hardware())


def _sketch_layer(lowered_node: LoweredNode, *, is_signed: bool) -> PhotonicLayer:
    weights = quantise_weights(
        lowered_node.weights, compute_weight_scales(lowered_node.weights, per_channel=True)
    )
    sums_shape = weights.shape[:2]
    return PhotonicLayer(
        lowered_node.node.name,
        weights,
        np.zeros(sums_shape, np.int32),
        1.0,
        np.ones(sums_shape, np.float32),
        is_signed,
        lowered_node.geometry,
        lowered_node.vector_count,
    )
