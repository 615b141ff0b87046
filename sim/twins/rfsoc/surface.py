"""Names of QICK's `QickSoc` that the twin refuses, with what they are for.

What is in neither this table nor the class does not exist in QICK 0.2.436 (a test compares with its source).
"""

from __future__ import annotations

from collections.abc import Mapping

LACKING: Mapping[str, str] = {
    "arm_ddr4": "the DDR4 buffer",
    "arm_mr": "the multi-rate buffer",
    "avg_bufs": "the buffers' own drivers",
    "clear_ddr4": "the DDR4 buffer",
    "config_clocks": "programming of the clock chips",
    "config_mux_gen": "a multiplexed generator",
    "config_mux_readout": "a multiplexed readout",
    "download": "loading of a bitstream",
    "freeze_adc_cals": "the background calibration of converters",
    "gens": "the generators' own drivers",
    "get_adc_attenuator": "the attenuator of third-generation converters",
    "get_ddr4": "the DDR4 buffer",
    "get_mr": "the multi-rate buffer",
    "ip_dict": "a firmware description",
    "iqs": "a generator of constant I and Q",
    "load_weights": "a weighted buffer",
    "map_signal_paths": "reading of a firmware description",
    "metadata": "a firmware description",
    "pl_reset": "a reset of the programmable logic",
    "readouts": "the readouts' own drivers",
    "rf": "the driver of the data converters",
    "round_sample_rate": "a change of sample rates",
    "set_adc_attenuator": "the attenuator of third-generation converters",
    "set_all_clks": "programming of the clock chips",
    "set_iq": "a generator of constant I and Q",
    "time_taggers": "a time tagger",
    "tproc": "direct access to the processor's registers",
    "tt_arm": "a time tagger",
    "tt_config": "a time tagger",
    "tt_disarm": "a time tagger",
    "tt_readmem": "a time tagger",
    "tt_reset": "a time tagger",
    "unfreeze_adc_cals": "the background calibration of converters",
    "valid_sample_rates": "a change of sample rates",
}
