"""Figure 6: several jobs in a rail-only cluster, simulated on rectangles of GPUs and on random GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sim.models.network.allreduce.domains import reduce_over_domains
from sim.models.network.execution import simulate
from sim.models.network.fabrics import make_rail_only
from sim.models.network.latency import NO_LATENCY
from sim.models.network.taskgraph import TaskGraphBuilder
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
from testbed.design.reproductions.rail_only.model import DGX_A100
from testbed.design.reproductions.rail_only.setup import Scale
from testbed.design.sharing.rectangles import RailCluster, RailJob, Rectangle, tile_jobs

CLUSTER = RailCluster(16, DGX_A100.domain)
JOBS = (
    RailJob("T64", 64, tensor_degree=8),
    RailJob("T24", 24, tensor_degree=4),
    RailJob("T12", 12, tensor_degree=2),
    RailJob("T6", 6),
    RailJob("S8", 8, tensor_degree=8, is_serving=True),
    RailJob("S4", 4, tensor_degree=4, is_serving=True),
    RailJob("S2", 2, tensor_degree=2, is_serving=True),
    RailJob("S16", 16, tensor_degree=8, is_serving=True),
)
"""Training (T) and serving (S) jobs on 16 DGX A100, named by their GPUs. We chose them: no source lists any."""

TENSOR_BYTES, GRADIENT_BYTES = 25_000_000, 100_000_000
"""Bytes of the AllReduce of a tensor-parallel and of a data-parallel group. We chose them."""
SEED = 1
"""Seed of the random placement."""

Groups = tuple[tuple[int, ...], ...]
_COLUMNS = (
    *("job", "gpus", "tensor", "serves", "first_domain", "first_rail", "domains", "rails"),
    *("alone_ms", "together_ms", "random_ms", "reason"),
)


def _make_table(_scale: Scale, progress: Progress) -> Table:
    tiling = tile_jobs(CLUSTER, JOBS)
    random_order = np.random.default_rng(SEED).permutation(CLUSTER.gpu_count)
    placed_groups = [
        (rectangle.list_tensor_groups(CLUSTER), rectangle.list_data_groups(CLUSTER))
        for rectangle in tiling.rectangles
    ]
    # The same groups with permuted GPUs.
    scattered_groups = [
        tuple(tuple(tuple(int(random_order[gpu]) for gpu in group) for group in groups) for groups in job)
        for job in placed_groups
    ]
    joint_ms, scattered_ms = _compute_end_ms(placed_groups), _compute_end_ms(scattered_groups)
    progress(2, 3, "all jobs at once")
    rows = {
        rectangle.job.name: (
            *(rectangle.first_domain, rectangle.first_rail, rectangle.domains, rectangle.rails),
            *(_compute_end_ms([placed_groups[number]])[0], joint_ms[number], scattered_ms[number], ""),
        )
        for number, rectangle in enumerate(tiling.rectangles)
    }
    rows |= {name: (*(0,) * 7, reason) for name, reason in tiling.reason_by_unplaced_job.items()}
    progress(3, 3, "each job alone")
    return Table.from_rows(
        _COLUMNS,
        [
            (job.name, job.gpu_count, job.tensor_degree, "yes" if job.is_serving else "no", *rows[job.name])
            for job in JOBS
        ],
    )


def _compute_end_ms(groups_by_job: Sequence[tuple[Groups, ...]]) -> list[float]:
    """Return when each job ends, in ms. A job runs the AllReduces of its tensor groups, then of its data groups."""
    builder = TaskGraphBuilder(CLUSTER.gpu_count)
    tasks_of_jobs = []
    for tensor_groups, data_groups in groups_by_job:
        tensor_tasks = [
            builder.add_allreduce(group, TENSOR_BYTES) for group in tensor_groups if len(group) > 1
        ]
        data_tasks = [
            builder.add_allreduce(group, GRADIENT_BYTES, predecessors=tensor_tasks)
            for group in data_groups
            if len(group) > 1
        ]
        tasks_of_jobs.append([*tensor_tasks, *data_tasks])
    fabric = make_rail_only(CLUSTER.gpu_count, CLUSTER.rails, DGX_A100.rail_gbps, DGX_A100.domain_gbps)
    execution = simulate(
        builder.build(), fabric, latency=NO_LATENCY, allreduce=reduce_over_domains(CLUSTER.rails)
    )
    return [1e3 * max(float(execution.end_s[task]) for task in tasks) for tasks in tasks_of_jobs]


def _find_worst_ratio(table: Table, column: str) -> float:
    """Return the largest ratio of a job's time in `column` to its time alone."""
    rows = [row for row in table.records if not row["reason"]]
    return max(float(row[column]) / float(row["alone_ms"]) for row in rows)


def _count_gpus_in_use(table: Table) -> float:
    return sum(float(row["gpus"]) for row in table.records if not row["reason"])


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    unplaced_text = "; ".join(f"{row['job']}: {row['reason']}" for row in table.records if row["reason"])
    return (
        Comparison(
            "GPUs in use",
            UNPUBLISHED,
            100 * _count_gpus_in_use(table) / CLUSTER.gpu_count,
            unplaced_text,
            " %",
        ),
        Comparison(
            "rectangles: longest time together, over alone",
            UNPUBLISHED,
            _find_worst_ratio(table, "together_ms"),
            "the slides tile the cluster, without numbers",
        ),
        Comparison(
            "GPUs at random: longest time together, over alone in a rectangle",
            UNPUBLISHED,
            _find_worst_ratio(table, "random_ms"),
            "tensor parallelism leaves the domains, too",
        ),
    )


def describe_tiling(table: Table) -> Mapping[str, Any]:
    """Return the tiling as a section of a JSON document: cluster, utilisation, jobs.

    A job has its place, or the reason why it has none.
    """
    text_columns = ("job", "serves", "reason")
    jobs = []
    for row in table.records:
        keys = ("job", "gpus", "tensor", "serves", "reason") if row["reason"] else _COLUMNS[:-1]
        fields = {
            key: row[key] if key in text_columns or key.endswith("_ms") else int(row[key]) for key in keys
        }
        jobs.append({**fields, "serves": row["serves"] == "yes"})
    return {
        "domains": CLUSTER.domains,
        "rails": CLUSTER.rails,
        "utilisation": _count_gpus_in_use(table) / CLUSTER.gpu_count,
        "jobs": jobs,
    }


def _make_plot(table: Table) -> Plot:
    job_numbers = [[0.0] * CLUSTER.rails for _ in range(CLUSTER.domains)]
    placed_rows = [row for row in table.records if not row["reason"]]
    for number, row in enumerate(placed_rows, 1):
        bounds = (int(row[key]) for key in ("first_domain", "first_rail", "domains", "rails"))
        for gpu in Rectangle(JOBS[0], *bounds).find_gpus(CLUSTER):
            job_numbers[gpu // CLUSTER.rails][gpu % CLUSTER.rails] = float(number)
    rail_numbers = tuple(map(float, range(CLUSTER.rails)))
    tiles = tuple(Series(f"{domain}", rail_numbers, tuple(row)) for domain, row in enumerate(job_numbers))
    names = tuple(str(row["job"]) for row in placed_rows)
    bars = tuple(
        Series(label, names, tuple(float(row[key]) / float(row["alone_ms"]) for row in placed_rows))
        for label, key in (("rectangles", "together_ms"), ("GPUs at random", "random_ms"))
    )
    return Plot(
        "Several jobs on 16 domains of 8 GPUs",
        (
            Panel("rectangles, numbered by job", "rail", "domain", tiles, "tiles"),
            Panel("all together, over alone in a rectangle", "job", "ratio", bars, "bars"),
        ),
        max_columns=2,
    )


FIGURE = Figure(6, "Several jobs as rectangles", _make_table, _compare_with_paper, _make_plot)
