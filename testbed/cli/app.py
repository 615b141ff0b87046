"""The commands of `testbed`, the modules that hold them, and their lines in `testbed --help`.

A module is imported only when its command is asked for, and imports at its head what `--help` of the command needs:
`typer` and the options. What the command works with is imported in the functions that do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.exceptions import TyperException

from lightbed.command_group import CommandGroup
from ocs_drivers.errors import OcsError
from testbed.cli.output import DONE, ERROR, INTERRUPTED, report_error
from testbed.errors import Interrupted, TestbedError

COMMANDS = {
    "demo": (
        "demo",
        "Patch a topology, prove it, measure collectives, re-patch, measure again, write a report.",
    ),
    "topology": ("topology", "Find a topology for so many hosts of so many NICs."),
    "plan": (
        "circuits",
        "Say what would change on the switches. Exit code 2 when something would, or an operation is unfinished.",
    ),
    "apply": (
        "circuits",
        "Patch the topology, install the hosts' routes, and prove both. Without a name the stored topology is meant.",
    ),
    "verify": (
        "circuits",
        "Compare circuits, light, fibres, kernels and packets with the plan. Exit code 2 when something differs.",
    ),
    "path": (
        "circuits",
        "Follow a packet from host A to host B, by plan and by the kernels. Exit code 2 when these differ.",
    ),
    "discover": (
        "discover",
        "Find which NIC stands at which port and write a lab file. Exit code 2 when some are not found.",
    ),
    "repair": (
        "repair",
        "Look for lost fibres and say how to do without them. Exit code 2 when one is lost or work is unfinished.",
    ),
    "resume": (
        "resume",
        "Go on with an operation that ended too early. Exit code 2 when it stops as unknown, or is not proven.",
    ),
    "rollback": (
        "rollback",
        "Go back to an earlier verified epoch, by default the one before the current. Exit code 2 when not proven.",
    ),
    "confirm": ("rollback", "Keep what `apply --confirm-within` has applied; without it the lab goes back."),
    "stop": (
        "stop",
        "Stop a lab: nothing more is sent to any device, whoever asks. Exit code 2 while a step is under way.",
    ),
    "history": ("history", "List the epochs of a lab: what was applied, by whom, why, and what it changed."),
    "journal": (
        "history",
        "Show the operations of a lab and the state of every step, as the journal holds them.",
    ),
    "env": (
        "environment",
        "Print variables, host file and order of ranks with which your own programs use the optical links.",
    ),
    "drift": (
        "drift",
        "Read power and loss, keep them, and tell slow losses from sudden ones. Exit code 2 when light is lost.",
    ),
    "nccl": ("nccl", "Measure AllReduce on a lab whose circuits stand, or import results of nccl-tests."),
    "job": (
        "job",
        "Run the plan in force as a job: computing as a wait, tensors on its routes; compare with its prediction.",
    ),
    "optimise": ("optimise", "Find a strategy and a topology for a workload, and write them down as a plan."),
    "simulate": ("simulate", "Simulate one iteration of a workload or a task graph on a fabric."),
    "compare": (
        "compare",
        "Simulate one iteration of a workload on several fabrics and compare time and cost.",
    ),
    "schedule": (
        "schedule",
        "Say where jobs that share a lab run and when each starts, and predict what that brings; --run measures it.",
    ),
    "reproduce": (
        "reproduce",
        "Make figures of a paper again: CSV, plot, and a table of published and own numbers.",
    ),
    "offload": (
        "offload",
        "Run a trainer's input pipeline partly on other hosts: measure it, and say which part and how much.",
    ),
    "runs": ("runs", "List the runs of a results directory, the newest first."),
    "report": ("runs", "Write a run's report again from what is stored, and say where it is."),
    "metrics": (
        "metrics",
        "Print metrics of the database, and of the switches of labs that are named, as Prometheus reads them.",
    ),
    "lease": ("lease", "Leases of parts of a lab."),
    "maintenance": (
        "lease",
        "Stop all motion of a lab while hands are in the rack. On exit code 0 nothing moves any more.",
    ),
    "serve": (
        "serve",
        "Share labs over HTTP: runs, leases, events, with roles and an audit log. Runs until it is stopped.",
    ),
    "token": ("tokens", "Tokens of the service: who may do what, on which labs, until when."),
    "audit": (
        "audit",
        "Show who did what through the service. With --verify exit code 2 when a line was changed or removed.",
    ),
    "backup": (
        "storage",
        "Write the database and the directories of runs to one file; other commands may go on.",
    ),
    "restore": (
        "storage",
        "Put a backup back, into a file or onto a server. Leases that it holds are ended.",
    ),
    "doctor": (
        "doctor",
        "Check this machine, and a lab file if given; exit code 1 when something must be repaired.",
    ),
    "switch": ("switch", "One optical switch or patch panel by its address, without a lab file."),
    "sim": ("simulated", "Simulated labs: start, stop, list."),
}


def _complete(command: Any) -> None:
    from testbed.cli.shared_options import add_shared_options

    add_shared_options(command)


def build_app() -> CommandGroup:
    """Return the application, none of whose commands is imported yet."""
    return CommandGroup(
        name="testbed",
        help="Patch an optical direct-connect testbed and measure collectives on it, on hardware and on none.",
        package="testbed.cli",
        table=COMMANDS,
        complete=_complete,
    )


def run_app(arguments: Sequence[str]) -> int:
    """Run the command line and turn every ending into an exit code: 0, 1, 2 or 130."""
    as_json = "--json" in arguments
    try:
        if os.environ.get("LIGHTBED_LOG"):
            from testbed.observe.json_log import log_as_asked

            log_as_asked()
        if os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or os.environ.get(
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
        ):
            from testbed.observe.traces import trace_as_asked

            trace_as_asked()
        result: Any = build_app()(list(arguments), prog_name="testbed", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        result = INTERRUPTED
    except Interrupted as error:
        report_error(error, as_json=as_json)
        return INTERRUPTED
    except (TyperException, OcsError, TestbedError, OSError) as error:
        report_error(error, as_json=as_json)
        return ERROR
    if result == INTERRUPTED:  # typer's own answer to Ctrl-C inside a command
        print("interrupted; what was built is torn down, what was measured or found is kept", file=sys.stderr)
    return result if isinstance(result, int) else DONE
