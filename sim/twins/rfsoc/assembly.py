"""A board and what is cabled to it, put together from an address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

from sim.twins.rfsoc.address import DEFAULT_PROFILES, Address, AddressError, configuration, parse, whole
from sim.twins.rfsoc.board import Board, BoardKnobs
from sim.twins.rfsoc.loopback import Loopback
from sim.twins.rfsoc.not_simulated import NotSimulated
from sim.twins.rfsoc.plant import Plant
from sim.twins.rfsoc.signals.playback import HOST_TUNED, PROGRAM_TUNED

CONVERTER_BITS = {0: 12, 1: 12, 2: 14}
"""Of the analogue-to-digital converters, by generation of the chip (`ip_type`)."""
KNOB_OPTIONS = ("adc_bits", "filter", "fault")
BOARD_OPTIONS = (*KNOB_OPTIONS, "instruction_limit")
"""All others are the plant's, but `seed` is the board's too."""


class TunablePlant(Plant, Protocol):
    """A plant with knobs."""

    @property
    def knobs(self) -> MutableMapping[str, Any]:
        """Knobs by name."""
        ...


@dataclass(frozen=True, slots=True)
class Assembly:
    """Parts of a twin."""

    identity: str
    plant: TunablePlant
    knobs: BoardKnobs
    board: Board


def assemble(address: str) -> Assembly:
    """Return the twin that an address describes. Raises `AddressError`, `NotSimulated`."""
    where = parse(address)
    cfg = configuration(where.profile)
    check_blocks(cfg)
    options = {name: value for name, value in where.options.items() if name in KNOB_OPTIONS}
    with _translate_errors(where):
        seed = whole("seed", where.options.get("seed", "1"))
        limit = where.options.get("instruction_limit")
        most = None if limit is None else whole("instruction_limit", limit, low=1)
        plant = _plant(where, cfg)
        knobs = BoardKnobs(CONVERTER_BITS[cfg["rf"]["ip_type"]], plant.knobs, options)
    identity = str(getattr(plant, "identity", f"sim-{where.plant}-0001"))
    return Assembly(identity, plant, knobs, Board(cfg, plant, knobs, seed=seed, instruction_limit=most))


def _plant(where: Address, cfg: Mapping[str, Any]) -> TunablePlant:
    """Return the plant that is cabled to the board. Raises `KeyError` and `ValueError` for options that are none."""
    options = {name: value for name, value in where.options.items() if name not in BOARD_OPTIONS}
    if where.plant == "kit":
        from sim.twins.rfsoc.kit import photonic_kit

        board = "" if where.profile == DEFAULT_PROFILES["kit"] else where.profile
        return cast("TunablePlant", photonic_kit(options, board=board))
    plant = Loopback(len(cfg["gens"]), len(cfg["readouts"]))
    for name, value in options.items():
        if name != "seed":
            plant.knobs[name] = value
    return plant


@contextmanager
def _translate_errors(where: Address) -> Iterator[None]:
    """Report what an option of an address cannot be as a mistake of the address."""
    try:
        yield
    except (KeyError, ValueError) as error:
        raise AddressError(f"sim://{where.plant}: {error.args[0]}") from error


def check_blocks(cfg: Mapping[str, Any]) -> None:
    """Raise `NotSimulated` for readouts of types that the twin has not."""
    for readout in cfg["readouts"]:
        if readout["ro_type"] not in {HOST_TUNED, PROGRAM_TUNED}:
            raise NotSimulated(f"a readout of type {readout['ro_type']}")
