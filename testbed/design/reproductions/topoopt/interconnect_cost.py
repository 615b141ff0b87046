"""Figure 10: what interconnects cost, by number of servers and rate of a link."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import mean

from sim.models.network.fabrics.cost import (
    Cost,
    circuit_switch_cost,
    fat_tree_cost,
    ideal_switch_cost,
    patch_panel_cost,
)
from testbed.design.fabrics.builders import equal_cost_fat_tree_gbps
from testbed.design.reproductions.comparison import NOTHING, Comparison, Published
from testbed.design.reproductions.figure import Figure, Progress
from testbed.design.reproductions.plot import Panel, Plot, series_of
from testbed.design.reproductions.table import Table
from testbed.design.reproductions.topoopt.setup import Scale

_COLUMNS = ("servers", "degree", "rate_gbps", "fabric", "cost_musd", "fattree_gbps")

_COSTS: Mapping[str, Callable[[int, int, float], Cost]] = {
    "TopoOpt": patch_panel_cost,
    "TopoOpt with OCS": circuit_switch_cost,
    "Fat-tree": lambda nodes, degree, rate: fat_tree_cost(
        nodes, equal_cost_fat_tree_gbps(nodes, degree, rate)
    ),
    "oversubscribed Fat-tree": lambda nodes, degree, rate: fat_tree_cost(
        nodes, degree * rate, oversubscription=2
    ),
    "ideal switch": lambda nodes, degree, rate: ideal_switch_cost(nodes, degree * rate),
}


def _make(scale: Scale, progress: Progress) -> Table:
    cases = [(n, d, r) for d in scale.degrees for r in scale.rates_gbps for n in scale.cluster_sizes]
    rows = [
        (nodes, degree, rate, name, cost(nodes, degree, rate).total_usd / 1e6, equal)
        for nodes, degree, rate in cases
        for equal in (equal_cost_fat_tree_gbps(nodes, degree, rate),)
        for name, cost in _COSTS.items()
    ]
    progress(len(cases), len(cases), "costs")
    return Table.of(_COLUMNS, rows)


def _ratios(table: Table, dear: str) -> list[float]:
    ours = table.where(fabric="TopoOpt").numbers("cost_musd")
    return [a / b for a, b in zip(table.where(fabric=dear).numbers("cost_musd"), ours, strict=True)]


def _compare(table: Table) -> tuple[Comparison, ...]:
    ideal, circuits = _ratios(table, "ideal switch"), _ratios(table, "TopoOpt with OCS")
    slow = _ratios(table.where(rate_gbps=table.values("rate_gbps")[0]), "ideal switch")
    fast = _ratios(table.where(rate_gbps=table.values("rate_gbps")[-1]), "ideal switch")
    recalled = "prices recalled, not checked"
    return (
        Comparison(
            "cost of the ideal switch over TopoOpt, mean",
            Published("3.2 x", "S", 3.2),
            mean(ideal),
            f"{recalled}; a Fat-tree of d times the rate stands for it",
            " x",
        ),
        Comparison(
            "the same, slowest links", NOTHING, mean(slow), "NICs below 100 Gbit/s cost little less", " x"
        ),
        Comparison("the same, fastest links", NOTHING, mean(fast), "", " x"),
        Comparison(
            "cost with optical circuit switches over patch panels, mean",
            Published("1.33 x", "S", 1.33),
            mean(circuits),
            f"{recalled}; panels have the second plane, circuit switches none",
            " x",
        ),
    )


def _draw(table: Table) -> Plot:
    """Return a server's part: costs grow with the servers, and the equal-cost Fat-tree is TopoOpt's line."""
    servers = table.values("servers")[0]
    seen = Table.of(
        ("degree", "rate", "fabric", "usd"),
        [
            (row["degree"], row["rate_gbps"], row["fabric"], float(row["cost_musd"]) * 1e6 / float(servers))
            for row in table.where(servers=servers).records
            if row["fabric"] != "Fat-tree"
        ],
    )
    panels = tuple(
        Panel(
            f"degree {degree:g}",
            "rate of a link, Gbit/s",
            "USD a server",
            series_of(seen.where(degree=degree), "fabric", "rate", "usd"),
            logarithmic="xy",
        )
        for degree in table.values("degree")
    )
    return Plot("Cost of interconnects (prices recalled)", panels)


FIGURE = Figure(10, "Cost of interconnects", _make, _compare, _draw)
