"""Figure 2: cost of the networks, and performance per dollar relative to a fat-tree.

The formula on MixNet's project page omits the price of electrical ports and connects all NICs to the circuit switch.
Our "corrected formula" counts 12 electrical ports, 20 transceivers, 6 circuit ports and 12 fibres per server.
"""

from __future__ import annotations

from collections.abc import Iterator

from sim.models.network.fabrics.cost import MIXNET as PRICES
from sim.models.network.fabrics.cost import find_fibre_price, find_price
from testbed.design.reproductions.figure import (
    Comparison,
    Figure,
    Panel,
    Plot,
    Progress,
    PublishedValue,
    Series,
    Table,
)
from testbed.design.reproductions.mixnet.iteration_times import compute_times
from testbed.design.reproductions.mixnet.model import FAT_TREE, MIXNET, TOPOOPT
from testbed.design.reproductions.mixnet.models import JOBS, SERVER_GPUS, SETTING
from testbed.design.reproductions.mixnet.setup import Scale

SERVER_COUNT = 128
CLAIMED_RATIOS = {100: (1.2, 1.5), 400: (1.9, 2.3)}
"""Performance per dollar relative to a fat-tree, by rate in Gbit/s: range over the four models (abstract)."""
CORRECTED_RATIOS = {100: (1.31, 1.61), 400: (2.06, 2.44)}
"""The same range, computed with the corrected formula from the published times."""

_COLUMNS = (
    *("model", "gbps", "fat_tree_usd", "topoopt_usd", "mixnet_usd"),
    *("published_ratio", "our_ratio"),
)


def compute_network_usd(design: str, gbps: float, server_count: int = SERVER_COUNT) -> float:
    """Return the price in US dollars of a network of servers with eight NICs each.

    Totals for 128 servers at 100 Gbit/s, in millions; they equal the published totals:

    >>> [round(compute_network_usd(design, 100) / 1e6, 3) for design in ("Fat-tree", "TopoOpt", "MixNet")]
    [3.071, 1.032, 1.845]
    """
    all_nics, packet_nics = SERVER_GPUS, SERVER_GPUS - SETTING.circuit_ports
    circuit_nics = SETTING.circuit_ports
    counts: dict[str, dict[str, float]] = {
        FAT_TREE: {
            "nic": all_nics,
            "switch_port": 6 * all_nics,
            "transceiver": 7 * all_nics,
            "fibre": 3.5 * all_nics,
        },
        TOPOOPT: {"nic": all_nics, "transceiver": all_nics, "panel_port": all_nics, "fibre": all_nics},
        MIXNET: {
            "nic": all_nics,
            "switch_port": 6 * packet_nics,
            "transceiver": 6 * packet_nics + all_nics,
            "ocs_port": circuit_nics,
            "fibre": 3 * packet_nics + circuit_nics,
        },
    }
    return server_count * sum(
        number * (find_fibre_price(PRICES) if part == "fibre" else find_price(part, gbps, PRICES))
        for part, number in counts[design].items()
    )


def _make_table(scale: Scale, progress: Progress) -> Table:
    times = compute_times(JOBS, SETTING, scale.rates_gbps)
    rows = []
    for row in times.select_rows(design=MIXNET).records:
        gbps = float(row["gbps"])
        fat_tree_usd, topoopt_usd, mixnet_usd = (
            compute_network_usd(design, gbps) for design in (FAT_TREE, TOPOOPT, MIXNET)
        )
        cost_ratio = fat_tree_usd / mixnet_usd
        ratios = (cost_ratio / float(row[column]) for column in ("published_ratio", "our_ratio"))
        rows.append((row["model"], gbps, fat_tree_usd, topoopt_usd, mixnet_usd, *ratios))
    progress(len(rows), len(rows), "costs")
    return Table.from_rows(_COLUMNS, rows)


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    return tuple(_yield_comparisons(table))


def _yield_comparisons(table: Table) -> Iterator[Comparison]:
    for gbps in table.list_values("gbps"):
        if gbps not in CLAIMED_RATIOS:
            continue
        rows_at_rate = table.select_rows(gbps=gbps)
        for column, times_label in (("published_ratio", "published times"), ("our_ratio", "our times")):
            for name, choose_extreme, claimed_ratio, corrected_ratio in zip(
                ("least", "most"),
                (min, max),
                CLAIMED_RATIOS[int(gbps)],
                CORRECTED_RATIOS[int(gbps)],
                strict=True,
            ):
                note = f"from {times_label}; {corrected_ratio} by the corrected formula from published times"
                yield Comparison(
                    f"performance per dollar over a fat-tree, {gbps:g} Gbit/s, {name}",
                    PublishedValue(f"{claimed_ratio}", "A", claimed_ratio),
                    choose_extreme(rows_at_rate.get_numbers(column)),
                    note,
                )


def _make_plot(table: Table) -> Plot:
    first_model = table.select_rows(model=table.list_values("model")[0])
    rates = tuple(f"{gbps:g}" for gbps in first_model.get_numbers("gbps"))
    costs = tuple(
        Series(name, rates, tuple(usd / 1e6 for usd in first_model.get_numbers(column)))
        for name, column in (
            (FAT_TREE, "fat_tree_usd"),
            (MIXNET, "mixnet_usd"),
            (TOPOOPT, "topoopt_usd"),
        )
    )
    panels = [Panel("128 servers", "Gbit/s of a NIC", "million US dollars", costs, "bars")]
    for column, title in (("published_ratio", "published times"), ("our_ratio", "our times")):
        series = tuple(
            Series(str(model), rates, table.select_rows(model=model).get_numbers(column))
            for model in table.list_values("model")
        )
        panels.append(Panel(title, "Gbit/s of a NIC", "performance per dollar / fat-tree", series, "bars"))
    return Plot("Cost, and performance per dollar of MixNet", tuple(panels))


FIGURE = Figure(2, "Cost and performance per dollar", _make_table, _compare_with_paper, _make_plot)
