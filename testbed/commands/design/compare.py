"""`testbed compare`: a job on many fabrics, at equal rate and at equal cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from testbed.commands.context import CommandContext
from testbed.commands.declare import Command, option
from testbed.commands.design.workload import Figures, JobDocument, SimulationCommand, make_job_keys
from testbed.design.fabrics.fabric_list import has_gpu_nodes

if TYPE_CHECKING:
    from testbed.design.evaluation.comparison import FabricResult

_COLUMNS = ("fabric", "compared at", "Gbit/s a host", "iteration (ms)", "slowdown", "tax", "cost (USD)")


@dataclass(frozen=True, kw_only=True)
class FabricPlace:
    """A fabric of a comparison: the `equal` quantity, the rate per host, the slowdown relative to an ideal switch."""

    fabric: str
    equal: str
    host_gbps: float
    slowdown: float


@dataclass(frozen=True, kw_only=True)
class ComparedFabric(Figures, FabricPlace):
    """A fabric and the figures of an iteration on it."""


@dataclass(frozen=True, kw_only=True)
class FailedFabric:
    """A fabric that cannot be built or cannot run the job, and the reason."""

    fabric: str
    failure: str


@dataclass(frozen=True, kw_only=True)
class ComparisonDocument(JobDocument):
    """A job on several fabrics."""

    fabrics: tuple[ComparedFabric | FailedFabric, ...]


@dataclass(frozen=True, kw_only=True)
class Compare(SimulationCommand, Command[ComparisonDocument]):
    """`testbed compare`."""

    fabrics: Annotated[str, option("Separated by commas.", metavar="all|NAMES")] = "all"
    plot: Annotated[
        Path | None, option("Draw the table (.png, .svg).", "--picture", metavar="FILE", is_local=True)
    ] = None

    def run(self, context: CommandContext) -> ComparisonDocument:
        """Simulate an iteration on each fabric. Raises the errors of `open_job`, `TopologyError`."""
        from lightbed.wording import format_count
        from testbed.design.evaluation.comparison import compare_fabrics, draw_comparison, parse_fabric_names

        setup = self.make_setting(connects_gpus=any(map(has_gpu_nodes, self.fabrics.split(","))))
        job, degree, rate_gbps = setup.job, setup.degree, setup.rate_gbps
        rows = compare_fabrics(
            job,
            parse_fabric_names(self.fabrics, hosts_are_gpus=setup.options.hb_domain > 1),
            degree,
            rate_gbps,
            setup.options,
            skip_slow=self.fabrics == "all",
        )
        links_text = f"{format_count(degree, 'link')} of {rate_gbps:g} Gbit/s each"
        nodes_text = format_count(job.graph.node_count, "GPU" if setup.options.hb_domain > 1 else "server")
        title = f"SIMULATED {job.name} on {nodes_text}, {links_text}"
        if self.plot:
            draw_comparison(rows, self.plot, title)
        document = ComparisonDocument(
            **make_job_keys(setup), fabrics=tuple(_make_fabric_row(row) for row in rows)
        )
        batch = f", batch of {document.batch:,} samples" if document.batch is not None else ""
        context.say_table(title + batch, _COLUMNS, [row.make_cells() for row in rows])
        if any(row.figures["prices_recalled"] for row in rows if row.figures):
            context.say("prices are estimates from the literature, not quotes")
        context.say(*(f"{row.name}: {row.failure}" for row in rows if row.failure))
        return document


def _make_fabric_row(row: FabricResult) -> ComparedFabric | FailedFabric:
    if row.failure:
        return FailedFabric(fabric=row.name, failure=row.failure)
    return ComparedFabric(
        fabric=row.name,
        equal=row.basis,
        host_gbps=row.host_gbps,
        slowdown=row.slowdown,
        **row.figures,
    )
