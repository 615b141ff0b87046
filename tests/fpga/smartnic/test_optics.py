"""Blocks between the datapath and real optics: delays between modulators, and light that is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from needs import needs

import fpga
from fpga.count_action.ports import Port, Ports
from fpga.hdl import explain_missing
from fpga.hdl.design import Design

RTL = Path(fpga.__file__).parent / "rtl"
LANES = 16
WORD = LANES * 16


def design_of_block(name: str, settings: dict[str, int], words_in: list[str], words_out: list[str]) -> Design:
    inputs, outputs = [], []
    for ports, widths in (
        (inputs, {**settings, **dict.fromkeys(words_in, WORD)}),
        (outputs, dict.fromkeys(words_out, WORD)),
    ):
        for port, width in widths.items():
            ports.append(Port(port, width, ports[-1].column + ports[-1].word_count if ports else 0))
    text = (RTL / f"{name}.sv").read_text(encoding="ascii")
    return Design(name, ((f"{name}.sv", text),), Ports(tuple(inputs), tuple(outputs)))


DELAY = design_of_block(
    "modulator_delay",
    {"delay_i": 4, "shift_i": 4},
    ["activation_i", "weight_i"],
    ["activation_o", "weight_o"],
)
LOSS = design_of_block("loss_compensator", {"factor_i": 10}, ["samples_i"], ["samples_o"])


@pytest.fixture
@needs("hdl")
def simulated():
    """Return `simulated(design, settings, streams)`: the streams of samples (cycles, 16) that come out.

    `settings` are numbers, or series of them; with `episode`, a reset comes every so many cycles.
    """
    if reason := explain_missing("iverilog", "vvp"):
        pytest.skip(reason)
    from fpga.hdl import icarus

    def run(design, settings, streams, episode=0):
        words = [np.ascontiguousarray(stream, "<u2").view("<u8") for stream in streams]
        columns = [np.broadcast_to(np.asarray(each, np.uint64), len(words[0]))[:, None] for each in settings]
        out = icarus.run(
            design, np.concatenate([*columns, *words], axis=1).astype(np.uint64), episode_cycles=episode
        )
        return [np.ascontiguousarray(each).view("<u2") for each in np.split(out, out.shape[1] // 4, axis=1)]

    return run


@pytest.mark.hdl
def test_weights_come_later_than_activations_by_every_delay_and_shift(simulated):
    cycles = 24
    delays, shifts = (each.repeat(cycles) for each in np.divmod(np.arange(256), LANES))
    activations, weights = np.random.default_rng(1).integers(1, 2**16, (2, 256 * cycles, LANES), np.uint16)
    sent = simulated(DELAY, [delays, shifts], [activations, weights], episode=cycles)
    for case in range(256):
        delay, shift = divmod(case, LANES)
        lags = [2 * LANES - shift, (2 + delay) * LANES]  # in samples
        assert lags[1] - lags[0] == delay * LANES + shift
        part = slice(case * cycles, (case + 1) * cycles)
        for stream, lag, found in zip((activations[part], weights[part]), lags, sent, strict=True):
            expected = np.concatenate([np.zeros(lag, np.uint16), stream.ravel()])[: stream.size]
            assert (found[part].ravel() == expected).all(), (delay, shift)


@pytest.mark.hdl
@pytest.mark.parametrize("factor", [0, 1, 127, 128, 129, 182, 256, 512, 1023])
def test_lost_light_is_restored_up_to_full_light(simulated, factor):
    light = np.random.default_rng(factor).permutation(np.arange(256)).reshape(-1, LANES)
    (found,) = simulated(LOSS, [factor], [np.pad(light << 7, ((0, 2), (0, 0)))])
    assert not found[:2].any()
    assert (found[2:] == np.minimum(255, light * factor >> 7) << 7).all()


@pytest.mark.hdl
@pytest.mark.parametrize("gain", [64, 100, 180, 220, 256])
def test_a_gain_and_its_factor_leave_less_than_a_step_of_either(simulated, gain):
    light = np.arange(256).reshape(-1, LANES)
    dimmed = light * gain >> 8
    (found,) = simulated(LOSS, [round(32768 / gain)], [np.pad(dimmed << 7, ((0, 2), (0, 0)))])
    error = light - (found[2:] >> 7)
    assert error.min() >= -1
    assert error.max() <= 256 / gain + 1


@pytest.mark.hdl
def test_other_bits_than_those_of_the_light_do_not_matter(simulated):
    light = np.random.default_rng(5).integers(0, 256, (8, LANES))
    noisy = (light << 7 | np.random.default_rng(6).integers(0, 128, light.shape) | 0x8000).astype(np.uint16)
    (found,) = simulated(LOSS, [128], [noisy])
    assert (found[2:] == light[:-2] << 7).all()
