"""Findings, each with its hint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lightning.errors import LightningError

State = Literal["ok", "warning", "bad"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact: how it stands, what was found, and the hint where it is not well."""

    name: str
    state: State
    found: str
    hint: str = ""


def found_by(error: LightningError, name: str) -> Finding:
    """Return an error as a finding."""
    return Finding(name, "bad", error.what, error.hint)
