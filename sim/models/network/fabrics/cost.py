"""Cost of a fabric: number of each part, times its price.

Prices are from `prices.json` unless a `CostAssumptions` names another table. A table marked `recalled` was written
from memory and not checked against its source. Prices are interpolated between the rates of the table. They are
proportional to the rate above the highest rate of the table, and constant below the lowest. A fibre has the mean
length of the table (uniform over 0 to 1,000 m).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

PRICES_PATH = Path(__file__).with_name("prices.json")
MIXNET = "prices_mixnet.json"
"""Name of a second table, of another paper; it begins at 100 Gbit/s."""


@dataclass(frozen=True, slots=True)
class CostAssumptions:
    """Assumptions about the cost of a fabric: its price table, and the number of NICs of a server.

    `price_table` is the name of a price table in the folder of this module. By default every interface is a NIC. With
    `has_one_nic_per_server`, a server has a single NIC with all its interfaces.
    """

    price_table: str = PRICES_PATH.name
    has_one_nic_per_server: bool = False

    @property
    def min_rate_gbps(self) -> float:
        """The lowest rate with prices in the table."""
        return float(_load_table(self.price_table)["rate_gbps"][0])


DEFAULT_ASSUMPTIONS = CostAssumptions()


@dataclass(frozen=True, slots=True)
class Cost:
    """Price in US dollars by part; with `is_unverified` the prices were not checked against their source."""

    parts: tuple[tuple[str, float, float], ...]
    """name, number, unit price"""
    is_unverified: bool

    @property
    def total_usd(self) -> float:
        """Sum over all parts."""
        return sum(number * price for _, number, price in self.parts)


@cache
def _load_table(name: str) -> dict[str, Any]:
    price_table: dict[str, Any] = json.loads(PRICES_PATH.with_name(name).read_text(encoding="utf-8"))
    return price_table


def load_prices() -> dict[str, Any]:
    """Return the default price table as stored in its file."""
    return _load_table(PRICES_PATH.name)


def find_price(part: str, rate_gbps: float, table_name: str = PRICES_PATH.name) -> float:
    """Return the price of a part at a rate, in US dollars.

    >>> (
    ...     find_price("nic", 100),
    ...     find_price("nic", 400),
    ...     find_price("switch_port", 70),
    ...     find_price("nic", 300, MIXNET),
    ... )
    (678.0, 1630.0, 165.5, 1289.0)
    """
    rates, prices_usd = _load_table(table_name)["rate_gbps"], _load_table(table_name)[part]
    rate_ratio = max(rate_gbps / rates[-1], 1.0)
    return float(np.interp(rate_gbps, rates, prices_usd)) * float(rate_ratio)


def find_fibre_price(table_name: str = PRICES_PATH.name) -> float:
    """Return the price of a fibre of mean length, in US dollars.

    >>> find_fibre_price(MIXNET)
    150.0
    """
    return float(_load_table(table_name)["fibre_per_m"] * _load_table(table_name)["fibre_m"])


def _make_cost(rate_gbps: float, counts: dict[str, float], assumptions: CostAssumptions) -> Cost:
    table = _load_table(assumptions.price_table)
    fibre_price_usd = find_fibre_price(assumptions.price_table)
    rows = [
        (
            part,
            number,
            fibre_price_usd if part == "fibre" else find_price(part, rate_gbps, assumptions.price_table),
        )
        for part, number in counts.items()
    ]
    return Cost(tuple(rows), bool(table["recalled"]))


def compute_patch_panel_cost(
    node_count: int, degree: int, rate_gbps: float, assumptions: CostAssumptions = DEFAULT_ASSUMPTIONS
) -> Cost:
    """Return the cost of direct connect through patch panels with a look-ahead plane.

    Each interface needs two panel ports and a 1x2 switch.
    """
    counts = _count_optics(node_count, degree, assumptions)
    return _make_cost(
        rate_gbps,
        counts | {"optical_1x2": node_count * degree, "panel_port": 2 * node_count * degree},
        assumptions,
    )


def compute_circuit_switch_cost(
    node_count: int, degree: int, rate_gbps: float, assumptions: CostAssumptions = DEFAULT_ASSUMPTIONS
) -> Cost:
    """Return the cost of direct connect through optical circuit switches: one port per interface, no second plane."""
    return _make_cost(
        rate_gbps,
        _count_optics(node_count, degree, assumptions) | {"ocs_port": node_count * degree},
        assumptions,
    )


def _count_optics(node_count: int, degree: int, assumptions: CostAssumptions) -> dict[str, float]:
    """Return the numbers of NICs, transceivers and fibres of direct connect."""
    interface_count = node_count * degree
    nic_count = node_count if assumptions.has_one_nic_per_server else interface_count
    return {"nic": nic_count, "transceiver": interface_count, "fibre": interface_count}


def compute_fat_tree_cost(
    node_count: int,
    rate_gbps: float,
    *,
    oversubscription: float = 1.0,
    assumptions: CostAssumptions = DEFAULT_ASSUMPTIONS,
) -> Cost:
    """Return the cost of a three-tier Fat-tree.

    Each host has a NIC and a switch port. Above the edge, there are four ports, four transceivers and two fibres for
    each host, divided by the oversubscription. The cable of a host has no price in the table.
    """
    uplink_count = node_count / oversubscription
    return _make_cost(
        rate_gbps,
        {
            "nic": node_count,
            "switch_port": node_count + 4 * uplink_count,
            "transceiver": 4 * uplink_count,
            "fibre": 2 * uplink_count,
        },
        assumptions,
    )


def compute_ideal_switch_cost(
    node_count: int, rate_gbps: float, assumptions: CostAssumptions = DEFAULT_ASSUMPTIONS
) -> Cost:
    """Return the cost of an ideal switch. It equals the cost of a full-bisection Fat-tree of the same rate."""
    return compute_fat_tree_cost(node_count, rate_gbps, assumptions=assumptions)


def find_equal_cost_rate_gbps(budget_usd: float, calculate_cost: Callable[[float], Cost]) -> float:
    """Return the rate in Gbit/s at which `calculate_cost(rate)` equals the budget, found by bisection.

    Raise `ValueError` if no rate from 0.001 to 1,000,000 Gbit/s has this cost. By hand: four interfaces at 1,152 USD
    are 4,608 USD per host; beyond 200 Gbit/s a Fat-tree costs 300 + 3,477 * rate / 200 USD per host:

    >>> budget = compute_patch_panel_cost(128, 4, 100).total_usd
    >>> round(find_equal_cost_rate_gbps(budget, lambda rate: compute_fat_tree_cost(128, rate)))
    248
    """
    low_gbps, high_gbps = 1e-3, 1e6
    if not calculate_cost(low_gbps).total_usd <= budget_usd <= calculate_cost(high_gbps).total_usd:
        raise ValueError(f"{budget_usd:.0f} USD buys no rate between {low_gbps} and {high_gbps} Gbit/s")
    while high_gbps - low_gbps > 1e-9 * high_gbps:
        middle_gbps = (low_gbps + high_gbps) / 2
        low_gbps, high_gbps = (
            (middle_gbps, high_gbps)
            if calculate_cost(middle_gbps).total_usd <= budget_usd
            else (low_gbps, middle_gbps)
        )
    return low_gbps
