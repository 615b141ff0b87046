"""A simulated board with QICK firmware, and the plant that is connected to it: `sim://kit` and `sim://loopback`.

    soc = connect("sim://loopback?delay_ns=35.5&gain=0.5")

The object behaves like QICK's `QickSoc` and is a `QickConfig`, so QICK's own program classes run on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightbed.wording import describe_extra
from sim.twins.rfsoc.not_simulated import NotSimulated
from sim.twins.rfsoc.processor import ProgramError

if TYPE_CHECKING:
    from sim.twins.rfsoc.soc import SimulatedSoc

__all__ = ["NotSimulated", "ProgramError", "connect"]


def connect(address: str) -> SimulatedSoc:
    """Return a new twin for `sim://PLANT?OPTION=VALUE&...`. See `docs/reference/rfsoc-twin.md`.

    Raise `ValueError` for an invalid address, and `ModuleNotFoundError` if QICK is not installed.
    """
    try:
        from sim.twins.rfsoc.soc import SimulatedSoc
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] in {"qick", "tqdm"}:
            raise ModuleNotFoundError(
                f"the twin of a QICK board needs {error.name}: {describe_extra('qick')}", name=error.name
            ) from error
        raise
    return SimulatedSoc(address)
