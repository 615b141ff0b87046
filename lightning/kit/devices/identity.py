"""The stable name that ties a calibration to its device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """Identity of a device."""

    name: str
    """Stable: the same after a restart."""
    board: str = ""
    firmware: str = ""
    """Build date of the firmware."""
    simulated: bool = False

    @property
    def label(self) -> str:
        """Its name, marked if it is simulated."""
        return f"{self.name} (SIMULATED)" if self.simulated else self.name

    def as_dict(self) -> dict[str, Any]:
        """Return the identity as a document for a file."""
        return {
            "name": self.name,
            "board": self.board,
            "firmware": self.firmware,
            "simulated": self.simulated,
        }


def identity_of(soc: Any) -> DeviceIdentity:
    """Return the identity of a QickSoc, of its twin, or of a QickConfig.

    A twin and a guarded device have their own names. A bare board is named by its type and the build of its firmware.
    """
    board, firmware = _entry(soc, "board"), _entry(soc, "fw_timestamp")
    own = getattr(soc, "identity", None)
    name = own if isinstance(own, str) and own else board_name(board, firmware)
    return DeviceIdentity(name, board, firmware, bool(getattr(soc, "simulated", False)))


def board_name(board: str, firmware: str, host: str = "") -> str:
    """Return the stable name of a board.

    >>> board_name("ZCU111", "Oct 7 2022", "10.0.0.7")
    'ZCU111-Oct 7 2022 at 10.0.0.7'
    """
    return f"{board or 'board'}-{firmware or 'unknown'}" + (f" at {host}" if host else "")


def _entry(soc: Any, key: str) -> str:
    if isinstance(soc, Mapping):
        return str(soc.get(key, ""))
    try:
        return str(soc[key])
    except (KeyError, TypeError):
        return ""
