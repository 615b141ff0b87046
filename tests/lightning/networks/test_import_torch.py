"""Modules of torch as networks: the same answers as torch, whatever mode the module is in; refusals."""

from __future__ import annotations

import io
from collections import Counter
from types import FunctionType

import numpy as np
import pytest
from libraries import library

from lightning.errors import NetworkError, OutOfRange, UnsupportedNode
from lightning.networks import Preprocessing, from_torch, run_float

torch = library("torch", reason="pip install 'lightbed[torch]'")
nn, functional = library("torch.nn"), library("torch.nn.functional")
modules = library("torch_modules")

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    yield
    torch.set_num_threads(threads)


def agrees(module, *shape, images=3):
    """Return the network of `module`, once both have given the same answers."""
    for part in module.modules():
        if getattr(part, "running_mean", None) is not None:
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
    network = from_torch(module.train(), shape)
    x = torch.randn(images, *shape)
    with torch.no_grad():
        expected = module.eval()(x).numpy()
    found = run_float(network, x.numpy())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * max(np.abs(expected).max(), 1e-3))
    return network


def operations(network):
    return [node.operation for node in network.nodes]


@pytest.mark.filterwarnings("ignore")  # the exporter that needs no further library is deprecated
@pytest.mark.parametrize("batch", ["n", 1])
def test_files_that_torch_writes_for_an_encoder(answers, batch):
    from lightning.networks import to_onnx
    from lightning.networks.imports.onnx.file import from_bytes

    pytest.importorskip("onnx", reason="pip install 'lightbed[inference]'")
    module = nn.Sequential(modules.Attention(), nn.Linear(16, 8), nn.BatchNorm1d(8)).eval()
    file = io.BytesIO()
    axes = {"x": {0: "n"}} if batch == "n" else None
    names = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": axes}
    torch.onnx.export(module, (torch.randn(1, 5, 16),), file, opset_version=14, dynamo=False, **names)
    network = from_bytes(file.getvalue(), "encoder")
    x = torch.randn(3 if batch == "n" else 1, 5, 16)
    with torch.no_grad():
        expected = module(x).numpy()
    np.testing.assert_allclose(run_float(network, x.numpy()), expected, rtol=0, atol=1e-4)
    np.testing.assert_allclose(answers(to_onnx(network), x.numpy()), expected, rtol=0, atol=1e-4)
    assert Counter(operations(network))["Gemm"] == 5


def two(_, h):
    a = h * 2
    b = a + 1  # noqa: F841 - fx follows it
    return a


def dead(_, h):
    h * 2
    return h


@pytest.mark.parametrize("steps", [two, dead])
def test_what_nobody_reads_changes_nothing(steps):
    assert len(agrees(modules.Follows(steps), 5).nodes) <= 2


def both_names(_, h):
    rectified = functional.relu(h, inplace=True)
    rectified.add_(1)
    return h


def view_alone(self, h):
    return self.rectify(torch.flatten(self.drop(h), 1)).add_(1)


def before_the_view(_, h):
    h.mul_(2)
    return h.flatten(1).unsqueeze(1)


@pytest.mark.parametrize("steps", [both_names, view_alone, before_the_view])
def test_what_is_changed_in_place_is_seen_as_in_torch(steps):
    agrees(modules.Follows(steps, nn.Conv2d(2, 3, 2)), 2, 4, 4)


def through_a_view(self, h):
    self.rectify(torch.flatten(h, 1))
    return h.mean(3)


def by_a_method(_, h):
    h.view(-1, 27).mul_(2)
    return h


def an_older_view(_, h):
    flat = h.flatten(1)
    functional.relu(h, inplace=True)
    return flat


def a_piece(_, h):
    h[:, 0].mul_(3)
    return h


def of_two_views(_, h):
    first, second = h.transpose(1, 2), h.unsqueeze(1)
    functional.relu(first, True)
    return second


@pytest.mark.parametrize("steps", [through_a_view, by_a_method, an_older_view, a_piece, of_two_views])
def test_what_is_changed_in_place_through_a_view_that_others_read_is_refused(steps):
    with pytest.raises(UnsupportedNode, match=r"changes in place a tensor that shares memory with"):
        from_torch(modules.Follows(steps, nn.Conv2d(2, 3, 2)), (2, 4, 4))


def test_lenet_5():
    module = nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU()),
        *(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Dropout(), nn.Linear(120, 10)),
    )
    network = agrees(module, 1, 28, 28)
    expected = "Conv Relu MaxPool Conv Relu AveragePool Flatten Gemm Tanh Gemm"
    assert " ".join(operations(network)) == expected
    assert network.notes == ("Dropout 9 left out: it changes nothing in inference",)


def test_a_residual_network_keeps_no_normalisation():
    module = nn.Sequential(
        *(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            modules.Residual(4, 4, 1),
            modules.Residual(4, 8, 2),
        ),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)),
    )
    network = agrees(module, 3, 12, 12)
    counts = Counter(operations(network))
    assert counts == {"Conv": 6, "Relu": 5, "Add": 2, "GlobalAveragePool": 1, "Flatten": 1, "Gemm": 1}
    assert "BatchNormalization 4.around.1 folded into Conv 4.around.0" in network.notes


def test_an_encoder_of_linear_layers_products_of_activations_and_softmax():
    network = agrees(modules.Attention(), 5, 16)
    counts = Counter(operations(network))
    assert counts["Gemm"] == 4
    assert counts["MatMul"] == 2
    assert {"Softmax", "LayerNormalization", "Gelu"} <= set(counts)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_layers_for_transformers_are_written_out(norm_first, activation):
    layer = nn.TransformerEncoderLayer(
        8, 2, 16, batch_first=True, activation=activation, norm_first=norm_first
    )
    assert Counter(operations(agrees(layer, 5, 8)))["Gemm"] == 6
    stack = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8), enable_nested_tensor=False)
    assert Counter(operations(agrees(nn.Sequential(nn.Linear(4, 8), stack), 5, 4)))["MatMul"] == 4


def test_self_attention_by_itself_and_with_a_mask():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True, bias=False)
            self.register_buffer("mask", torch.triu(torch.full((5, 5), -1e9), 1))

        def forward(self, x):
            return self.attention(x, x, x, attn_mask=self.mask, need_weights=False)[0]

    assert Counter(operations(agrees(Masked(), 5, 8)))["Gemm"] == 4


def test_masks_of_booleans_and_causal_attention():
    class Causal(nn.Module):
        def __init__(self, boolean):
            super().__init__()
            self.attention, self.boolean = nn.MultiheadAttention(8, 2, batch_first=True), boolean
            self.register_buffer("later", torch.triu(torch.ones(5, 5, dtype=torch.bool), 1))

        def forward(self, x):
            if self.boolean:
                x = self.attention(x, x, x, attn_mask=self.later, need_weights=False)[0]
                return functional.scaled_dot_product_attention(x, x, x, attn_mask=~self.later)
            return functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    for boolean in (True, False):
        agrees(Causal(boolean), 5, 8)


def test_what_is_changed_in_place_is_read_as_changed():
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x):
            a, b, c, d, e = x + 1, x * 2, x - 1, x + 3, x + 4
            self.relu(a)
            functional.leaky_relu(b, 0.1, True)
            functional.elu(c, inplace=True)
            d.add_(a)
            e.mul_(2)
            n = x.shape[1]
            n += 1
            return torch.cat([a, b, c, d, e / n * x.shape[1]], dim=1)

    agrees(InPlace(), 6)


def test_sequences_one_layer_and_values_one_by_one():
    sequence = nn.Sequential(
        *(
            nn.Conv1d(3, 8, 5, stride=2, padding=2),
            nn.BatchNorm1d(8),
            nn.ReLU6(),
            nn.MaxPool1d(3, 2, 1, ceil_mode=True),
        ),
        *(nn.Conv1d(8, 8, 3, groups=4, dilation=2), nn.AvgPool1d(2), nn.AdaptiveAvgPool1d(1), nn.Flatten()),
    )
    network = agrees(sequence, 3, 41)
    assert "Mul" not in operations(network)
    assert operations(agrees(nn.Linear(4, 3), 4)) == ["Gemm"]
    assert operations(agrees(nn.ReLU(), 4)) == ["Relu"]
    values = nn.Sequential(
        *(nn.Hardswish(), nn.SiLU(), nn.Mish(), nn.ELU(0.5), nn.PReLU(3), nn.Softplus(), nn.Hardsigmoid()),
        *(nn.Sigmoid(), nn.Hardtanh(-0.4, 0.6), nn.LeakyReLU(0.2), nn.GELU("tanh"), nn.Identity()),
        *(nn.ZeroPad2d((1, 2, 0, 1)), nn.ConstantPad2d(1, 0.5), nn.AvgPool2d(3, 2, 1, ceil_mode=True)),
        *(
            nn.AvgPool2d(2, count_include_pad=False),
            nn.Softmax(1),
            nn.LogSoftmax(-1),
            nn.AdaptiveMaxPool2d(1),
        ),
        *(nn.Flatten(), nn.Unflatten(1, (3, 1)), nn.Flatten(2), nn.Flatten(1, -1)),
    )
    agrees(values, 3, 13, 14)
    agrees(nn.Sequential(nn.AdaptiveAvgPool2d((2, None)), nn.AdaptiveMaxPool2d(2)), 3, 8, 8)


def test_functions_and_methods_of_tensors():
    class Many(nn.Module):
        def forward(self, x):
            height = x.size(2)
            a, b = x.chunk(2, dim=1)
            c, d, e = torch.split(x, [1, 2, 1], dim=1)
            total = 1 - a * 2 + b / 3 - (-a) + torch.exp(b.abs().sqrt()) ** 2
            total = total + torch.where(torch.eye(height, dtype=torch.bool), a, b).masked_fill(
                torch.eye(height) > 0, 7
            )
            total = torch.maximum(total, c + e) * torch.minimum(d, b).clamp(min=-1).reciprocal()
            pooled = functional.max_pool2d(x[:, :2, ::2, 1:], 2, padding=1).mean(dim=(2, 3))
            parts = [
                total.mean((2, 3)),
                total.amax(dim=(-1, -2)),
                x[..., 0].sum(-1),
                x[:, None, 0, 1].squeeze(1),
                pooled,
            ]
            joined = torch.cat(parts, dim=1).unsqueeze(-1).transpose(1, 2).flatten(1)
            normal = functional.layer_norm(joined, (joined.shape[-1],))
            return functional.log_softmax(functional.linear(normal, torch.ones(3, joined.size(1))), dim=-1)

    agrees(Many(), 4, 6, 6)


def test_the_module_stays_as_it_was_and_preprocessing_is_kept():
    module = nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2)).train()
    module[1].eval()
    given = Preprocessing(1 / 255, (0.1, 0.2, 0.3), (1.0,), "HWC")
    assert from_torch(module, (3, 8, 8), given).preprocessing == given
    assert [part.training for part in module.modules()] == [True, True, False]
    with pytest.raises(OutOfRange, match="2 entries"):
        from_torch(module, (3, 8, 8), Preprocessing(mean=(1, 2)))


def test_a_module_that_fx_does_not_understand_comes_by_way_of_onnx():
    pytest.importorskip("onnx", reason="pip install 'lightbed[inference]'")
    network = agrees(nn.Sequential(nn.Linear(4, 4), modules.Sorting(), nn.Linear(4, 2)), 4)
    assert network.notes[0].startswith(
        "imported by way of ONNX: node sort (torch sort) is an unsupported function"
    )
    assert [node.operation for node in network.nodes].count("Gemm") == 2


def class_that_is_made(value):
    return value.__code__.co_names[1] if isinstance(value, FunctionType) else ""


@pytest.mark.parametrize(
    ("module", "shape", "kind", "words"),
    [
        (lambda: modules.Loop(), (4,), NetworkError, "torch.fx cannot follow Loop"),
        (lambda: modules.Pair(), (4,), NetworkError, "several inputs"),
        (lambda: modules.Two(), (4,), NetworkError, "Return one tensor"),
        (lambda: modules.Nothing(), (4,), NetworkError, "Return one tensor"),
        (lambda: modules.Mixing(), (4,), UnsupportedNode, "mixes images"),
        (lambda: modules.Moving(), (4, 5), UnsupportedNode, "batch_first"),
        (lambda: modules.Broken(), (1, 4, 4), UnsupportedNode, "larger than the image"),
        (
            lambda: nn.Sequential(nn.LSTM(4, 3)),
            (5, 4),
            UnsupportedNode,
            "node 0 (torch LSTM) is an unsupported layer",
        ),
        (lambda: nn.Sequential(nn.Bilinear(4, 4, 2)), (4,), UnsupportedNode, "torch Bilinear"),
        (lambda: nn.Linear(4, 3), (5,), UnsupportedNode, "multiplies (5,)"),
        (lambda: nn.Conv2d(1, 1, 3, padding_mode="circular"), (1, 4, 4), UnsupportedNode, "circular"),
        (lambda: nn.MaxPool2d(2, return_indices=True), (1, 4, 4), UnsupportedNode, "indices"),
        (lambda: nn.AdaptiveAvgPool2d(3), (1, 4, 4), UnsupportedNode, "divides it"),
        (lambda: nn.BatchNorm1d(4, track_running_stats=False), (4,), UnsupportedNode, "running statistics"),
        (lambda: nn.TransformerEncoderLayer(8, 2, 16), (5, 8), UnsupportedNode, "batch_first=True"),
    ],
    ids=class_that_is_made,
)
def test_modules_that_cannot_be_taken(module, shape, kind, words):
    with pytest.raises(kind) as caught:
        from_torch(module(), shape)
    assert words in str(caught.value)
    assert caught.value.hint


def test_weights_that_are_not_finite_are_refused():
    module = nn.Linear(4, 3)
    module.weight.data[1, 2] = float("nan")
    with pytest.raises(NetworkError, match=r"node 0 .Gemm. has weights that hold NaN"):
        from_torch(module, (4,))
