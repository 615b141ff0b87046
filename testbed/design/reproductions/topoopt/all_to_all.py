"""Figure 12: iteration time of DLRM as the all-to-all of its tables grows with the batch."""

from __future__ import annotations

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
    TOPOOPT,
    make_all_to_all_job,
    simulate_all_to_all,
    simulate_job,
)
from testbed.design.reproductions.topoopt.setup import Scale
from testbed.design.workloads.iteration.totals import Traffic

RATE_GBPS = 100.0
TOPOOPT_SPLIT = "TopoOpt, links split by bytes"
_FABRICS = (TOPOOPT, TOPOOPT_SPLIT, "ideal switch", *READINGS)
_COLUMNS = ("degree", "batch", "all_to_all_share", "fabric", "iteration_ms")


def compute_all_to_all_share(job_traffic: Traffic) -> float:
    """Return the bytes of the all-to-all divided by the bytes of the reduced tensors, as the paper counts."""
    tensor_bytes = sum(size_bytes * len(group) for group, size_bytes in job_traffic.allreduce.items())
    return float(job_traffic.pairs.sum()) / tensor_bytes


def _make_table(scale: Scale, progress: Progress) -> Table:
    cases = [
        (degree, batch, name) for degree in scale.degrees for batch in scale.batch_sizes for name in _FABRICS
    ]
    rows: list[tuple[Cell, ...]] = []
    for number, (degree, batch, name) in enumerate(cases, 1):
        job = make_all_to_all_job(scale.node_count, batch)
        if name in {TOPOOPT, TOPOOPT_SPLIT}:
            executions = simulate_all_to_all(job.graph.node_count, batch, degree, RATE_GBPS)
            execution = (
                executions.published_execution if name == TOPOOPT_SPLIT else executions.fastest_execution
            )
        else:
            execution = simulate_job(job, name, degree, RATE_GBPS)
        rows.append((degree, batch, compute_all_to_all_share(job.traffic), name, execution.iteration_s * 1e3))
        progress(number, len(cases), f"d = {degree}, batch {batch}, {name}")
    return Table.from_rows(_COLUMNS, rows)


def compute_slowdown(table: Table, degree: float, batch: float, slow: str, fast: str) -> float:
    """Return the iteration time on `slow` divided by the iteration time on `fast`."""
    case = table.select_rows(degree=degree, batch=batch)
    return case.get_number("iteration_ms", fabric=slow) / case.get_number("iteration_ms", fabric=fast)


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    batches, degrees = table.get_numbers("batch"), table.get_numbers("degree")
    small_batch, large_batch = sorted(set(batches))[:2][-1], max(batches)
    lowest_degree, highest_degree = min(degrees), max(degrees)
    all_to_all_share = table.select_rows(batch=large_batch).get_numbers("all_to_all_share")[0]
    recalled_note = "follows from the recalled prices: they give the Fat-tree this much rate"
    simulated_note = "links for pairs as the planner chooses them, by simulation"
    spread_note = "the published rule buys links for pairs, which spread demand does not repay"
    less_than_at_4 = PublishedValue("less than at d = 4", "S")

    def compare_pair(
        slow: str, fast: str, batch: float, degree: float, published: PublishedValue, note: str
    ) -> Comparison:
        pair = "the same with links split by bytes" if slow == TOPOOPT_SPLIT else f"{slow} over {fast}"
        slowdown = compute_slowdown(table, degree, batch, slow, fast)
        return Comparison(f"{pair}, batch {batch:g}, d = {degree:g}", published, slowdown, note, " x")

    return (
        Comparison(
            f"all-to-all over AllReduce at batch {large_batch:g}",
            PublishedValue("80 %", "S", 80),
            100 * all_to_all_share,
            "bytes sent over bytes of the tensors reduced",
            " %",
        ),
        compare_pair(
            "TopoOpt", "ideal switch", small_batch, lowest_degree, PublishedValue("equal", "S", 1.0), ""
        ),
        compare_pair(
            "Fat-tree",
            "TopoOpt",
            small_batch,
            lowest_degree,
            PublishedValue("2.7 x", "S", 2.7),
            recalled_note,
        ),
        *(
            compare_pair(tree, "TopoOpt", small_batch, lowest_degree, PublishedValue("2.7 x", "S", 2.7), "")
            for tree in list(READINGS)[1:]
        ),
        compare_pair(
            "TopoOpt", "Fat-tree", large_batch, lowest_degree, PublishedValue("1.1 x", "S", 1.1), ""
        ),
        compare_pair(
            "TopoOpt",
            f"Fat-tree, {NIC_ONCE}",
            large_batch,
            lowest_degree,
            PublishedValue("1.1 x", "S", 1.1),
            "",
        ),
        compare_pair("TopoOpt", "Fat-tree", large_batch, highest_degree, less_than_at_4, simulated_note),
        compare_pair(
            "TopoOpt", f"Fat-tree, {NIC_ONCE}", large_batch, highest_degree, less_than_at_4, simulated_note
        ),
        compare_pair(TOPOOPT_SPLIT, "Fat-tree", large_batch, highest_degree, less_than_at_4, spread_note),
    )


def _make_plot(table: Table) -> Plot:
    panels = tuple(
        Panel(
            f"degree {degree:g}",
            "batch per device",
            "iteration time (ms)",
            make_series(table.select_rows(degree=degree), "fabric", "batch", "iteration_ms")[::-1],
            logarithmic="xy",
        )
        for degree in table.list_values("degree")
    )
    return Plot("DLRM with growing all-to-all, links of 100 Gbit/s", panels)


FIGURE = Figure(12, "DLRM with growing all-to-all", _make_table, _compare_with_paper, _make_plot)
