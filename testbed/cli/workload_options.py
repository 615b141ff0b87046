"""Options of the commands that simulate, plan for and compare workloads, each defined once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.commands.progress import note_compilation

if TYPE_CHECKING:
    from testbed.design.evaluation.compilation import Part
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
Mig = Annotated[
    int,
    typer.Option(
        "--mig",
        min=1,
        max=7,
        metavar="K",
        help="Each server is K logical ones: an instance (MIG) of every device, and its part of the links.",
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


def cut(
    nodes: int | None, degree: int | None, instances: int, usual_degree: int, *, may_share: bool = False
) -> tuple[int | None, int | None, float]:
    """Return servers and links as `--mig` cuts them, and the part of a rate that is left. Raises `WorkloadError`."""
    from testbed.design.evaluation.job import DEFAULT_NODES
    from testbed.design.workloads.mig import logical_servers

    if instances == 1:
        return nodes, degree, 1.0
    return logical_servers(nodes or DEFAULT_NODES, degree or usual_degree, instances, may_share=may_share)


def instance_of(device: str, instances: int) -> str:
    """Return the device, or what `--mig` makes of it."""
    from testbed.design.workloads.choice import DEFAULT_DEVICE
    from testbed.design.workloads.mig import named as device_name

    return device_name(device or DEFAULT_DEVICE, instances) if instances > 1 else device


def chosen(
    workload: str,
    torch: str,
    preset: str,
    settings: list[str] | None,
    device: str,
    profile: str,
    zero: int = 0,
    recompute: bool = False,
    parts: Sequence[Part] = ("flows",),
) -> WorkloadChoice:
    """Return what the options name. Raises `WorkloadError`. What follows simulates: it says so if it compiles first."""
    from testbed.design.workloads.choice import WorkloadChoice, parse_settings

    name, sizes = named(workload, torch), parse_settings(settings)
    choice = WorkloadChoice(name, preset, sizes, device, profile, zero, recompute)
    note_compilation(*parts)
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
    routing: str = "",
) -> Job:
    """Return the job that the options name. Raises what `open_job` raises, and `WorkloadError` for settings."""
    from testbed.design.evaluation.job import open_job

    parts: tuple[Part, ...] = ("packets",) if routing == "hash" else ("flows",)
    return open_job(chosen(workload, torch, preset, settings, device, profile, parts=parts), nodes, strategy)
