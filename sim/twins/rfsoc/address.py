"""Addresses of twins, such as `sim://kit?seed=1&adc_bits=16`, and profiles of boards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, urlsplit

PLANTS = ("kit", "loopback")
DEFAULT_PROFILES = {"kit": "lightning-zcu111", "loopback": "zcu111"}


class AddressError(ValueError):
    """An address is invalid: it names no twin, or it has an unknown board or an invalid option."""


@dataclass(frozen=True, slots=True)
class Address:
    """Parsed address of a twin: the plant that is connected to the board, the board's profile, and other options."""

    plant: str
    profile: str
    options: Mapping[str, str]


def parse_address(address: str) -> Address:
    """Parse an address. Raise `AddressError` if it is not valid.

    >>> parse_address("sim://kit?seed=2&profile=zcu216")
    Address(plant='kit', profile='zcu216', options={'seed': '2'})
    """
    parts = urlsplit(address)
    if parts.scheme != "sim" or parts.netloc not in PLANTS or parts.path not in {"", "/"}:
        raise AddressError(
            f"{address!r} is not a valid twin; known: " + " and ".join(f"sim://{name}" for name in PLANTS)
        )
    try:
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise AddressError(f"options of {address!r} must be NAME=VALUE, separated by &") from None
    return Address(parts.netloc, options.pop("profile", DEFAULT_PROFILES[parts.netloc]), options)


def parse_integer(name: str, text: str, low: int = 0) -> int:
    """Return the value of an integer option. Raise `ValueError` if it is not an integer of at least `low`.

    >>> parse_integer("seed", "7")
    7
    """
    if not (text.isascii() and text.isdecimal() and int(text) >= low):
        raise ValueError(f"{name} must be an integer of at least {low}, not {text!r}")
    return int(text)


def list_profiles() -> list[str]:
    """Return the sorted names of all board profiles."""
    folder = resources.files(__package__) / "profiles"
    return sorted(
        entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json")
    )


def load_configuration(profile: str) -> dict[str, Any]:
    """Return the configuration of a board in QICK's format. Raise `AddressError` for an unknown profile."""
    if profile not in list_profiles():
        raise AddressError(f"unknown board {profile!r}; known: {', '.join(list_profiles())}")
    text = (resources.files(__package__) / "profiles" / f"{profile}.json").read_text(encoding="utf-8")
    cfg: dict[str, Any] = json.loads(text)
    return cfg
