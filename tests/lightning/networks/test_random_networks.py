"""Networks of convolutions and dense layers drawn at random: the file, its import and light give the same answers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

FEW, MANY = 30, 2000
CHUNKS = 2


def drawn(rng):
    """Return an ONNX model of one to four layers, what is special about it, and the shape of an image."""
    from onnx import helper, numpy_helper

    flat = rng.random() < 0.2
    sides = 1 if flat else 2
    shape = (int(rng.integers(1, 7)), *(int(n) for n in rng.integers(1, 9, sides)))
    nodes, held, tensor, current, seen = [], [], "x", shape, Counter()

    def constant(values, name):
        held.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
        return name

    for place in range(int(rng.integers(1, 5))):
        name = f"t{place}"
        if len(current) > 1 and rng.random() < 0.85:
            made = _convolution(rng, current, sides)
            weights = rng.standard_normal(made.pop("weights")) / 2
            inputs = [tensor, constant(weights, f"w{place}")]
            if rng.random() < 0.5:
                inputs.append(constant(rng.standard_normal(len(weights)), f"b{place}"))
            current, moved = _after(current, weights, made)
            seen["contiguous"] += moved == 1 and made["group"] == 1
            seen["grouped"] += made["group"] > 1
            seen["dilated"] += max(made["dilations"]) > 1
            nodes.append(helper.make_node("Conv", inputs, [name], **made))
        else:
            if len(current) > 1:
                nodes.append(helper.make_node("Flatten", [tensor], [f"{name}f"], axis=1))
                tensor, current = f"{name}f", (int(np.prod(current)),)
            rows = int(rng.integers(1, 9))
            weights = constant(rng.standard_normal((rows, current[0])) / 2, f"w{place}")
            nodes.append(helper.make_node("Gemm", [tensor, weights], [name], transB=1))
            current = (rows,)
        tensor = name
        if rng.random() < 0.5:
            nodes.append(
                helper.make_node(str(rng.choice(["Relu", "Sigmoid", "Tanh"])), [tensor], [f"{name}r"])
            )
            tensor = f"{name}r"
    entry = helper.make_tensor_value_info("x", 1, ["n", *shape])
    graph = helper.make_graph(nodes, "g", [entry], [helper.make_tensor_value_info(tensor, 1, None)], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, seen, shape


def _convolution(rng, shape, sides):
    """Return attributes and weights that fit; often a kernel as large as the image."""
    channels = shape[0]
    group = int(rng.choice([g for g in range(1, channels + 1) if channels % g == 0]))
    whole = rng.random() < 0.3
    kernel = [side if whole else int(rng.integers(1, min(side, 3) + 1)) for side in shape[1:]]
    most = [
        1 if k == 1 or whole else max(1, (side - 1) // (k - 1))
        for side, k in zip(shape[1:], kernel, strict=True)
    ]
    return {
        "group": group,
        "kernel_shape": kernel,
        "strides": [int(n) for n in rng.integers(1, 3, sides)],
        "dilations": [int(rng.integers(1, min(m, 2) + 1)) for m in most],
        "pads": [0] * 2 * sides if whole else [int(n) for n in rng.integers(0, 2, 2 * sides)],
        "weights": (group * int(rng.integers(1, 4)), channels // group, *kernel),
    }


def _after(shape, weights, made):
    sides = []
    half = len(made["pads"]) // 2
    for axis, length in enumerate(shape[1:]):
        room = length + made["pads"][axis] + made["pads"][axis + half]
        reach = made["dilations"][axis] * (made["kernel_shape"][axis] - 1) + 1
        sides.append((room - reach) // made["strides"][axis] + 1)
    return (len(weights), *sides), int(np.prod(sides))


def cosine(first, second):
    """Return how alike two arrays are, 1 for both 0."""
    scale = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first.ravel() @ second.ravel()) / scale if scale else 1.0


def _checked(seed, answers):
    """Check one network, in both layouts of memory; return what was special, and how alike the exact answers are."""
    from lightning.compiler import compile_network
    from lightning.execution import open_executor
    from lightning.networks import run_float
    from lightning.networks.imports.onnx.file import from_bytes

    rng = np.random.default_rng(seed)
    model, seen, shape = drawn(rng)
    x = rng.standard_normal((3, *shape)).astype(np.float32)
    if rng.random() < 0.3:
        x = np.asarray(x.T.copy().T)
    network = from_bytes(model.SerializeToString(), "m")
    expected = answers(model, np.ascontiguousarray(x))
    limit = 1e-4 * max(float(np.abs(expected).max()), 1e-2)
    np.testing.assert_allclose(run_float(network, x), expected, rtol=0, atol=limit)
    compiled = compile_network(network, x)
    exact = open_executor(compiled, "exact").run(x).scores
    noisy = open_executor(compiled, "noisy", seed=seed).run(x).scores
    assert exact.shape == noisy.shape == expected.shape
    assert np.isfinite(exact).all()
    assert np.isfinite(noisy).all()
    return seen, cosine(exact, expected)


def _check_many(seeds, answers):
    found, alike = Counter(), []
    for seed in seeds:
        seen, like = _checked(seed, answers)
        found.update(seen)
        alike.append(like)
    share = len(alike) / 50
    assert found["contiguous"] > 5 * share, found
    assert found["grouped"] > 5 * share, found
    assert found["dilated"] > 5 * share, found
    assert np.median(alike) > 0.999
    assert np.mean(np.array(alike) > 0.9) > 0.9


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_thirty_networks_agree_with_onnx_runtime(answers, chunk):
    _check_many(range(chunk, FEW, CHUNKS), answers)


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_two_thousand_networks_agree_with_onnx_runtime(answers, chunk):
    _check_many(range(FEW + chunk, FEW + MANY, CHUNKS), answers)


@pytest.mark.parametrize("fidelity", ["exact", "noisy"])
def test_a_pointwise_convolution_of_one_pixel_is_computed(fidelity):
    if fidelity == "noisy":
        pytest.importorskip("numba", reason="noise is made by numba")
    from lightning.compiler import compile_network
    from lightning.execution import open_executor
    from lightning.networks.network import Network, Node

    window = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1}
    node = Node("squeeze", "Conv", ("x", "w"), "y", window)
    network = Network(
        "se", (node,), {"w": np.ones((3, 4, 1, 1), np.float32)}, "x", "y", {"x": (4, 1, 1), "y": (3, 1, 1)}
    )
    raw = np.full((2, 4, 1, 1), 0.5, np.float32)
    scores = open_executor(compile_network(network, raw), fidelity).run(raw).scores
    assert scores.shape == (2, 3, 1, 1)
    np.testing.assert_allclose(scores, 2, rtol=0.1)
