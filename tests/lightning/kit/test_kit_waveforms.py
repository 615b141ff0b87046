import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lightning
from lightning import LightningControl, LightningSignalProcessing, Waveform, errors, from_slide
from lightning.kit.devices.identity import DeviceIdentity
from lightning.kit.signal_processing import compute_moving_mean, find_peak_floor
from lightning.kit.waveform import Origin

pytestmark = pytest.mark.board


def test_a_waveform_is_the_published_list_and_knows_its_origin(kit):
    config = from_slide({"dac_0": 100, "dac_1": 50, "soft_avgs": 3})
    waveform = LightningControl(kit, config).acquire_decimated(kit)
    assert isinstance(waveform, list)
    assert [each.shape for each in waveform] == [(4, 2, 250)]
    assert waveform.config == config
    assert waveform.device == DeviceIdentity("sim-kit-0001", "ZCU111", kit["fw_timestamp"], is_simulated=True)
    assert "SIMULATED" in repr(waveform)
    assert len(waveform.origin.rounds) == 3
    assert np.allclose(np.mean([run[0] for run in waveform.origin.rounds], axis=0), waveform[0])


def test_every_public_name_is_there():
    assert [name for name in lightning.__all__ if not hasattr(lightning, name)] == []
    assert lightning.LightningCompute.__module__ == "lightning.kit.compute"
    with pytest.raises(AttributeError, match="no attribute 'Trainer'"):
        _ = lightning.Trainer


def test_the_time_axis_begins_with_the_trigger(kit):
    waveform = LightningControl(kit, from_slide({"soft_avgs": 1})).acquire_decimated(kit)
    time_us = waveform.time_us()
    assert time_us[0] == pytest.approx(100 / 384)
    assert np.diff(time_us) == pytest.approx(np.full(249, 1 / 384))


def test_one_repetition_and_two_readouts_keep_their_axes(kit):
    config = from_slide({"reps": 1, "soft_avgs": 2, "readouts": [0, 1]})
    waveform = LightningControl(kit, config).acquire_decimated(kit)
    assert [each.shape for each in waveform] == [(1, 2, 250), (1, 2, 250)]


def test_the_pulse_is_where_it_is_asked_for(kit):
    """A later trigger sees the same pulse earlier in its window."""

    def edge(offset):
        config = from_slide({"word_0": 20000, "word_1": 20000, "adc_trig_offset": offset, "soft_avgs": 20})
        signal = LightningControl(kit, config).acquire_decimated(kit)[0].mean(axis=0)[0]
        return int(np.argmax(signal > signal.max() / 2))

    assert edge(100) - edge(130) == 30


def test_a_changed_configuration_needs_a_new_runtime(kit):
    config = from_slide({"dac_0": 10})
    runtime = LightningControl(kit, config)
    config["dac_0"] = 200
    assert runtime.settings.values[0] == 10


def test_the_library_never_writes_the_configuration(kit):
    config = from_slide({"dac_0": 10, "soft_avgs": 1})
    before = config.settings
    runtime = LightningControl(kit, config)
    runtime.acquire_decimated(kit).config["dac_0"] = 99
    assert config.settings is before


@pytest.mark.slow
def test_the_mean_of_a_window_inside_the_pulse(kit):
    inside = from_slide({"word_0": 20000, "word_1": 20000, "adc_trig_offset": 160, "readout_length": 40})
    dark = from_slide({"adc_trig_offset": 160, "readout_length": 40})
    (lit,), (idle,) = (LightningControl(kit, each).acquire(kit) for each in (inside, dark))
    assert lit.shape == (2,)
    assert lit[0] > 5 * abs(idle[0]) > 0


def _levels(address, offset):
    """Peak above floor for the first modulator half driven and fully driven."""
    soc = lightning.connect(address)
    found = []
    for word in (10000, 20000):
        config = from_slide({"word_0": word, "word_1": 20000, "soft_avgs": 50, "adc_trig_offset": offset})
        waveform = LightningControl(soc, config).acquire_decimated(soc)
        assert waveform[0].shape == (4, 2, 250)
        peak, floor = find_peak_floor(np.hypot(*waveform[0].mean(axis=0)))
        found.append(peak - floor)
    return found


@pytest.mark.slow
def test_both_versions_of_the_processor_see_the_same_light():
    half_1, full_1 = _levels("sim://kit", 100)
    half_2, full_2 = _levels("sim://kit?profile=zcu216", 60)
    assert 0.3 < half_1 / full_1 < 0.7
    assert half_2 / full_2 == pytest.approx(half_1 / full_1, rel=0.02)


def test_waveforms_survive_another_process(kit):
    waveform = LightningControl(kit, from_slide({"soft_avgs": 1})).acquire_decimated(kit)
    again = pickle.loads(pickle.dumps(waveform))
    assert np.array_equal(again[0], waveform[0])
    assert again.config == waveform.config


def test_a_board_with_unlocked_clocks_is_refused():
    soc = lightning.connect("sim://kit")
    runtime = LightningControl(soc, from_slide({"soft_avgs": 1}))
    runtime.acquire_decimated(soc)
    soc.knobs["fault"] = "wrong_clock"
    with pytest.raises(errors.UnsupportedClock, match="not locked"):
        runtime.acquire_decimated(soc)


@pytest.mark.parametrize(
    ("fault", "kind"), [("dead_board", errors.DeviceGone), ("gone_in_acquisition", errors.DeviceGone)]
)
def test_a_board_that_is_lost_is_named(fault, kind):
    soc = lightning.connect("sim://kit")
    runtime = LightningControl(soc, from_slide({"soft_avgs": 2}))
    soc.knobs["fault"] = fault
    with pytest.raises(kind, match=r"sim-kit-0001.*connect again"):
        runtime.acquire_decimated(soc)


@pytest.mark.slow
def test_a_twin_that_is_stuck_is_named(clock):
    from lightning.kit.devices.deadline import Patience
    from lightning.kit.devices.guard import GuardedSoc

    soc = lightning.connect("sim://kit").unguarded
    soc.knobs["fault"] = "stuck_counter"
    ticking = lambda: clock.wait(1.0) or clock()
    guarded = GuardedSoc(soc, patience=Patience(), clock=ticking)
    with pytest.raises(errors.DeviceStuck, match=r"sim-kit-0001.*in run 1, after 0 shots"):
        LightningControl(guarded, from_slide({"soft_avgs": 2})).acquire_decimated(guarded)
    with pytest.raises(errors.DeviceStuck):
        LightningControl(guarded, from_slide({"soft_avgs": 2})).acquire(guarded)
    soc.knobs["fault"] = "none"
    assert LightningControl(guarded, from_slide({"soft_avgs": 2})).acquire(guarded)[0].shape == (2,)


# ---------------------------------------------------------------------------------- signal processing


def _waveform(samples, **changes):
    shots = np.stack([np.asarray(samples, dtype=float), np.zeros(len(samples))])[None]
    origin = Origin(
        settings=from_slide({"dac_0": 1, **changes}).settings,
        words=(78, 0, 0, 0),
        device=DeviceIdentity("bench"),
        calibration=None,
        tick_ns=(2.6,),
        trigger_ns=260.0,
        pulse_ns=260.0,
    )
    return Waveform([shots], origin)


def test_before_a_waveform_is_bound_there_is_no_result():
    with pytest.raises(errors.NoWaveformError, match="plot_waveform"):
        _ = LightningSignalProcessing().decode_adc_result


def test_what_is_no_waveform_is_named():
    with pytest.raises(errors.NoWaveformError, match="a ndarray is not a lightbed waveform"):
        LightningSignalProcessing().plot_waveform(np.zeros((4, 2, 250)))


def test_without_a_calibration_the_command_is_named():
    processing = LightningSignalProcessing()
    processing.plot_waveform(_waveform([0, 0, 5, 5, 0]), draw=False)
    with pytest.raises(errors.NotCalibrated, match="lightning calibrate"):
        _ = processing.decode_adc_result


def test_the_published_arguments_are_taken():
    assert LightningSignalProcessing(object(), object(), {}).waveform is None


def test_drawing_gives_a_figure_and_shows_nothing():
    figure_module = pytest.importorskip("matplotlib.figure", reason="draws: pip install 'lightbed[kit]'")
    figure = LightningSignalProcessing().plot_waveform(_waveform([0, 0, 5, 5, 0]))
    assert isinstance(figure, figure_module.Figure)
    assert figure.axes[0].lines[0].get_ydata().tolist() == [0, 0, 5, 5, 0]


def test_the_series_averages_complex_numbers():
    noisy = _waveform([0.0, 0.0])
    noisy[0] = np.array([[[3.0, 1.0], [0.0, 0.0]], [[-3.0, 1.0], [0.0, 0.0]]])
    assert LightningSignalProcessing().get_signal_timeseries(noisy).tolist() == [0.0, 1.0]


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60), st.data())
def test_plateaus_are_moving_means(signal, data):
    window = data.draw(st.integers(1, len(signal)))
    expected = [np.mean(signal[i : i + window]) for i in range(len(signal) - window + 1)]
    assert compute_moving_mean(signal, window) == pytest.approx(expected, abs=1e-9)


def test_a_window_that_does_not_fit_is_named():
    with pytest.raises(errors.OutOfRange, match="window of 5 samples does not fit a signal of 4"):
        compute_moving_mean([1, 2, 3, 4], 5)


@pytest.mark.slow
@settings(max_examples=200)
@given(
    length=st.integers(20, 300),
    share=st.floats(0.1, 0.85),
    begin=st.floats(0.05, 0.95),
    floor=st.floats(-500, 500),
    height=st.floats(50, 5000),
    down=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_peak_and_floor_do_not_depend_on_the_duty_cycle(length, share, begin, floor, height, down, seed):
    pulse = max(2, int(share * length))
    first = 1 + int(begin * (length - pulse - 2))
    signal = np.random.default_rng(seed).normal(floor, 0.01 * height, length)
    signal[first : first + pulse] += -height if down else height
    peak, idle = find_peak_floor(signal)
    assert idle == pytest.approx(floor, abs=0.02 * height)
    assert peak - idle == pytest.approx(-height if down else height, rel=0.03)


def test_a_flat_line_has_no_pulse():
    assert find_peak_floor([5.0] * 10) == (5.0, 5.0)
    with pytest.raises(errors.OutOfRange, match="no plateau"):
        find_peak_floor([1, 2, 3])
