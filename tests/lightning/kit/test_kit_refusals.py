"""Refusals of what must not pass unnoticed: wrong clocks, other questions to a recording, overruns, wrong input."""

import warnings

import numpy as np
import pytest
from libraries import skip_without

import lightning
from lightning import LightningCompute, LightningControl, errors, from_slide
from lightning.kit.config import Configuration
from lightning.kit.devices.deadline import COMPUTING_CALLS, SIMULATED_PATIENCE, Patience
from lightning.kit.settings import Settings

skip_without("qick", reason="the twin is a QickConfig: pip install 'lightbed[kit]'")


# ---------------------------------------------------------------------------------------- clocks


def _dot(soc):
    from lightning.kit.dot import VectorCore

    VectorCore(soc).dot([1, 2], [3, 4])


def _calibrate(soc):
    from lightning.kit.calibration.guided import run_guided

    run_guided(soc)


@pytest.mark.parametrize(
    "use",
    [
        lambda soc: LightningCompute(soc).multiply(200, 200),
        lambda soc: LightningControl(soc, Configuration()).acquire_decimated(soc),
        _dot,
        _calibrate,
    ],
)
def test_a_wrong_clock_is_named_wherever_light_is_measured(use):
    soc = lightning.connect("sim://kit?fault=wrong_clock")
    with pytest.raises(errors.UnsupportedClock, match="not locked"):
        use(soc)


def test_clocks_that_go_wrong_later_are_seen_with_the_next_program():
    soc = lightning.connect("sim://kit")
    compute = LightningCompute(soc)
    assert abs(compute.multiply(200, 200) - 157) <= 1
    soc.knobs["fault"] = "wrong_clock"
    with pytest.raises(errors.UnsupportedClock):
        compute.multiply(200, 200)


# ------------------------------------------------------------------------------------ recordings


@pytest.fixture
def recorded(kit, tmp_path):
    def make(use):
        with lightning.record(kit, tmp_path / "kept.npz") as soc:
            use(soc)
        return lightning.connect(f"replay://{tmp_path / 'kept.npz'}")

    return make


def test_a_recording_answers_what_it_was_asked_and_nothing_else(recorded):
    answers = {}
    operands = [(10, 30), (200, 250)]
    replayed = recorded(
        lambda soc: answers.update({each: LightningCompute(soc).multiply(*each) for each in operands})
    )
    compute = LightningCompute(replayed)
    # Both ran the same program: the tables tell them apart, in any order.
    assert [compute.multiply(*each) for each in reversed(operands)] == [
        answers[e] for e in reversed(operands)
    ]
    with pytest.raises(errors.RecordingError, match="other operands"):
        compute.multiply(200, 200)


@pytest.mark.long
def test_a_table_in_several_passes_comes_again(recorded):
    """53 shots of 600 rows do not fit into the memory of sums: three passes, two of them by the same program."""
    a, first = np.arange(600) % 256, []
    replayed = recorded(lambda soc: first.append(LightningCompute(soc).analogue_product(a, 200, shots=53)))
    compute = LightningCompute(replayed)
    assert compute.analogue_product(a, 200, shots=53).tolist() == first[0].tolist()
    with pytest.raises(errors.RecordingError):
        compute.analogue_product(a, 201, shots=53)


def test_another_window_of_the_same_program_is_refused(recorded):
    runtimes = []

    def use(soc):
        runtimes.append(LightningControl(soc, from_slide({"soft_avgs": 1})))
        runtimes[0].acquire_decimated(soc)

    replayed = recorded(use)
    replayed.config_buf(1, address=0, length=200)
    replayed.load_bin_program(runtimes[0].program.binprog)
    with pytest.raises(errors.RecordingError, match="windows"):
        replayed.start_tproc()


def test_what_is_sent_is_the_same_as_list_or_array_and_by_name_or_place():
    from lightning.kit.recordings.replay import record_digest

    rows = np.array([[1, 0], [-5, 0]], dtype=np.int16)
    one, other = {}, {}
    assert record_digest(one, "load_envelope", (2,), {"data": rows, "addr": 0}) == record_digest(
        other, "load_envelope", (2, rows.tolist(), 0), {}
    )
    assert one == other
    record_digest(other, "load_envelope", (2, (rows + 1).tolist(), 0), {})
    assert one != other
    place = record_digest(one, "configure_readout", (np.int64(1), {"f_rel": 0.5, "outsel": "input"}), {})
    assert place == record_digest(
        other, "configure_readout", (), {"ch": 1, "ro_regs": {"outsel": "input", "f_rel": 0.5}}
    )
    assert one[place] == other[place]
    assert record_digest(one, "get_decimated", (1,), {}) is None


# ------------------------------------------------------------------------------ deadlines, sums


def test_only_calls_that_reckon_may_take_a_twin_long():
    assert {
        name: SIMULATED_PATIENCE.get_call_limit_s(name)
        for name in ("get_tproc_counter", "poll_data", "clocks_locked")
    } == {
        "get_tproc_counter": 10.0,
        "poll_data": 10.0,
        "clocks_locked": 10.0,
    }
    assert {SIMULATED_PATIENCE.get_call_limit_s(name) for name in COMPUTING_CALLS} == {120.0}
    assert Patience().get_call_limit_s("get_decimated") == 10.0
    assert Patience(call_s=0.3).get_call_limit_s("start_tproc") == 0.3


def test_a_call_over_the_network_has_its_own_limit_and_the_next_the_short_one_again():
    from lightning.kit.devices.board import _RemoteSoc

    class Proxy:
        def __init__(self):
            self._pyroAttrs, self._pyroTimeout = (), None

        def get_decimated(self):
            return self._pyroTimeout

        def get_tproc_counter(self):
            return self._pyroTimeout

    remote = _RemoteSoc(Proxy(), None)
    remote.limit_calls(SIMULATED_PATIENCE)
    found = [remote.get_tproc_counter(), remote.get_decimated(), remote.get_tproc_counter()]
    assert found == [10.0, 120.0, 10.0]


@pytest.mark.slow
def test_an_overrun_shows_where_more_shots_run_than_the_memory_of_sums_holds():
    soc = lightning.connect("sim://kit?fault=overrun")
    few, many = (from_slide({"reps": reps, "readout_length": 4, "soft_avgs": 1}) for reps in (16_000, 16_400))
    (mean,) = LightningControl(soc, few).acquire(soc)
    assert mean.shape == (2,)
    with pytest.raises(
        errors.ReadoutOverrun, match=r"sim-kit-0001: the sum buffer overflowed.*relax_delay_us"
    ):
        LightningControl(soc, many).acquire(soc)


# ---------------------------------------------------------------------------------------- buffer


@pytest.mark.parametrize(
    ("reps", "length", "hint"),
    [
        (1, 1024, "readout_length to 1023 or less;"),
        (4, 256, "readout_length to 255 or less or reps to 3 or less"),
        (100_000, 1, "Set reps to 1023 or less;"),
        (2000, 2000, "Set both to less"),
    ],
)
def test_the_hint_of_a_full_buffer_is_one(kit, reps, length, hint):
    config = from_slide({"reps": reps, "readout_length": length, "soft_avgs": 1})
    with pytest.raises(errors.ReadoutTooLong, match=hint):
        LightningControl(kit, config).acquire_decimated(kit)


def test_what_the_hint_says_works(kit):
    config = from_slide({"reps": 1, "readout_length": 1023, "soft_avgs": 1})
    assert LightningControl(kit, config).acquire_decimated(kit)[0].shape == (1, 2, 1023)


# ----------------------------------------------------------------------------------------- input


@pytest.mark.parametrize("given", [None, 5.5, object()])
def test_readouts_that_are_no_list_are_named(given):
    config = Configuration()
    with pytest.raises(errors.OutOfRange, match=r"readouts are .*, not a list"):
        config["readouts"] = given
    assert config["readouts"] == [1]


def test_a_readout_may_be_one_number_of_any_kind():
    config = Configuration()
    for given in (0, np.int64(0), [0], np.array([0])):
        config["readouts"] = 1
        config["readouts"] = given
        assert config["readouts"] == [0]


def test_what_is_no_configuration_or_calibration_is_named(kit):
    with pytest.raises(errors.OutOfRange, match="values are 5"):
        Settings(values=5)
    with pytest.raises(errors.ConfigError, match="None is not a valid configuration"):
        LightningControl(kit, None)
    for use in (
        lambda: LightningControl(kit, Configuration(), calibration="x"),
        lambda: LightningCompute(kit, "x"),
    ):
        with pytest.raises(errors.ConfigError, match=r"'x' is not a valid calibration.*calibration\.load"):
            use()


@pytest.mark.parametrize(
    ("a", "shown"),
    [
        ("a", "'a'"),
        (None, "None"),
        (300, "300"),
        ([1, -256], "-256"),
        (1.5, "1.5"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (2**70, str(2**70)),
        (-(2**63), str(-(2**63))),
        (1j, "1j"),
        ([[1], [2, 3]], r"\[\[1\], \[2, 3\]\]"),
    ],
)
def test_what_is_no_operand_is_shown_with_device_and_hint(kit, a, shown):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            errors.OutOfRange, match=rf"{shown} is not a valid operand.*-255 to 255"
        ) as raised:
            LightningCompute(kit).multiply(a, 1)
    assert raised.value.device == "sim-kit-0001"
    assert raised.value.hint


def test_operands_of_other_shapes_are_named_and_none_give_none(kit):
    compute = LightningCompute(kit)
    with pytest.raises(errors.OutOfRange, match=r"\(2,\) and \(3,\)"):
        compute.multiply([1, 2], [1, 2, 3])
    for empty in (compute.multiply([], []), compute.multiply_accumulate(np.zeros((0, 2)), np.zeros((0, 2)))):
        assert (empty.shape, empty.dtype) == ((0,), np.int64)


@pytest.mark.parametrize("shots", [0, -1, 1.5, "4", True])
def test_shots_are_whole_numbers_from_one_on(kit, shots):
    with pytest.raises(errors.OutOfRange, match="shots is"):
        LightningCompute(kit).multiply(10, 10, shots=shots)


# ---------------------------------------------------------------------------------- command line


@pytest.fixture
def refused(capsys):
    """Return the error document of a command, which is all that it prints on standard output."""
    pytest.importorskip("typer", reason="the command line needs lightbed[kit]")
    import json

    from lightning.cli import run_app

    def run(*words):
        assert run_app([*words, "--json"]) == 1
        return json.loads(capsys.readouterr().out)["error"]

    return run


@pytest.mark.socket
@pytest.mark.parametrize("command", [("calibrate", "--yes"), ("sweep", "0")])
@pytest.mark.parametrize(("profile", "code"), [("zcu216", "program"), ("rfsoc4x2", "program.wrong-channel")])
def test_firmware_that_cannot_be_calibrated_is_named_at_once(refused, command, profile, code):
    error = refused(*command, "--device", f"sim://kit?profile={profile}")
    assert error["code"] == code
    assert error["device"] == f"sim-kit-0001-{profile}"
    assert "kit's firmware" in error["hint"]


def test_what_qick_refuses_is_one_line(refused, monkeypatch):
    import lightning.kit.connection

    def refuses(address):
        raise RuntimeError("requested length exceeds\nthe maximum.")

    monkeypatch.setattr(lightning.kit.connection, "connect", refuses)
    error = refused("multiply", "1", "2")
    assert (error["code"], error["message"]) == ("program", "requested length exceeds the maximum")
    assert error["hint"]


def test_an_operand_out_of_range_names_value_device_and_hint(refused):
    error = refused("multiply", "300", "50")
    assert error["message"].startswith("300 ")
    assert (error["device"], bool(error["hint"])) == ("sim-kit-0001", True)


def test_a_script_that_does_not_compile_shows_the_script_only(kit, tmp_path, capsys):
    from lightning.run_script import run_script

    script = tmp_path / "unclosed.py"
    script.write_text("def f(\n")
    assert run_script(script, kit) == 1
    reported = capsys.readouterr().err
    assert reported.splitlines()[0] == f'  File "{script}", line 1'
    assert reported.splitlines()[-1].startswith("SyntaxError: ")
    assert "runpy" not in reported
