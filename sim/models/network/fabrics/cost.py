"""Cost of a fabric: parts counted, prices from `prices.json` (recalled, see there).

Prices between the table's rates are interpolated, beyond the last one they grow in proportion, below the first
they stay. A fibre has the table's mean length (0 to 1,000 m, evenly).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

PRICES = Path(__file__).with_name("prices.json")


@dataclass(frozen=True, slots=True)
class Cost:
    """Price in US dollars, part by part. `recalled` says that the prices were not checked against their source."""

    parts: tuple[tuple[str, float, float], ...]
    """name, number, price of one"""
    recalled: bool

    @property
    def total_usd(self) -> float:
        """The sum over all parts."""
        return sum(number * price for _, number, price in self.parts)


@cache
def prices() -> dict[str, Any]:
    """Return the table, as it stands in the file."""
    table: dict[str, Any] = json.loads(PRICES.read_text(encoding="utf-8"))
    return table


def price(part: str, rate_gbps: float) -> float:
    """Return price of one part for a rate.

    >>> price("nic", 100), price("nic", 400), price("switch_port", 70)
    (678.0, 1630.0, 165.5)
    """
    rates, values = prices()["rate_gbps"], prices()[part]
    growth = max(rate_gbps / rates[-1], 1.0)
    return float(np.interp(rate_gbps, rates, values)) * float(growth)


def _cost(rate_gbps: float, counts: dict[str, float]) -> Cost:
    fibre = prices()["fibre_per_m"] * prices()["fibre_m"]
    rows = [
        (part, number, fibre if part == "fibre" else price(part, rate_gbps))
        for part, number in counts.items()
    ]
    return Cost(tuple(rows), bool(prices()["recalled"]))


def patch_panel_cost(nodes: int, degree: int, rate_gbps: float) -> Cost:
    """Direct connect through patch panels with a look-ahead plane: two panel ports and a 1x2 switch an interface."""
    interfaces = nodes * degree
    once = dict.fromkeys(("nic", "transceiver", "optical_1x2", "fibre"), interfaces)
    return _cost(rate_gbps, {**once, "panel_port": 2 * interfaces})


def circuit_switch_cost(nodes: int, degree: int, rate_gbps: float) -> Cost:
    """Direct connect through optical circuit switches: one port an interface, no second plane."""
    return _cost(rate_gbps, dict.fromkeys(("nic", "transceiver", "fibre", "ocs_port"), nodes * degree))


def fat_tree_cost(nodes: int, rate_gbps: float, *, oversubscription: float = 1.0) -> Cost:
    """Return the cost of three tiers: a port to each host; four ports, four transceivers, two fibres above.

    The parts above the edge are divided by the oversubscription. The cable of a host has no price in the table.
    """
    above = nodes / oversubscription
    return _cost(
        rate_gbps,
        {"nic": nodes, "switch_port": nodes + 4 * above, "transceiver": 4 * above, "fibre": 2 * above},
    )


def ideal_switch_cost(nodes: int, rate_gbps: float) -> Cost:
    """Return the cost of an ideal switch: that of the full-bisection Fat-tree of the same rate."""
    return fat_tree_cost(nodes, rate_gbps)


def equal_cost_rate_gbps(budget_usd: float, cost_at: Callable[[float], Cost]) -> float:
    """Return the rate at which `cost_at(rate)` costs the budget, by bisection. Raises `ValueError` when none does.

    Four interfaces at 1,152 USD are 4,608 a host; beyond 200 Gbit/s a Fat-tree is 300 + 3,477 * rate / 200:

    >>> budget = patch_panel_cost(128, 4, 100).total_usd
    >>> round(equal_cost_rate_gbps(budget, lambda rate: fat_tree_cost(128, rate)))
    248
    """
    low, high = 1e-3, 1e6
    if not cost_at(low).total_usd <= budget_usd <= cost_at(high).total_usd:
        raise ValueError(f"{budget_usd:.0f} USD buys no rate between {low} and {high} Gbit/s")
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if cost_at(middle).total_usd <= budget_usd else (low, middle)
    return low
