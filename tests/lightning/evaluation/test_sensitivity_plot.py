"""The plot and the words show the losses and the limits that were found."""

import math
from dataclasses import replace

import pytest
from libraries import library, skip_without

skip_without("matplotlib", reason="plots are drawn by matplotlib: pip install 'lightbed[kit]'")

from lightning.evaluation.sensitivity import LayerLoss, NoiseTrial, Sensitivity
from lightning.execution import Noise

plots = library("lightning.evaluation.sensitivity_plot")


@pytest.fixture
def found():
    layers = (LayerLoss("conv1", 0.95, 1.0), LayerLoss("conv2", 0.9, 6.0), LayerLoss("fc", 0.965, -0.5))
    tried = (NoiseTrial(0.5, 1, 0.95), NoiseTrial(1.0, 1, 0.93), NoiseTrial(2.0, 1, 0.8))
    return Sensitivity(0.96, Noise(sigma=2.0), 1.0, layers, tried, (NoiseTrial(2.0, 1, 0.8),), 0.25)


def test_bars_are_losses_and_the_curve_is_what_was_tried(found):
    left, right = plots.plot_layer_losses(found, "net", "digits").axes
    assert [bar.get_width() for bar in left.patches] == [1.0, 6.0, -0.5]
    assert [label.get_text() for label in left.get_yticklabels()] == ["conv1", "conv2", "fc"]
    curve, limit, describe_tolerable_noise = right.lines
    assert curve.get_xydata().tolist() == [[0.5, 95], [1, 93], [2, 80]]
    assert limit.get_ydata()[0] == pytest.approx(95)
    assert describe_tolerable_noise.get_xdata()[0] == 0.5
    assert left.get_title(loc="left") == "Noise in layer “conv2” costs most: 6.00 points"
    assert "SIMULATED" in [text.get_text() for text in right.texts]


@pytest.mark.parametrize("factor", [0.0, math.inf])
def test_without_a_limit_no_line_is_drawn(factor, found):
    assert (
        len(plots.plot_layer_losses(replace(found, max_noise_factor=factor), "net", "digits").axes[1].lines)
        == 2
    )


@pytest.mark.parametrize(
    ("factor", "reported"),
    [
        (0.25, "for a loss of at most 1 point: sigma up to 0.5 of 255"),
        (0.0, "no sigma is small enough for a loss of at most 1 point: the mean error alone costs more"),
        (math.inf, "even the largest sigma that was tried is small enough for a loss of at most 1 point"),
    ],
)
def test_the_limit_in_words(factor, reported, found):
    pytest.importorskip("typer", reason="the command line needs lightbed[kit]")
    from lightning.cli.sensitivity import describe_tolerable_noise, make_document

    assert describe_tolerable_noise(replace(found, max_noise_factor=factor)) == reported
    kept = make_document(replace(found, max_noise_factor=factor))
    assert (kept["factor"], kept["sigma"]) == ((None, None) if math.isinf(factor) else (factor, 2 * factor))


def test_the_averaging_in_words(found):
    pytest.importorskip("typer", reason="the command line needs lightbed[kit]")
    from lightning.cli.sensitivity import describe_averaging

    assert describe_averaging(found) == "or averaging: a mean of 1 is not enough"
    enough = replace(found, averaging_trials=(*found.averaging_trials, NoiseTrial(2.0, 2, 0.95)))
    assert describe_averaging(enough) == "or averaging of 2 at sigma 2"
    borne = replace(found, averaging_trials=(NoiseTrial(2.0, found.noise.average, found.exact_accuracy),))
    assert describe_averaging(borne) == "no more averaging is needed at sigma 2"
