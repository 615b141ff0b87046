"""Figure 11: iteration time of six models, each on a dedicated cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import geometric_mean

from testbed.design.model import Topology
from testbed.design.reproductions.figure import (
    UNPUBLISHED,
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
    SIP_ML,
    TOPOOPT,
    Job,
    list_fabrics,
    make_cluster,
    make_job,
    simulate_job,
    simulate_planned_routes,
)
from testbed.design.reproductions.topoopt.setup import Scale
from testbed.design.search.planner import optimise
from testbed.design.topology.finder import plan_topology
from testbed.design.workloads.catalogue import workload
from testbed.design.workloads.strategies import default_strategy

MODELS = {
    "dlrm": "DLRM",
    "candle": "CANDLE",
    "bert": "BERT",
    "ncf": "NCF",
    "resnet50": "ResNet50",
    "vgg16": "VGG16",
}
SEARCH_GBPS = 100.0
"""Link rate of the strategy search, which runs once per degree. The other rates use the same strategies."""
_COLUMNS = ("model", "degree", "rate_gbps", "fabric", "iteration_ms", "pure_data_parallel", "strategy")


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A job of a model under one strategy, with TopoOpt's topology for it."""

    name: str
    job: Job
    topology: Topology

    @property
    def pure_data_parallel(self) -> bool:
        """True if an iteration sends only AllReduces."""
        return not self.job.traffic.pairs.any()


def list_candidates(model: str, degree: int, scale: Scale) -> tuple[Candidate, ...]:
    """Return the default strategy with TopologyFinder's topology, and the planner's result if that is different."""
    model_workload, cluster = (
        workload(model, scale.node_count, preset="fig11"),
        make_cluster(scale.node_count),
    )
    strategy = default_strategy(model_workload, scale.node_count)
    job = make_job(model_workload, strategy, cluster)
    default_candidate = Candidate("default", job, plan_topology(job.traffic.demand, degree).topology)
    result = optimise(
        model_workload,
        cluster,
        degree,
        SEARCH_GBPS,
        steps=scale.step_count,
        finalists=scale.finalist_count,
        seed=scale.seed,
    )
    if result.strategy == strategy and result.finding.topology == default_candidate.topology:
        return (default_candidate,)
    return default_candidate, Candidate(
        "found", make_job(model_workload, result.strategy, cluster), result.finding.topology
    )


def _compute_iteration_s(candidate: Candidate, fabric: str, degree: int, rate_gbps: float) -> float:
    if fabric == TOPOOPT:
        return simulate_planned_routes(candidate.job, candidate.topology, rate_gbps).iteration_s
    return simulate_job(candidate.job, fabric, degree, rate_gbps).iteration_s


def _make_table(scale: Scale, progress: Progress) -> Table:
    cases = [
        (model, degree, rate_gbps)
        for model in MODELS
        for degree in scale.degrees
        for rate_gbps in scale.rates_gbps
    ]
    rows: list[tuple[Cell, ...]] = []
    candidates: tuple[Candidate, ...] = ()
    for number, (model, degree, rate) in enumerate(cases, 1):
        if rate == scale.rates_gbps[0]:
            candidates = list_candidates(model, degree, scale)
        for fabric in list_fabrics(rate):
            times_s = [_compute_iteration_s(candidate, fabric, degree, rate) for candidate in candidates]
            fastest_index = min(range(len(times_s)), key=times_s.__getitem__)
            time_s, best_candidate = times_s[fastest_index], candidates[fastest_index]
            pure_text = "yes" if best_candidate.pure_data_parallel else "no"
            rows.append((MODELS[model], degree, rate, fabric, time_s * 1e3, pure_text, best_candidate.name))
        progress(number, len(cases), f"{MODELS[model]}, d = {degree}, {rate:g} Gbit/s")
    return Table.from_rows(_COLUMNS, rows)


def compute_ratio(table: Table, fabric: str, base_fabric: str, **case: Cell) -> float:
    """Return the iteration time on `fabric` divided by the iteration time on `base_fabric`."""
    case_table = table.select_rows(**case)
    return case_table.get_number("iteration_ms", fabric=fabric) / case_table.get_number(
        "iteration_ms", fabric=base_fabric
    )


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    degree, rate = min(table.get_numbers("degree")), SEARCH_GBPS
    lines = []
    for model in table.list_values("model"):
        case = {"model": model, "degree": degree, "rate_gbps": rate}
        is_pure = (
            table.select_rows(**case).select_rows(fabric="TopoOpt").list_values("pure_data_parallel")[0]
            == "yes"
        )
        lines += [
            Comparison(
                f"{model}: TopoOpt over ideal switch, d = {degree:g}",
                UNPUBLISHED,
                compute_ratio(table, "TopoOpt", "ideal switch", **case),
                "pure data parallel" if is_pure else "with transfers between pairs",
                " x",
            ),
            *(
                Comparison(
                    f"{model}: {name} over TopoOpt, d = {degree:g}",
                    UNPUBLISHED if name == SIP_ML else PublishedValue("slower", "S"),
                    compute_ratio(table, name, "TopoOpt", **case),
                    unit=" x",
                )
                for name in ("Fat-tree", f"Fat-tree, {NIC_ONCE}", SIP_ML)
                if name in table.list_values("fabric")
            ),
        ]
    return (*lines, *_compare_means(table, degree))


def _compare_means(table: Table, degree: float) -> Iterator[Comparison]:
    """Yield lines with the mean slowdown of each Fat-tree over the models, with the slowest and the fastest links."""
    rates = table.get_numbers("rate_gbps")
    for link_speed, link_gbps in (("slowest", min(rates)), ("fastest", max(rates))):
        fabrics = set(table.select_rows(rate_gbps=link_gbps).list_values("fabric"))
        for tree in (name for name in READINGS if name in fabrics):
            mean_slowdown = geometric_mean(
                compute_ratio(table, tree, "TopoOpt", model=model, degree=degree, rate_gbps=link_gbps)
                for model in table.list_values("model")
            )
            note = "below 1: these prices buy a faster Fat-tree here" if mean_slowdown < 1 else ""
            yield Comparison(
                f"{tree} over TopoOpt, {link_speed} links, mean of models",
                UNPUBLISHED,
                mean_slowdown,
                note,
                " x",
            )


def _select_drawn_rows(table: Table) -> Table:
    """Return the table without MixNet's prices, which exist only for some rates."""
    column = table.columns.index("fabric")
    return Table(table.columns, tuple(row for row in table.rows if "MixNet" not in str(row[column])))


def _make_plot(table: Table) -> Plot:
    degree = min(table.get_numbers("degree"))
    panels = tuple(
        Panel(
            str(model),
            "link rate (Gbit/s)",
            "iteration time (ms)",
            make_series(
                _select_drawn_rows(table.select_rows(model=model, degree=degree)),
                "fabric",
                "rate_gbps",
                "iteration_ms",
            ),
            logarithmic="xy",
        )
        for model in table.list_values("model")
    )
    return Plot(f"Iteration time on a dedicated cluster, d = {degree:g}", panels)


FIGURE = Figure(11, "Models on a dedicated cluster", _make_table, _compare_with_paper, _make_plot)
