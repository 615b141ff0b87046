"""Knobs: all parameters of a simulated kit by name, which tests, operators and options of an address can set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, get_args

from sim.twins.rfsoc.kit.parameters import MODULATORS, KitParameters, ModulatorParameters, Noise
from sim.twins.rfsoc.kit.state import KitState

Setting = float | bool | str

_YES_NO = {
    "on": True,
    "yes": True,
    "true": True,
    "1": True,
    "off": False,
    "no": False,
    "false": False,
    "0": False,
}


class UnknownKnob(KeyError):
    """An unknown knob; the message lists the known ones."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class Knob:
    """A knob: the field that it sets (of a modulator or the kit), its type, description and range."""

    field: str
    modulator: int | None
    kind: str
    about: str
    low: float
    high: float

    def read(self, kit: KitParameters) -> Setting:
        """Return the value of the knob in the parameters of a kit."""
        owner = kit if self.modulator is None else kit.modulators[self.modulator]
        value: Setting = getattr(owner, self.field)
        return value

    def turn(self, kit: KitParameters, value: object) -> KitParameters:
        """Return the parameters with this knob set to `value` (number, bool or text). Raise `ValueError`."""
        setting: Any = self._parse(value)
        if self.modulator is None:
            return replace(kit, **{self.field: setting})
        return kit.with_modulator(self.modulator, **{self.field: setting})

    def _parse(self, value: object) -> Setting:
        if self.kind == "bool":
            return self._truth(value)
        if self.kind == "Noise":
            return self._choice(value)
        return self._number(value)

    def _truth(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        try:
            return _YES_NO[str(value).lower()]
        except KeyError:
            raise ValueError(f"{self.field} must be on or off, not {value!r}") from None

    def _choice(self, value: object) -> str:
        word = {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)
        if word not in get_args(Noise):
            raise ValueError(f"{self.field} must be one of {', '.join(get_args(Noise))}, not {value!r}")
        return word

    def _number(self, value: object) -> float:
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise ValueError(f"{self.field} must be a number, not {value!r}") from None
        if not self.low <= number <= self.high:
            raise ValueError(f"{self.field} must be {self.low:g} to {self.high:g}, not {number:g}")
        return number


def _knobs_of(owner: type, modulator: int | None, suffix: str) -> dict[str, Knob]:
    return {
        one.name + suffix: Knob(one.name, modulator, str(one.type), **one.metadata)
        for one in fields(owner)
        if one.metadata
    }


KNOBS: Mapping[str, Knob] = _knobs_of(KitParameters, None, "") | {
    name: knob
    for index in range(MODULATORS)
    for name, knob in _knobs_of(ModulatorParameters, index, f"_{index}").items()
}
"""All knobs by name; names of modulators' knobs end with the number of the modulator."""


class KitKnobs(MutableMapping[str, Setting]):
    """The knobs of one kit. Values are numbers, bools or words, and can be set as such or as text.

    Raise `UnknownKnob`, and `ValueError` for an invalid value. Deleting a knob resets it.
    """

    def __init__(self, state: KitState) -> None:
        self._state = state
        self._initial = state.now.parameters

    def __getitem__(self, name: str) -> Setting:
        return find_knob(name).read(self._state.now.parameters)

    def __setitem__(self, name: str, value: Setting) -> None:
        self._state.change(partial(_turn, find_knob(name), value))

    def __delitem__(self, name: str) -> None:
        """Reset a knob to the value that it had when this object was created."""
        self[name] = find_knob(name).read(self._initial)

    def __iter__(self) -> Iterator[str]:
        return iter(KNOBS)

    def __len__(self) -> int:
        return len(KNOBS)


def find_knob(name: str) -> Knob:
    """Return the knob with a name. Raise `UnknownKnob`."""
    try:
        return KNOBS[name]
    except KeyError:
        known = ", ".join(
            sorted({knob.field + ("_0..3" if knob.modulator is not None else "") for knob in KNOBS.values()})
        )
        raise UnknownKnob(f"the kit has no knob {name!r}; known: {known}") from None


def turn(kit: KitParameters, settings: Mapping[str, object]) -> KitParameters:
    """Return the parameters with several knobs set. Raise `UnknownKnob` or `ValueError`."""
    for name, value in settings.items():
        kit = find_knob(name).turn(kit, value)
    return kit


def _turn(knob: Knob, value: object, kit: KitParameters) -> KitParameters:
    return knob.turn(kit, value)
