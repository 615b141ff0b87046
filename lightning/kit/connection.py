"""Addresses of devices: `scheme://rest`. The scheme names an entry point of the group `lightning.devices`."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from lightning.errors import AddressError, DeviceGone, LightningError, UnknownScheme
from lightning.kit.devices.deadline import Patience
from lightning.optional import require

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "lightning.devices"
_BUILT_IN = {
    "sim": "sim.twins.rfsoc:connect",
    "qick": "lightning.kit.devices.board:connect",
    "replay": "lightning.kit.recordings.replay:connect",
}
"""This distribution's entry points, repeated for a source tree that is not installed."""

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")


def connect(address: str, *, patience: Patience | None = None) -> Any:
    """Return the device at this address: a QickSoc (and QickConfig) with deadlines.

    `sim://kit` and `sim://loopback` are twins, `qick://HOST` is a board in the network, `qick://local` is the board
    that runs this code, and `replay://FILE` is a recording. Other packages add schemes by entry points of the group
    `lightning.devices`: functions that return a QickSoc for an address. `patience` replaces the default deadlines.
    Raise `AddressError`, `UnknownScheme`, `DeviceGone` or `MissingLibrary`.
    """
    scheme = parse_scheme(address)
    entry_point_by_scheme = find_schemes()
    if scheme not in entry_point_by_scheme:
        raise UnknownScheme(
            f"no package is installed for {scheme}://",
            hint=f"Known are {', '.join(f'{known_scheme}://' for known_scheme in sorted(entry_point_by_scheme))}",
        )
    entry_point = entry_point_by_scheme[scheme]
    require("qick", f"for {address}")
    from lightning.kit.devices.guard import guard_soc

    soc = guard_soc(_connect(entry_point, address))
    if patience is not None:
        soc.set_patience(patience)
    if announcement := getattr(soc, "announcement", "") or (
        _describe_simulated(soc) if soc.simulated else ""
    ):
        sys.stderr.write(f"{address}: {announcement}\n")
    return soc


def parse_scheme(address: str) -> str:
    """Return the part before `://`. Raise `AddressError` for an invalid address.

    >>> parse_scheme("sim://kit?seed=1")
    'sim'
    """
    scheme, separator, location = str(address).partition("://")
    if not separator or not location or not _SCHEME.fullmatch(scheme):
        raise AddressError(
            f"{address!r} is not a valid address of a device",
            hint="Write one as sim://kit, qick://HOST or qick://local",
        )
    return scheme


def entry_points(**select: str) -> Any:
    """Call `importlib.metadata.entry_points`. The module is imported at the first call, because its import is slow."""
    from importlib import metadata

    return metadata.entry_points(**select)


def find_schemes() -> dict[str, EntryPoint]:
    """Return the entry point of each scheme. Other packages cannot replace built-in schemes."""
    from importlib.metadata import EntryPoint

    other_entry_points = {entry.name: entry for entry in entry_points(group=GROUP)}
    return {
        **other_entry_points,
        **{name: EntryPoint(name, value, GROUP) for name, value in _BUILT_IN.items()},
    }


def _connect(entry_point: EntryPoint, address: str) -> Any:
    try:
        return entry_point.load()(address)
    except LightningError:
        raise
    except ValueError as error:
        raise AddressError(str(error), hint="Correct the address") from error
    except OSError as error:
        raise DeviceGone(str(error), device=address, hint="Check that it is there and switched on") from error


def _describe_simulated(soc: Any) -> str:
    """Return a line that marks the device as simulated and names its calibration."""
    from lightning.kit.calibration.store import find as find_calibration

    try:
        calibration = find_calibration(soc)
    except (
        LightningError,
        OSError,
    ):  # the command that needs the calibration reports the error with its hint
        suffix = ", with a calibration that cannot be used"
    else:
        suffix = ", without a calibration" if calibration is None else f", with its {calibration.kind}"
    return f"SIMULATED device {soc.identity}{suffix}"
