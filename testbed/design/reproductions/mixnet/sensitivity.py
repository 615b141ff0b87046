"""Figure 3: how each assumed parameter, varied alone, changes the differences of figure 1. It tunes no parameter.

A parameter varies only in the models for which it is assumed. Values of the public simulator stay fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from testbed.design.reproductions.figure import (
    UNPUBLISHED,
    Comparison,
    Figure,
    Panel,
    Plot,
    Progress,
    Series,
    Table,
)
from testbed.design.reproductions.mixnet.iteration_times import (
    compute_median_difference,
    compute_times,
    count_topoopt_slowest,
    find_worst_record,
)
from testbed.design.reproductions.mixnet.model import DESIGNS
from testbed.design.reproductions.mixnet.models import JOBS, SETTING, MoeJob, Setting
from testbed.design.reproductions.mixnet.setup import Scale

BASE_VALUE = "as assumed"


@dataclass(frozen=True, slots=True)
class Variant:
    """A parameter with another value: `make_changes` returns new fields of a job, `setting` replaces the default."""

    parameter: str
    value: str
    make_changes: Callable[[MoeJob], dict[str, Any]] = lambda _job: {}
    setting: Setting = SETTING

    def make_jobs(self) -> tuple[MoeJob, ...]:
        """Return the jobs. A job changes only if all changed fields are assumed."""
        return tuple(_change_assumed(job, self.make_changes(job)) for job in JOBS)


def _change_assumed(job: MoeJob, changes: dict[str, Any]) -> MoeJob:
    sources = dict(job.sources)
    return replace(job, **changes) if all(sources[name] == "assumed" for name in changes) else job


def _scale_field(name: str, factor: float) -> Variant:
    return Variant(name, f"x {factor:g}", lambda job: {name: max(1, round(getattr(job, name) * factor))})


def _set_field(name: str, value: Any) -> Variant:
    return Variant(name, f"{value:g}", lambda _job: {name: value})


def _set_device_field(name: Literal["attained_flops", "peak_flops"], value: float) -> Variant:
    def change(job: MoeJob) -> dict[str, Any]:
        changes: dict[str, Any] = {name: value}
        return {"device": replace(job.device, **changes)}

    return Variant(f"device: {name}", f"{value:g}", change)


def _set_network_field(name: str, value: Any) -> Variant:
    return Variant(name, str(value), setting=replace(SETTING, **{name: value}))


VARIANTS = (
    Variant(BASE_VALUE, ""),
    *(_set_field("skew", skew) for skew in (0.0, 0.6, 1.0)),
    *(_scale_field("sequence", factor) for factor in (0.5, 2)),
    *(_scale_field("sequences", factor) for factor in (0.25, 2)),
    *(_scale_field("microbatches", factor) for factor in (0.5, 4)),
    Variant("tp, dp", "tp / 2, dp x 2", lambda job: {"tp": job.tp // 2, "dp": 2 * job.dp}),
    Variant("tp, dp", "tp x 2, dp / 2", lambda job: {"tp": 2 * job.tp, "dp": job.dp // 2}),
    Variant("pp, dp", "pp / 2, dp x 2", lambda job: {"pp": job.pp // 2, "dp": 2 * job.dp}),
    Variant("pp, dp", "pp x 2, dp / 2", lambda job: {"pp": 2 * job.pp, "dp": job.dp // 2}),
    Variant("ep, dp", "ep / 2, dp x 2", lambda job: {"ep": job.ep // 2, "dp": 2 * job.dp}),
    *(_set_device_field("attained_flops", share) for share in (0.3, 0.8)),
    _set_device_field("peak_flops", 989e12),
    _set_network_field("ring_ports", 2),
    _set_network_field("bytes_per_value", 4),
    _set_network_field("policy", "per-layer"),
    _set_network_field("policy", "per-iteration"),
    *(_set_network_field("seed", seed) for seed in (1, 2)),
    _set_network_field("by_member", True),
    Variant("by_member, skew", "True, 1", lambda _job: {"skew": 1.0}, replace(SETTING, by_member=True)),
    *(_set_network_field("reconfiguration_s", delay_s) for delay_s in (0.0, 0.1)),
    Variant(
        "by_member, skew, reconfiguration_s",
        "True, 1, 0",
        lambda _job: {"skew": 1.0},
        replace(SETTING, by_member=True, reconfiguration_s=0.0),
    ),
)
"""The first variant has the assumed values. The last variants change the reference's dark time, to show its effect."""

_RATIOS = tuple(f"ratio_{design.lower().replace('-', '_')}" for design in DESIGNS[1:])
_COLUMNS = (
    "parameter",
    "value",
    "median_difference",
    "worst_difference",
    "worst",
    "topoopt_last",
    "of",
    *_RATIOS,
)


def _make_table(scale: Scale, progress: Progress) -> Table:
    rows = []
    for index, variant in enumerate(VARIANTS):
        table = compute_times(variant.make_jobs(), variant.setting, scale.rates_gbps)
        worst_case = find_worst_record(table)
        ratios = (
            float(np.median(table.select_rows(design=design).get_numbers("our_ratio")))
            for design in DESIGNS[1:]
        )
        rows.append(
            (
                *(variant.parameter, variant.value, compute_median_difference(table)),
                *(
                    worst_case["ratio_difference"],
                    f"{worst_case['model']} {worst_case['gbps']:g} {worst_case['design']}",
                ),
                *(*count_topoopt_slowest(table), *ratios),
            )
        )
        progress(index + 1, len(VARIANTS), f"{variant.parameter} {variant.value}")
    return Table.from_rows(_COLUMNS, rows)


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    return tuple(
        Comparison(
            f"median difference, {row['parameter']} {row['value']}".strip(),
            UNPUBLISHED,
            100 * float(row["median_difference"]),
            f"worst {100 * float(row['worst_difference']):+.0f} % ({row['worst']}); TopoOpt last in "
            f"{row['topoopt_last']:g} of {row['of']:g}; median ratios "
            + ", ".join(f"{float(row[name]):.3f}" for name in _RATIOS),
            " %",
        )
        for row in table.records
    )


def _make_plot(table: Table) -> Plot:
    rows = tuple(float(index + 1) for index in range(len(table.rows)))
    medians = tuple(100 * difference for difference in table.get_numbers("median_difference"))
    ratios = tuple(
        Series(design, rows, table.get_numbers(name))
        for design, name in zip(DESIGNS[1:], _RATIOS, strict=True)
    )
    panels = (
        Panel(
            "Difference from the published ratios",
            "row of the table",
            "per cent",
            (Series("median", rows, medians),),
        ),
        Panel("Median ratio to the fat-tree", "row of the table", "ratio", ratios),
    )
    return Plot("Sensitivity to the assumed parameters", panels)


FIGURE = Figure(3, "Sensitivity to the assumed parameters", _make_table, _compare_with_paper, _make_plot)
