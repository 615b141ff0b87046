"""All that can be set on a twin, in one mapping: the board's own knobs and those of its plant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from sim.twins.rfsoc.board import faults
from sim.twins.rfsoc.signals import decimation

CONVERTER_BITS = range(4, 17)


class BoardKnobs(MutableMapping[str, Any]):
    """`adc_bits` (4 to 16), `filter` ("fir", "mean") and `fault` are the board's; every other name is the plant's.

    Raises `KeyError` for a name that neither has, `ValueError` for a value that cannot be.
    """

    def __init__(
        self, adc_bits: int, plant: MutableMapping[str, Any], options: Mapping[str, str] | None = None
    ) -> None:
        self._own: dict[str, Any] = {"adc_bits": adc_bits, "filter": "fir", "fault": "none"}
        self._plant = plant
        for name, value in (options or {}).items():
            self[name] = value
        self._made = dict(self._own)

    def __getitem__(self, name: str) -> Any:
        return self._own[name] if name in self._own else self._plant[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "adc_bits":
            self._own[name] = _bits(value)
        elif name == "filter":
            decimation.taps(value)
            self._own[name] = value
        elif name == "fault":
            self._fail(value)
        else:
            self._plant[name] = value

    def __delitem__(self, name: str) -> None:
        """Back to what it was made with."""
        if name in self._made:
            self[name] = self._made[name]
        else:
            del self._plant[name]

    def _fail(self, fault: Any) -> None:
        """Set a fault of the board, or that of a plant which has a knob of this name and keeps it while it lasts."""
        if fault != faults.OF_LIGHT or faults.OF_LIGHT not in self._plant:
            faults.checked(fault)
        if faults.OF_LIGHT in {fault, self._own["fault"]}:
            self._plant[faults.OF_LIGHT] = fault == faults.OF_LIGHT
        self._own["fault"] = fault

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in self._plant if name not in self._own)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _bits(value: Any) -> int:
    if str(value) not in {str(bits) for bits in CONVERTER_BITS}:
        raise ValueError(f"adc_bits lies between {CONVERTER_BITS[0]} and {CONVERTER_BITS[-1]}, not {value!r}")
    return int(value)
