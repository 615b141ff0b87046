"""ONNX files on the command line: explained without samples, compiled with what they leave open, asked by name."""

from __future__ import annotations

import json

import numpy as np
import pytest
from libraries import skip_without

skip_without("typer", reason="the command line needs lightbed[kit]")
skip_without("onnx", reason="ONNX files need lightbed[inference]")

import onnx

from lightning.cli import run_app

KEYS = {"opset", "converted_to", "inputs", "outputs", "nodes", "photonic_share", "refusals"}
NODE_KEYS = {"name", "operation", "where", "reason", "macs", "cycles", "energy_j"}


@pytest.fixture
def file(tmp_path, monkeypatch):
    """`vad.onnx`: frames and a state of any batch, a rate that decides an `If`; it gives scores and the next state."""
    monkeypatch.chdir(tmp_path)
    helper = onnx.helper
    branches = {}
    for name, operation in (("then_branch", "Relu"), ("else_branch", "Neg")):
        inner = helper.make_node(operation, ["s"], [f"{name}_out"])
        out = helper.make_empty_tensor_value_info(f"{name}_out")
        branches[name] = helper.make_graph([inner], name, [], [out])
    nodes = [
        helper.make_node("MatMul", ["frames", "w"], ["h"], name="product"),
        helper.make_node("Add", ["h", "state"], ["s"], name="sum"),
        helper.make_node("Equal", ["rate", "fast"], ["c"], name="compare"),
        helper.make_node("If", ["c"], ["scores"], name="choose", **branches),
        helper.make_node("Tanh", ["s"], ["next"], name="squash"),
    ]
    random = np.random.default_rng(3)
    held = {"w": random.standard_normal((6, 4)).astype(np.float32), "fast": np.array(16000)}
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("frames", 1, ["n", 6]),
            helper.make_tensor_value_info("state", 1, ["n", 4]),
            helper.make_tensor_value_info("rate", 7, []),
        ],
        [helper.make_tensor_value_info(name, 1, ["n", 4]) for name in ("scores", "next")],
        [onnx.numpy_helper.from_array(value, name) for name, value in held.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    onnx.save(model, "vad.onnx")
    samples = {"frames": random.standard_normal((40, 6)), "state": random.standard_normal((40, 4))}
    np.savez("samples.npz", **{name: values.astype(np.float32) for name, values in samples.items()})
    np.savez("one.npz", **{name: values[:1].astype(np.float32) for name, values in samples.items()})
    return tmp_path / "vad.onnx"


@pytest.fixture
def ran(capsys):
    def run(*words):
        code = run_app(words)
        return (code, *capsys.readouterr())

    return run


FIXED = ("--shape", "frames=1x6", "--shape", "state=1x4")


def test_an_onnx_file_is_explained_without_samples(file, ran):
    code, out, _ = ran("explain", "vad.onnx", *FIXED, "--set", "rate=16000", "--json")
    document = json.loads(out)
    assert code == 0
    assert document.keys() >= KEYS
    assert (document["opset"], document["converted_to"], document["refusals"]) == (11, 21, [])
    assert [each["name"] for each in document["outputs"]] == ["scores", "next"]
    assert all(node.keys() >= NODE_KEYS for node in document["nodes"])
    light = [node for node in document["nodes"] if node["where"] == "light"]
    assert [(node["operation"], node["macs"]) for node in light] == [("Gemm", 24)]
    assert light[0]["cycles"] > 0
    assert light[0]["energy_j"] > 0
    assert document["photonic_share"] == 1
    code, out, _ = ran("explain", "vad.onnx", *FIXED, "--set", "rate=16000")
    assert code == 0
    assert "vad.onnx, opset 11, converted to 21" in out


def test_what_is_refused_is_explained_with_its_advice(file, ran):
    code, out, _ = ran("explain", "vad.onnx", *FIXED, "--json")
    document = json.loads(out)
    assert code == 0
    (refusal,) = document["refusals"]
    assert (refusal["node"], refusal["operation"]) == ("choose", "If")
    assert "--output" in refusal["advice"]
    assert {node["where"] for node in document["nodes"]} >= {"light", "refused"}
    code, out, _ = ran("explain", "vad.onnx")
    assert code == 0
    assert "refused: " in out


def test_a_file_is_compiled_with_its_choices_and_asked_by_name(file, ran):
    code, out, err = ran(
        "compile",
        "vad.onnx",
        *FIXED,
        "--set",
        "rate=8000",
        "--samples",
        "samples.npz",
        "-o",
        "vad.lng",
        "--json",
    )
    assert code == 0, err
    assert json.loads(out)["written"] == ["vad.lng"]
    code, out, err = ran("infer", "vad.lng", "one.npz", "--json")
    assert code == 0, err
    document = json.loads(out)
    with np.load("one.npz") as held:
        w = onnx.numpy_helper.to_array(onnx.load("vad.onnx").graph.initializer[0])
        total = held["frames"] @ w + held["state"]
    np.testing.assert_allclose(document["outputs"]["scores"], -total, atol=0.15)
    np.testing.assert_allclose(document["outputs"]["next"], np.tanh(total), atol=0.1)


def test_output_names_a_tensor_or_a_file(file, ran):
    words = (
        "compile",
        "vad.onnx",
        *FIXED,
        "--set",
        "rate=8000",
        "--samples",
        "samples.npz",
        "--output",
        "next",
    )
    code, out, err = ran(*words, "--output", "next.lng", "--json")
    assert code == 0, err
    assert json.loads(out)["written"] == ["next.lng"]
    code, _, err = ran(*words, "--output", "a.lng", "--output", "b.lng")
    assert code != 0
    assert "Name one file" in err
    code, _, err = ran(
        "compile", "vad.onnx", *FIXED, "--set", "rate=8000", "--samples", "one.npz", "--shape", "z=1"
    )
    assert code != 0
    assert "no input 'z'" in err
