"""`testbed env`: what torchrun, mpirun and the like must know to use a lab's optical links."""

from __future__ import annotations

from typing import Annotated

import typer

from testbed.cli import options
from testbed.cli.output import print_json, print_lines, print_table, tell
from testbed.commands.documents import DONE

AsShell = Annotated[bool, typer.Option("--shell", help="Only the variables, as lines for a shell.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("env")(env)


@options.names_topology
def env(
    lab_file: options.LabFile,
    named: options.Named,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_shell: AsShell = False,
    as_json: options.AsJson = False,
) -> int:
    """Print variables, host file and order of ranks with which your own programs use the optical links."""
    from testbed.lab.hosts.environment import program_environment
    from testbed.operate.choice import running_design

    meant = running_design(lab_file, named, runs_dir)
    found = program_environment(meant.lab, meant.design.topology)
    if as_json:
        print_json(found.as_json() | {"unfinished": [one.json() for one in meant.left]})
    elif as_shell:
        print_lines(found.shell.splitlines())
        for line in meant.unfinished_lines():
            tell(line)  # standard output is for the shell
    else:
        print_lines([meant.heading(), *meant.lines(), *meant.unfinished_lines()])
        print_lines([f"{name}={value}" for name, value in found.variables.items()])
        columns = ["rank", "host", "management", "fabric"]
        rows = [[at, host.name, host.management, host.address] for at, host in enumerate(found.ranks)]
        print_table("Ranks along a ring", columns, rows)
    return DONE
