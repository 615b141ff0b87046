"""The picture of accuracy over noise names every curve, where it is at one half, and that it was simulated."""

import math

import pytest
from libraries import library, skip_without

skip_without("matplotlib", reason="pictures need it: pip install 'lightbed[kit]'")

from lightning.compiler.measured import MEASURED_SIGMA
from lightning.training import Curve

curve_plot = library("lightning.training.curve_plot")

FALLING = Curve((0.0, 1.0, 2.0, 4.0), (0.9, 0.8, 0.7, 0.3))
STANDING = Curve((0.0, 1.0), (0.9, 0.8))


def test_curves_are_drawn_in_per_cent_with_their_half_points():
    axes = curve_plot.plot_noise_curves({"falling": FALLING, "standing": STANDING}, "Digits").axes[0]
    falling, standing, _half = axes.lines

    assert falling.get_label() == f"falling: half at {FALLING.half_point:.1f}" == "falling: half at 3.0"
    assert standing.get_label() == "standing"
    assert falling.get_ydata().tolist() == pytest.approx([90, 80, 70, 30])
    assert falling.get_xdata()[0] > 0
    assert falling.get_xdata().tolist()[1:] == [1, 2, 4]
    assert math.isinf(STANDING.half_point)


@pytest.mark.parametrize(("trained_at", "marks"), [(None, ["prototype"]), (8.0, ["prototype", "training"])])
def test_the_prototype_and_the_noise_of_training_are_marked(trained_at, marks):
    axes = curve_plot.plot_noise_curves({"falling": FALLING}, "Digits", training_sigma=trained_at).axes[0]
    words = [text.get_text() for text in axes.texts]
    places = [collection.get_segments()[0][0][0] for collection in axes.collections]

    assert [word for word in words if word in {"prototype", "training"}] == marks
    assert places == pytest.approx([MEASURED_SIGMA, 8.0][: len(marks)])
    assert "SIMULATED" in words
