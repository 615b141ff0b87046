"""Rail-only networks (Wang et al., HotI 2024): parts, collectives, iteration times and traffic of large GPT jobs.

| figure | module | contents |
|---|---|---|
| 1 | `network_parts` | switches and transceivers of table II, and the savings of a rail-only network |
| 2 | `all_to_all` | the extra time of an all-to-all, by formula and simulated |
| 3 | `iteration_times` | four GPT jobs: published times, and our times with an efficiency fitted to one job |
| 4 | `traffic` | bytes of a GPT with 1T parameters, by kind and by pair of GPUs |
| 5 | `sweeps` | iteration time over domain size, bandwidths and batch |
| 6 | `several_jobs` | jobs as rectangles of domains by rails, alone, together, and on GPUs at random |

The published numbers come from the authors' slides: we do not have the paper's figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from testbed.design.reproductions.figure import Figure, Table
from testbed.design.reproductions.rail_only.setup import Scale

MODULES = {
    1: "network_parts",
    2: "all_to_all",
    3: "iteration_times",
    4: "traffic",
    5: "sweeps",
    6: "several_jobs",
}


def load_figure(number: int) -> Figure[Scale]:
    """Return a figure by its number. Raises `ValueError` if we do not reproduce it."""
    if number not in MODULES:
        raise ValueError(
            f"figure {number} of rail-only is not reproduced: choose from {', '.join(map(str, MODULES))}"
        )
    reproduced: Figure[Scale] = import_module(f"{__name__}.{MODULES[number]}").FIGURE
    return reproduced


def describe(tables: Mapping[int, Table]) -> dict[str, Any]:
    """Return the given tables, which are keyed by figure number, as sections of a JSON document."""
    sections: dict[str, Any] = {}
    if 1 in tables:
        rows = tables[1].records
        count_columns = ("gpus", "radix", "design", "switches", "transceivers")
        sections["counts"] = [{key: _convert_whole_number(row[key]) for key in count_columns} for row in rows]
        saving_columns = ("gpus", "radix", "cost_saved", "power_saved")
        sections["savings"] = [
            {
                key: _convert_whole_number(row[key]) if key in count_columns else row[key]
                for key in saving_columns
            }
            for row in rows
            if row["design"] == "rail-only"
        ]
    if 2 in tables:
        sections["all_to_all"] = [dict(row) for row in tables[2].records]
    if 3 in tables:
        from testbed.design.reproductions.rail_only.iteration_times import select_main_fit

        sections["iterations"] = [
            {**row, "recalled": True, "difference": float(row["ours_s"]) / float(row["published_s"]) - 1}
            for row in select_main_fit(tables[3]).records
        ]
        sections["fits"] = [dict(row) for row in tables[3].records]
    if 4 in tables:
        sections["traffic"] = _describe_traffic(tables[4])
    if 5 in tables:
        sections["sweeps"] = [dict(row) for row in tables[5].records]
    if 6 in tables:
        from testbed.design.reproductions.rail_only.several_jobs import describe_tiling

        sections["rectangles"] = describe_tiling(tables[6])
    return sections


def _convert_whole_number(cell: str | float) -> str | int:
    return cell if isinstance(cell, str) else int(cell)


def _describe_traffic(table: Table) -> dict[str, Any]:
    """Return for each model the gigabytes per GPU by kind, the tensor-parallel share, and the share of silent pairs."""
    sections = {}
    for model in table.list_values("model"):
        model_table = table.select_rows(model=model)
        gb_by_kind = dict(
            zip(map(str, model_table.list_values("kind")), model_table.get_numbers("gb_per_gpu"), strict=True)
        )
        gpus = model_table.get_numbers("gpus")[0]
        sections[str(model)] = {
            "gpus": int(gpus),
            "gb_per_gpu": gb_by_kind,
            "tensor_share": gb_by_kind["tensor"] / sum(gb_by_kind.values()),
            "silent_pairs": 1 - sum(model_table.get_numbers("pairs_per_gpu")) / (gpus - 1),
        }
    return sections
