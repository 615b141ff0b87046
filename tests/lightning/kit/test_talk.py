"""The lines that the talk showed, as they stand."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from libraries import skip_without

import lightning
from lightning import LightningConfig, LightningControl, LightningSignalProcessing

skip_without("qick", reason="runs on the twin: pip install 'lightbed[kit]'")

pytestmark = pytest.mark.board

TEN_LINES = """
import lightning
from lightning import LightningControl, LightningConfig, LightningSignalProcessing
soc = lightning.connect("sim://kit")      # or "qick://host" (Pyro4), or "qick://local" on the board
LightningConfig["dac_0"] = 100            # 0..255
LightningConfig["dac_1"] = 50
runtime = LightningControl(soc, LightningConfig)
waveform = runtime.acquire_decimated(soc)
sp = LightningSignalProcessing()
sp.plot_waveform(waveform)
print(sp.decode_adc_result)               # 0..255 fixed-point product
"""


@pytest.mark.long
@pytest.mark.process
def test_the_ten_lines_as_a_script(tmp_path):
    script = tmp_path / "ten_lines.py"
    script.write_text(TEN_LINES)
    here = {**os.environ, "PYTHONPATH": str(Path(lightning.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=100, check=True, env=here
    )
    assert abs(int(done.stdout) - 100 * 50 / 255) <= 1


@pytest.fixture(scope="module")
def soc():
    return lightning.connect("sim://kit?seed=11")


def _measured(soc, a, b, soft_avgs=25):
    LightningConfig["soft_avgs"] = soft_avgs
    LightningConfig["dac_0"] = a
    LightningConfig["dac_1"] = b
    waveform = LightningControl(soc, LightningConfig).acquire_decimated(soc)
    processing = LightningSignalProcessing()
    processing.plot_waveform(waveform, draw=False)
    return waveform, processing


@pytest.mark.slow
def test_twenty_pairs_give_their_products(soc):
    draw = random.Random(20)
    pairs = [(draw.randrange(256), draw.randrange(256)) for _ in range(16)]
    pairs += [(255, 255), (0, 255), (255, 0), (1, 1)]
    errors = [int(_measured(soc, a, b)[1].decode_adc_result) - a * b / 255 for a, b in pairs]
    assert max(map(abs, errors)) <= 1.0


@pytest.mark.slow
def test_the_result_follows_either_operand(soc):
    by_first = [int(_measured(soc, a, 200, 5)[1].decode_adc_result) for a in range(5, 256, 25)]
    by_second = [int(_measured(soc, 200, b, 5)[1].decode_adc_result) for b in range(5, 256, 25)]
    assert by_first == sorted(set(by_first))
    assert by_second == sorted(set(by_second))


def test_the_result_is_a_number_that_decodes_other_waveforms(soc):
    large, _ = _measured(soc, 250, 240)
    small, processing = _measured(soc, 100, 50)
    result = processing.decode_adc_result
    assert isinstance(result, int)
    assert abs(result - 20) <= 1
    assert abs(result(large) - 235) <= 1
    assert abs(result + 1 - 21) <= 1
    assert processing.waveform is small


def test_both_pairs_add_on_the_detector(soc):
    LightningConfig.update(dac_0=100, dac_1=100, dac_2=200, dac_3=100)
    waveform = LightningControl(soc, LightningConfig).acquire_decimated(soc)
    assert abs(LightningSignalProcessing().decode(waveform) - (100 * 100 + 200 * 100) / 255) <= 2


@pytest.mark.slow
def test_shots_of_another_place_in_the_window_decode_alike(soc):
    for offset in (80, 120, 160):
        LightningConfig.update(dac_0=180, dac_1=120, adc_trig_offset=offset)
        waveform = LightningControl(soc, LightningConfig).acquire_decimated(soc)
        assert abs(LightningSignalProcessing().decode(waveform) - 180 * 120 / 255) <= 1


@pytest.mark.slow
def test_a_window_that_misses_the_pulse_is_named(soc):
    LightningConfig.update(dac_0=180, dac_1=120, adc_trig_offset=1000)
    waveform = LightningControl(soc, LightningConfig).acquire_decimated(soc)
    with pytest.raises(
        lightning.errors.OutOfRange,
        match="Change adc_trig_offset, length or readout_length so that the window covers",
    ):
        LightningSignalProcessing().decode(waveform)


@pytest.mark.slow
def test_a_bare_word_has_no_value_to_decode(soc):
    LightningConfig.update(word_0=12000, dac_1=120)
    waveform = LightningControl(soc, LightningConfig).acquire_decimated(soc)
    with pytest.raises(lightning.errors.OutOfRange, match="dac_0"):
        LightningSignalProcessing().decode(waveform)
