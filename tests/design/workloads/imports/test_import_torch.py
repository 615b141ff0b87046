"""Torch modules are imported with the sizes that a hand computes; tensors have no numbers, so anything fits."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from types import SimpleNamespace

import pytest
from libraries import library

torch, nn = library("torch"), library("torch.nn")
imports = library("testbed.design.workloads.imports")

from testbed.design.workloads.catalogue import workload
from testbed.errors import WorkloadError

pytestmark = pytest.mark.torch


def meta(*shape, dtype=None):
    return torch.empty(*shape, dtype=dtype or torch.float32, device="meta")


def total(job):
    return sum(operator.forward_flops for operator in job.operators)


def vgg16():
    layers, channels = [], 3
    for widths in ((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3):
        for width in widths:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    head = [nn.Linear(25088, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000)]
    return nn.Sequential(*layers, nn.Flatten(), *head)


@cache
def modules():
    """Return modules of torch, which are classes of a library that takes seconds to import."""

    class Bottleneck(nn.Module):
        def __init__(self, channels, inner):
            super().__init__()
            self.one = nn.Conv2d(channels, inner, 1, bias=False)
            self.two = nn.Conv2d(inner, inner, 3, padding=1, bias=False)
            self.three = nn.Conv2d(inner, channels, 1, bias=False)
            self.norms = nn.ModuleList(
                [nn.BatchNorm2d(inner), nn.BatchNorm2d(inner), nn.BatchNorm2d(channels)]
            )

        def forward(self, x):
            y = self.norms[0](self.one(x)).relu()
            y = self.norms[1](self.two(y)).relu_()
            return (self.norms[2](self.three(y)) + x).relu()

    class Attends(nn.Module):
        def forward(self, x):
            return nn.functional.scaled_dot_product_attention(x, x, x)

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.positions = nn.Embedding(50, 16), nn.Embedding(6, 16)
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, words):
            x = self.words(words) + self.positions(torch.arange(6))
            mask = torch.triu(torch.full((6, 6), float("-inf")), diagonal=1)
            return self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(100, 8)
            self.head = nn.Linear(8, 100, bias=False)
            self.head.weight = self.words.weight

        def forward(self, x):
            return self.head(self.words(x))

    class Branches(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.constant = torch.ones(3)

        def forward(self, x):
            return x + self.constant

    return SimpleNamespace(**locals())


@pytest.mark.long
def test_vgg16_is_the_catalogues():
    with torch.device("meta"):
        module = vgg16()
    job = imports.import_torch(module, [meta(2, 3, 224, 224)], batch=64).workload
    known = workload("vgg16", 1, batch=64)
    assert total(job) == pytest.approx(total(known), rel=1e-9)
    assert job.parameter_bytes == known.parameter_bytes
    assert len(job.operators) == len(known.operators) == 16
    assert job.edges == tuple(pairwise(range(16)))
    assert [made.output_bytes for made in job.operators[:15]] == [
        made.output_bytes for made in known.operators[:15]
    ]
    assert [made.ways for made in job.operators] == [
        made.ways if made.kind == "dense" else ("data",) for made in known.operators
    ]
    assert job.batch == 64


@pytest.mark.slow
def test_a_bottleneck_has_three_operators_and_a_short_cut():
    """1x1 from 64 to 16, 3x3, 1x1 back, on maps of 8 x 8; two numbers a channel of each normalisation."""
    job = imports.import_torch(
        nn.Sequential(nn.Conv2d(3, 64, 1), modules().Bottleneck(64, 16)), [meta(1, 3, 8, 8)], batch=4
    ).workload
    assert [operator.name for operator in job.operators] == ["0", "1.one", "1.two", "1.three"]
    assert [operator.forward_flops for operator in job.operators[1:]] == [
        2 * 64 * 64 * 16,
        2 * 64 * 9 * 16 * 16,
        2 * 64 * 16 * 64,
    ]
    assert [operator.parameter_bytes for operator in job.operators[1:]] == [
        4 * (64 * 16 + 2 * 16),
        4 * (9 * 16 * 16 + 2 * 16),
        4 * (16 * 64 + 2 * 64),
    ]
    assert job.edges == ((0, 1), (0, 3), (1, 2), (2, 3))
    assert job.operators[0].output_bytes == 4 * 64 * 8 * 8


def test_a_linear_layer_by_hand():
    imported = imports.import_torch(nn.Sequential(nn.Linear(6, 10), nn.Tanh()), [torch.zeros(5, 6)], batch=20)
    (operator,) = imported.workload.operators
    assert operator.forward_flops == 2 * 6 * 10
    assert operator.backward_flops == 2 * operator.forward_flops
    assert operator.parameter_bytes == operator.gradient_bytes == operator.state_bytes == 4 * 70
    assert operator.output_bytes == 40
    assert operator.moved_bytes == (6 + 10) * 4 + 2 * 10 * 4  # the product, the tanh
    assert operator.forward_reduce_bytes == 20  # half of its output, an AllGather
    assert operator.backward_reduce_bytes == 24
    assert [(made.type, made.count, made.flops) for made in imported.estimates] == [
        ("addmm", 1, 120),
        ("tanh", 1, 0),
    ]


def test_a_module_that_is_served_learns_nothing():
    (operator,) = imports.import_torch(
        nn.Linear(6, 10), [meta(5, 6)], batch=20, training=False
    ).workload.operators
    assert operator.backward_flops == operator.gradient_bytes == operator.state_bytes == 0


def test_a_transformer_layer_takes_the_formula():
    """24 s h^2 + 4 s^2 h forward, the parameters of 12 h^2 + 13 h."""
    layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True).eval()
    job = imports.import_torch(layer, [meta(3, 16, 64)], batch=3).workload
    assert total(job) == 24 * 16 * 64**2 + 4 * 16**2 * 64
    assert job.parameter_bytes == 4 * (12 * 64**2 + 13 * 64)


def test_attention_without_weights_is_counted():
    job = imports.import_torch(modules().Attends(), [meta(2, 4, 16, 8)], batch=2).workload
    assert total(job) == 2 * 4 * 16 * 16 * (8 + 8)
    assert job.parameter_bytes == 0


def test_what_does_not_depend_on_the_input_is_no_operator():
    """Positions and a causal mask are made while running: their weights belong to what adds them."""
    job = imports.import_torch(modules().Decoder(), [meta(2, 6, dtype=torch.int64)], batch=2).workload
    assert [operator.kind for operator in job.operators] == ["embedding", "dense", "dense"]
    assert job.parameter_bytes == 4 * (50 * 16 + 6 * 16 + 4 * 16 * 16 + 4 * 16)
    assert total(job) == 2 * 6 * 4 * 16 * 16 + 4 * 6 * 6 * 16


def test_shared_weights_count_once():
    job = imports.import_torch(modules().Tied(), [meta(2, 5, dtype=torch.int64)], batch=2).workload
    table, head = job.operators
    assert (table.kind, head.kind) == ("embedding", "dense")
    assert (table.parameter_bytes, head.parameter_bytes) == (100 * 8 * 4, 0)
    assert table.moved_bytes == 5 * 8 + 2 * 5 * 8 * 4  # indices; rows, read and written
    assert table.ways == ("place", "data")
    assert table.state_bytes == 0
    assert head.forward_flops == 2 * 5 * 8 * 100


def test_a_bag_reads_all_its_rows():
    (table,) = imports.import_torch(
        nn.EmbeddingBag(1000, 16, mode="sum"), [meta(4, 7, dtype=torch.int64)], batch=4
    ).workload.operators
    assert table.parameter_bytes == 1000 * 16 * 4
    assert table.output_bytes >= 16 * 4
    assert table.moved_bytes >= 7 * 16 * 4


def test_steps_of_a_recurrent_network_are_one_operator_after_its_first():
    job = imports.import_torch(nn.LSTM(4, 6, batch_first=True), [meta(2, 10, 4)], batch=2).workload
    assert total(job) == 10 * 2 * 4 * 6 * (4 + 6)
    assert job.parameter_bytes == 4 * 4 * 6 * (4 + 6 + 2)
    assert len(job.operators) <= 2


def test_a_module_larger_than_memory():
    with torch.device("meta"):
        module = nn.Sequential(*(nn.Linear(50_000, 50_000) for _ in range(40)))
    job = imports.import_torch(module, [meta(1, 50_000)], batch=1).workload
    assert job.parameter_bytes == 40 * 4 * (50_000**2 + 50_000)


def test_half_precision_counts_two_bytes():
    job = imports.import_torch(nn.Linear(6, 10).half(), [meta(5, 6, dtype=torch.float16)], batch=5).workload
    assert job.parameter_bytes == 140


def test_a_transposed_convolution():
    job = imports.import_torch(
        nn.ConvTranspose2d(3, 5, 2, stride=2, bias=False), [meta(1, 3, 4, 4)], batch=1
    ).workload
    assert total(job) == 2 * 3 * 4 * 4 * 5 * 2 * 2


@pytest.mark.parametrize(
    "make", [lambda: modules().Branches(), lambda: modules().Constant(), lambda: nn.Linear(2, 3)]
)
def test_modules_that_cannot_be_run_without_numbers_are_named(make):
    module = make()
    with pytest.raises(WorkloadError, match=f"{type(module).__name__} cannot run on tensors without values"):
        imports.import_torch(module, [meta(4, 3)], batch=4)


def test_a_module_that_does_nothing_is_named():
    with pytest.raises(WorkloadError, match="nothing is computed"):
        imports.import_torch(nn.Identity(), [meta(4, 3)], batch=4)


def test_an_example_has_samples():
    with pytest.raises(WorkloadError, match="Linear: the first example input has no samples"):
        imports.import_torch(torch.nn.Linear(3, 4), [torch.zeros(0, 3)], batch=1)


def test_an_example_is_needed():
    with pytest.raises(WorkloadError, match="example inputs"):
        imports.import_torch(nn.Linear(2, 3), [], batch=4)


def test_the_module_stays_as_it_was():
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    imports.import_torch(module, [meta(4, 2)], batch=4)
    assert all((value == before[name]).all() for name, value in module.state_dict().items())
    assert not module[0]._forward_hooks
    assert not module[0]._forward_pre_hooks
