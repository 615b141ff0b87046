import copy

import pytest
from libraries import skip_without

from lightning import LightningControl, errors, from_slide
from lightning.kit import profiles
from lightning.kit.checks import check_clocks
from lightning.kit.config import Configuration

skip_without("qick", reason="profiles are compiled for by QICK: pip install 'lightbed[kit]'")


@pytest.mark.parametrize("name", profiles.PROFILE_NAMES)
def test_every_profile_states_coupling_and_clocks(name):
    profile = profiles.load(name)
    assert profile.name == name
    assert profile.dac_coupling in {"AC", "DC"}
    assert profile.adc_coupling in {"AC", "DC"}
    assert profile.coupling_note
    assert set(profile.dac_msps) == {each["fs"] for each in profile.config["gens"]}
    assert set(profile.adc_msps) == {each["fs"] for each in profile.config["readouts"]}


@pytest.mark.parametrize("name", profiles.PROFILE_NAMES)
def test_every_profile_compiles_the_kits_shot(name):
    soccfg = profiles.load(name).make_soccfg()
    config = Configuration()
    if len(soccfg["gens"]) < 4:
        config.update(channel_2=None, channel_3=None)
    runtime = LightningControl(soccfg, config)
    assert runtime.program.binprog
    assert 4e-6 < runtime.compiled.compute_duration_s() < 40e-6


def test_processor_versions_are_distinguished():
    kinds = {name: profiles.load(name).config["tprocs"][0]["type"] for name in profiles.PROFILE_NAMES}
    assert kinds["lightning-zcu111"] == "axis_tproc64x32_x8"
    assert kinds["zcu216"] == "qick_processor"


def test_an_unknown_profile_tells_the_known():
    with pytest.raises(errors.UnknownProfile, match="lightning-zcu111"):
        profiles.load("zcu102")


def test_a_loaded_profile_is_nobodys_to_change():
    profiles.load("zcu111").make_soccfg()["board"] = "changed"
    assert profiles.load("zcu111").make_soccfg()["board"] == "ZCU111"


@pytest.mark.parametrize("name", profiles.PROFILE_NAMES)
def test_clocks_of_the_profiles_are_supported(name):
    check_clocks(profiles.load(name).make_soccfg())


def _changed(name, change):
    soccfg = profiles.load(name).make_soccfg()
    change(soccfg)
    return soccfg


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        (lambda c: c.__setitem__("refclk_freq", 245.76), "reference clock runs at 245.76"),
        (lambda c: c["gens"][2].update(fs=6553.6), "generator converter runs at 6553.6"),
        (lambda c: c["readouts"][1].update(fs=2949.12), "readout converter runs at 2949.12"),
    ],
)
def test_other_clocks_are_refused(change, reported):
    with pytest.raises(errors.UnsupportedClock, match=reported):
        LightningControl(_changed("lightning-zcu111", change), Configuration())


def test_a_board_without_a_profile_is_not_refused():
    soccfg = _changed("zcu111", lambda c: c.__setitem__("board", "HTG-ZRF8"))
    assert LightningControl(soccfg, Configuration()).words == (0, 0, 0, 0)


def test_wrong_channels_are_named():
    soccfg = profiles.load("lightning-zcu111").make_soccfg()
    with pytest.raises(
        errors.WrongChannel, match=r"modulator 1 is driven by generator 9, but the firmware has only 0\.\."
    ):
        LightningControl(soccfg, from_slide({"channel_1": 9}))
    with pytest.raises(errors.WrongChannel, match=r"readout 2 is requested, but the firmware has only 0\.\."):
        LightningControl(soccfg, from_slide({"readouts": [2]}))
    with pytest.raises(errors.WrongChannel, match="channel_2"):
        LightningControl(profiles.load("rfsoc4x2").make_soccfg(), Configuration())


def test_a_readout_longer_than_the_buffer_is_named_with_what_fits():
    """QICK leaves the last sample of the buffer unused."""
    soccfg = profiles.load("lightning-zcu111").make_soccfg()
    for length in (300, 256):
        with pytest.raises(
            errors.ReadoutTooLong,
            match=rf"{4 * length}, but the buffer of readout 1 holds 1024.*readout_length to 255",
        ):
            LightningControl(soccfg, from_slide({"readout_length": length})).acquire_decimated(soccfg)
    with pytest.raises(errors.ProgramError, match="not a device"):
        LightningControl(soccfg, from_slide({"readout_length": 255})).acquire_decimated(soccfg)


def test_an_unknown_processor_is_named():
    soccfg = profiles.load("zcu111").make_soccfg()
    soccfg["tprocs"][0]["type"] = "axis_tproc_v9"
    with pytest.raises(errors.ProgramError, match="axis_tproc_v9"):
        LightningControl(soccfg, Configuration())


def test_a_configuration_is_no_device():
    soccfg = profiles.load("lightning-zcu111").make_soccfg()
    with pytest.raises(errors.ProgramError, match="configuration, not a device"):
        LightningControl(soccfg, Configuration()).acquire_decimated(soccfg)


def test_a_program_for_other_firmware_is_not_sent(kit):
    runtime = LightningControl(profiles.load("zcu111").make_soccfg(), Configuration())
    with pytest.raises(errors.ProgramError, match="other firmware"):
        runtime.acquire_decimated(kit)


def test_words_reach_the_compiled_program():
    soccfg = profiles.load("lightning-zcu111").make_soccfg()
    one = LightningControl(soccfg, from_slide({"dac_0": 255, "dac_1": 51}))
    other = LightningControl(soccfg, from_slide({"dac_0": 255, "dac_1": 52}))
    assert one.words == (20000, 4000, 0, 0)
    assert one.program.binprog != other.program.binprog
    assert "20000" in one.program.asm()


def test_document_and_twin_agree_on_the_board():
    """The twin's own configuration is another file; both describe one firmware."""
    import lightning

    ours = copy.deepcopy(profiles.load("lightning-zcu111").config)
    theirs = lightning.connect("sim://kit").get_cfg()
    for key in ("board", "refclk_freq", "tprocs", "gens", "readouts"):
        assert ours[key] == theirs[key]
