"""The report: every node, where it runs and why, and what all of it costs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lightning.compiler import CompiledModel, Options, compile_network, model_hash, report
from lightning.compiler.explain import explain_digital
from lightning.networks.network import Network, Node


def test_every_node_is_listed_with_where_it_runs(compiled_residual):
    found = report(compiled_residual)
    assert [(node.name, node.photonic) for node in found.nodes] == [
        ("stem", True), ("rectify", False), ("wide", True), ("short", True), ("join", False), ("pool", False),
        ("flat", False), ("head", True), ("share", False),
    ]  # fmt: skip
    assert all(node.why for node in found.nodes)
    assert found.notes == ("a note",)
    assert found.sha256 == model_hash(compiled_residual)


def test_programs_find_a_node_of_the_json_document_by_these_keys(compiled_residual):
    nodes = report(compiled_residual).document["nodes"]
    keys = {"name", "operation", "photonic", "why", "shape", "macs", "work", "cycles", "zeros", "signed"}
    assert {frozenset(node) for node in nodes} == {frozenset(keys)}


def test_multiply_accumulates_and_cycles_add_up(compiled_residual):
    found = report(compiled_residual)
    by_name = {node.name: node for node in found.nodes}
    assert {name: by_name[name].macs for name in ("stem", "wide", "short", "head", "pool")} == {
        "stem": 4 * 18 * 36, "wide": 6 * 18 * 9, "short": 6 * 4 * 9, "head": 5 * 6, "pool": 0,
    }  # fmt: skip
    assert found.photonic_macs == found.macs == sum(layer.macs for layer in compiled_residual.layers.values())
    assert found.cycles == sum(node.cycles.total for node in found.nodes if node.cycles is not None)
    assert found.latency_s == pytest.approx(found.cycles / 253.44e6)


def test_products_of_two_activations_are_digital_and_lower_the_share():
    nodes = (
        Node("query", "Gemm", ("x", "w"), "q"),
        Node("scores", "MatMul", ("q", "x"), "s"),
    )
    shapes = {"x": (4, 4), "q": (4, 4), "s": (4, 4)}
    network = Network("attention", nodes, {"w": np.eye(4, dtype=np.float32)}, "x", "s", shapes)
    found = report(compile_network(network, np.ones((2, 4, 4))))
    assert (found.photonic_macs, found.macs, found.photonic_share) == (64, 128, 0.5)
    assert "both factors are activations" in found.nodes[1].why


def test_a_network_without_products_leaves_none_to_digital_hardware():
    network = Network("nothing", (Node("r", "Relu", ("x",), "y"),), {}, "x", "y", {"x": (3,), "y": (3,)})
    found = report(CompiledModel(network, {}))
    assert (found.photonic_share, found.macs, found.cycles) == (1.0, 0, 0)


def test_zeros_are_counted(chain):
    model = compile_network(chain([[[1.0, 0.0, 0.0, 0.5]]]), options=Options("published"))
    assert report(model).nodes[0].zeros == 0.5


def test_the_document_is_plain(compiled_residual):
    document = json.loads(json.dumps(report(compiled_residual).document))
    assert document["photonic_share"] == 1.0
    stem = document["nodes"][0]
    assert (stem["operation"], stem["signed"], stem["work"]["passes"]) == ("Conv", True, 2)
    assert stem["work"]["cycles"] == stem["cycles"]["total"]
    assert document["memory_bytes"] == 1152


@pytest.mark.parametrize(
    ("operation", "words"),
    [("Reshape", "moves values"), ("Softmax", "exponentials"), ("Tanh", "value by value")],
)
def test_reasons_are_given_by_kind(operation, words):
    assert words in explain_digital(Node("n", operation, ("x",), "y"))
