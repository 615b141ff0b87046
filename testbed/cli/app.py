"""The commands of `testbed`, gathered from the modules that hold them."""

from __future__ import annotations

import typer

from testbed.cli import circuits, demo, doctor, results, simulated, topology

app = typer.Typer(
    name="testbed",
    help="Patch an optical direct-connect testbed and measure collectives on it, on hardware and on none.",
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(simulated.app, name="sim")
for command in (
    demo.demo,
    topology.topology,
    circuits.plan,
    circuits.apply,
    circuits.verify,
    circuits.path,
    results.nccl,
    results.runs,
    results.report,
    doctor.doctor,
):
    app.command()(command)
