"""Options of the commands that simulate, plan for and compare workloads, each defined once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.output import note_compilation

if TYPE_CHECKING:
    from testbed.design.evaluation.job import Job
    from testbed.design.workloads.choice import WorkloadChoice

Workload = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD",
        help="A workload of the catalogue, an ONNX file, a task graph (.npz), or a folder of Chakra traces.",
    ),
]
Model = Annotated[
    str, typer.Argument(metavar="WORKLOAD", help="A workload of the catalogue, or an ONNX file.")
]
Torch = Annotated[
    str,
    typer.Option(
        "--torch",
        metavar="MODULE:FACTORY",
        help="In place of WORKLOAD: a function that returns a torch module and its example inputs.",
    ),
]
RateGbps = Annotated[
    float | None,
    typer.Option(
        "--rate-gbps", metavar="R", help="Rate of one link, in Gbit/s; default the plan's, else 100."
    ),
]
Nodes = Annotated[int | None, typer.Option("--nodes", min=1, help="Servers of the job; default 12.")]
Degree = Annotated[int | None, typer.Option("--degree", min=1, help="Links of each server.")]
Device = Annotated[
    str,
    typer.Option(
        "--device", metavar="NAME", help="Of a server: a100 (the default), a100-80gb, a100-80gb-bf16."
    ),
]
Profile = Annotated[
    str, typer.Option("--profile", metavar="FILE", help="Measured computing times instead of the roofline.")
]
Preset = Annotated[
    str, typer.Option("--preset", metavar="NAME", help="Published setting: fig11, fig16, testbed.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the workload (repeatable)."),
]
Zero = Annotated[
    int,
    typer.Option(
        "--zero",
        metavar="STAGE",
        min=0,
        max=3,
        help="ZeRO: replicas divide the optimiser's state (1), gradients too (2), parameters too (3).",
    ),
]
Recompute = Annotated[
    bool, typer.Option("--recompute", help="Outputs are computed again for the backward pass, most not kept.")
]
StrategyChoice = Annotated[
    str,
    typer.Option(
        "--strategy",
        metavar="NAME|FILE",
        help="default, data, pipeline:STAGES:MICROBATCHES, disaggregated:PREFILL_SERVERS, or that of a plan file.",
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", min=0, help="Where chance begins; the same seed, the same answer.")
]
EqualCost = Annotated[
    bool,
    typer.Option(
        "--equal-cost", help="The Fat-tree gets the rate at which it costs what direct connect does."
    ),
]
Fluid = Annotated[
    bool | None,
    typer.Option(
        "--fluid/--rounds",
        help="All rounds of a ring as one (faster, a few per cent apart), or one by one. A plan: as it was made.",
        show_default=False,
    ),
]
Oversubscription = Annotated[
    float, typer.Option("--oversubscription", min=1, metavar="X", help="Of fabric oversub.")
]
Routing = Annotated[
    str,
    typer.Option(
        "--routing",
        metavar="NAME",
        help="Of messages: ideal, spread, hash (a path each, packets in queues; --seed draws); default the fabric's.",
    ),
]
ReconfigurationMs = Annotated[
    float,
    typer.Option("--reconfiguration-ms", min=0, metavar="MS", help="Dark time of circuits that change."),
]


def named(workload: str, torch: str) -> str:
    """Return the name of what is asked for, of which there must be one. Raises `WorkloadError`."""
    from testbed.errors import WorkloadError

    if bool(workload) == bool(torch):
        raise WorkloadError("name a WORKLOAD, or a torch module with --torch MODULE:FACTORY, one of both")
    return workload or f"torch:{torch}"


def chosen(
    workload: str,
    torch: str,
    preset: str,
    settings: list[str] | None,
    device: str,
    profile: str,
    zero: int = 0,
    recompute: bool = False,
) -> WorkloadChoice:
    """Return what the options name. Raises `WorkloadError`. What follows simulates: it says so if it compiles first."""
    from testbed.design.workloads.choice import WorkloadChoice, parse_settings

    name, sizes = named(workload, torch), parse_settings(settings)
    choice = WorkloadChoice(name, preset, sizes, device, profile, zero, recompute)
    note_compilation()
    return choice


def chosen_job(
    workload: str,
    torch: str,
    preset: str,
    settings: list[str] | None,
    device: str,
    profile: str,
    nodes: int | None,
    strategy: str,
) -> Job:
    """Return the job that the options name. Raises what `open_job` raises, and `WorkloadError` for settings."""
    from testbed.design.evaluation.job import open_job

    return open_job(chosen(workload, torch, preset, settings, device, profile), nodes, strategy)
