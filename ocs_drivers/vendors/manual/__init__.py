"""Patch panels without a robot: a person moves the cords and confirms each move.

    manual://panel.json                               asks on the terminal
    manual://panel.json?size=24x24                    creates the file on first use
    manual://panel.json?operator=10.0.0.9:7000        asks a colleague at the panel, who runs `nc -l 7000`

A read returns the confirmed circuits. Only the caller can detect a wrong confirmation: set `ManualPanel.probe` to a
function that returns whether light or packets pass a pair.
"""

from __future__ import annotations

import re
from pathlib import Path

from ocs_drivers.address import DEFAULT_TIMEOUT_S, Address
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import AddressError
from ocs_drivers.transports.lines import make_tcp_line
from ocs_drivers.vendors.manual.driver import ManualPanel
from ocs_drivers.vendors.manual.panel_file import PanelFile
from ocs_drivers.vendors.manual.prompts import LineOperator, Operator, TerminalOperator

__all__ = ["ManualPanel", "PanelFile", "manual_panel"]

DEFAULT_PATIENCE_S = 3600.0
"""Seconds that a person may take for one cord."""

_SIZE = re.compile(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,3})")


def manual_panel(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> ManualPanel:
    """Return an unopened panel. Options: `size`, `name`, `operator`, `patience_s`."""
    del credentials
    address = address.check_options("size", "name", "operator", "patience_s")
    file = PanelFile(Path(address.path), size=_parse_size(address), name=address.options.get("name", ""))
    return ManualPanel(
        str(address),
        file,
        _make_operator(address),
        timeout_s=timeout_s,
        patience_s=address.read_seconds("patience_s", DEFAULT_PATIENCE_S),
    )


def _parse_size(address: Address) -> tuple[int, int] | None:
    text = address.options.get("size")
    if text is None:
        return None
    match = _SIZE.fullmatch(text)
    if match is None:
        raise AddressError(f"{text!r} is not a size", device=str(address), hint="Write it like size=24x24.")
    return int(match[1]), int(match[2])


def _make_operator(address: Address) -> Operator:
    location = address.options.get("operator")
    if location is None:
        return TerminalOperator()
    host, _, port = location.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not 1 <= int(port) <= 65535:
        raise AddressError(
            f"{location!r} is not the address of an operator",
            device=str(address),
            hint="Write operator=10.0.0.9:7000.",
        )
    return LineOperator(make_tcp_line(Address("manual", host, int(port)), int(port)), device=str(address))
