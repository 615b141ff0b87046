"""Cost of a fabric: parts counted, prices from `prices.json` (recalled, see there) unless another reading is named.

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
MIXNET = "prices_mixnet.json"
"""The table of another paper, beside the recalled one; it begins at 100 Gbit/s."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A way to count a cost: `table` is a file beside this one.

    A NIC is paid for each interface, or with `nic_once` for each server, as a card with all its interfaces.
    """

    table: str = PRICES.name
    nic_once: bool = False

    @property
    def least_gbps(self) -> float:
        """The least rate that the table has prices for."""
        return float(_table(self.table)["rate_gbps"][0])


DEFAULT_READING = Reading()


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
def _table(name: str) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(PRICES.with_name(name).read_text(encoding="utf-8"))
    return table


def prices() -> dict[str, Any]:
    """Return the table, as it stands in the file."""
    return _table(PRICES.name)


def price(part: str, rate_gbps: float, table: str = PRICES.name) -> float:
    """Return price of one part for a rate.

    >>> price("nic", 100), price("nic", 400), price("switch_port", 70), price("nic", 300, MIXNET)
    (678.0, 1630.0, 165.5, 1289.0)
    """
    rates, values = _table(table)["rate_gbps"], _table(table)[part]
    growth = max(rate_gbps / rates[-1], 1.0)
    return float(np.interp(rate_gbps, rates, values)) * float(growth)


def _cost(rate_gbps: float, counts: dict[str, float], reading: Reading) -> Cost:
    table = _table(reading.table)
    fibre = table["fibre_per_m"] * table["fibre_m"]
    rows = [
        (part, number, fibre if part == "fibre" else price(part, rate_gbps, reading.table))
        for part, number in counts.items()
    ]
    return Cost(tuple(rows), bool(table["recalled"]))


def patch_panel_cost(nodes: int, degree: int, rate_gbps: float, reading: Reading = DEFAULT_READING) -> Cost:
    """Direct connect through patch panels with a look-ahead plane: two panel ports and a 1x2 switch an interface."""
    counts = _optics(nodes, degree, reading)
    return _cost(
        rate_gbps,
        counts | {"optical_1x2": nodes * degree, "panel_port": 2 * nodes * degree},
        reading,
    )


def circuit_switch_cost(
    nodes: int, degree: int, rate_gbps: float, reading: Reading = DEFAULT_READING
) -> Cost:
    """Direct connect through optical circuit switches: one port an interface, no second plane."""
    return _cost(rate_gbps, _optics(nodes, degree, reading) | {"ocs_port": nodes * degree}, reading)


def _optics(nodes: int, degree: int, reading: Reading) -> dict[str, float]:
    """Return the parts of direct connect that a server brings."""
    interfaces = nodes * degree
    cards = nodes if reading.nic_once else interfaces
    return {"nic": cards, "transceiver": interfaces, "fibre": interfaces}


def fat_tree_cost(
    nodes: int,
    rate_gbps: float,
    *,
    oversubscription: float = 1.0,
    reading: Reading = DEFAULT_READING,
) -> Cost:
    """Return the cost of three tiers: a port to each host; four ports, four transceivers, two fibres above.

    The parts above the edge are divided by the oversubscription. The cable of a host has no price in the table.
    """
    above = nodes / oversubscription
    return _cost(
        rate_gbps,
        {"nic": nodes, "switch_port": nodes + 4 * above, "transceiver": 4 * above, "fibre": 2 * above},
        reading,
    )


def ideal_switch_cost(nodes: int, rate_gbps: float, reading: Reading = DEFAULT_READING) -> Cost:
    """Return the cost of an ideal switch: that of the full-bisection Fat-tree of the same rate."""
    return fat_tree_cost(nodes, rate_gbps, reading=reading)


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
