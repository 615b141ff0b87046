"""`testbed optimise`: from a model to a plan that `testbed apply` carries out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lightbed.wording import counted
from testbed.cli import options, workload_options
from testbed.cli.completion import lab_files
from testbed.cli.output import print_answer
from testbed.commands.documents import DONE, INTERRUPTED
from testbed.commands.progress import narrate
from testbed.errors import PlanFileError, TopologyError

if TYPE_CHECKING:
    from testbed.design.plans.file import Plan
    from testbed.design.plans.planning import Effort, Servers
    from testbed.design.search import Found, Progress
    from testbed.design.workloads.choice import WorkloadChoice

Lab = Annotated[
    Path | None,
    typer.Option(
        "--lab", metavar="LAB", help="Lab file; says hosts, NICs and rate.", autocompletion=lab_files
    ),
]
HostsOf = Annotated[
    str, typer.Option("--hosts-of", metavar="A,B,C", help="Only these hosts of the lab, as nodes 0, 1, 2.")
]

LabsRateGbps = Annotated[
    float | None,
    typer.Option("--rate-gbps", metavar="R", help="Rate of one link; default the lab's, else 100."),
]
Steps = Annotated[
    int | None,
    typer.Option("--steps", min=0, help="Steps of each chain; default 250, beyond 32 servers 4000."),
]
Chains = Annotated[
    int | None, typer.Option("--chains", min=1, help="Independent searches; default 4, beyond 32 servers 1.")
]
Workers = Annotated[int, typer.Option("--workers", min=1, help="Processes for the chains.")]
Scheduler = Annotated[
    str | None, typer.Option("--scheduler", metavar="tcp://HOST:PORT", help="Chains on the workers of Dask.")
]
Checkpoint = Annotated[
    Path | None, typer.Option("--checkpoint", metavar="FILE", help="Where the search stands, as it goes.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from --checkpoint.")]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The plan file.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("optimise")(optimise)


def optimise(
    workload: workload_options.Model = "",
    torch: workload_options.Torch = "",
    lab_file: Lab = None,
    hosts_of: HostsOf = "",
    nodes: workload_options.Nodes = None,
    degree: workload_options.Degree = None,
    rate_gbps: LabsRateGbps = None,
    simplex: options.Simplex = False,
    preset: workload_options.Preset = "",
    settings: workload_options.Settings = None,
    device: workload_options.Device = "a100",
    mig: workload_options.Mig = 1,
    profile: workload_options.Profile = "",
    zero: workload_options.Zero = 0,
    recompute: workload_options.Recompute = False,
    seed: workload_options.Seed = 0,
    steps: Steps = None,
    chains: Chains = None,
    workers: Workers = 1,
    scheduler: Scheduler = None,
    checkpoint: Checkpoint = None,
    resume: Resume = False,
    out: Out = Path("plan.json"),
    as_json: options.AsJson = False,
) -> int:
    """Find a strategy and a topology for a workload, and write them down as a plan."""
    from testbed.design.plans.file import check_writable, write_plan
    from testbed.design.plans.planning import Effort

    servers, instances = _servers(lab_file, hosts_of, nodes, degree, rate_gbps, mig, simplex=simplex)
    choice = _choice((workload, torch, preset, settings), device, profile, instances, (zero, recompute))
    check_writable(out)
    effort = Effort(seed, steps, chains, workers, scheduler, checkpoint, resume)
    plan, found = _search(choice, servers, effort)
    write_plan(plan, out)  # before anything else can go wrong: the search was the long part
    return _answer(plan, found, lab_file, out, as_json=as_json)


def _answer(plan: Plan, found: Found, lab_file: Path | None, out: Path, *, as_json: bool) -> int:
    from testbed.design.plans.file import plan_json

    document = {**plan_json(plan), "plan": str(out), "stopped": found.stopped}
    lines = [*_lines(plan), *_patches(lab_file, plan, out), f"plan: {out}", *_next(lab_file, out)]
    print_answer(document, lines, as_json=as_json, output=out)
    if found.stopped:
        print(f"stopped after {found.steps:,} steps; the plan is the best so far", file=sys.stderr)
    return INTERRUPTED if found.stopped else DONE


def _servers(
    lab_file: Path | None,
    hosts_of: str,
    nodes: int | None,
    degree: int | None,
    rate_gbps: float | None,
    mig: int,
    *,
    simplex: bool,
) -> tuple[Servers, int]:
    """Return the servers, and how many logical ones each server is: as asked for, and as the lab file says."""
    from testbed.design.plans.planning import Servers
    from testbed.lab.inventory import load_lab
    from testbed.lab.shards import logical_servers_of, shard_of
    from testbed.operate.session import check_fits, degree_of

    if lab_file is None:
        if hosts_of:
            raise PlanFileError("--hosts-of names hosts of a lab: give --lab too")
        nodes, degree, _ = workload_options.cut(nodes, degree, mig, usual_degree=4)
        rate = 100.0 if rate_gbps is None else rate_gbps
        return Servers(nodes or 12, degree or 4, rate, simplex), mig
    if nodes:
        raise PlanFileError("--lab says how many servers there are: leave out --nodes, or name --hosts-of")
    lab = load_lab(lab_file)
    if hosts_of:
        lab = shard_of(lab, hosts_of.split(","))
    links = degree or degree_of(lab)
    check_fits(lab, links, simplex=simplex)
    servers = Servers(
        nodes=len(lab.hosts),
        degree=links,
        rate_gbps=lab.link.represents_gbps if rate_gbps is None else rate_gbps,
        simplex=simplex,
        lab=lab.name,
        hosts=tuple(host.name for host in lab.hosts),
    )
    return servers, _instances(mig, logical_servers_of(lab))


def _choice(
    named: tuple[str, str, str, list[str] | None],
    device: str,
    profile: str,
    instances: int,
    savings: tuple[int, bool],
) -> WorkloadChoice:
    """Return the workload on instances of a device; what follows searches."""
    of_device = workload_options.instance_of(device, instances)
    return workload_options.chosen(*named, of_device, profile, *savings, parts=("flows", "search", "routes"))


def _instances(mig: int, of_lab: int) -> int:
    if mig not in (1, of_lab):
        raise PlanFileError(
            f"--mig {mig}: the hosts of the lab are {of_lab} a server, as their 'server' says; leave out --mig"
        )
    return of_lab


def _search(choice: WorkloadChoice, servers: Servers, effort: Effort) -> tuple[Plan, Found]:
    from testbed.design.plans.planning import make_plan

    with narrate() as narrator:

        def report(now: Progress) -> None:
            narrator.tick(now.steps, now.of, f"best so far {now.best_s * 1e3:.3f} ms in closed form")

        narrator.phase(f"Searching for {choice.name} on {counted(servers.nodes, 'server')}")
        return make_plan(choice, servers, effort, report)


def _patches(lab_file: Path | None, plan: Plan, out: Path) -> list[str]:
    """Return what is to be patched on the lab; raises `TopologyError` when its switches cannot hold the topology."""
    from testbed.design.patching.wiring import patch_list
    from testbed.lab.inventory import load_lab
    from testbed.operate.session import design_of_plan, lab_of_plan

    if lab_file is None:
        return []
    here = lab_of_plan(load_lab(lab_file), plan)
    try:
        wiring = design_of_plan(here, plan).wiring
    except TopologyError as error:
        raise TopologyError(
            f"the plan is written to {out}, but lab '{here.name}' cannot hold it: {error}"
        ) from error
    patches = len(patch_list(wiring))
    return [counted(patches, "patch")]


def _lines(plan: Plan) -> list[str]:
    topology, predicted = plan.topology, plan.predicted
    lengths = ", ".join(f"{count} of {length}" for length, count in predicted["path_lengths"].items())
    times = f"{predicted['iteration_ms']:.3f} ms (ideal switch {predicted['ideal_switch_ms']:.3f} ms)"
    hops = f"mean hops {predicted['mean_hops']:.3f}, pairs by hops: {lengths or 'none'}"
    strides = ", ".join(map(str, topology.strides)) or "none"
    servers, links = counted(topology.nodes, "server"), counted(topology.degree, "link")
    return [
        f"{plan.workload.name} on {servers}, {links} of {plan.rate_gbps:g} Gbit/s each",
        f"predicted iteration {times}, batch of {predicted['batch']:,} samples",
        f"bandwidth tax {predicted['bandwidth_tax']:.3f}, {hops}",
        f"strides {strides}; {counted(predicted['matching_degree'], 'link')} a server for pairs",
        *(f"because {reason}" for reason in plan.why),
    ]


def _next(lab_file: Path | None, out: Path) -> list[str]:
    return [f"next: testbed apply {lab_file} --plan {out}"] if lab_file else []
