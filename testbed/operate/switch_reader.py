"""Switches of which nothing can be changed: what a session without a journal is given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from ocs_drivers.contract import OpticalSwitch

READING = (
    "address",
    "capabilities",
    "identity",
    "ports",
    "read",
    "plan",
    "power",
    "attenuation",
    "events",
)
"""Names of the contract that send nothing but questions."""


def reader_of(switch: OpticalSwitch) -> OpticalSwitch:
    """Return an open switch without the methods that change it: a plan that is only looked at has none to call."""
    return cast("OpticalSwitch", SimpleNamespace(**{name: getattr(switch, name) for name in READING}))
