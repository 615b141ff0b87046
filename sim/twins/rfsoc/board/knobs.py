"""All that can be set on a twin, in one mapping: the board's own knobs and those of its plant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from sim.twins.rfsoc.signals import decimation

FAULTS: Mapping[str, str] = {
    "none": "all is well",
    "dead_board": "no call is answered: ConnectionError",
    "gone_in_acquisition": "the board answers until it is asked for the counter of a running program, and never again",
    "stuck_counter": "the counter of shots stays where it is, and programs seem never to end",
    "overrun": "whoever reads the counter comes so seldom that more shots have passed than the memory of sums holds",
    "wrong_clock": "the reference clock is 5 % low: clocks are not locked, and rates are not those of the profile",
}

OF_LIGHT = "laser_dropped"
"""The kit's own: its knob of this name can be set as a fault, too."""
OVERRUN_LOOK_S = 1.0
"""Device time between two looks at the counter under `overrun`."""
WRONG_CLOCK_FACTOR = 0.95
CONVERTER_BITS = range(4, 17)


def checked(name: str) -> str:
    """Return the name of a fault. Raises `ValueError` for one that is none.

    >>> checked("dead_board")
    'dead_board'
    """
    if name not in FAULTS:
        raise ValueError(f"no fault {name!r}; the board knows {', '.join(FAULTS)}")
    return name


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
            if str(value) not in {str(bits) for bits in CONVERTER_BITS}:
                raise ValueError(
                    f"adc_bits lies between {CONVERTER_BITS[0]} and {CONVERTER_BITS[-1]}, not {value!r}"
                )
            self._own[name] = int(value)
        elif name == "filter":
            decimation.taps(value)
            self._own[name] = value
        elif name == "fault":
            # a plant that has a knob of this name keeps the fault while it lasts
            if value != OF_LIGHT or OF_LIGHT not in self._plant:
                checked(value)
            if OF_LIGHT in {value, self._own["fault"]}:
                self._plant[OF_LIGHT] = value == OF_LIGHT
            self._own["fault"] = value
        else:
            self._plant[name] = value

    def __delitem__(self, name: str) -> None:
        """Back to what it was made with."""
        if name in self._made:
            self[name] = self._made[name]
        else:
            del self._plant[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in self._plant if name not in self._own)

    def __len__(self) -> int:
        return sum(1 for _ in self)
