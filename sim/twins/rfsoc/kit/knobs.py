"""Knobs: all parameters of a simulated kit by name. Tests, operators and options of an address can set them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, get_args

from sim.twins.rfsoc.kit.parameters import MODULATOR_COUNT, KitParameters, ModulatorParameters, Noise
from sim.twins.rfsoc.kit.state import KitState

Setting = float | bool | str

_BOOLEAN_WORDS = {
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
    """An unknown knob. The message lists the known knobs."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class Knob:
    """A knob: the field of the kit or of a modulator that it sets, with type, description and range."""

    field_name: str
    modulator_index: int | None
    value_type: str
    about: str
    low: float
    high: float

    def read(self, kit: KitParameters) -> Setting:
        """Return the value of the knob in the parameters of a kit."""
        owner = kit if self.modulator_index is None else kit.modulators[self.modulator_index]
        value: Setting = getattr(owner, self.field_name)
        return value

    def apply(self, kit: KitParameters, value: object) -> KitParameters:
        """Return the parameters with this knob set to `value` (number, bool or text). Raise `ValueError` if invalid."""
        setting: Any = self._parse(value)
        if self.modulator_index is None:
            return replace(kit, **{self.field_name: setting})
        return kit.with_modulator(self.modulator_index, **{self.field_name: setting})

    def _parse(self, value: object) -> Setting:
        if self.value_type == "bool":
            return self._parse_bool(value)
        if self.value_type == "Noise":
            return self._parse_choice(value)
        return self._parse_number(value)

    def _parse_bool(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        try:
            return _BOOLEAN_WORDS[str(value).lower()]
        except KeyError:
            raise ValueError(f"{self.field_name} must be on or off, not {value!r}") from None

    def _parse_choice(self, value: object) -> str:
        text = {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)
        if text not in get_args(Noise):
            raise ValueError(f"{self.field_name} must be one of {', '.join(get_args(Noise))}, not {value!r}")
        return text

    def _parse_number(self, value: object) -> float:
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise ValueError(f"{self.field_name} must be a number, not {value!r}") from None
        if not self.low <= number <= self.high:
            raise ValueError(f"{self.field_name} must be {self.low:g} to {self.high:g}, not {number:g}")
        return number


def _make_knobs(owner: type, modulator_index: int | None, suffix: str) -> dict[str, Knob]:
    return {
        parameter_field.name + suffix: Knob(
            parameter_field.name, modulator_index, str(parameter_field.type), **parameter_field.metadata
        )
        for parameter_field in fields(owner)
        if parameter_field.metadata
    }


KNOBS: Mapping[str, Knob] = _make_knobs(KitParameters, None, "") | {
    name: knob
    for index in range(MODULATOR_COUNT)
    for name, knob in _make_knobs(ModulatorParameters, index, f"_{index}").items()
}
"""All knobs by name. The name of a modulator's knob ends with the number of the modulator."""


class KitKnobs(MutableMapping[str, Setting]):
    """The knobs of one kit. Values are numbers, bools or words. A value can also be set as text.

    Raise `UnknownKnob` for an unknown name, and `ValueError` for an invalid value. Deleting a knob resets it.
    """

    def __init__(self, state: KitState) -> None:
        self._state = state
        self._initial_parameters = state.snapshot.parameters

    def __getitem__(self, name: str) -> Setting:
        return find_knob(name).read(self._state.snapshot.parameters)

    def __setitem__(self, name: str, value: Setting) -> None:
        self._state.change(partial(_apply_knob, find_knob(name), value))

    def __delitem__(self, name: str) -> None:
        """Reset a knob to the value that it had when this object was created."""
        self[name] = find_knob(name).read(self._initial_parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(KNOBS)

    def __len__(self) -> int:
        return len(KNOBS)


def find_knob(name: str) -> Knob:
    """Return the knob with a name. Raise `UnknownKnob` if there is none."""
    try:
        return KNOBS[name]
    except KeyError:
        known_names = ", ".join(
            sorted(
                {
                    knob.field_name + ("_0..3" if knob.modulator_index is not None else "")
                    for knob in KNOBS.values()
                }
            )
        )
        raise UnknownKnob(f"the kit has no knob {name!r}; known: {known_names}") from None


def set_knobs(kit: KitParameters, settings: Mapping[str, object]) -> KitParameters:
    """Return the parameters with several knobs set. Raise `UnknownKnob`, or `ValueError` for an invalid value."""
    for name, value in settings.items():
        kit = find_knob(name).apply(kit, value)
    return kit


def _apply_knob(knob: Knob, value: object, kit: KitParameters) -> KitParameters:
    return knob.apply(kit, value)
