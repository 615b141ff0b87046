"""Figure 2: an all-to-all without a spine, by the published formula and simulated (in one step and in two)."""

from __future__ import annotations

from sim.models.network.execution import simulate
from sim.models.network.fabrics import Fabric, make_rail_only, make_rail_optimized
from sim.models.network.latency import NO_LATENCY
from sim.models.network.taskgraph import TaskGraph, TaskGraphBuilder
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
from testbed.design.reproductions.rail_only.model import DGX_A100, DGX_H100, Platform, compute_slowdown
from testbed.design.reproductions.rail_only.setup import Scale

PUBLISHED = {DGX_A100.name: 8.2, DGX_H100.name: 11.2}
"""Extra time of an all-to-all in per cent (slides and abstract), for an unstated number of domains."""

PUBLISHED_DOMAIN_COUNT = 8
ALL_TO_ALL_SHARE = 0.27
"""Share of all-to-alls in the bytes of a mixture of experts (slides)."""

_PAIR_BYTES = 100_000
_COLUMNS = ("platform", "domains", "formula", "two_steps", "one_step")


def _make_table(scale: Scale, progress: Progress) -> Table:
    cases = [
        (platform, domain_count) for platform in (DGX_A100, DGX_H100) for domain_count in scale.domain_counts
    ]
    rows = []
    for number, (platform, domains) in enumerate(cases, 1):
        gpu_count = domains * platform.domain
        domain_and_rates = platform.domain, platform.rail_gbps, platform.domain_gbps
        spine_s = _simulate_s(
            _make_one_step_graph(gpu_count), make_rail_optimized(gpu_count, *domain_and_rates)
        )
        two_steps_s = _simulate_s(
            _make_two_step_graph(gpu_count, platform), make_rail_only(gpu_count, *domain_and_rates)
        )
        one_step_s = _simulate_s(
            _make_one_step_graph(gpu_count), make_rail_only(gpu_count, *domain_and_rates)
        )
        formula_slowdown = compute_slowdown(platform.domain, domains, platform)
        rows.append(
            (platform.name, domains, formula_slowdown, two_steps_s / spine_s - 1, one_step_s / spine_s - 1)
        )
        progress(number, len(cases), f"{platform.name}, {domains} domains")
    return Table.from_rows(_COLUMNS, rows)


def _simulate_s(graph: TaskGraph, fabric: Fabric) -> float:
    return simulate(graph, fabric, latency=NO_LATENCY).iteration_s


def _make_one_step_graph(gpu_count: int) -> TaskGraph:
    """Return an all-to-all that sends every message directly, on the fabric's own routes."""
    builder = TaskGraphBuilder(gpu_count)
    for source in range(gpu_count):
        for target in range(gpu_count):
            if source != target:
                builder.add_transfer(source, target, _PAIR_BYTES)
    return builder.build()


def _make_two_step_graph(gpu_count: int, platform: Platform) -> TaskGraph:
    """Return the all-to-all of the formula: rails bring all messages to a domain, then the domain spreads them."""
    builder, domain_size = TaskGraphBuilder(gpu_count), platform.domain
    rail_transfers = [
        builder.add_transfer(source, target, domain_size * _PAIR_BYTES)
        for source in range(gpu_count)
        for target in range(source % domain_size, gpu_count, domain_size)
        if source != target
    ]
    barrier = [builder.add_barrier(predecessors=rail_transfers)]
    for source in range(gpu_count):
        first_gpu = source // domain_size * domain_size
        for target in range(first_gpu, first_gpu + domain_size):
            if source != target:
                builder.add_transfer(
                    source, target, gpu_count // domain_size * _PAIR_BYTES, predecessors=barrier
                )
    return builder.build()


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    lines = []
    for name, published in PUBLISHED.items():
        platform_table = table.select_rows(platform=name)
        domains = (
            PUBLISHED_DOMAIN_COUNT
            if PUBLISHED_DOMAIN_COUNT in platform_table.list_values("domains")
            else platform_table.list_values("domains")[-1]
        )
        row = platform_table.select_rows(domains=domains)
        note = f"{domains:g} domains; the published number of domains is not known"
        formula_percent = 100 * row.get_number("formula")
        lines += [
            Comparison(
                f"{name}: extra time of the all-to-all, by formula",
                PublishedValue(f"{published} %", "S", published),
                formula_percent,
                note,
                " %",
            ),
            Comparison(
                f"{name}: the same, simulated in two steps",
                UNPUBLISHED,
                100 * row.get_number("two_steps"),
                "",
                " %",
            ),
            Comparison(
                f"{name}: the same, simulated in one step",
                UNPUBLISHED,
                100 * row.get_number("one_step"),
                "GPUs that forward while they receive lose nothing",
                " %",
            ),
            Comparison(
                f"{name}: extra time of the traffic of a mixture of experts",
                UNPUBLISHED,
                ALL_TO_ALL_SHARE * formula_percent,
                "27 % of its traffic is all-to-all",
                " %",
            ),
        ]
    return tuple(lines)


def _make_plot(table: Table) -> Plot:
    names = {"formula": "formula", "two_steps": "simulated in two steps", "one_step": "simulated in one step"}
    rows = [
        (row["platform"], row["domains"], label, 100 * float(row[name]))
        for row in table.records
        for name, label in names.items()
    ]
    per_cent = Table.from_rows(("platform", "domains", "how", "longer"), rows)
    panels = tuple(
        Panel(
            str(name),
            "domains of 8 GPUs",
            "longer than with a spine (%)",
            make_series(per_cent.select_rows(platform=name), "how", "domains", "longer"),
        )
        for name in table.list_values("platform")
    )
    return Plot("All-to-all without a spine", panels, max_columns=2)


FIGURE = Figure(2, "All-to-all without a spine", _make_table, _compare_with_paper, _make_plot)
