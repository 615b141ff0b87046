"""Every scheme of an address with the twin that answers it: derived from the one table of families."""

from __future__ import annotations

from ocs_drivers.families import FAMILIES, find_twin_family

_FRONTS = {"manual": "operator", "scpi-1xn": "scpi", "sonic-ocs": "cli"}
"""Frontends of the twins that a scheme does not name behind its `+`."""

SCHEMES = {
    scheme: (find_twin_family(scheme), _FRONTS.get(scheme) or scheme.partition("+")[2]) for scheme in FAMILIES
}
"""scheme -> family and frontend of its twin."""

BANKS = {scheme for scheme, (family, _) in SCHEMES.items() if family in {"dicon", "mosw", "scpi-1xn"}}
"""Banks of 1xN switches: an input is always somewhere."""
