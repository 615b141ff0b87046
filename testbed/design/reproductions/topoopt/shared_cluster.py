"""Figure 16: many jobs on one cluster, each on its own servers.

TopoOpt gives every job its own topology over its servers, so jobs do not affect each other. On Fat-trees jobs share the
links above the edge: they run on random servers, as a scheduler would find them free, and each flow takes a path by its
hash, as with ECMP and in the paper's packet simulator.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from sim.models.network.allreduce.fluid import plan_fluid_ring
from sim.models.network.execution import simulate
from sim.models.network.fabrics import Fabric, make_fat_tree
from testbed.design.fabrics.fat_tree import compute_equal_cost_gbps
from testbed.design.reproductions.figure import (
    Cell,
    Comparison,
    Figure,
    Panel,
    Plot,
    Progress,
    PublishedValue,
    Table,
    make_series,
)
from testbed.design.reproductions.topoopt.jobs import (
    NIC_ONCE,
    READINGS,
    ROUNDING,
    make_default_job,
    simulate_job,
)
from testbed.design.reproductions.topoopt.setup import Scale
from testbed.design.sharing.joined_jobs import PlacedJob, chain_iterations

Floats = NDArray[np.float64]

MODEL_FRACTIONS = {"dlrm": 0.35, "bert": 0.30, "candle": 0.25, "vgg16": 0.10}
"""Shares of the models among jobs, from the text of the paper. Its released sampler uses other shares."""
DEGREE = 8
RATE_GBPS = 100.0
_FABRICS = ("TopoOpt", *READINGS, "oversubscribed Fat-tree")
_COLUMNS = ("jobs", "fabric", "mean_ms", "p99_ms")


@cache
def compute_solo_s(model: str, fabric: str, node_count: int) -> float:
    """Return the seconds of an iteration of a job that shares no link."""
    return simulate_job(make_default_job(model, node_count, "fig16"), fabric, DEGREE, RATE_GBPS).iteration_s


@cache
def _make_fat_tree(fabric: str, node_count: int, seed: int) -> Fabric:
    if fabric in READINGS:
        host_gbps = compute_equal_cost_gbps(node_count, DEGREE, RATE_GBPS, READINGS[fabric])
        return make_fat_tree(node_count, host_gbps, balance="hash", seed=seed)
    return make_fat_tree(node_count, DEGREE * RATE_GBPS, oversubscription=2.0, balance="hash", seed=seed)


def draw_models(job_count: int, seed: int) -> list[str]:
    """Draw the models of `job_count` jobs. With the same seed, a shorter list is the start of a longer one."""
    rng = np.random.default_rng([seed, 0])
    return [
        str(name) for name in rng.choice(list(MODEL_FRACTIONS), job_count, p=list(MODEL_FRACTIONS.values()))
    ]


def simulate_shared_cluster_s(scale: Scale, job_count: int, fabric: str, seed: int) -> Floats:
    """Return the iteration times of jobs on a Fat-tree in seconds, shape (jobs * iterations,)."""
    rng = np.random.default_rng([seed, 1])
    servers = rng.permutation(scale.shared_node_count)[: job_count * scale.job_node_count].reshape(
        job_count, -1
    )
    placed_jobs = [
        PlacedJob(
            make_default_job(model, scale.job_node_count, "fig16").graph,
            np.sort(own_servers),
            float(rng.random()) * compute_solo_s(model, fabric, scale.job_node_count),
        )
        for model, own_servers in zip(draw_models(job_count, seed), servers, strict=True)
    ]
    chained_iterations = chain_iterations(scale.shared_node_count, placed_jobs, scale.iteration_count)
    tree = _make_fat_tree(fabric, scale.shared_node_count, seed)
    return chained_iterations.compute_iteration_s(
        simulate(chained_iterations.graph, tree, allreduce=plan_fluid_ring, rounding=ROUNDING)
    ).ravel()


def _make_table(scale: Scale, progress: Progress) -> Table:
    cases = [(job_count, fabric) for job_count in scale.job_counts for fabric in _FABRICS]
    rows: list[tuple[Cell, ...]] = []
    for number, (job_count, fabric) in enumerate(cases, 1):
        if fabric == "TopoOpt":
            models = [model for seed in range(scale.seed_count) for model in draw_models(job_count, seed)]
            times_s = np.array([compute_solo_s(model, fabric, scale.job_node_count) for model in models])
        else:
            times_s = np.concatenate(
                [
                    simulate_shared_cluster_s(scale, job_count, fabric, seed)
                    for seed in range(scale.seed_count)
                ]
            )
        times_ms = times_s * 1e3
        rows.append((job_count, fabric, float(times_ms.mean()), float(np.percentile(times_ms, 99))))
        progress(number, len(cases), f"{job_count} jobs, {fabric}")
    return Table.from_rows(_COLUMNS, rows)


def compute_time_ratio(table: Table, column: str, job_count: float, fabric: str) -> float:
    """Return the time in `column` on a fabric divided by the time on TopoOpt."""
    rows_of_job_count = table.select_rows(jobs=job_count)
    return rows_of_job_count.get_number(column, fabric=fabric) / rows_of_job_count.get_number(
        column, fabric="TopoOpt"
    )


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    max_jobs, min_jobs = max(table.get_numbers("jobs")), min(table.get_numbers("jobs"))
    price_note, chance_note = "the prices set its rate", "paths by hash, servers at random"
    return (
        *(
            _compute_ratio_to_topoopt(
                table, "mean", max_jobs, tree, PublishedValue("1.7 x", "S", 1.7), price_note
            )
            for tree in READINGS
        ),
        _compute_ratio_to_topoopt(
            table,
            "mean",
            max_jobs,
            "oversubscribed Fat-tree",
            PublishedValue("1.15 x", "S", 1.15),
            chance_note,
        ),
        *(
            _compute_ratio_to_topoopt(
                table, "p99", max_jobs, tree, PublishedValue("up to 3.4 x", "S", 3.4), price_note
            )
            for tree in READINGS
        ),
        *(
            Comparison(
                f"p99, {tree} over TopoOpt, the most of all loads",
                PublishedValue("3.4 x", "S", 3.4),
                max(compute_time_ratio(table, "p99_ms", jobs, tree) for jobs in table.get_numbers("jobs")),
                "",
                " x",
            )
            for tree in ("Fat-tree", f"Fat-tree, {NIC_ONCE}")
        ),
        _compute_time_on_topoopt(
            table, "mean", min_jobs, 64.4, "released results; the mix drawn there is 35/42/20/2 %"
        ),
        _compute_time_on_topoopt(table, "mean", max_jobs, 60.4, "as above"),
        _compute_time_on_topoopt(table, "p99", max_jobs, 131.5, "as above"),
    )


def _compute_ratio_to_topoopt(
    table: Table, statistic: str, job_count: float, fabric: str, published: PublishedValue, note: str
) -> Comparison:
    quantity = f"{statistic}, {fabric} over TopoOpt, {job_count:g} jobs"
    return Comparison(
        quantity, published, compute_time_ratio(table, f"{statistic}_ms", job_count, fabric), note, " x"
    )


def _compute_time_on_topoopt(
    table: Table, statistic: str, job_count: float, released_ms: float, note: str
) -> Comparison:
    published = PublishedValue(f"{released_ms:g} ms", "C", released_ms)
    ours_ms = table.get_number(f"{statistic}_ms", jobs=job_count, fabric="TopoOpt")
    return Comparison(f"{statistic} on TopoOpt, {job_count:g} jobs", published, ours_ms, note, " ms")


def _make_plot(table: Table) -> Plot:
    panels = tuple(
        Panel(
            title,
            "number of jobs (16 servers each)",
            "iteration time (ms)",
            make_series(table, "fabric", "jobs", column),
        )
        for title, column in (("mean", "mean_ms"), ("99th percentile", "p99_ms"))
    )
    return Plot("Shared cluster of 432 servers", panels)


FIGURE = Figure(16, "Shared cluster", _make_table, _compare_with_paper, _make_plot)
