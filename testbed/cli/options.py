"""Options that several commands share, each defined once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from testbed.cli import completion
from testbed.design.topology.strides import Method as StrideMethod
from testbed.operate.named_topology import NamedTopology

LabFile = Annotated[
    Path,
    typer.Argument(
        metavar="LAB", help="Lab file (YAML), e.g. labs/testbed12.yaml.", autocompletion=completion.lab_files
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Simplex = Annotated[bool, typer.Option("--simplex", help="One-way links: every ring is one direction only.")]
NamedMethod = Annotated[
    StrideMethod | None,
    typer.Option(
        "--method", help="How ring strides are chosen: 'geometric', unless --plan or --epoch says more."
    ),
]
Epoch = Annotated[
    int | None,
    typer.Option("--epoch", metavar="N", min=1, help="Topology that was applied to the lab as this epoch."),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--demand",
        metavar="NODES:BYTES",
        help="AllReduce demand: groups of NODES nodes move BYTES each (repeatable).",
    ),
]
PlanFile = Annotated[
    Path | None,
    typer.Option("--plan", metavar="FILE", help="Plan of `testbed optimise`: its topology and its hosts."),
]
TakeOver = Annotated[
    bool,
    typer.Option("--take-over", help="Circuits of other hosts that light the plan's hosts may be removed."),
]
ReallyMove = Annotated[
    str | None,
    typer.Option("--really-move", metavar="NAME", help="Name of the lab; needed to move a real one."),
]
ChangeOut = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write the change here, for `testbed apply --change`."),
]
ChangeFile = Annotated[
    Path | None,
    typer.Option(
        "--change", metavar="FILE", help="Change of `testbed plan --out`: only if the lab is still as it was."
    ),
]
ExpectRevision = Annotated[
    str | None, typer.Option("--expect", metavar="REVISION", help="Only if `plan` still says this revision.")
]
Narrow = Annotated[
    bool,
    typer.Option(
        "--narrow",
        help="Tell which ends are swapped or dark: moves circuits of findings, and free ones, for a moment.",
    ),
]
HostsMode = Annotated[
    Literal["auto", "kernel", "model"],
    typer.Option(
        "--hosts",
        help="Simulated hosts: kernel namespaces (needs root) or a flow model of them.",
    ),
]
RunsDirectory = Annotated[
    Path, typer.Option("--runs-dir", metavar="DIR", help="Where results are kept.", envvar="LIGHTBED_RUNS")
]

RateMbps = Annotated[
    float | None,
    typer.Option(
        "--rate-mbps",
        metavar="RATE",
        min=0.1,
        help="Fixed rate of a simulated lab's links, instead of the lab file's or the machine's.",
    ),
]

Deadline = Annotated[
    float,
    typer.Option("--deadline", metavar="SECONDS", min=1, max=86400, help="Hosts end a measurement then."),
]

DEFAULT_RUNS = Path("runs")


Named = NamedTopology
NOTHING_NAMED = NamedTopology()


def _named(
    simplex: Simplex = False,
    method: NamedMethod = None,
    demand: Groups = None,
    plan_file: PlanFile = None,
    epoch: Epoch = None,
) -> NamedTopology:
    return NamedTopology(simplex, method, tuple(demand or ()), plan_file, epoch)


Command = Callable[..., int]


def grouped(parameter: str, group: Callable[..., Any]) -> Callable[[Command], Command]:
    """Return a decorator for a command whose parameter is what `group` makes of options that are declared there."""
    options = inspect.signature(group, eval_str=True).parameters

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for name, one in signature.parameters.items():
            parameters += options.values() if name == parameter else [one]

        @wraps(command)
        def with_options(**given: Any) -> int:
            made = group(**{name: given.pop(name) for name in options if name in given})
            return command(**given, **{parameter: made})

        vars(with_options)["__signature__"] = signature.replace(parameters=parameters)
        return with_options

    return decorate


names_topology = grouped("named", _named)
"""Of a command whose parameter `named` is given by the options of `_named`."""
