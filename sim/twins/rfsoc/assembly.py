"""Assembly of a twin from its address: the board and the plant that is connected to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

from sim.twins.rfsoc.address import (
    DEFAULT_PROFILES,
    Address,
    AddressError,
    load_configuration,
    parse_address,
    parse_integer,
)
from sim.twins.rfsoc.board import Board, BoardKnobs
from sim.twins.rfsoc.loopback import Loopback
from sim.twins.rfsoc.not_simulated import NotSimulated
from sim.twins.rfsoc.plant import Plant
from sim.twins.rfsoc.signals.playback import HOST_TUNED_TYPE, PROGRAM_TUNED_TYPE

CONVERTER_BITS = {0: 12, 1: 12, 2: 14}
"""Bits of the analogue-to-digital converters, by generation of the chip (`ip_type`)."""
KNOB_OPTIONS = ("adc_bits", "filter", "fault")
BOARD_OPTIONS = (*KNOB_OPTIONS, "instruction_limit")
"""Options that apply only to the board. `seed` applies to the board and to the plant; all others only to the plant."""


class TunablePlant(Plant, Protocol):
    """A plant with knobs."""

    @property
    def knobs(self) -> MutableMapping[str, Any]:
        """Knobs by name."""
        ...


@dataclass(frozen=True, slots=True)
class TwinAssembly:
    """Parts of a twin."""

    identity: str
    plant: TunablePlant
    knobs: BoardKnobs
    board: Board


def assemble_twin(address: str) -> TwinAssembly:
    """Return the twin that an address describes.

    Raise `AddressError` for an invalid address, or `NotSimulated` for an unsupported board.
    """
    twin_address = parse_address(address)
    cfg = load_configuration(twin_address.profile)
    check_readouts(cfg)
    options = {name: value for name, value in twin_address.options.items() if name in KNOB_OPTIONS}
    with _translate_errors(twin_address):
        seed = parse_integer("seed", twin_address.options.get("seed", "1"))
        limit_text = twin_address.options.get("instruction_limit")
        instruction_limit = (
            None if limit_text is None else parse_integer("instruction_limit", limit_text, low=1)
        )
        plant = _make_plant(twin_address, cfg)
        knobs = BoardKnobs(CONVERTER_BITS[cfg["rf"]["ip_type"]], plant.knobs, options)
    identity = str(getattr(plant, "identity", f"sim-{twin_address.plant}-0001"))
    return TwinAssembly(
        identity, plant, knobs, Board(cfg, plant, knobs, seed=seed, instruction_limit=instruction_limit)
    )


def _make_plant(twin_address: Address, cfg: Mapping[str, Any]) -> TunablePlant:
    """Return the plant. Raise `KeyError` for an unknown option, or `ValueError` for an invalid value."""
    options = {name: value for name, value in twin_address.options.items() if name not in BOARD_OPTIONS}
    if twin_address.plant == "kit":
        from sim.twins.rfsoc.kit import make_kit

        profile = "" if twin_address.profile == DEFAULT_PROFILES["kit"] else twin_address.profile
        return cast("TunablePlant", make_kit(options, board=profile))
    plant = Loopback(len(cfg["gens"]), len(cfg["readouts"]))
    for name, value in options.items():
        if name != "seed":
            plant.knobs[name] = value
    return plant


@contextmanager
def _translate_errors(twin_address: Address) -> Iterator[None]:
    """Raise `AddressError` instead of `KeyError` or `ValueError`."""
    try:
        yield
    except (KeyError, ValueError) as error:
        raise AddressError(f"sim://{twin_address.plant}: {error.args[0]}") from error


def check_readouts(cfg: Mapping[str, Any]) -> None:
    """Raise `NotSimulated` if a readout has a type that is not simulated."""
    for readout in cfg["readouts"]:
        if readout["ro_type"] not in {HOST_TUNED_TYPE, PROGRAM_TUNED_TYPE}:
            raise NotSimulated(f"a readout of type {readout['ro_type']}")
