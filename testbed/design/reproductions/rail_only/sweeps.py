"""Figure 5: modelled iteration time of the GPT with 1T parameters, over domain size, bandwidths and batch."""

from __future__ import annotations

from dataclasses import replace

from testbed.design.reproductions.figure import (
    UNPUBLISHED,
    Comparison,
    Figure,
    Panel,
    Plot,
    Progress,
    Table,
    make_series,
)
from testbed.design.reproductions.rail_only.model import (
    DGX_A100,
    GPT_1T,
    GPT_310B,
    Accounting,
    Megatron,
    Platform,
    compute_iteration_s,
    fit_efficiency,
)
from testbed.design.reproductions.rail_only.setup import Scale

DOMAIN_SIZES = (8, 16, 32, 64, 128, 256, 512, 3072)
"""GPUs of a domain. The last value is the cluster as one domain, which the slides call ideal."""

TENSOR_WIDTHS = (8, 16, 32, 64)
"""Numbers of GPUs of a tensor-parallel group. Each point uses the fastest of these."""

RAIL_RATES_GBPS = (100.0, 200.0, 400.0, 800.0)
DOMAIN_GBPS = (1200.0, 2400.0, 3600.0)
BATCHES = (768, 1536, 3072, 6144)
_COLUMNS = ("sweep", "domain", "domain_gbps", "rail_gbps", "batch", "iteration_s")


def _make_table(_scale: Scale, progress: Progress) -> Table:
    assumptions = Accounting(fit_efficiency(GPT_310B, DGX_A100, 6, 2))
    rows = []

    def add_row(sweep: str, job: Megatron, platform: Platform) -> None:
        domain_and_rates = platform.domain, platform.domain_gbps, platform.rail_gbps
        rows.append((sweep, *domain_and_rates, job.batch, _find_best_s(job, platform, assumptions)))

    for domain in DOMAIN_SIZES:
        add_row("domain", GPT_1T, replace(DGX_A100, domain=domain))
    for domain in (8, 256):
        for domain_gbps in DOMAIN_GBPS:
            for rail_gbps in RAIL_RATES_GBPS:
                add_row("bandwidth", GPT_1T, Platform("", domain, domain_gbps, rail_gbps))
    for domain in (8, 256):
        for batch in BATCHES:
            add_row("batch", replace(GPT_1T, batch=batch), replace(DGX_A100, domain=domain))
    progress(len(rows), len(rows), "sweeps")
    return Table.from_rows(_COLUMNS, rows)


def _find_best_s(job: Megatron, platform: Platform, assumptions: Accounting) -> float:
    """Return the shortest iteration time over all tensor-parallel groups that fit in a domain.

    Groups that are k times as wide leave 1/k of the pipeline stages, so the number of GPUs stays the same.
    """
    widths = [width for width in TENSOR_WIDTHS if width <= platform.domain]
    candidates = [
        replace(job, tensor=tensor_width, pipeline=job.pipeline * job.tensor // tensor_width)
        for tensor_width in widths
    ]
    return min(compute_iteration_s(candidate, platform, assumptions) for candidate in candidates)


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    domain_sweep = table.select_rows(sweep="domain")
    ideal_s = domain_sweep.get_number("iteration_s", domain=DOMAIN_SIZES[-1])
    note = "the slides have the curves, but no values"
    return tuple(
        Comparison(
            f"iteration with domains of {domain:g} GPUs over that with one domain of all",
            UNPUBLISHED,
            domain_sweep.get_number("iteration_s", domain=domain) / ideal_s,
            note,
            " x",
        )
        for domain in domain_sweep.list_values("domain")
    )


def _make_plot(table: Table) -> Plot:
    domain_sweep = table.select_rows(sweep="domain")
    bandwidth_sweep = table.select_rows(sweep="bandwidth")
    panels = [
        Panel(
            "domain size",
            "GPUs of a domain",
            "iteration (s)",
            make_series(domain_sweep, "sweep", "domain", "iteration_s"),
            logarithmic="x",
        )
    ]
    panels += [
        Panel(
            f"domains of {size:g} GPUs",
            "rail (Gbit/s)",
            "iteration (s)",
            make_series(bandwidth_sweep.select_rows(domain=size), "domain_gbps", "rail_gbps", "iteration_s"),
            logarithmic="x",
        )
        for size in bandwidth_sweep.list_values("domain")
    ]
    panels.append(
        Panel(
            "batch",
            "samples of an iteration",
            "iteration (s)",
            make_series(table.select_rows(sweep="batch"), "domain", "batch", "iteration_s"),
            logarithmic="x",
        )
    )
    return Plot("Iteration of a GPT with 1T parameters, by the model", tuple(panels), max_columns=2)


FIGURE = Figure(5, "Sweeps of domain size, bandwidth and batch", _make_table, _compare_with_paper, _make_plot)
