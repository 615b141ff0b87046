"""The commands of `testbed`: where each is declared, and its line in `testbed --help`.

`package.module:Class` names a declaration in `testbed.commands`. A name without class is a module of `testbed.cli`,
which registers itself.
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
        "Patch a topology, verify it, measure collectives, patch and measure again, write a report.",
    ),
    "topology": ("design.topology:Topology", "Find a topology for a number of hosts and NICs."),
    "plan": (
        "lab.plan:Plan",
        "Show what would change on the switches. Exit code 2 if something would, or an operation is unfinished.",
    ),
    "apply": (
        "lab.apply:Apply",
        "Patch a topology, install the hosts' routes, and verify both; default: the stored topology.",
    ),
    "verify": (
        "lab.verify:Verify",
        "Compare circuits, light, fibres, kernels and packets with the plan. Exit code 2 if something differs.",
    ),
    "path": (
        "lab.path:FollowPath",
        "Follow a packet from host A to host B, as planned and as the kernels route it. Exit code 2 if these differ.",
    ),
    "discover": (
        "lab.discover:Discover",
        "Find the port of every NIC and write a lab file. Exit code 2 if some are not found.",
    ),
    "repair": (
        "lab.repair:Repair",
        "Find lost fibres and plan how to avoid them. Exit code 2 if one is lost or an operation is unfinished.",
    ),
    "resume": (
        "lab.resume:Resume",
        "Complete an unfinished operation. Exit code 2 if its outcome is unknown or not verified.",
    ),
    "rollback": (
        "lab.rollback:Rollback",
        "Return to an earlier verified epoch; default: the previous one. Exit code 2 if the lab cannot be verified.",
    ),
    "confirm": (
        "lab.rollback:Confirm",
        "Keep what `apply --confirm-within` has applied; without it the lab is rolled back.",
    ),
    "stop": (
        "share.stop:Stop",
        "Stop a lab: nobody can send anything to its devices. Exit code 2 if an operation is still running.",
    ),
    "history": (
        "lab.history:History",
        "List the epochs of a lab: what was applied, by whom, why, and its changes.",
    ),
    "journal": (
        "lab.history:Journal",
        "Show the operations of a lab and the state of every step, from the journal.",
    ),
    "env": (
        "lab.environment:Environment",
        "Print variables, host file and order of ranks for programs that use the optical links.",
    ),
    "drift": (
        "lab.drift:Drift",
        "Read and store power and loss, and tell slow losses from sudden ones. Exit code 2 if light is lost.",
    ),
    "nccl": (
        "measure.nccl:Measure",
        "Measure AllReduce over the current circuits of a lab, or import results of nccl-tests.",
    ),
    "job": (
        "measure.job:PlanJob",
        "Run the plan in force as a job: pause for computing, send tensors, and compare with the prediction.",
    ),
    "run": (
        "measure.run:RunProgram",
        "Run a command on hosts of a lab, on light of its own: lease, patch, verify, run, give everything back.",
    ),
    "optimise": (
        "design.optimise:Optimise",
        "Find a strategy and a topology for a workload, and write a plan.",
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
        "Choose hosts and start times for jobs that share a lab, and predict their times; --run measures them.",
    ),
    "reproduce": (
        "design.reproduce:Reproduce",
        "Reproduce figures of a paper: CSV, plot, and a table of published and own numbers.",
    ),
    "offload": (
        "",
        "Run a trainer's input pipeline partly on other hosts: measure it, and decide which part and how much.",
    ),
    "offload profile": (
        "measure.offload:OffloadProfile",
        "Measure a pipeline and its candidates, decide, and show how long the trainer waits before and after.",
    ),
    "offload explain": (
        "measure.offload:OffloadExplain",
        "Explain the decision of a profile: every candidate with its expected rate.",
    ),
    "runs": ("measure.runs:Runs", "List the runs of a results directory, the newest first."),
    "runs query": (
        "measure.runs:RunsQuery",
        "Query the runs in SQL, on a copy in memory that can change nothing and read no other file.",
    ),
    "runs compare": (
        "measure.runs:RunsCompare",
        "Compare two runs row by row, and list other differences between them.",
    ),
    "runs explain": (
        "measure.runs:RunsExplain",
        "Find which rank, host or link held up a run, and why. Exit code 2 if one did.",
    ),
    "runs trend": (
        "measure.runs:RunsTrend",
        "Find changes of bandwidth and optical power between runs. Exit code 2 if there is a regression.",
    ),
    "report": (
        "measure.runs:Report",
        "Write a run's report again from its stored results, and print its path.",
    ),
    "metrics": (
        "measure.metrics:Metrics",
        "Print metrics of the database, and of the switches of the given labs, in the format of Prometheus.",
    ),
    "lease": ("", "Leases of parts of a lab."),
    "lease request": (
        "share.lease:LeaseRequest",
        "Request parts of a lab, all or nothing. Exit code 0 if granted or queued, 1 if refused.",
    ),
    "lease list": (
        "share.lease:LeaseList",
        "List the leases of a lab, and what waiting requests wait for. Writes nothing.",
    ),
    "lease extend": (
        "share.lease:LeaseExtend",
        "Extend a lease, counted from now; call it regularly as a heartbeat.",
    ),
    "lease release": ("share.lease:LeaseRelease", "Release a lease, or withdraw a request."),
    "lease break": (
        "share.lease:LeaseBreak",
        "End anyone's lease; refused while something is being sent to a device under it.",
    ),
    "maintenance": (
        "share.lease:Maintenance",
        "Stop all changes of a lab while people work in the rack. After exit code 0, nothing moves.",
    ),
    "serve": (
        "serve",
        "Share labs over HTTP: runs, leases, events, with roles and an audit log. Runs until stopped.",
    ),
    "token": ("", "Tokens of the service: who may do what, on which labs, until when."),
    "token create": (
        "share.tokens:TokenCreate",
        "Create a token and print it, once: only its hash is stored.",
    ),
    "token list": ("share.tokens:TokenList", "List the tokens, without their secrets."),
    "token revoke": ("share.tokens:TokenRevoke", "Revoke a token; the service refuses it within a second."),
    "audit": (
        "share.audit:Audit",
        "Show who did what through the service. With --verify, exit code 2 if a line was changed or removed.",
    ),
    "backup": (
        "share.backup:Backup",
        "Write the database and the directories of runs to one file; other commands may run meanwhile.",
    ),
    "restore": (
        "share.backup:Restore",
        "Restore a backup to a file or a server. Leases in it are ended.",
    ),
    "doctor": (
        "lab.doctor:Doctor",
        "Check this machine, and a lab file if given; exit code 1 if a check fails.",
    ),
    "switch": ("", "One optical switch or patch panel by its address, without a lab file."),
    "switch identity": ("devices.switch:SwitchIdentity", "Show the identity and capabilities of the device."),
    "switch ports": ("devices.switch:SwitchPorts", "List all ports: number, name, side, state."),
    "switch read": (
        "devices.switch:SwitchRead",
        "Print the current connections, and the queued moves of a robot.",
    ),
    "switch connect": (
        "devices.changes:SwitchConnect",
        "Connect these inputs to these outputs, and change nothing else. An input's old circuit needs --replace.",
    ),
    "switch disconnect": (
        "devices.changes:SwitchDisconnect",
        "Remove the circuits of these inputs, and change nothing else.",
    ),
    "switch apply": (
        "devices.changes:SwitchApply",
        "Set the circuits of the switch to these pairs; within the scope, others are removed.",
    ),
    "switch power": ("devices.switch:SwitchPower", "Print the optical power at ports, in dBm."),
    "switch shutter": (
        "devices.changes:SwitchShutter",
        "Open or close the shutters of these ports; circuits are unchanged.",
    ),
    "switch home": (
        "devices.changes:SwitchHome",
        "Home a stopped robot and let it resume its queue; look at the robot first.",
    ),
    "switch watch": (
        "devices.switch:SwitchWatch",
        "Print every change of the circuits, and the events that the device reports.",
    ),
    "sim": ("", "Simulated labs: start, stop, list."),
    "sim up": (
        "devices.simulated:SimUp",
        "Start the simulated lab of a lab file, at the lab file's own addresses; returns when it is ready.",
    ),
    "sim down": (
        "devices.simulated:SimDown",
        "Remove labs whose supervisor is gone and labs that you name; with --all, all that you started.",
    ),
    "sim status": (
        "devices.simulated:SimStatus",
        "List the simulated labs of this machine, live or left over.",
    ),
    "sim examples": (
        "devices.simulated:SimExamples",
        "Write the example lab files into a folder. Existing files are not changed.",
    ),
    "sim switch": (
        "devices.simulated:SimSwitch",
        "Run one simulated switch until interrupted; prints one JSON line with its addresses.",
    ),
}


@cache
def load_command(command_name: str) -> type[Command[Any]] | None:
    """Return the declaration of a command, or None for a group, a module of `testbed.cli` and an unknown command."""
    module_name, _, class_name = COMMANDS.get(command_name, ("", ""))[0].partition(":")
    return getattr(import_module(f"testbed.commands.{module_name}"), class_name) if class_name else None


def list_declared_commands() -> Iterator[tuple[str, type[Command[Any]]]]:
    """Yield (words, class) of each command that is declared here."""
    for command_name in COMMANDS:
        command_type = load_command(command_name)
        if command_type is not None:
            yield command_name, command_type
