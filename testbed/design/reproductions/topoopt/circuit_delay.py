"""Figure 17: iteration time by dark time of a reconfiguration. Circuits follow the demand within an iteration."""

from __future__ import annotations

import numpy as np

from testbed.design.fabrics.fabric_list import build_fabric
from testbed.design.fabrics.kind import FabricOptions, FabricRequest
from testbed.design.reproductions.figure import (
    UNPUBLISHED,
    Cell,
    Comparison,
    Figure,
    Panel,
    Plot,
    Progress,
    Table,
    make_series,
)
from testbed.design.reproductions.topoopt.jobs import make_default_job, simulate_job, simulate_on_fabric
from testbed.design.reproductions.topoopt.setup import Scale
from testbed.design.sharing.joined_jobs import PlacedJob, chain_iterations

MODELS = {"dlrm": "DLRM", "bert": "BERT"}
RATE_GBPS = 100.0
ONE_SHOT = "TopoOpt, patched once"
_FABRICS = {"circuits": "circuits, no forwarding", "circuits-forwarding": "circuits, forwarding"}
_COLUMNS = ("model", "degree", "delay_ms", "fabric", "iteration_ms")


def _make_table(scale: Scale, progress: Progress) -> Table:
    cases = [
        (model, degree, delay_s) for model in MODELS for degree in scale.degrees for delay_s in scale.delays_s
    ]
    rows: list[tuple[Cell, ...]] = []
    for number, (model, degree, delay_s) in enumerate(cases, 1):
        job = make_default_job(model, scale.node_count)
        if delay_s == scale.delays_s[0]:
            one_shot_s = simulate_job(job, "TopoOpt", degree, RATE_GBPS).iteration_s
        node_count = job.graph.node_count
        two_iterations = chain_iterations(node_count, [PlacedJob(job.graph, np.arange(node_count))], 2)
        time_by_fabric = {}
        for name, label in _FABRICS.items():
            built_fabric = build_fabric(
                FabricRequest(
                    name, node_count, degree, RATE_GBPS, options=FabricOptions(reconfiguration_s=delay_s)
                )
            )
            time_by_fabric[label] = float(
                two_iterations.compute_iteration_s(simulate_on_fabric(built_fabric, two_iterations.graph))[
                    0, -1
                ]
            )
        time_by_fabric = {ONE_SHOT: one_shot_s} | time_by_fabric
        rows += [
            (MODELS[model], degree, delay_s * 1e3, name, time_s * 1e3)
            for name, time_s in time_by_fabric.items()
        ]
        progress(number, len(cases), f"{MODELS[model]}, d = {degree}, dark for {delay_s * 1e3:g} ms")
    return Table.from_rows(_COLUMNS, rows)


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    lines = []
    for model in table.list_values("model"):
        for degree in table.list_values("degree"):
            for delay_ms in (min(table.get_numbers("delay_ms")), max(table.get_numbers("delay_ms"))):
                case = table.select_rows(model=model, degree=degree, delay_ms=delay_ms)
                one_shot_ms = case.get_number("iteration_ms", fabric=ONE_SHOT)
                lines += [
                    Comparison(
                        f"{model}, d = {degree:g}, dark for {delay_ms:g} ms: {label} over patched once",
                        UNPUBLISHED,
                        case.get_number("iteration_ms", fabric=label) / one_shot_ms,
                        "",
                        " x",
                    )
                    for label in _FABRICS.values()
                ]
    return tuple(lines)


def _make_plot(table: Table) -> Plot:
    panels = tuple(
        Panel(
            f"{model}, degree {degree:g}",
            "dark time (ms)",
            "iteration time (ms)",
            make_series(table.select_rows(model=model, degree=degree), "fabric", "delay_ms", "iteration_ms"),
            logarithmic="xy",
        )
        for model in table.list_values("model")
        for degree in table.list_values("degree")
    )
    return Plot("Circuits reconfigured within an iteration", panels, max_columns=2)


FIGURE = Figure(17, "Circuits reconfigured within an iteration", _make_table, _compare_with_paper, _make_plot)
