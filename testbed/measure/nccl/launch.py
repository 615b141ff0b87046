"""Real nccl-tests on hosts with GPUs: are they there, with what environment and command, and their output.

nccl-tests span hosts only in a build with MPI, so one `mpirun` on the first host starts a rank on each;
every host is an application context of its own, with its own environment. NCCL forms one ring order over
the hosts (0, 1, 2 ...) however many channels it has: other strides need a library that knows them
(`NcclSettings.preload`), and `log.check_rings` tells whether it did.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from testbed.errors import CollectiveError, ResultsError
from testbed.lab.hosts.fleet import Completed, Fleet
from testbed.lab.model import Lab, LabHost
from testbed.measure.nccl.json_output import parse_json
from testbed.measure.nccl.log import RingLog, parse_rings
from testbed.measure.nccl.table import NcclTable
from testbed.measure.nccl.text_output import json_output_path, parse_text

_SEARCH_PATH = "$PATH:$HOME/nccl-tests/build:/opt/nccl-tests/build:/usr/local/nccl-tests/build"


@dataclass(frozen=True, slots=True)
class NcclSettings:
    """Network settings of NCCL: InfiniBand verbs (RoCE too) or sockets, over which interfaces.

    `interfaces` are device names as verbs has them (`qedr0`), or network interfaces for sockets; `channels`
    is the number of rings; `preload` the path of a library to use in NCCL's place.
    """

    network: Literal["IB", "Socket"]
    interfaces: tuple[str, ...]
    channels: int
    gid_index: int = 3
    preload: str = ""


@dataclass(frozen=True, slots=True)
class NcclTest:
    """A test, its sizes, and how often it runs. `json` is the file asked for on the first host."""

    program: str = "all_reduce_perf"
    smallest_bytes: int = 8
    largest_bytes: int = 128 << 20
    factor: int = 2
    iterations: int = 20
    warmup_iterations: int = 1
    gpus_per_host: int = 1
    timeout_s: int = 300
    json: str = ""


@dataclass(frozen=True, slots=True)
class NcclHost:
    """Equipment of a host: its GPUs as the driver lists them, and paths of the test and of mpirun, or ''."""

    host: str
    gpus: tuple[str, ...]
    program: str
    mpirun: str


@dataclass(frozen=True, slots=True)
class NcclRun:
    """One run: its results, the rings that NCCL says it built, and everything that was printed."""

    table: NcclTable
    rings: RingLog
    output: str


def environment(settings: NcclSettings) -> dict[str, str]:
    """Return NCCL's variables: rings only, on exactly these interfaces, with the log that names the rings.

    The set is that of the 12-host testbed (`NCCL_NET=IB`, one channel a NIC, `NCCL_ALGO=Ring`).
    """
    names = "=" + ",".join(settings.interfaces)  # `=` is the whole name; without it `nic1` means `nic11` too
    by_network = {
        "IB": {"NCCL_IB_HCA": names, "NCCL_IB_GID_INDEX": str(settings.gid_index)},
        "Socket": {"NCCL_SOCKET_IFNAME": names, "NCCL_IB_DISABLE": "1"},
    }
    variables = {
        "NCCL_NET": settings.network,
        **by_network[settings.network],
        "NCCL_ALGO": "Ring",
        "NCCL_MIN_NCHANNELS": str(settings.channels),
        "NCCL_MAX_NCHANNELS": str(settings.channels),
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,NET,ENV",
    }
    return variables | ({"LD_PRELOAD": settings.preload} if settings.preload else {})


def program_arguments(test: NcclTest) -> tuple[str, ...]:
    """Return the arguments of the test itself."""
    named = {
        "-b": test.smallest_bytes,
        "-e": test.largest_bytes,
        "-f": test.factor,
        "-g": test.gpus_per_host,
        "-n": test.iterations,
        "-w": test.warmup_iterations,
        "-T": test.timeout_s,
    }
    arguments = [word for name, value in named.items() for word in (name, str(value))]
    return (*arguments, "-J", test.json) if test.json else tuple(arguments)


def host_context(
    host: LabHost, program: str, variables: Mapping[str, str], test: NcclTest
) -> tuple[str, ...]:
    """Return the application context of one host: one rank there, its variables, the test."""
    settings = [word for name, value in variables.items() for word in ("-x", f"{name}={value}")]
    return ("-np", "1", "-H", f"{host.management}:1", *settings, program, *program_arguments(test))


def mpirun_command(
    lab: Lab, found: Sequence[NcclHost], variables: Mapping[str, Mapping[str, str]], test: NcclTest
) -> str:
    """Return the one command that runs on the first host; `variables` are per host name.

    MPI's own traffic is held to the management network, so that the links carry the collective alone.
    """
    programs = {one.host: one.program for one in found}
    contexts = [
        shlex.join(host_context(host, programs[host.name], variables[host.name], test)) for host in lab.hosts
    ]
    network = str(lab.management)
    common = [
        "--bind-to",
        "none",
        "--mca",
        "oob_tcp_if_include",
        network,
        "--mca",
        "btl_tcp_if_include",
        network,
    ]
    if lab.hosts[0].user == "root":
        common.append("--allow-run-as-root")
    return f"{shlex.join([found[0].mpirun, *common])} {' : '.join(contexts)}"


def find_command(test: NcclTest) -> str:
    """Return a shell line that lists a host's GPUs and says where the test and mpirun are."""
    program = shlex.quote(test.program)
    return (
        f'PATH="{_SEARCH_PATH}"; nvidia-smi -L 2>/dev/null; '
        f'echo "program=$(command -v {program})"; echo "mpirun=$(command -v mpirun)"; true'
    )


def read_found(completed: Completed) -> NcclHost:
    """Return what `find_command` printed on one host."""
    lines = completed.stdout.splitlines()
    said = dict(line.partition("=")[::2] for line in lines if line.startswith(("program=", "mpirun=")))
    gpus = tuple(line.strip() for line in lines if re.match(r"GPU \d+:", line))
    return NcclHost(completed.host, gpus, said.get("program", "").strip(), said.get("mpirun", "").strip())


def find_nccl(fleet: Fleet, test: NcclTest | None = None) -> tuple[NcclHost, ...]:
    """Return what each host of the fleet has, in the fleet's order. Raises `HostError` when one cannot be reached."""
    command = find_command(test or NcclTest())
    completed = fleet.run({host.name: command for host in fleet.hosts})
    return tuple(read_found(completed[host.name]) for host in fleet.hosts)


def why_not(found: Sequence[NcclHost], test: NcclTest | None = None) -> str:
    """Return why nccl-tests cannot run on these hosts, and what to do; empty when they can."""
    test = test or NcclTest()
    if not found:
        return "there are no hosts"
    few = [one.host for one in found if len(one.gpus) < test.gpus_per_host]
    lacking = [one.host for one in found if not one.program]
    reasons = []
    if few:
        reasons.append(
            f"no GPU on {_names(few, len(found))} (`nvidia-smi -L` lists fewer than {test.gpus_per_host}); "
            f"the CPU collectives of `testbed nccl LAB` need none"
        )
    if lacking:
        reasons.append(
            f"no `{test.program}` on {_names(lacking, len(found))}; build nccl-tests with MPI=1 and put it on "
            f"the PATH or into ~/nccl-tests/build"
        )
    if not found[0].mpirun:
        reasons.append(f"no `mpirun` on {found[0].host}, which starts the ranks; install Open MPI there")
    return "; ".join(reasons)


def _names(hosts: Sequence[str], of: int) -> str:
    return "any host" if len(hosts) == of else f"host{'s' if len(hosts) > 1 else ''} {', '.join(hosts)}"


def run_nccl(fleet: Fleet, lab: Lab, settings: NcclSettings, test: NcclTest | None = None) -> NcclRun:
    """Run a test over all hosts and read what it says; the JSON document counts where it was written.

    Raises `CollectiveError` when the hosts lack what it takes or the test ended without a row,
    `HostError` when a host cannot be reached.
    """
    test = test or NcclTest()
    found = find_nccl(fleet, test)
    reason = why_not(found, test)
    if reason:
        raise CollectiveError(f"nccl-tests cannot run here: {reason}")
    variables = environment(settings)
    command = mpirun_command(lab, found, {host.name: variables for host in lab.hosts}, test)
    first = lab.hosts[0].name
    done = fleet.run({first: command}, timeout_s=test.timeout_s + 60.0)[first]
    try:
        table = _read_results(fleet, first, done)
    except ResultsError as error:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise CollectiveError(
            f"{test.program} ended with status {done.exit_status} on {first} and no results: {error} {''.join(last)}"
        ) from error
    return NcclRun(table, parse_rings(done.stdout + done.stderr), done.stdout + done.stderr)


def _read_results(fleet: Fleet, first: str, done: Completed) -> NcclTable:
    """Return the table, from the JSON that the output announces if it can be had, else from the output."""
    path = json_output_path(done.stdout)
    if path:
        document = fleet.run({first: f"cat {shlex.quote(path)}"})[first]
        if document.exit_status == 0:
            return parse_json(document.stdout, path)
    return parse_text(done.stdout, f"output on {first}")


def import_nccl(path: Path | str) -> NcclTable:
    """Return the table in a file, which is JSON when it begins with a brace and text otherwise.

    Raises `ResultsError`, naming file and line, when the file cannot be read or holds no row of results.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig", errors="replace")
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}. Give a file that nccl-tests wrote") from error
    parse = parse_json if text.lstrip().startswith("{") else parse_text
    return parse(text, str(path))
