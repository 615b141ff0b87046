"""Figure 10: cost of interconnects, by number of servers and link rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import mean

from sim.models.network.fabrics.cost import (
    DEFAULT_ASSUMPTIONS,
    MIXNET,
    Cost,
    CostAssumptions,
    compute_circuit_switch_cost,
    compute_fat_tree_cost,
    compute_ideal_switch_cost,
    compute_patch_panel_cost,
)
from testbed.design.fabrics.fat_tree import compute_equal_cost_gbps
from testbed.design.reproductions.figure import (
    UNPUBLISHED,
    Comparison,
    Figure,
    Panel,
    Plot,
    Progress,
    PublishedValue,
    Table,
    make_series,
)
from testbed.design.reproductions.topoopt.setup import Scale

RECALLED_PRICES, MIXNET_PRICES = "recalled", "MixNet"
NIC_PER_INTERFACE, NIC_PER_SERVER = "an interface", "a server"
READINGS: Mapping[tuple[str, str], CostAssumptions] = {
    (RECALLED_PRICES, NIC_PER_INTERFACE): DEFAULT_ASSUMPTIONS,
    (RECALLED_PRICES, NIC_PER_SERVER): CostAssumptions(has_one_nic_per_server=True),
    (MIXNET_PRICES, NIC_PER_INTERFACE): CostAssumptions(MIXNET),
    (MIXNET_PRICES, NIC_PER_SERVER): CostAssumptions(MIXNET, has_one_nic_per_server=True),
}
"""Readings of the cost by (price table, whether a NIC is paid per interface or per server)."""

_COLUMNS = ("prices", "nic_for", "servers", "degree", "rate_gbps", "fabric", "cost_musd", "fattree_gbps")


def _compute_costs(
    node_count: int, degree: int, rate_gbps: float, equal_cost_gbps: float, assumptions: CostAssumptions
) -> dict[str, Cost]:
    """Return the cost of each fabric. A Fat-tree of rate `equal_cost_gbps` costs as much as TopoOpt."""
    return {
        "TopoOpt": compute_patch_panel_cost(node_count, degree, rate_gbps, assumptions),
        "TopoOpt with OCS": compute_circuit_switch_cost(node_count, degree, rate_gbps, assumptions),
        "Fat-tree": compute_fat_tree_cost(node_count, equal_cost_gbps, assumptions=assumptions),
        "oversubscribed Fat-tree": compute_fat_tree_cost(
            node_count, degree * rate_gbps, oversubscription=2, assumptions=assumptions
        ),
        "ideal switch": compute_ideal_switch_cost(node_count, degree * rate_gbps, assumptions),
    }


def _make_table(scale: Scale, progress: Progress) -> Table:
    cases = [
        (reading_key, assumptions, node_count, degree, rate_gbps)
        for reading_key, assumptions in READINGS.items()
        for degree in scale.degrees
        for rate_gbps in scale.rates_gbps
        for node_count in scale.cluster_sizes
        if rate_gbps >= assumptions.min_rate_gbps
    ]
    rows = [
        (*reading_key, node_count, degree, rate, name, cost.total_usd / 1e6, equal_cost_gbps)
        for reading_key, assumptions, node_count, degree, rate in cases
        for equal_cost_gbps in (compute_equal_cost_gbps(node_count, degree, rate, assumptions),)
        for name, cost in _compute_costs(node_count, degree, rate, equal_cost_gbps, assumptions).items()
    ]
    progress(len(cases), len(cases), "costs")
    return Table.from_rows(_COLUMNS, rows)


def _compute_ratios_to_topoopt(table: Table, fabric: str) -> list[float]:
    topoopt_costs = table.select_rows(fabric="TopoOpt").get_numbers("cost_musd")
    return [
        other_usd / topoopt_usd
        for other_usd, topoopt_usd in zip(
            table.select_rows(fabric=fabric).get_numbers("cost_musd"), topoopt_costs, strict=True
        )
    ]


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    recalled_rows = table.select_rows(prices=RECALLED_PRICES, nic_for=NIC_PER_INTERFACE)
    slow_ratios = _compute_ratios_to_topoopt(
        recalled_rows.select_rows(rate_gbps=recalled_rows.list_values("rate_gbps")[0]), "ideal switch"
    )
    fast_ratios = _compute_ratios_to_topoopt(
        recalled_rows.select_rows(rate_gbps=recalled_rows.list_values("rate_gbps")[-1]), "ideal switch"
    )
    extreme_rate_comparisons = (
        Comparison(
            "the ideal switch, the first reading alone, slowest links",
            UNPUBLISHED,
            mean(slow_ratios),
            "NICs below 100 Gbit/s cost little less",
            " x",
        ),
        Comparison("the same, fastest links", UNPUBLISHED, mean(fast_ratios), "", " x"),
    )
    reading_comparisons = [line for reading_key in READINGS for line in _compare_reading(table, *reading_key)]
    return (*reading_comparisons[:2], *extreme_rate_comparisons, *reading_comparisons[2:])


def _compare_reading(table: Table, prices: str, nic_for: str) -> Iterator[Comparison]:
    """Yield the two published ratios under one reading of the prices, and the rate of the Fat-tree of equal cost."""
    reading_table = table.select_rows(prices=prices, nic_for=nic_for)
    reading_text = f"prices {prices}, a NIC {nic_for}"
    price_note = (
        "prices recalled, not checked" if prices == RECALLED_PRICES else "rates of 100 Gbit/s and more"
    )
    yield Comparison(
        f"cost of the ideal switch over TopoOpt, mean; {reading_text}",
        PublishedValue("3.2 x", "S", 3.2),
        mean(_compute_ratios_to_topoopt(reading_table, "ideal switch")),
        f"{price_note}; a Fat-tree of d times the rate stands for it",
        " x",
    )
    yield Comparison(
        f"cost with optical circuit switches over patch panels, mean; {reading_text}",
        PublishedValue("1.33 x", "S", 1.33),
        mean(_compute_ratios_to_topoopt(reading_table, "TopoOpt with OCS")),
        f"{price_note}; panels have the second plane, circuit switches none",
        " x",
    )
    for degree in reading_table.list_values("degree"):
        case = reading_table.select_rows(degree=degree, rate_gbps=100.0, fabric="TopoOpt")
        yield Comparison(
            f"rate of the Fat-tree of equal cost, d = {degree:g}, 100 Gbit/s; {reading_text}",
            UNPUBLISHED,
            mean(case.get_numbers("fattree_gbps")),
            "",
            " Gbit/s",
        )


def _make_plot(table: Table) -> Plot:
    """Return a plot of the cost per server, without the equal-cost Fat-tree, which coincides with TopoOpt."""
    table = table.select_rows(prices=RECALLED_PRICES, nic_for=NIC_PER_INTERFACE)
    servers = table.list_values("servers")[0]
    per_server = Table.from_rows(
        ("degree", "rate", "fabric", "usd"),
        [
            (row["degree"], row["rate_gbps"], row["fabric"], float(row["cost_musd"]) * 1e6 / float(servers))
            for row in table.select_rows(servers=servers).records
            if row["fabric"] != "Fat-tree"
        ],
    )
    panels = tuple(
        Panel(
            f"degree {degree:g}",
            "link rate (Gbit/s)",
            "cost per server (USD)",
            make_series(per_server.select_rows(degree=degree), "fabric", "rate", "usd"),
            logarithmic="xy",
        )
        for degree in table.list_values("degree")
    )
    return Plot("Cost of interconnects (prices recalled)", panels)


FIGURE = Figure(10, "Cost of interconnects", _make_table, _compare_with_paper, _make_plot)
