"""The commands of `testbed`: where each is declared, and its line in `testbed --help`.

`room.module:Class` is a declaration of this package; a module alone is one of `testbed.cli`, which registers itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from testbed.commands.declare import Command

COMMANDS = {
    "demo": (
        "measure.demo:Demo",
        "Patch a topology, prove it, measure collectives, re-patch, measure again, write a report.",
    ),
    "topology": ("design.topology:Topology", "Find a topology for so many hosts of so many NICs."),
    "plan": (
        "lab.plan:Plan",
        "Say what would change on the switches. Exit code 2 when something would, or an operation is unfinished.",
    ),
    "apply": (
        "lab.apply:Apply",
        "Patch the topology, install the hosts' routes, and prove both. Without a name the stored topology is meant.",
    ),
    "verify": (
        "lab.verify:Verify",
        "Compare circuits, light, fibres, kernels and packets with the plan. Exit code 2 when something differs.",
    ),
    "path": (
        "lab.path:FollowPath",
        "Follow a packet from host A to host B, by plan and by the kernels. Exit code 2 when these differ.",
    ),
    "discover": (
        "lab.discover:Discover",
        "Find which NIC stands at which port and write a lab file. Exit code 2 when some are not found.",
    ),
    "repair": (
        "lab.repair:Repair",
        "Look for lost fibres and say how to do without them. Exit code 2 when one is lost or work is unfinished.",
    ),
    "resume": (
        "lab.resume:Resume",
        "Go on with an operation that ended too early. Exit code 2 when it stops as unknown, or is not proven.",
    ),
    "rollback": (
        "lab.rollback:Rollback",
        "Go back to an earlier verified epoch, by default the one before the current. Exit code 2 when not proven.",
    ),
    "confirm": (
        "lab.rollback:Confirm",
        "Keep what `apply --confirm-within` has applied; without it the lab goes back.",
    ),
    "stop": (
        "share.stop:Stop",
        "Stop a lab: nothing more is sent to any device, whoever asks. Exit code 2 while a step is under way.",
    ),
    "history": (
        "lab.history:History",
        "List the epochs of a lab: what was applied, by whom, why, and what it changed.",
    ),
    "journal": (
        "lab.history:Journal",
        "Show the operations of a lab and the state of every step, as the journal holds them.",
    ),
    "env": (
        "lab.environment:Environment",
        "Print variables, host file and order of ranks with which your own programs use the optical links.",
    ),
    "drift": (
        "lab.drift:Drift",
        "Read power and loss, keep them, and tell slow losses from sudden ones. Exit code 2 when light is lost.",
    ),
    "nccl": (
        "measure.nccl:Measure",
        "Measure AllReduce on a lab whose circuits stand, or import results of nccl-tests.",
    ),
    "job": (
        "measure.job:PlanJob",
        "Run the plan in force as a job: computing as a wait, tensors on its routes; compare with its prediction.",
    ),
    "optimise": (
        "design.optimise:Optimise",
        "Find a strategy and a topology for a workload, and write them down as a plan.",
    ),
    "simulate": (
        "design.simulate:Simulate",
        "Simulate one iteration of a workload or a task graph on a fabric.",
    ),
    "compare": (
        "design.compare:Compare",
        "Simulate one iteration of a workload on several fabrics and compare time and cost.",
    ),
    "schedule": (
        "design.schedule:Schedule",
        "Say where jobs that share a lab run and when each starts, and predict what that brings; --run measures it.",
    ),
    "reproduce": (
        "design.reproduce:Reproduce",
        "Make figures of a paper again: CSV, plot, and a table of published and own numbers.",
    ),
    "offload": (
        "",
        "Run a trainer's input pipeline partly on other hosts: measure it, and say which part and how much.",
    ),
    "offload profile": (
        "measure.offload:OffloadProfile",
        "Measure a pipeline and its candidates, decide, and say how long the trainer waits before and after.",
    ),
    "offload explain": (
        "measure.offload:OffloadExplain",
        "Say why a profile led to its decision: every candidate with what it promises.",
    ),
    "runs": ("measure.runs:Runs", "List the runs of a results directory, the newest first."),
    "runs query": (
        "measure.runs:RunsQuery",
        "Ask the runs in SQL: of a copy in memory, so that nothing is changed and no other file is reached.",
    ),
    "runs compare": (
        "measure.runs:RunsCompare",
        "Compare what two runs measured, row by row, and say what else was different.",
    ),
    "runs trend": (
        "measure.runs:RunsTrend",
        "Find changes of bandwidth and optical power between runs. Exit code 2 when something was lost.",
    ),
    "report": ("measure.runs:Report", "Write a run's report again from what is stored, and say where it is."),
    "metrics": (
        "measure.metrics:Metrics",
        "Print metrics of the database, and of the switches of labs that are named, as Prometheus reads them.",
    ),
    "lease": ("", "Leases of parts of a lab."),
    "lease request": (
        "share.lease:LeaseRequest",
        "Ask for parts of a lab, all or nothing. Exit code 0 when granted or queued, 1 when refused.",
    ),
    "lease list": (
        "share.lease:LeaseList",
        "List the leases of a lab, and what those that wait are waiting for. Writes nothing.",
    ),
    "lease extend": (
        "share.lease:LeaseExtend",
        "Let a lease last longer, from now on; this is its heartbeat, too.",
    ),
    "lease release": ("share.lease:LeaseRelease", "Give a lease back, or withdraw a request."),
    "lease break": (
        "share.lease:LeaseBreak",
        "Take a lease from whoever holds it; refused while something is being sent to a device under it.",
    ),
    "maintenance": (
        "share.lease:Maintenance",
        "Stop all motion of a lab while hands are in the rack. On exit code 0 nothing moves any more.",
    ),
    "serve": (
        "serve",
        "Share labs over HTTP: runs, leases, events, with roles and an audit log. Runs until it is stopped.",
    ),
    "token": ("", "Tokens of the service: who may do what, on which labs, until when."),
    "token create": (
        "share.tokens:TokenCreate",
        "Make a token and print it, once: only its hash is kept.",
    ),
    "token list": ("share.tokens:TokenList", "List the tokens, without their secrets."),
    "token revoke": ("share.tokens:TokenRevoke", "End a token; the service refuses it a second later."),
    "audit": (
        "share.audit:Audit",
        "Show who did what through the service. With --verify exit code 2 when a line was changed or removed.",
    ),
    "backup": (
        "share.backup:Backup",
        "Write the database and the directories of runs to one file; other commands may go on.",
    ),
    "restore": (
        "share.backup:Restore",
        "Put a backup back, into a file or onto a server. Leases that it holds are ended.",
    ),
    "doctor": (
        "lab.doctor:Doctor",
        "Check this machine, and a lab file if given; exit code 1 when something must be repaired.",
    ),
    "switch": ("", "One optical switch or patch panel by its address, without a lab file."),
    "switch identity": ("devices.switch:SwitchIdentity", "Show who answers, and what it can do."),
    "switch ports": ("devices.switch:SwitchPorts", "List all ports: number, name, side, state."),
    "switch read": (
        "devices.switch:SwitchRead",
        "Print what is connected now, and what a robot still has to do.",
    ),
    "switch connect": (
        "devices.changes:SwitchConnect",
        "Connect these inputs to these outputs, and touch nothing else. An input's old circuit needs --replace.",
    ),
    "switch disconnect": (
        "devices.changes:SwitchDisconnect",
        "Take down whatever circuits these inputs have, and touch nothing else.",
    ),
    "switch apply": (
        "devices.changes:SwitchApply",
        "Make the switch hold these pairs and, within the scope, no others.",
    ),
    "switch power": ("devices.switch:SwitchPower", "Optical power at ports, in dBm."),
    "switch shutter": (
        "devices.changes:SwitchShutter",
        "Open or close the shutters of these ports; circuits stay.",
    ),
    "switch home": (
        "devices.changes:SwitchHome",
        "Have a robot that stands find its home, and let it go on; look at it first.",
    ),
    "switch watch": (
        "devices.switch:SwitchWatch",
        "Print every change of the configuration, and what the device says unasked.",
    ),
    "sim": ("", "Simulated labs: start, stop, list."),
    "sim up": (
        "devices.simulated:SimUp",
        "Start the simulated lab of a lab file, at the lab file's own addresses; returns when it is ready.",
    ),
    "sim down": (
        "devices.simulated:SimDown",
        "Remove labs whose supervisor is gone; a living one when named, those that you started with --all.",
    ),
    "sim status": (
        "devices.simulated:SimStatus",
        "List the simulated labs of this machine, living or left over.",
    ),
    "sim examples": (
        "devices.simulated:SimExamples",
        "Write the lab files of the examples into a folder. A file that is there already stays as it is.",
    ),
    "sim switch": (
        "devices.simulated:SimSwitch",
        "Serve one simulated switch until interrupted; prints one JSON line with its addresses.",
    ),
}


@cache
def command_of(words: str) -> type[Command[Any]] | None:
    """Return the declaration of a command; None for a group, and for a module of `testbed.cli`."""
    module, _, name = COMMANDS.get(words, ("", ""))[0].partition(":")
    return getattr(import_module(f"testbed.commands.{module}"), name) if name else None


def list_declared_commands() -> Iterator[tuple[str, type[Command[Any]]]]:
    """Yield the words of each command that is declared, and its declaration."""
    for words in COMMANDS:
        declared = command_of(words)
        if declared is not None:
            yield words, declared
