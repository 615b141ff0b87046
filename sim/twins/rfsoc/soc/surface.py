"""Names of QICK's `QickSoc` that the twin refuses, with what they are for.

What is in neither this table nor the class does not exist in QICK 0.2.436 (a test compares with its source). Each name
is there: a proxy over Pyro4 knows only what it finds in the class, and would call a missing one unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from sim.twins.rfsoc.not_simulated import NotSimulated, NotSimulatedAttribute

Class = TypeVar("Class", bound=type)

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

ATTRIBUTES = frozenset(
    {"avg_bufs", "gens", "ip_dict", "iqs", "metadata", "readouts", "rf", "time_taggers", "tproc"}
)
"""Those that are no methods: looking at them is refused, and `hasattr` says no."""


def refusing(owner: Class) -> Class:
    """Return the class with everything that is lacking, to be refused by its name when it is used."""
    for name, about in LACKING.items():
        what = f"QickSoc.{name} ({about})"
        setattr(owner, name, _attribute(what) if name in ATTRIBUTES else _method(name, what))
    return owner


def _attribute(what: str) -> property:
    def refused(_: object) -> NoReturn:
        raise NotSimulatedAttribute(what)

    return property(refused, doc=f"Refused: {what}.")


def _method(name: str, what: str) -> Callable[..., NoReturn]:
    def refused(_: object, *__: Any, **___: Any) -> NoReturn:
        raise NotSimulated(what)

    refused.__name__ = name
    refused.__doc__ = f"Refused: {what}."
    return refused
