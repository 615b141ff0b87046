"""Plots show the data that they were given, say what is on their axes, and whose it is."""

import numpy as np
import pytest
from libraries import library, skip_without

skip_without("matplotlib", reason="plots are drawn by matplotlib: pip install 'lightbed[kit]'")

from lightning.kit.calibration.fringe import Fringe
from lightning.kit.config import Settings
from lightning.kit.devices.identity import DeviceIdentity
from lightning.kit.waveform import Origin, Waveform

canvas = library("lightning.canvas")
plots = library("lightning.kit.plots")

REAL = DeviceIdentity("board-7", "ZCU111")
TWIN = DeviceIdentity("sim-kit-0001", "ZCU111", is_simulated=True)


def texts(figure):
    """Return all that is written on a plot, without the numbers on its axes."""
    from matplotlib.text import Text

    figure.draw_without_rendering()
    ticks = {t for axes in figure.axes for t in (*axes.get_xticklabels(), *axes.get_yticklabels())}
    return [each.get_text() for each in figure.findobj(Text) if each not in ticks and each.get_text()]


def drawn_lines(axes):
    return {line.get_label(): line.get_xydata() for line in axes.lines}


def origin(device=TWIN, **changes):
    settings = Settings(values=(100, 50, 0, 0), readouts=(0, 1), reps=2, soft_avgs=10, readout_length=5)
    given = {"settings": settings, "words": (7, 8, 0, 0), "device": device, "calibration": None}
    given |= {"tick_ns": (2.0, 4.0), "trigger_ns": 100.0, "pulse_ns": 40.0}
    return Origin(**given | changes)


@pytest.fixture
def recorded():
    shots = np.arange(20.0).reshape(2, 2, 5)
    return Waveform([shots, shots + 100], origin())


def test_a_waveform_shows_shots_and_mean_over_time(recorded):
    (axes,) = plots.waveform(recorded).axes
    shown = drawn_lines(axes)
    assert shown["readout 0"][:, 0] == pytest.approx([0.1, 0.102, 0.104, 0.106, 0.108])
    assert shown["readout 0"][:, 1] == pytest.approx(recorded[0][:, 0].mean(axis=0))
    assert shown["readout 1"][:, 0] == pytest.approx([0.1, 0.104, 0.108, 0.112, 0.116])
    assert shown["readout 1"][:, 1] == pytest.approx(shown["readout 0"][:, 1] + 100)
    assert len(axes.lines) == 2 * (2 + 1)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time after the start of the pulses (µs)", "I (counts)")
    assert axes.get_ylim()[0] <= 0 < 114 < axes.get_ylim()[1]


def test_a_waveform_is_named_by_what_made_it(recorded):
    reported = texts(plots.waveform(recorded, decoded_result=20))
    assert "100 × 50 / 255 = 20" in reported
    assert "sim-kit-0001 · 2 shots, each the mean of 10 runs · not calibrated: driven linearly" in reported
    assert "SIMULATED" in reported


@pytest.mark.parametrize(
    ("settings", "decoded", "title"),
    [
        (Settings(values=(1, 2, 3, 4)), None, "1 × 2 + 3 × 4"),
        (Settings(values=(1, 2, 3, 4)), 7, "(1 × 2 + 3 × 4) / 255 = 7"),
        (Settings(values=(1, None, 0, 0), words=(None, 9, None, None)), None, "gain words 7, 8, 0, 0"),
        (Settings(values=(9, 2, 0, 0), channels=(0, 1, None, None)), None, "9 × 2"),
    ],
)
def test_the_operands_are_the_title(settings, decoded, title, recorded):
    given = Waveform([recorded[0]], origin(settings=settings))
    assert title in texts(plots.waveform(given, decoded_result=decoded))


def test_a_calibration_says_where_the_light_is(kit):
    from lightning.kit.calibration import require

    shots = np.zeros((2, 2, 5))
    calibration = require(kit)
    (axes,) = plots.waveform(Waveform([shots, shots], origin(calibration=calibration))).axes
    assert "the pulses’ light" in [text.get_text() for text in axes.texts]
    timing = calibration.timing
    start, width = axes.patches[0].get_x(), axes.patches[0].get_width()
    assert start == pytest.approx(max(timing.arrival) * timing.tick_ns / 1000)
    assert start + width == pytest.approx(min(timing.arrival) * timing.tick_ns / 1000 + 0.04)


@pytest.mark.long
def test_what_is_real_is_not_called_simulated(recorded):
    real = Waveform(list(recorded), origin(device=REAL))
    a = np.arange(16)
    sweep = swept(Fringe((0.0, 1.5), 10_000.0, 20_000.0, 5.0, 900.0, 1.0))
    for figure in (
        plots.waveform(real),
        plots.transfer_curves({0: sweep}, REAL),
        plots.error_histogram(a * a / 255, a, a, REAL),
        plots.constellation(a * a / 255, a, a, REAL),
    ):
        assert "SIMULATED" not in " ".join(texts(figure))
        assert "board-7" in " ".join(texts(figure))


# ---------------------------------------------------------------------------------------- curves


def swept(curve, off=0.0):
    class Swept:
        words = np.arange(-6_000, 32_000, 1_000)
        levels = curve.compute_level(words) + off

    Swept.curve = curve
    return Swept


@pytest.mark.slow
def test_curves_are_drawn_with_what_they_leave():
    curves = {0: Fringe((0.0, 1.5), 0.0, 20_000.0, 5.0, 900.0, 1.0)}
    curves[2] = Fringe((-0.1, 1.4), 0.0, 20_000.0, 5.0, 800.0, 1.0)
    figure = plots.transfer_curves({i: swept(c, off=8.0) for i, c in curves.items()}, TWIN)
    top, bottom = figure.axes
    assert top.get_ylabel() == "level above idle (counts)"
    assert (bottom.get_xlabel(), bottom.get_ylabel()) == ("gain word", "residual\n(% of swing)")
    dots = [line for line in top.lines if line.get_marker() == "."]
    assert dots[0].get_ydata() == pytest.approx(curves[0].compute_level(dots[0].get_xdata()) + 8)
    left = [line.get_ydata() for line in bottom.lines if line.get_marker() == "."]
    assert left[0] == pytest.approx(np.full(38, 100 * 8 / 900))
    assert left[1] == pytest.approx(np.full(38, 100 * 8 / 800))
    nulls = [line.get_xdata()[0] for line in top.lines if line.get_marker() == "v"]
    assert nulls == pytest.approx([curves[0].null, curves[2].null])
    reported = " ".join(texts(figure))
    assert "Transfer curves of modulators 0, 2" in reported
    assert f"= {curves[2].half_wave:,.0f} words" in reported
    assert "SIMULATED" in reported


def test_the_sweeps_kept_with_a_calibration_can_be_drawn(kit):
    from lightning.kit.calibration import require

    calibration = require(kit)
    words = np.arange(0, 20_000, 500)
    raw = {"sweep_1_words": words, "sweep_1_levels": calibration.modulators[1].curve.compute_level(words)}
    found = plots.load_sweeps(calibration, raw)
    assert list(found) == [1]
    assert found[1].curve == calibration.modulators[1].curve
    title = plots.transfer_curves(found, TWIN).axes[0].get_title(loc="left")
    assert title == "Transfer curve of modulator 1"


# -------------------------------------------------------------------------------------- accuracy


@pytest.fixture
def measured():
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 256, (2, 3_000))
    return a * b / 255 + 0.4 + 0.5 * rng.standard_normal(3_000), a, b


def test_the_histogram_counts_every_result_and_its_normal_distribution(measured):
    results, a, b = measured
    figure = plots.error_histogram(results, a, b, TWIN)
    (axes,) = figure.axes
    assert sum(bar.get_height() for bar in axes.patches) == 3_000
    bell = drawn_lines(axes)["normal distribution"]
    width = axes.patches[0].get_width()
    assert bell[:, 1].sum() * (bell[1, 0] - bell[0, 0]) / width == pytest.approx(3_000, rel=0.01)
    assert bell[bell[:, 1].argmax(), 0] == pytest.approx(0.4, abs=0.03)
    assert axes.get_xlabel() == "error of the result (LSB)"
    reported = " ".join(texts(figure))
    error = results - a * b / 255
    assert f"error {np.sqrt(np.mean(error**2)):.3f} of 255 rms" in reported
    assert "3,000 products" in reported
    assert "SIMULATED" in reported


def test_the_histogram_of_exact_results_is_one_bar():
    a = np.arange(50)
    (axes,) = plots.error_histogram(a * a / 255, a, a, TWIN).axes
    assert sorted(bar.get_height() for bar in axes.patches)[-2:] == [0, 50]


def test_the_constellation_shows_every_result_against_the_truth(measured):
    results, a, b = measured
    figure = plots.constellation(results, a, b, TWIN)
    top, bottom = figure.axes
    points, errors = (np.asarray(axes.collections[0].get_offsets()) for axes in (top, bottom))
    assert points[:, 0] == pytest.approx(a * b / 255)
    assert points[:, 1] == pytest.approx(results)
    assert errors[:, 1] == pytest.approx(results - a * b / 255)
    assert drawn_lines(top)["exact"] == pytest.approx(np.array([[0, 0], [255, 255]]))
    assert (top.get_ylabel(), bottom.get_xlabel()) == ("result of the light", "a × b / 255")
    assert max(abs(end) for end in bottom.get_ylim()) > np.abs(results - a * b / 255).max()


def test_signed_products_have_room():
    a = np.arange(-200, 200, 25)
    top, _ = plots.constellation(-a * 255 / 255, a, np.full(a.shape, -255), TWIN).axes
    assert top.get_xlim()[0] <= -175
    assert drawn_lines(top)["exact"][0] == pytest.approx([-175, -175])


# ---------------------------------------------------------------------------------------- saving


@pytest.mark.long
@pytest.mark.parametrize(("name", "begins"), [("x.png", b"\x89PNG"), ("x.svg", b"<?xml"), ("x.PDF", b"%PDF")])
def test_a_plot_is_saved_in_the_format_of_its_name(name, begins, tmp_path, recorded):
    path = plots.save(plots.waveform(recorded), tmp_path / name)
    assert path.read_bytes().startswith(begins)


@pytest.mark.parametrize("name", ["x.txt", "x", "nowhere/x.png"])
def test_a_plot_that_cannot_be_saved_is_a_named_error(name, tmp_path, recorded):
    with pytest.raises(canvas.PlotError) as refused:
        plots.save(plots.waveform(recorded), tmp_path / name)
    assert refused.value.hint


@pytest.mark.process
def test_a_notebook_shows_a_plot_without_pyplot(recorded):
    import subprocess
    import sys

    assert plots.waveform(recorded)._repr_png_().startswith(b"\x89PNG")
    script = "import sys, lightning.kit.plots; print('matplotlib.pyplot' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("number", "digits", "reported"), [(-0.25, 2, "−0.25"), (1234.5, 0, "+1,234"), (0, 1, "+0.0")]
)
def test_numbers_carry_their_sign_as_type_is_set(number, digits, reported):
    assert canvas.format_signed(number, digits) == reported
