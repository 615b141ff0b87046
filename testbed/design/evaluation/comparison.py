"""Comparison of one job on many fabrics: iteration time and cost of each fabric, as rows and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lightbed.output_file import save_figure
from lightbed.wording import describe_extra
from testbed.design.evaluation.job import Job
from testbed.design.evaluation.simulation import compute_figures, simulate_on
from testbed.design.fabrics.fabric_list import FABRICS, find_kind, has_gpu_nodes, is_switched
from testbed.design.fabrics.kind import DEFAULT_OPTIONS, ChosenFabric, FabricOptions
from testbed.errors import TopologyError, WorkloadError

EQUAL_COST = "fattree-equal-cost"
COMPARED_FABRICS = (
    "ideal",
    "fattree",
    EQUAL_COST,
    *(name for name in FABRICS if name not in ("ideal", "fattree")),
)
"""Names that can be compared. The Fat-tree appears twice: at the rate of direct connect, and at its cost."""


@dataclass(frozen=True, slots=True)
class FabricResult:
    """Result on one fabric. `slowdown` is relative to the ideal switch. `failure` tells why there is no result."""

    name: str
    host_gbps: float = 0.0
    slowdown: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)
    failure: str = ""

    @property
    def basis(self) -> str:
        """The quantity that the fabric shares with direct connect: the total `rate` of a host, or the `cost`."""
        return "cost" if self.name == EQUAL_COST else "rate"

    def make_cells(self) -> list[object]:
        """Return the cells of the printed table."""
        if self.failure:
            return [self.name, *["-"] * 6]
        figures = self.figures
        times = [f"{self.host_gbps:.1f}", f"{figures['iteration_ms']:.3f}", f"{self.slowdown:.3f}"]
        return [
            self.name,
            f"equal {self.basis}",
            *times,
            f"{figures['bandwidth_tax']:.3f}",
            f"{figures['cost_usd']:,}",
        ]


def parse_fabric_names(text: str, *, hosts_are_gpus: bool = False) -> tuple[str, ...]:
    """Return the fabric names in `text`, which is `"all"` or a comma-separated list.

    `"all"` selects the fabrics for servers. With `hosts_are_gpus`, it selects all fabrics but the Fat-tree of equal
    cost. Raises `TopologyError` for an unknown name.
    """
    if text == "all":
        return tuple(
            name
            for name in COMPARED_FABRICS
            if (name != EQUAL_COST if hosts_are_gpus else not has_gpu_nodes(name))
        )
    names = tuple(text.split(","))
    unknown_names = [name for name in names if name not in COMPARED_FABRICS]
    if unknown_names:
        raise TopologyError(
            f"unknown fabric {unknown_names[0]!r}: choose all, or from {', '.join(COMPARED_FABRICS)}"
        )
    return names


def compare_fabrics(
    job: Job,
    names: Sequence[str],
    degree: int,
    rate_gbps: float,
    options: FabricOptions = DEFAULT_OPTIONS,
    *,
    skip_slow: bool = False,
) -> tuple[FabricResult, ...]:
    """Return a row for each name, in order.

    If the job does not run on a fabric, its row holds the failure. With `skip_slow`, the rows of fabrics that would
    take minutes hold a failure, too, see `FabricKind.max_compared_hosts`. Raises `TopologyError` or `WorkloadError` if
    the job does not run on the ideal switch, to which all fabrics are compared.
    """

    def build_compared_fabric(name: str) -> ChosenFabric:
        is_equal_cost = name == EQUAL_COST
        # The GPUs of a host share its links, unless each has its own link to a switch.
        is_shared = options.hb_domain > 1 and not (is_equal_cost or is_switched(name))
        link_gbps = rate_gbps * options.hb_domain if is_shared else rate_gbps
        return job.build_fabric(
            "fattree" if is_equal_cost else name, degree, link_gbps, options, equal_cost=is_equal_cost
        )

    host_count = job.graph.node_count // options.hb_domain

    def make_row(name: str) -> FabricResult:
        kind = find_kind(name)
        max_hosts = kind.max_compared_hosts if kind else None
        if skip_slow and max_hosts is not None and host_count > max_hosts:
            return FabricResult(
                name, failure=f"takes minutes beyond {max_hosts} servers: name it in --fabrics"
            )
        try:
            return _simulate_row(name, build_compared_fabric(name), job)
        except (TopologyError, WorkloadError) as error:
            return FabricResult(name, failure=str(error))

    ideal_row = _simulate_row("ideal", build_compared_fabric("ideal"), job)
    row_by_name = {name: ideal_row if name == "ideal" else make_row(name) for name in names}
    return tuple(_compare_with_ideal(row_by_name[name], ideal_row.figures["iteration_ms"]) for name in names)


def _simulate_row(name: str, chosen_fabric: ChosenFabric, job: Job) -> FabricResult:
    return FabricResult(
        name,
        chosen_fabric.host_gbps,
        figures=compute_figures(chosen_fabric, simulate_on(chosen_fabric, job.graph), job.arithmetic_s),
    )


def _compare_with_ideal(row: FabricResult, ideal_ms: float) -> FabricResult:
    if row.failure:
        return row
    return replace(row, slowdown=row.figures["iteration_ms"] / ideal_ms if ideal_ms else 1.0)


def draw_comparison(rows: Sequence[FabricResult], path: str | Path, title: str) -> None:
    """Draw iteration times and costs as a bar chart. Raises `WorkloadError` without matplotlib, and `OSError`."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise WorkloadError(f"the plot {path} needs matplotlib: {describe_extra('kit')}") from error
    shown_rows = [row for row in rows if not row.failure][::-1]
    figure = Figure(figsize=(9, 1.2 + 0.5 * len(shown_rows)), layout="constrained")
    axes = figure.subplots()
    iteration_ms = [row.figures["iteration_ms"] for row in shown_rows]
    compute_ms = [row.figures["compute_ms"] for row in shown_rows]
    axes.barh([row.name for row in shown_rows], iteration_ms, color="#4c72b0", label="iteration")
    axes.barh(
        [row.name for row in shown_rows],
        compute_ms,
        color="#c7d3e8",
        label="of it the busiest device's computing",
    )
    for bar_index, row in enumerate(shown_rows):
        text = f" {iteration_ms[bar_index]:.1f} ms, {row.slowdown:.2f}x, {row.figures['cost_usd']:,} USD"
        axes.text(iteration_ms[bar_index], bar_index, text, va="center", fontsize=8)
    axes.set_xlim(0, max(iteration_ms, default=1.0) * 1.4)
    axes.set_xlabel("ms an iteration")
    axes.set_title(title, fontsize=10)
    axes.legend(loc="lower right", fontsize=8)
    save_figure(figure, path)
