"""`testbed job`: run iterations of the current plan on the hosts, and compare them with the prediction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from testbed.commands.about import HostsFields, describe_hosts
from testbed.commands.context import CommandContext
from testbed.commands.declare import Command, option
from testbed.commands.groups import DEADLINE_OPTION, HostsCommand, TopologyCommand
from testbed.commands.lab.verify import CountedLink

if TYPE_CHECKING:
    from testbed.measure.plan_job import PlanRun
    from testbed.operate.choice import DesignChoice


@dataclass(frozen=True, kw_only=True)
class PlanJobDocument(HostsFields):
    """Iterations of the plan on the hosts: median time, prediction, and the used share of processor time (`busy`)."""

    run_id: str
    factor: float
    predicted_ms: float
    measured_ms: float
    iterations_ms: tuple[float, ...]
    difference: float
    busy: float
    links: tuple[CountedLink, ...]


@dataclass(frozen=True, kw_only=True)
class PlanJob(HostsCommand, TopologyCommand, Command[PlanJobDocument]):
    """`testbed job`."""

    lane = "moving"
    iterations: Annotated[
        int, option("Number of iterations, after one for warm-up.", metavar="N", least=1, most=1000)
    ] = 3
    lasts_s: Annotated[
        float,
        option(
            "Scale bytes and computing so that one iteration takes this long.",
            "--lasts",
            metavar="SECONDS",
            least=0.01,
            most=3600,
        ),
    ] = 1.0
    factor: Annotated[
        float | None,
        option(
            "Scale bytes and computing by this factor, instead of --lasts.", metavar="F", least=0, most=1e9
        ),
    ] = None
    checkpoint_bytes: Annotated[
        int,
        option(
            "Every host writes a checkpoint of this size to its disk, as part of the iteration.",
            "--checkpoint",
            metavar="BYTES",
            least=0,
            most=1 << 40,
        ),
    ] = 0
    checkpoint_every: Annotated[
        int, option("Write the checkpoint in every Nth iteration.", metavar="N", least=1, most=1000)
    ] = 1
    checkpoint_folder: Annotated[
        str,
        option("Folder on the hosts for the checkpoint; default: /var/tmp.", metavar="FOLDER"),
    ] = ""
    deadline_s: Annotated[float, DEADLINE_OPTION] = 120.0

    def run(self, context: CommandContext) -> PlanJobDocument:
        """Run the iterations and store them. Raises the errors of opening a lab, and `CollectiveError`."""
        from testbed.lab.simulated.lifecycle import find_hosts_in_use
        from testbed.measure.plan_job import PLAN_JOB_PHASE, Checkpoint, run_plan, to_json
        from testbed.measure.results.store import RunStore
        from testbed.operate.choice import choose_design

        choice = choose_design(context.running_lab, self.named_topology, context.runs_dir)
        lab, host_mode = choice.lab, find_hosts_in_use(choice.lab, self.hosts)
        checkpoint = (
            Checkpoint(self.checkpoint_bytes, self.checkpoint_every, self.checkpoint_folder)
            if self.checkpoint_bytes
            else None
        )
        with (
            context.open_session(lab, self.hosts) as session,
            RunStore(context.runs_dir).begin_run(lab, lab.simulated, host_mode, seeds={}) as run,
        ):
            plan_run = run_plan(
                session,
                choice.design,
                choice.plan(),
                iterations=self.iterations,
                iteration_s=self.lasts_s,
                factor=self.factor,
                deadline_s=self.deadline_s,
                checkpoint=checkpoint,
            )
            run.add_rank_figures(plan_run.rank_figures, plan_run.flow_figures, plan_run.link_figures)
            rate_fields = {"rate_mbps": lab.link.rate_mbps, "rate_gbps": lab.link.represents_gbps}
            run.add_phase(
                PLAN_JOB_PHASE,
                to_json(plan_run, choice.intent.epoch if choice.intent else None) | rate_fields,
            )
        context.say(*yield_job_lines(choice, plan_run))
        return PlanJobDocument(
            run_id=run.run_id,
            **describe_hosts(choice, self.hosts),
            factor=plan_run.size_factor,
            predicted_ms=plan_run.predicted_iteration_s * 1e3,
            measured_ms=plan_run.measured_s * 1e3,
            iterations_ms=tuple(time_s * 1e3 for time_s in plan_run.times_s),
            difference=plan_run.prediction_error,
            busy=plan_run.processor_load,
            links=tuple(CountedLink(**asdict(link)) for link in plan_run.links),
        )


def yield_job_lines(choice: DesignChoice, plan_run: PlanRun) -> Iterator[str]:
    """Yield a job as lines for people."""
    from testbed.measure.plan_job import summarise_links

    yield f"{'SIMULATED ' if choice.lab.simulated else ''}lab {choice.lab.name}; {choice.format_heading()}"
    yield from choice.format_warnings()
    yield from choice.describe_unfinished()
    median_text = f"iteration of {plan_run.measured_s * 1e3:.1f} ms (median of {len(plan_run.times_s)})"
    yield (
        f"{median_text}, predicted {plan_run.predicted_iteration_s * 1e3:.1f} ms:"
        f" {plan_run.prediction_error * 100:+.1f} %"
    )
    busy_text = f"processors {plan_run.processor_load * 100:.0f} % busy"
    yield f"scale: bytes and computing times multiplied by {plan_run.size_factor:g}; {busy_text}"
    yield from summarise_links(plan_run.links)
