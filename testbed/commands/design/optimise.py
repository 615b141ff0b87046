"""`testbed optimise`: search a strategy and a topology for a model, and write a plan for `testbed apply`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from testbed.commands.context import CommandContext
from testbed.commands.declare import Command, option, output_file_option
from testbed.commands.design.workload import SEED_OPTION, WorkloadCommand
from testbed.commands.documents import EXIT_DONE, EXIT_INTERRUPTED, OMIT_NONE, Document
from testbed.commands.groups import HOSTS_OPTION, SIMPLEX_OPTION
from testbed.commands.progress import narrate
from testbed.errors import PlanFileError, TopologyError

if TYPE_CHECKING:
    from testbed.design.plans.file import Plan
    from testbed.design.plans.planning import SearchEffort, Servers
    from testbed.design.search import Progress, SearchResult
    from testbed.design.workloads.choice import WorkloadChoice
    from testbed.lab.model import Lab


@dataclass(frozen=True, kw_only=True)
class PlannedWorkload:
    """Workload of a plan."""

    name: str
    preset: str
    settings: Mapping[str, str]
    device: str
    profile: str
    zero: int | None = field(default=None, metadata=OMIT_NONE)
    recompute: bool | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True, kw_only=True)
class PlanPrediction:
    """Predicted figures of an iteration: simulated, in closed form, and the lower bound of its time."""

    iteration_ms: float
    bound_ms: float
    bound_by: str
    above_bound: float
    ideal_switch_ms: float
    closed_form_ms: float
    bandwidth_tax: float
    routing_gap: float
    mean_hops: float
    diameter: int
    path_lengths: Mapping[str, int]
    ring_degree: int
    matching_degree: int
    batch: int


@dataclass(frozen=True, kw_only=True)
class PlannedTopology:
    """Topology of a plan."""

    nodes: int
    degree: int
    simplex: bool
    strides: tuple[int, ...]
    links: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class PlannedOperator:
    """An operator of the workload: its sharding, and the grid of nodes that it runs on."""

    name: str
    way: str
    grid: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class PlannedStrategy:
    """Strategy of a plan."""

    microbatches: int
    operators: tuple[PlannedOperator, ...]


@dataclass(frozen=True, kw_only=True)
class PlanSearch:
    """Settings that reproduce the search, the number of steps executed, and the processor time."""

    seed: int
    steps: int
    chains: int
    done: int
    cpu_s: float


@dataclass(frozen=True, kw_only=True)
class PlannedRoute:
    """A path between two nodes: the nodes that it visits, and the choice among parallel links (`copies`)."""

    source: int
    target: int
    set: int
    weight: float
    path: tuple[int, ...]
    copies: tuple[int, ...] | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True, kw_only=True)
class PlanDocument(Document):
    """The contents of the plan file, its path, and whether the search was stopped early."""

    format: str
    lab: str
    hosts: tuple[str, ...]
    workload: PlannedWorkload
    why: tuple[str, ...]
    predicted: PlanPrediction
    rate_gbps: float
    topology: PlannedTopology
    strategy: PlannedStrategy
    search: PlanSearch
    routes: tuple[PlannedRoute, ...] | None = field(default=None, metadata=OMIT_NONE)
    plan: str
    stopped: bool

    @property
    def exit_code(self) -> int:
        """130 if Ctrl-C stopped the search. The plan is then the best so far."""
        return EXIT_INTERRUPTED if self.stopped else EXIT_DONE


@dataclass(frozen=True, kw_only=True)
class Optimise(WorkloadCommand, Command[PlanDocument]):
    """`testbed optimise`."""

    lab_file: Annotated[
        Path | None,
        option(
            "Lab file that sets hosts, NICs and rate.",
            "--lab",
            metavar="LAB",
            complete="lab_files",
            is_local=True,
        ),
    ] = None
    hosts_of: Annotated[str, HOSTS_OPTION] = ""
    rate_gbps: Annotated[
        float | None, option("Rate of one link; default: the lab's, else 100.", metavar="R")
    ] = None
    simplex: Annotated[bool, SIMPLEX_OPTION] = False
    device: Annotated[
        str, option("Device of a server: a100 (the default), a100-80gb, a100-80gb-bf16.", metavar="NAME")
    ] = "a100"
    zero: Annotated[
        int,
        option(
            "ZeRO stage: replicas divide the optimiser's state (1), gradients too (2), parameters too (3).",
            metavar="STAGE",
            least=0,
            most=3,
        ),
    ] = 0
    recompute: Annotated[
        bool,
        option("Recompute activations in the backward pass instead of keeping most of them.", "--recompute"),
    ] = False
    seed: Annotated[int, SEED_OPTION] = 0
    steps: Annotated[
        int | None, option("Steps of each chain; default: 250, or 4000 beyond 32 servers.", least=0)
    ] = None
    chains: Annotated[
        int | None, option("Independent searches; default: 4, or 1 beyond 32 servers.", least=1)
    ] = None
    workers: Annotated[int, option("Processes for the chains.", least=1)] = 1
    scheduler: Annotated[
        str | None, option("Run the chains on Dask workers of this scheduler.", metavar="tcp://HOST:PORT")
    ] = None
    checkpoint: Annotated[
        Path | None, option("Save the progress of the search to this file.", metavar="FILE", is_local=True)
    ] = None
    resume: Annotated[bool, option("Resume from --checkpoint.", "--resume")] = False
    out: Annotated[Path, output_file_option("plan.json", "The plan file.", "--out", "-o")] = Path("plan.json")

    def run(self, context: CommandContext) -> PlanDocument:
        """Search a plan and write it. Raises `PlanFileError`, `TopologyError`, `WorkloadError`, `SearchError`."""
        from testbed.design.plans.file import check_writable, write_plan
        from testbed.design.plans.planning import SearchEffort
        from testbed.lab.inventory import load_lab

        lab = load_lab(self.lab_file) if self.lab_file else None
        servers, instance_count = self._read_servers(lab) if lab else self._choose_servers()
        choice = self.choose_workload(
            instance_count, "flows", "search", "routes", zero=self.zero, recompute=self.recompute
        )
        if lab and lab.gpus_per_host:
            choice = replace(
                choice, settings={"devices_per_server": str(lab.gpus_per_host), **choice.settings}
            )
        check_writable(self.out)
        effort = SearchEffort(
            self.seed, self.steps, self.chains, self.workers, self.scheduler, self.checkpoint, self.resume
        )
        plan, search = _search(choice, servers, effort)
        write_plan(plan, self.out)  # before anything else: a later error must not lose a long search
        document = _make_document(plan, self.out, is_stopped=search.stopped)
        context.say(
            *_describe_plan(plan),
            *(_describe_patches(lab, plan, self.out) if lab else ()),
            f"plan: {self.out}",
        )
        if self.lab_file:
            context.say(f"next: testbed apply {self.lab_file} --plan {self.out}")
        if search.stopped:
            context.print_note(f"stopped after {search.steps:,} steps; the plan is the best so far")
        return document

    def _choose_servers(self) -> tuple[Servers, int]:
        """Return the servers that the options describe, and the number of logical servers per server."""
        from testbed.design.plans.planning import Servers

        if self.hosts_of:
            raise PlanFileError("--hosts-of names hosts of a lab: pass --lab too")
        nodes, degree, _ = self.divide_links(default_degree=4)
        rate_gbps = 100.0 if self.rate_gbps is None else self.rate_gbps
        return Servers(nodes or 12, degree or 4, rate_gbps, self.simplex), self.mig

    def _read_servers(self, lab: Lab) -> tuple[Servers, int]:
        """Return the hosts of a lab as servers, and the number of logical servers per server."""
        from testbed.design.plans.planning import Servers
        from testbed.lab.model import count_logical_servers, make_shard
        from testbed.operate.design import check_fits, count_usable_nics

        if self.nodes:
            raise PlanFileError(
                "--lab sets the number of servers: leave out --nodes, or choose hosts with --hosts-of"
            )
        if self.hosts_of:
            lab = make_shard(lab, self.hosts_of.split(","))
        degree = self.degree or count_usable_nics(lab)
        check_fits(lab, degree, simplex=self.simplex)
        instance_count = count_logical_servers(lab)
        servers = Servers(
            nodes=len(lab.hosts),
            degree=degree,
            rate_gbps=lab.link.represents_gbps if self.rate_gbps is None else self.rate_gbps,
            simplex=self.simplex,
            lab=lab.name,
            hosts=tuple(host.name for host in lab.hosts),
        )
        if self.mig not in (1, instance_count):
            raise PlanFileError(
                f"--mig {self.mig}: the lab's hosts have {instance_count} instances per server (key 'server'); "
                "leave out --mig"
            )
        return servers, instance_count


def _search(choice: WorkloadChoice, servers: Servers, effort: SearchEffort) -> tuple[Plan, SearchResult]:
    from lightbed.wording import format_count
    from testbed.design.plans.planning import make_plan

    with narrate() as narrator:

        def report(progress: Progress) -> None:
            narrator.tick(
                progress.steps, progress.total, f"best so far {progress.best_s * 1e3:.3f} ms in closed form"
            )

        narrator.phase(f"Searching for {choice.name} on {format_count(servers.nodes, 'server')}")
        return make_plan(choice, servers, effort, report)


def _make_document(plan: Plan, out: Path, *, is_stopped: bool) -> PlanDocument:
    from testbed.design.plans.file import plan_to_json

    plan_json: dict[str, Any] = plan_to_json(plan)
    operators = tuple(PlannedOperator(**row) for row in plan_json["strategy"]["operators"])
    routes = plan_json.get("routes")
    records = {
        "workload": PlannedWorkload(**plan_json["workload"]),
        "predicted": PlanPrediction(**plan_json["predicted"]),
        "topology": PlannedTopology(**plan_json["topology"]),
        "strategy": PlannedStrategy(microbatches=plan_json["strategy"]["microbatches"], operators=operators),
        "search": PlanSearch(**plan_json["search"]),
        "routes": tuple(PlannedRoute(**row) for row in routes) if routes is not None else None,
    }
    return PlanDocument(**{**plan_json, **records}, plan=str(out), stopped=is_stopped)


def _describe_patches(lab: Lab, plan: Plan, out: Path) -> tuple[str]:
    """Return a line with the number of patches. Raises `TopologyError` if the switches cannot hold the topology."""
    from lightbed.wording import format_count
    from testbed.design.patching.wiring import list_patches
    from testbed.operate.design import build_plan_design, find_plan_lab

    plan_lab = find_plan_lab(lab, plan)
    try:
        wiring = build_plan_design(plan_lab, plan).wiring
    except TopologyError as error:
        raise TopologyError(
            f"the plan was written to {out}, but lab '{plan_lab.name}' cannot hold it: {error}"
        ) from error
    return (format_count(len(list_patches(wiring)), "patch"),)


def _describe_plan(plan: Plan) -> list[str]:
    from lightbed.wording import format_count

    topology, predicted = plan.topology, plan.predicted
    lengths_text = ", ".join(f"{count} of {length}" for length, count in predicted["path_lengths"].items())
    times_text = f"{predicted['iteration_ms']:.3f} ms (ideal switch {predicted['ideal_switch_ms']:.3f} ms)"
    hops_text = f"mean hops {predicted['mean_hops']:.3f}, pairs by hops: {lengths_text or 'none'}"
    strides_text = ", ".join(map(str, topology.strides)) or "none"
    servers_text, links_text = format_count(topology.nodes, "server"), format_count(topology.degree, "link")
    return [
        f"{plan.workload.name} on {servers_text}, {links_text} of {plan.rate_gbps:g} Gbit/s each",
        f"predicted iteration {times_text}, batch of {predicted['batch']:,} samples",
        f"bandwidth tax {predicted['bandwidth_tax']:.3f}, {hops_text}",
        f"strides {strides_text}; {format_count(predicted['matching_degree'], 'link')} a server for pairs",
        *(f"- {reason}" for reason in plan.reasons),
    ]
