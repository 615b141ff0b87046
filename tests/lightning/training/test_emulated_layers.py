"""Layers in training are rounded as the compiler rounds, as noisy as executors are, and let gradients pass."""

import math

import numpy as np
import pytest
from libraries import library

torch = library("torch", reason="training needs it: pip install 'lightbed[torch]'")
nn = library("torch.nn")

from lightning.compiler import Hardware, Options
from lightning.errors import CompileError
from lightning.execution.noise import Noise
from lightning.training import Emulation

training = library("lightning.training")

PLACES = ("per-product", "per-product-dense", "per-output")


def dense(weights, bias=None):
    layer = nn.Linear(len(weights[0]), len(weights), bias=bias is not None)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weights))
        if bias is not None:
            layer.bias.copy_(torch.tensor(bias))
    return layer


def sums_per_draw(layer, inputs, noise, draws=4000, **options):
    """Return (draws, rows) of one input, noisy, in steps of sums."""
    emulation = Emulation(noise, Options(**options))
    x = torch.tensor([inputs])
    with torch.no_grad(), training.emulate(layer, emulation):
        layer(x)
        results = layer(x.expand(draws, -1)).double().numpy()
    rows = np.abs(layer.weight.detach().numpy()).max(axis=1) / 255
    return results / (256 * rows * max(abs(each) for each in inputs) / 255)


# ------------------------------------------------------------------------------------ rounding


def test_a_dense_layer_is_rounded_to_steps_of_its_ranges():
    """Of 2.55 a step is 0.01, of 0.51 and of 5.1 one of 0.002 and one of 0.02."""
    layer = dense([[0.51, -0.1013], [0.033, 5.1]], bias=[0.5, 0.0])
    with torch.no_grad(), training.emulate(layer, Emulation()):
        found = layer(torch.tensor([[2.55, 0.104]]))

    first = 0.01 * 0.002 * (255 * 255 - 10 * 51) + 0.5
    second = 0.01 * 0.02 * (255 * 2 + 10 * 255)
    assert found.numpy() == pytest.approx(np.array([[first, second]]), rel=1e-6)


def test_one_scale_for_all_rows_when_it_is_per_tensor():
    layer = dense([[0.5, -0.1], [0.033, 5.1]])
    with torch.no_grad(), training.emulate(layer, Emulation(options=Options(per_channel=False))):
        found = layer(torch.tensor([[2.55, 0.0]]))

    assert found.numpy() == pytest.approx(np.array([[2.55 * 0.5, 2.55 * 0.04]]), rel=1e-6)


@pytest.mark.parametrize("settings", [{}, {"stride": 2, "padding": 1}, {"groups": 2, "dilation": 2}])
def test_a_convolution_is_what_it_was_within_its_steps(settings):
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 6, 3, **settings)
    x = torch.rand(5, 4, 9, 8)
    with torch.no_grad():
        wanted = layer(x)
        with training.emulate(layer, Emulation()):
            found = layer(x)

    terms = layer.weight[0].numel()
    step = float(layer.weight.detach().abs().max()) / 255
    assert found.shape == wanted.shape
    assert 0 < float((found - wanted).abs().max()) < terms * (step / 2 + 1 / 510 * 255 * step)


def test_published_layers_share_a_scale_and_shift_activations():
    """A joint step of 2/255; sums of 256 products; the largest of a hidden layer's gets 8 bits, image by image."""
    chain = nn.Sequential(dense([[2.0, 0.0], [0.0, 1.0]]), nn.ReLU(), dense([[1.0, 0.0], [0.0, 1.0]]))
    hidden = []
    chain[2].register_forward_pre_hook(lambda _, given: hidden.append(given[0]))
    with torch.no_grad(), training.emulate(chain, Emulation(options=Options(scheme="published"))):
        found = chain(torch.tensor([[1.0, 1.0], [0.1, 1.0]]))
        forward = chain[2].forward

    base = 256 * (2 / 255) / 255
    assert forward.activation_range.is_signed is False
    scales = forward.activation_range.compute_step(hidden[0], is_learning=False).flatten().numpy()
    exponents = np.log2(scales / base)
    assert exponents == pytest.approx(np.rint(exponents), abs=1e-4)
    assert ((hidden[0].amax(1).numpy() / scales >= 128) & (hidden[0].amax(1).numpy() / scales < 256)).all()
    half = 128 * 2 / 255
    assert found.numpy() == pytest.approx(np.array([[2.0, half], [0.2, half]]) * [half, half], rel=0.03)


# --------------------------------------------------------------------------------------- noise


@pytest.mark.parametrize(
    ("noise", "variance"),
    [
        (Noise("per-product-dense", sigma=5.0), 25 * 4),
        (Noise("per-product", sigma=5.0), 25 * 3),
        (Noise("per-product-dense", sigma=5.0, average=4), 25 * 4 / 4),
        # Products are 255 * 255 / 256, 127.5 * 255 / 256 and 255 * 102 / 256.
        (Noise("per-product", sigma=0.0, shot=2.0), 2 * (254.0 + 127.5 + 101.6)),
        (Noise("per-product", sigma=0.0, intensity=0.01), 0.01 * (254.0**2 + 127.5**2 + 101.6**2)),
    ],
)
def test_the_variance_of_a_sum_is_that_of_its_readouts(noise, variance):
    """Weights of 1, -0.5, 0.4 and 0: four readouts, or three when the last is left out."""
    drawn = sums_per_draw(dense([[1.0, -0.5, 0.4, 0.0]]), [3.0, 3.0, 3.0, 3.0], noise)

    assert drawn.var() == pytest.approx(variance, rel=0.08)
    assert drawn.mean() == pytest.approx(254.0 - 127.5 + 101.6, abs=5 * math.sqrt(variance / 4000) + 1)


def test_noise_of_an_output_is_in_steps_of_the_largest_sum():
    drawn = sums_per_draw(dense([[1.0, 1.0], [0.5, 0.0]]), [3.0, 3.0], Noise("per-output", sigma=5.0))

    assert drawn.std(axis=0) == pytest.approx(np.full(2, 5 * 2 * 254 / 255), rel=0.05)


@pytest.mark.parametrize(
    ("place", "wavelengths", "net"),
    [("per-product-dense", 1, 3), ("per-product", 1, 2), ("per-product-dense", 2, 1), ("per-product", 2, 1)],
)
def test_the_mean_of_noise_counts_with_the_sign_of_readouts(place, wavelengths, net):
    """Three weights add, one subtracts, one is 0 and adds: 4 - 1 readouts, or 3 - 1; in pairs 2 - 1."""
    layer = dense([[1.0, 1.0, 1.0, -1.0, 0.0]])
    noise = Noise(place, sigma=0.0, mean=2.0)
    options = Options(hardware=Hardware(wavelengths=wavelengths))
    x = torch.ones(1, 5)
    with torch.no_grad():
        with training.emulate(layer, Emulation(noise, options)):
            biased = float(layer(x))
        with training.emulate(layer, Emulation(options=options)):
            unbiased = float(layer(x))

    assert (biased - unbiased) / (256 / 255**2) == pytest.approx(2.0 * net, rel=1e-4)


def test_signed_activations_take_two_passes_whose_means_cancel():
    noise = Noise("per-product", sigma=4.0, mean=2.0)
    drawn = sums_per_draw(dense([[1.0, 1.0, 1.0]]), [3.0, -3.0, 3.0], noise)

    assert drawn.var() == pytest.approx(2 * 3 * 16, rel=0.08)
    assert drawn.mean() == pytest.approx(254.0, abs=1.5)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("wavelengths", [1, 2])
def test_training_is_as_noisy_as_the_executor(place, wavelengths):
    """The same layer, compiled and run: spread and mean of every row agree."""
    pytest.importorskip("numba", reason="executors are compiled")
    from lightning.compiler import compile_network
    from lightning.execution import open_executor
    from lightning.networks import from_torch

    generator = np.random.default_rng(3)
    weights = generator.normal(size=(6, 40)) * (generator.random((6, 40)) < 0.5)
    layer = dense(weights.astype(np.float32).tolist())
    image = generator.random((1, 40)).astype(np.float32)
    image[0, 0] = 1.0
    noise = Noise(place, sigma=6.0, mean=1.0)
    options = Options(ranges="min-max", hardware=Hardware(wavelengths=wavelengths))
    model = compile_network(from_torch(layer, (40,)), image, options)
    executor = open_executor(model, "noisy", noise=noise, seed=1)
    ran = executor.run(np.repeat(image, 4000, axis=0)).scores
    exact = open_executor(model, "exact").run(image).scores[0]
    x = torch.from_numpy(image)
    with torch.no_grad():
        with training.emulate(layer, Emulation(noise, options)):
            layer(x)
            trained = layer(x.expand(4000, -1)).numpy()
        with training.emulate(layer, Emulation(options=options)):
            quiet = layer(x).numpy()[0]

    spread = ran.std(axis=0)
    assert trained.std(axis=0) == pytest.approx(spread, rel=0.08)
    assert (trained.mean(axis=0) - quiet) / spread == pytest.approx(
        (ran.mean(axis=0) - exact) / spread, abs=0.1
    )


def test_a_seed_gives_the_same_noise_and_another_seed_other_noise():
    layer, x = dense([[1.0, 2.0]]), torch.ones(3, 2)

    def drawn(seed):
        with torch.no_grad(), training.emulate(layer, Emulation(Noise(sigma=5.0)), seed=seed):
            return layer(x)

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


# ------------------------------------------------------------------------------------ the module


def test_gradients_are_those_of_the_rounded_layer():
    """As if nothing had been rounded: of a weight the rounded activation, of an activation the rounded weight."""
    layer = dense([[0.51, -0.1013]])
    x = torch.tensor([[2.55, 0.104]], requires_grad=True)
    with training.emulate(layer, Emulation(Noise(sigma=3.0))):
        layer(x).sum().backward()

    assert layer.weight.grad.numpy() == pytest.approx(np.array([[2.55, 0.10]]), rel=1e-5)
    assert x.grad.numpy() == pytest.approx(np.array([[0.51, -0.102]]), rel=1e-5)


@pytest.mark.torch
def test_what_a_range_cuts_off_has_no_gradient():
    """Three quarters of the magnitudes reach as far as 0.3, and 0.9 lies beyond."""
    layer = dense([[1.0, 1.0, 1.0, 1.0]])
    x = torch.tensor([[0.1, 0.2, 0.3, 0.9]], requires_grad=True)
    with training.emulate(layer, Emulation(options=Options(ranges="percentile", percentile=75))):
        found = layer(x)
        found.backward()

    assert found.item() == pytest.approx(0.9, abs=0.01)
    assert x.grad.numpy() == pytest.approx(np.array([[1.0, 1.0, 1.0, 0.0]]))


@pytest.mark.parametrize(
    ("noise", "options", "percentile"),
    [
        (5.0, Options(), 97),
        (5.0, Options(sigma=0), 100),
        (0.0, Options(), 100),
        (5.0, Options(ranges="min-max"), 100),
        (5.0, Options(ranges="percentile", percentile=99), 99),
    ],
)
def test_ranges_are_cut_off_in_training_where_the_compiler_does_so(noise, options, percentile):
    assert Emulation(Noise(sigma=noise), options).percentile == percentile


def test_a_module_stays_what_it_is_also_after_an_error():
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))
    kinds, x = [type(each) for each in module.modules()], torch.rand(1, 1, 4, 4)
    with torch.no_grad():
        before = module(x)
        with pytest.raises(RuntimeError), training.emulate(module, Emulation(Noise(sigma=50.0))) as same:
            assert same is module
            assert not torch.equal(module(x), before)
            raise RuntimeError
        assert torch.equal(module(x), before)
    assert [type(each) for each in module.modules()] == kinds
    assert all("forward" not in vars(each) for each in module.modules())


def test_ranges_follow_while_training_and_stand_still_afterwards():
    layer = dense([[1.0]])
    with torch.no_grad(), training.emulate(layer, Emulation()):
        layer(torch.tensor([[1.0]]))
        layer(torch.tensor([[2.0]]))
        grown = float(layer.forward.activation_range.largest_magnitude)
        layer(torch.tensor([[0.5]]))
        faded = float(layer.forward.activation_range.largest_magnitude)
        layer.eval()
        layer(torch.tensor([[9.0]]))
        kept = float(layer.forward.activation_range.largest_magnitude)

    assert (grown, faded, kept) == pytest.approx((2.0, 1.96, 1.96))


def test_a_layer_of_zeros_gives_its_bias():
    layer = dense([[0.0, 0.0]], bias=[0.25])
    with torch.no_grad(), training.emulate(layer, Emulation()):
        assert layer(torch.zeros(1, 2)).item() == 0.25


WITHOUT_NOISE = [
    (lambda: nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), "^0 pads with 'circular'"),
    (lambda: nn.Conv1d(1, 2, 3), "0 is a Conv1d, which cannot be trained with noise"),
    (lambda: nn.MultiheadAttention(4, 2), "0 is a MultiheadAttention, which cannot be trained with noise"),
    (lambda: nn.GRU(2, 2), "0 is a GRU, which cannot be trained with noise"),
]


@pytest.mark.parametrize(
    ("layer", "words"),
    WITHOUT_NOISE,
    ids=[f"layer{number}-{words}" for number, (_, words) in enumerate(WITHOUT_NOISE)],
)
def test_what_would_stay_without_noise_is_refused_by_name(layer, words):
    with pytest.raises(CompileError, match=words), training.emulate(nn.Sequential(layer()), Emulation()):
        pass


def own_factor(way):
    """Return a module that adds a learned position, and multiplies by a parameter of its own in one of several ways."""

    class OwnFactor(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.position = nn.Parameter(torch.ones(1, 4))
            self.factor = nn.Parameter(torch.ones(3, 4))

        def forward(self, x):
            h = self.first(x) + self.position
            return h if way is None else way(h, self.factor)

    return OwnFactor()


@pytest.mark.parametrize(
    "way",
    [
        lambda x, w: x @ w.T,
        lambda x, w: torch.matmul(x, w.t()),
        lambda x, w: nn.functional.linear(x, w),
        lambda x, w: torch.einsum("nk,rk->nr", x, w),
        lambda x, w: torch.mm(x, w.transpose(0, 1)),
        lambda x, w: (w @ x.T).T,
    ],
)
def test_a_product_outside_the_layers_is_refused_by_name(way):
    module = own_factor(way)
    with (
        pytest.raises(CompileError, match=r"^parameter factor is multiplied outside"),
        training.emulate(module, Emulation(Noise(sigma=5))),
    ):
        module(torch.ones(2, 4))
    assert module(torch.ones(2, 4)).shape == (2, 3)
    assert "forward" not in vars(module.first)


def test_parameters_that_are_added_or_looked_up_are_no_products():
    module = nn.Sequential(nn.Embedding(5, 4), own_factor(None))
    with training.emulate(module, Emulation(Noise(sigma=5))):
        module(torch.tensor([1, 2])).sum().backward()
    assert module[1].position.grad is not None
