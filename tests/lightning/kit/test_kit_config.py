import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning import LightningConfig, errors, from_lts, from_slide
from lightning.kit.config import Configuration, to_settings
from lightning.kit.settings import LINEAR_MAX_WORD, Settings


def test_defaults_are_the_kits():
    config = Configuration()
    assert [config[f"dac_{i}"] for i in range(4)] == [0, 0, 0, 0]
    assert (config["reps"], config["soft_avgs"], config["length"], config["readout_length"]) == (
        4,
        100,
        100,
        250,
    )
    assert config["adc_1"] == config["readouts"] == [1]
    assert (config["relax_delay"], config["adc_trig_offset"], config["pulse_freq"]) == (1.0, 100, 0.0)


def test_values_are_written_in_the_talks_words():
    LightningConfig["dac_0"] = 100
    LightningConfig["dac_1"] = 50
    assert LightningConfig.settings.values == (100, 50, 0, 0)
    assert LightningConfig["value_0"] == 100


@pytest.mark.parametrize("value", [-1, 256, 1.5, "100", None, True, float("nan"), [1]])
def test_a_value_outside_0_to_255_is_named_and_changes_nothing(value):
    config = Configuration()
    config["dac_0"] = 7
    with pytest.raises(errors.OutOfRange, match="dac_0"):
        config["dac_0"] = value
    assert config["dac_0"] == 7


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("reps", 0),
        ("soft_avgs", 0),
        ("length", 70000),
        ("readout_length", 0),
        ("relax_delay", float("inf")),
        ("adc_trig_offset", -1),
        ("word_0", 32767),
        ("readouts", [-1]),
        ("channel_1", 16),
    ],
)
def test_every_number_has_its_range(key, value):
    config = Configuration()
    with pytest.raises(errors.OutOfRange):
        config[key] = value
    assert config == Configuration()


def test_an_unknown_key_tells_the_known_ones():
    with pytest.raises(errors.UnknownKey, match=r"dac_0.*readout_length"):
        Configuration()["gain"] = 1
    with pytest.raises(errors.UnknownKey, match=r"modulators 0..3"):
        Configuration()["dac_4"] = 1


def test_a_key_of_the_published_library_names_its_adapter():
    with pytest.raises(errors.AmbiguousConfig, match=r"lightning\.from_lts"):
        Configuration()["dac_gain_0"] = 0.5
    with pytest.raises(errors.AmbiguousConfig, match=r"lightning\.from_lts"):
        from_slide({"dac_0": 0, "dac_gain_0": 0.5})


def test_a_plain_dictionary_is_not_guessed():
    with pytest.raises(errors.AmbiguousConfig, match=r"from_slide.*from_lts"):
        to_settings({"dac_0": 1})
    assert to_settings({"reps": 2}).reps == 2


def test_the_talks_dictionary():
    config = from_slide({"dac_0": 3, "dac_1": 255, "soft_avgs": 5})
    assert (config.settings.values, config["soft_avgs"]) == ((3, 255, 0, 0), 5)


PUBLISHED = {
    "dac_0": 0,
    "dac_1": 1,
    "dac_2": 2,
    "dac_3": 3,
    "adc_1": [1],
    "reps": 4,
    "relax_delay": 1,
    "res_phase": 0,
    "length": 100,
    "readout_length": 250,
    "dac_gain_0": 1,
    "dac_gain_1": 0.25,
    "dac_gain_2": 0,
    "dac_gain_3": 1,
    "pulse_freq": 0,
    "adc_trig_offset": 100,
    "soft_avgs": 100,
}


def test_the_published_dictionary_is_channels_and_drives():
    config = from_lts(PUBLISHED)
    assert config.settings.channels == (0, 1, 2, 3)
    assert config.settings.words == (LINEAR_MAX_WORD, 5000, 0, LINEAR_MAX_WORD)
    assert config.settings.values == (None, None, None, None)


def test_the_published_dictionary_with_values_names_the_other_adapter():
    with pytest.raises(errors.OutOfRange, match=r"from_slide"):
        from_lts({"dac_0": 100})
    with pytest.raises(errors.OutOfRange, match="dac_gain_0"):
        from_lts({"dac_gain_0": 20000})
    with pytest.raises(
        errors.ConfigError, match=r"channels are \[1, 1, 2, 3\]: every modulator needs its own generator, and"
    ):
        from_lts({"dac_0": 1, "dac_1": 1})


def test_update_writes_all_or_none():
    config = Configuration()
    with pytest.raises(errors.OutOfRange):
        config.update({"dac_0": 9, "dac_1": 256})
    assert config["dac_0"] == 0
    config.update({"channel_0": 1, "channel_1": 0}, dac_2=4)
    assert (config.settings.channels, config["dac_2"]) == ((1, 0, 2, 3), 4)


def test_a_word_takes_the_place_of_a_value_and_back():
    config = Configuration()
    config["word_1"] = 12000
    assert (config["dac_1"], config["word_1"]) == (None, 12000)
    config["dac_1"] = 3
    assert (config["dac_1"], config["word_1"]) == (3, None)


def test_a_modulator_without_a_generator_stays_dark():
    config = Configuration()
    config["channel_3"] = None
    assert config.settings.channel_by_modulator == {0: 0, 1: 1, 2: 2}
    with pytest.raises(errors.ConfigError, match="has no generator"):
        config["dac_3"] = 1


def test_copies_live_apart():
    LightningConfig["dac_0"] = 1
    for other in (LightningConfig.copy(), copy.copy(LightningConfig), copy.deepcopy(LightningConfig)):
        assert other == LightningConfig
        other["dac_0"] = 2
        assert LightningConfig["dac_0"] == 1
    before = LightningConfig.settings
    LightningConfig["dac_0"] = 5
    assert before.values[0] == 1


def test_it_is_a_dictionary_to_look_at():
    config = from_slide({"dac_3": 200})
    assert dict(config)["dac_3"] == 200
    assert set(config) == set(config.keys())
    assert "dac_0" in config
    assert "value_0" in config
    assert "dac_7" not in config
    assert repr(config) == "Configuration({'dac_3': 200})"


@given(
    values=st.tuples(*[st.integers(0, 255)] * 4),
    channels=st.permutations(range(8)).map(lambda order: tuple(order[:4])),
    reps=st.integers(1, 1000),
)
def test_settings_survive_a_file_and_another_process(values, channels, reps):
    settings = Settings(values=values, channels=channels, reps=reps)
    assert Settings.from_dict(settings.as_dict()) == settings
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_errors_survive_another_process():
    error = errors.DeviceStuck("it stands", device="kit", hint="Push it")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.code) == ("kit: it stands. Push it", "device.stuck")
    assert isinstance(again, TimeoutError)
