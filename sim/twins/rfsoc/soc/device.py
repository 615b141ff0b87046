"""The twin beyond its board: its name, its knobs, its bench, and time that can be let pass."""

from __future__ import annotations

from typing import Any, cast

import qick
from qick.qick_asm import QickConfig

from sim.twins.rfsoc.assembly import assembled


class TwinDevice(QickConfig):  # type: ignore[misc] # QICK has no types
    """A simulated board with what is cabled to it, as the configuration that QICK's programs are compiled for.

    Raises `AddressError` for an address that names none.
    """

    def __init__(self, address: str) -> None:
        made = assembled(address)
        cfg = made.board.cfg
        cfg["sw_version"] = qick.get_version()
        super().__init__(cfg)
        self.address = address
        self.knobs = made.knobs
        self._identity = made.identity
        self._plant = made.plant
        self._board = made.board
        self.TPROC_VERSION = made.board.core.version

    @property
    def simulated(self) -> bool:
        """True: no result of this device is a measurement."""
        return True

    @property
    def identity(self) -> str:
        """Name of this device, the same at every connection."""
        return self._identity

    def factory_calibration(self) -> dict[str, Any] | None:
        """Return the calibration document that came with this device; None for one without."""
        made = getattr(self._plant, "factory_calibration", None)
        return None if made is None else cast("dict[str, Any] | None", made())

    def bench(self) -> dict[str, str]:
        """VISA resources of the laboratory instruments around the kit, by role; they begin to serve when asked for."""
        made = getattr(self._plant, "bench", None)
        return {} if made is None else cast("dict[str, str]", made())

    def close(self) -> None:
        """Stop the instruments of the bench; does nothing where there are none."""
        closed = getattr(self._plant, "close", None)
        if closed is not None:
            closed()

    def elapse(self, seconds: float) -> None:
        """Advance device time for everything that drifts."""
        self._board.elapse(seconds)

    def pulse_start_pin(self) -> None:
        """Start the program by a pulse at its pin, where the start source is "external"."""
        if self._board.source == "external":
            self._board.start()

    def get_knob(self, name: str) -> Any:
        """Return the position of a knob."""
        return self.knobs[name]

    def set_knob(self, name: str, value: Any) -> None:
        """Turn a knob. Raises `KeyError` and `ValueError`."""
        self.knobs[name] = value
