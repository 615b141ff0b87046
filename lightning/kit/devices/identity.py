"""The stable name that ties a calibration to its device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """Identity of a device."""

    name: str
    """Stable name, which survives a restart."""
    board: str = ""
    firmware: str = ""
    """Build date of the firmware."""
    is_simulated: bool = False

    @property
    def label(self) -> str:
        """The name, with a mark if the device is simulated."""
        return f"{self.name} (SIMULATED)" if self.is_simulated else self.name

    def as_dict(self) -> dict[str, Any]:
        """Return the identity as a document for a file."""
        return {
            "name": self.name,
            "board": self.board,
            "firmware": self.firmware,
            "simulated": self.is_simulated,
        }


def read_identity(soc: Any) -> DeviceIdentity:
    """Return the identity of a QickSoc, its twin, or a QickConfig.

    A twin or a guarded device has its own name. The name of a bare board consists of its type and firmware build.
    """
    board, firmware = _read_entry(soc, "board"), _read_entry(soc, "fw_timestamp")
    own_name = getattr(soc, "identity", None)
    name = own_name if isinstance(own_name, str) and own_name else format_board_name(board, firmware)
    return DeviceIdentity(name, board, firmware, bool(getattr(soc, "simulated", False)))


def format_board_name(board: str, firmware: str, host: str = "") -> str:
    """Return the stable name of a board.

    >>> format_board_name("ZCU111", "Oct 7 2022", "10.0.0.7")
    'ZCU111-Oct 7 2022 at 10.0.0.7'
    """
    return f"{board or 'board'}-{firmware or 'unknown'}" + (f" at {host}" if host else "")


def _read_entry(soc: Any, key: str) -> str:
    if isinstance(soc, Mapping):
        return str(soc.get(key, ""))
    try:
        return str(soc[key])
    except (KeyError, TypeError):
        return ""
