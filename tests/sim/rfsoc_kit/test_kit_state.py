"""Knobs, versions, drift, make and address of the simulated kit."""

from __future__ import annotations

import gc
import re
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.twins.rfsoc.kit import KIT_OPTIONS, KNOBS, KitParameters, PhotonicKit, UnknownKnob, make_kit
from sim.twins.rfsoc.kit.optics import draw_drift
from sim.twins.rfsoc.kit.state import Snapshot

PEAK = 20000


def other_value(name: str):
    """Return a value that a knob may have and does not have by default."""
    knob = KNOBS[name]
    now = knob.read(KitParameters())
    if knob.value_type == "bool":
        return not now
    if knob.value_type == "Noise":
        return "constant"
    if now == float("inf"):
        return 1.0
    return now + 0.125 * (abs(now) or 1.0) if now + 0.125 * (abs(now) or 1.0) <= knob.high else now * 0.9


@pytest.mark.parametrize("name", KNOBS)
def test_every_knob_is_explained_and_a_turn_of_it_is_a_new_version(name):
    kit = PhotonicKit()
    value = other_value(name)
    assert KNOBS[name].about
    kit.knobs[name] = value
    assert kit.knobs[name] == value
    assert kit.version == 1
    kit.knobs[name] = str(value)
    assert kit.version == 1, "turning a knob to where it stands changes nothing"
    del kit.knobs[name]
    assert kit.knobs == PhotonicKit().knobs
    assert kit.version == 2


def test_a_knob_let_go_returns_to_how_the_kit_was_made():
    kit = make_kit({"vary": "yes", "seed": "5", "laser_dbm": "8"})
    made = dict(kit.knobs)
    kit.knobs["v_pi_1"], kit.knobs["laser_dbm"] = 6.0, 3.0
    del kit.knobs["v_pi_1"], kit.knobs["laser_dbm"]
    assert dict(kit.knobs) == made
    assert made["laser_dbm"] == 8.0


SILENT = {
    "adc_enob": "of noise only",
    "rin_db_hz": "of noise only",
    "thermal_a_rthz": "of noise only",
    "jitter_s": "of noise only",
    "noise": "of noise only",
    "noise_lsb": "of noise only",
    "drift": "of later",
    "drift_v_pi": "of later",
    "drift_time_s": "of later",
    "polarisation_rad2_s": "of later",
    "null_v_per_k": "of another temperature",
    "polariser_db": "of another polarisation",
    "channel_width_nm": "of another wavelength",
    "meter_tap_db": "of the power meter",
}


@pytest.mark.parametrize("name", [name for name in KNOBS if name not in SILENT])
def test_every_other_knob_changes_what_arrives(kit, played, name):
    rng = np.random.default_rng(1)
    outputs = played(waves={index: np.repeat(rng.uniform(0, 0.6, 40), 16) for index in range(4)})
    before, after = (
        setup.receive(outputs, 1100, 400).level for setup in (kit(), kit(**{name: other_value(name)}))
    )
    assert not np.array_equal(before, after)


@pytest.mark.parametrize("name", SILENT)
def test_the_others_do_not(kit, name):
    words = (PEAK, 9000, 4000, PEAK)
    assert kit().level(*words) == kit(**{name: other_value(name)}).level(*words)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("v_pi_0", "much", "v_pi must be a number, not"),
        ("v_pi_0", 0.0, "v_pi must be 0.1 to 50, not"),
        ("v_pi_0", float("nan"), "v_pi must be 0.1 to 50, not"),
        ("laser", "dim", "laser must be on or off, not"),
        ("noise", "some", "noise must be one of on, off, constant, not"),
        ("laser_dbm", 30, "laser_dbm must be -60 to 20, not"),
    ],
)
def test_what_a_knob_cannot_be_is_refused_in_words(name, value, words):
    kit = PhotonicKit()
    with pytest.raises(ValueError) as caught:
        kit.knobs[name] = value
    assert words in str(caught.value)
    assert kit.version == 0


@pytest.mark.parametrize("name", ["v_pi_4", "v_pi", "colour"])
def test_an_unknown_knob_is_answered_with_the_known_ones(name):
    with pytest.raises(UnknownKnob, match=r"no knob .*bias_v_0\.\.3.*v_pi_0\.\.3"):
        PhotonicKit().knobs[name] = 1.0


@pytest.mark.parametrize(
    ("value", "meant"), [(True, "on"), (False, "off"), ("off", "off"), ("constant", "constant")]
)
def test_noise_is_also_a_truth(value, meant):
    kit = PhotonicKit()
    kit.knobs["noise"] = value
    assert kit.knobs["noise"] == meant


# -- time


def test_drift_takes_steps_of_a_second_so_that_traces_can_be_reused_within_one():
    kit = PhotonicKit()
    for _ in range(9):
        kit.elapse(0.1)
    assert kit.version == 0
    kit.elapse(0.15)
    assert kit.version == 1
    kit.elapse(3600.0)
    assert kit.version == 2


def test_without_drift_time_changes_nothing():
    kit = make_kit({"drift": "off"})
    kit.elapse(1e6)
    assert kit.version == 0
    assert kit.state.snapshot.drift_v == (0.0,) * 4


def test_the_same_seed_drifts_alike():
    drifts = []
    for seed in ("3", "3", "4"):
        kit = make_kit({"seed": seed})
        for _ in range(5):
            kit.elapse(60.0)
        drifts.append(kit.state.snapshot.drift_v)
    assert drifts[0] == drifts[1] != drifts[2]


def test_in_the_long_run_a_null_stands_one_percent_of_v_pi_off():
    """20,000 steps of 20 correlation times: the variance of a normal within 5 standard errors of 1/sqrt(2 n)."""
    rng = np.random.default_rng(11)
    now = Snapshot(KitParameters(), (0.0,) * 4, 0.0, 0)
    steps = [draw_drift(now, rng, duration_s=20 * 86400.0)[0] for _ in range(5000)]
    deviation = np.std(steps) / 0.05
    assert deviation == pytest.approx(1.0, abs=5 / np.sqrt(2 * 20_000))


def test_in_a_minute_a_null_moves_by_four_hundredths_of_a_percent_of_v_pi():
    """s sqrt(2 t / tau) = 1 % sqrt(120 / 86400) = 0.037 % of V_pi, 0.15 of a step of 255 at quadrature."""
    rng = np.random.default_rng(12)
    now = Snapshot(KitParameters(), (0.0,) * 4, 0.0, 0)
    steps = [draw_drift(now, rng, duration_s=60.0)[0] for _ in range(5000)]
    assert np.std(steps) / 5.0 == pytest.approx(0.01 * np.sqrt(120 / 86400), rel=0.03)


def test_drift_moves_the_light(kit):
    setup = kit(drift_v_pi=0.05)
    before = setup.level(10000, PEAK, 0, 0)
    setup.kit.elapse(10 * 86400.0)
    assert abs(setup.level(10000, PEAK, 0, 0) - before) > 0.94 / 255


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.01, 5.0), max_size=20))
def test_the_version_counts_full_seconds_at_most(pauses):
    kit = PhotonicKit()
    for pause in pauses:
        kit.elapse(pause)
    assert kit.version <= sum(pauses)
    assert kit.version >= min(len(pauses), int(sum(pauses)) / 6)


def test_a_reader_never_sees_half_a_change():
    """Two knobs that one change turns together are never seen apart."""
    kit = PhotonicKit()
    torn = []

    def turn():
        for round_ in range(2000):
            value = 3.0 + round_ % 2
            kit.state.change(lambda one, value=value: one.with_modulator(0, bias_v=value, null_v=value))

    turning = threading.Thread(target=turn)
    turning.start()
    while turning.is_alive():
        one = kit.state.snapshot.parameters.modulators[0]
        torn.append(one.bias_v != one.null_v)
    turning.join()
    assert torn
    assert not any(torn)
    assert kit.version == 1999  # the first change turned nothing


# -- make and address


def test_a_varied_make_is_its_own_and_the_same_again():
    one, again, other = (make_kit({"vary": "yes", "seed": seed}).state.snapshot.parameters for seed in "778")
    assert one == again
    assert one.modulators != other.modulators
    assert len({modulator.v_pi for modulator in one.modulators}) == 4


def test_a_varied_make_stays_within_its_data_sheet():
    makes = [
        modulator
        for seed in range(300)
        for modulator in make_kit({"vary": "yes", "seed": str(seed)}).state.snapshot.parameters.modulators
    ]
    assert np.std([make.v_pi for make in makes]) == pytest.approx(0.2, rel=0.1)
    assert all(4.5 <= make.v_pi <= 5.5 for make in makes)
    assert all(abs(make.null_v - make.bias_v) <= 0.0751 * make.v_pi for make in makes)
    assert all(25 <= make.extinction_db <= 30 for make in makes)
    assert all(4.0 <= make.insertion_loss_db <= 4.6 for make in makes)
    assert all(0 <= make.skew_ns <= 0.6 for make in makes)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_no_varied_make_overloads_the_converter(kit, seed):
    varied = make_kit({"vary": "yes", "seed": str(seed), "noise": "off"})
    words = np.linspace(15000, 25000, 21)
    brightest = max(
        type(kit())(varied).level(int(first), int(second), 0, 0) for first in words for second in words
    )
    assert 0.7 < brightest < 1.0


def test_identities_tell_makes_apart():
    assert make_kit({}).identity == make_kit({"seed": "9"}).identity == "sim-kit-0001"
    assert make_kit({"vary": "yes", "seed": "9"}).identity == "sim-kit-varied-0009"
    assert make_kit({}, board="zcu216").identity == "sim-kit-0001-zcu216"
    other = make_kit({"v_pi_0": "5.8"})
    assert re.fullmatch(r"sim-kit-0001-[0-9a-f]{6}", other.identity)
    assert other.identity == make_kit({"v_pi_0": "5.80", "noise": "off", "seed": "3"}).identity
    assert other.identity != make_kit({"v_pi_1": "5.8"}).identity
    assert re.fullmatch(
        r"sim-kit-varied-0009-[0-9a-f]{6}",
        make_kit({"vary": "yes", "seed": "9", "v_pi_0": "5.8"}).identity,
    )


def test_how_a_kit_is_set_is_not_what_it_is():
    options = {
        "v_pi_0": "5.0",
        "noise": "off",
        "drift": "no",
        "laser_dbm": "9",
        "bias_v_1": "3.2",
        "laser": "off",
    }
    assert make_kit(options).identity == "sim-kit-0001"


def test_only_the_kit_of_the_factory_has_its_calibration():
    assert make_kit({"bias_v_1": "3.2"}).factory_calibration() is not None
    assert make_kit({"v_pi_0": "5.8"}).factory_calibration() is None
    assert make_kit({}, board="zcu216").factory_calibration() is None


def test_a_varied_make_left_the_factory_without_calibration():
    assert make_kit({"vary": "yes"}).factory_calibration() is None


def test_options_of_an_address_turn_knobs():
    kit = make_kit({"seed": "7", "laser_dbm": "9", "noise": "off", "v_pi_2": "5.5", "laser": "off"})
    assert (kit.knobs["laser_dbm"], kit.knobs["noise"], kit.knobs["v_pi_2"], kit.knobs["laser"]) == (
        9.0,
        "off",
        5.5,
        False,
    )
    assert kit.version == 0
    assert {"seed", "vary", "noise", "v_pi_2"} <= KIT_OPTIONS


@pytest.mark.parametrize("options", [{"seed": "x"}, {"seed": "-1"}, {"vary": "maybe"}, {"v_pi_0": ""}])
def test_bad_options_are_refused(options):
    with pytest.raises(ValueError):
        make_kit(options)


@pytest.mark.long
@pytest.mark.socket
def test_a_kit_that_is_forgotten_takes_its_instruments_along():
    kit = make_kit({"seed": "21"})
    kit.bench()
    names = {thread.name for thread in threading.enumerate()}
    assert "bench of sim-kit-0001" in names
    thread = kit.instruments._thread
    del kit
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.socket
def test_the_bench_is_ended_by_whoever_comes_even_in_its_own_thread():
    """The garbage collector comes in any thread, and calls may come from the bench's own."""
    for end in ("close", "request_stop"):
        bench = PhotonicKit().instruments
        bench.get_resources()
        failed, done = [], threading.Event()

        def ended(bench=bench, end=end, failed=failed, done=done):
            try:
                getattr(bench, end)()
            except RuntimeError as error:
                failed.append(error)
            done.set()

        thread = bench._thread
        bench._loop.call_soon_threadsafe(ended)
        assert done.wait(60)
        assert failed == []
        thread.join(60)
        assert not thread.is_alive()
        bench.close()


@pytest.mark.long
@pytest.mark.socket
def test_a_kit_that_is_collected_in_the_benchs_thread_ends_it_in_silence():
    kit = PhotonicKit()
    kit.bench()
    bench, held = kit.instruments, [kit]
    held.append(held)
    thread = bench._thread
    with pytest.MonkeyPatch.context() as patch:
        failures = []
        patch.setattr(sys, "unraisablehook", failures.append)
        patch.setattr(sys, "excepthook", lambda *failure: failures.append(failure))
        collected = threading.Event()
        del kit, held  # before any collection: one that is under way makes a second return at once
        bench._loop.call_soon_threadsafe(lambda: (gc.collect(), collected.set()))
        assert collected.wait(60)
        gc.collect()
        thread.join(60)
    assert not thread.is_alive()
    assert failures == []
