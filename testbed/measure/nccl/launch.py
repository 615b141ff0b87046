"""Launches of nccl-tests on hosts with GPUs: search for the programs, environment, command, and output.

Only a build with MPI spans hosts, so one `mpirun` on the first host starts a rank on each host. Every host has its own
application context and environment. NCCL uses one ring order over the hosts (0, 1, 2 ...) for all its channels. Other
strides need a replacement of the NCCL library (`NcclSettings.preload_library`). `log.find_ring_differences` checks the
rings.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from testbed.errors import CollectiveError, ResultsError
from testbed.lab.hosts.fleet import CommandResult, Fleet
from testbed.lab.model import Lab, LabHost
from testbed.measure.nccl.json_output import parse_json
from testbed.measure.nccl.log import RingLog, parse_rings
from testbed.measure.nccl.table import NcclTable
from testbed.measure.nccl.text_output import find_json_output_path, parse_text

_SEARCH_PATH = "$PATH:$HOME/nccl-tests/build:/opt/nccl-tests/build:/usr/local/nccl-tests/build"


@dataclass(frozen=True, slots=True)
class NcclSettings:
    """Network settings of NCCL: InfiniBand verbs (also for RoCE) or sockets, and the interfaces.

    `interfaces` names verbs devices (`qedr0`), or network interfaces for sockets. `channels` is the number of rings.
    `preload_library` is the path of a library that replaces NCCL.
    """

    network: Literal["IB", "Socket"]
    interfaces: tuple[str, ...]
    channels: int
    gid_index: int = 3
    preload_library: str = ""


@dataclass(frozen=True, slots=True)
class NcclTest:
    """A test program, its sizes and iterations.

    Each size is `size_factor` times the size before it. `json_path` is the path of the output file on the first host.
    """

    program: str = "all_reduce_perf"
    smallest_bytes: int = 8
    largest_bytes: int = 128 << 20
    size_factor: int = 2
    iterations: int = 20
    warmup_iterations: int = 1
    gpus_per_host: int = 1
    timeout_s: int = 300
    json_path: str = ""


@dataclass(frozen=True, slots=True)
class NcclHost:
    """GPUs of a host as the driver lists them, and the paths of the test and of mpirun ("" if missing)."""

    host: str
    gpu_names: tuple[str, ...]
    program_path: str
    mpirun_path: str


@dataclass(frozen=True, slots=True)
class NcclRun:
    """One run: its results, the rings in NCCL's log, and the whole output."""

    table: NcclTable
    ring_log: RingLog
    output: str


def make_nccl_environment(settings: NcclSettings) -> dict[str, str]:
    """Return NCCL's environment variables: use only rings, on exactly these interfaces, and log the rings.

    The number of channels is the number of rings in `settings`, usually one per NIC.
    """
    interface_list = "=" + ",".join(
        settings.interfaces
    )  # `=` means an exact match; without it `nic1` matches `nic11` too
    variables_by_network = {
        "IB": {"NCCL_IB_HCA": interface_list, "NCCL_IB_GID_INDEX": str(settings.gid_index)},
        "Socket": {"NCCL_SOCKET_IFNAME": interface_list, "NCCL_IB_DISABLE": "1"},
    }
    variables = {
        "NCCL_NET": settings.network,
        **variables_by_network[settings.network],
        "NCCL_ALGO": "Ring",
        "NCCL_MIN_NCHANNELS": str(settings.channels),
        "NCCL_MAX_NCHANNELS": str(settings.channels),
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,NET,ENV",
    }
    return variables | ({"LD_PRELOAD": settings.preload_library} if settings.preload_library else {})


def make_program_arguments(test: NcclTest) -> tuple[str, ...]:
    """Return the arguments of the test program."""
    value_by_option = {
        "-b": test.smallest_bytes,
        "-e": test.largest_bytes,
        "-f": test.size_factor,
        "-g": test.gpus_per_host,
        "-n": test.iterations,
        "-w": test.warmup_iterations,
        "-T": test.timeout_s,
    }
    arguments = [argument for option, value in value_by_option.items() for argument in (option, str(value))]
    return (*arguments, "-J", test.json_path) if test.json_path else tuple(arguments)


def make_host_context(
    host: LabHost, program: str, variables: Mapping[str, str], test: NcclTest
) -> tuple[str, ...]:
    """Return the application context of one host: one rank, its variables, the test."""
    variable_arguments = [
        argument for name, value in variables.items() for argument in ("-x", f"{name}={value}")
    ]
    return (
        "-np",
        "1",
        "-H",
        f"{host.management}:1",
        *variable_arguments,
        program,
        *make_program_arguments(test),
    )


def make_mpirun_command(
    lab: Lab,
    nccl_hosts: Sequence[NcclHost],
    variables_by_host: Mapping[str, Mapping[str, str]],
    test: NcclTest,
) -> str:
    """Return the mpirun command for the first host. `variables_by_host` maps host names to environment variables.

    MPI's own traffic stays on the management network, so that the links carry only the collective.
    """
    program_by_host = {nccl_host.host: nccl_host.program_path for nccl_host in nccl_hosts}
    contexts = [
        shlex.join(make_host_context(host, program_by_host[host.name], variables_by_host[host.name], test))
        for host in lab.hosts
    ]
    network = str(lab.management)
    common_arguments = [
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
        common_arguments.append("--allow-run-as-root")
    return f"{shlex.join([nccl_hosts[0].mpirun_path, *common_arguments])} {' : '.join(contexts)}"


def make_find_command(test: NcclTest) -> str:
    """Return a shell command that lists a host's GPUs and the paths of the test and of mpirun."""
    program = shlex.quote(test.program)
    return (
        f'PATH="{_SEARCH_PATH}"; nvidia-smi -L 2>/dev/null; '
        f'echo "program=$(command -v {program})"; echo "mpirun=$(command -v mpirun)"; true'
    )


def parse_nccl_host(result: CommandResult) -> NcclHost:
    """Return the GPUs and programs of one host, parsed from the output of `make_find_command`."""
    lines = result.stdout.splitlines()
    path_by_name = dict(
        line.partition("=")[::2] for line in lines if line.startswith(("program=", "mpirun="))
    )
    gpus = tuple(line.strip() for line in lines if re.match(r"GPU \d+:", line))
    return NcclHost(
        result.host, gpus, path_by_name.get("program", "").strip(), path_by_name.get("mpirun", "").strip()
    )


def find_nccl_hosts(fleet: Fleet, test: NcclTest | None = None) -> tuple[NcclHost, ...]:
    """Return the GPUs and programs of each host, in the fleet's order. Raise `HostError` if one cannot be reached."""
    command = make_find_command(test or NcclTest())
    results = fleet.run({host.name: command for host in fleet.hosts})
    return tuple(parse_nccl_host(results[host.name]) for host in fleet.hosts)


def explain_missing_requirements(hosts: Sequence[NcclHost], test: NcclTest | None = None) -> str:
    """Return why nccl-tests cannot run on these hosts and what to do, or "" if they can run."""
    test = test or NcclTest()
    if not hosts:
        return "there are no hosts"
    hosts_with_few_gpus = [
        nccl_host.host for nccl_host in hosts if len(nccl_host.gpu_names) < test.gpus_per_host
    ]
    hosts_without_program = [nccl_host.host for nccl_host in hosts if not nccl_host.program_path]
    reasons = []
    if hosts_with_few_gpus:
        reasons.append(
            f"too few GPUs on {_join_names(hosts_with_few_gpus, len(hosts))} "
            f"(`nvidia-smi -L` lists fewer than {test.gpus_per_host}); "
            f"the CPU collectives of `testbed nccl LAB` need none"
        )
    if hosts_without_program:
        reasons.append(
            f"no `{test.program}` on {_join_names(hosts_without_program, len(hosts))}; "
            f"build nccl-tests with MPI=1 and put it on "
            f"the PATH or into ~/nccl-tests/build"
        )
    if not hosts[0].mpirun_path:
        reasons.append(f"no `mpirun` on {hosts[0].host}, which starts the ranks; install Open MPI there")
    return "; ".join(reasons)


def _join_names(hosts: Sequence[str], host_count: int) -> str:
    return (
        "any host" if len(hosts) == host_count else f"host{'s' if len(hosts) > 1 else ''} {', '.join(hosts)}"
    )


def run_nccl(fleet: Fleet, lab: Lab, settings: NcclSettings, test: NcclTest | None = None) -> NcclRun:
    """Run a test over all hosts and parse its results, from its JSON document if there is one.

    Raises `CollectiveError` if GPUs or programs are missing or the test printed no row, and `HostError` if a host
    cannot be reached.
    """
    test = test or NcclTest()
    nccl_hosts = find_nccl_hosts(fleet, test)
    reason = explain_missing_requirements(nccl_hosts, test)
    if reason:
        raise CollectiveError(f"nccl-tests cannot run here: {reason}")
    variables = make_nccl_environment(settings)
    command = make_mpirun_command(lab, nccl_hosts, {host.name: variables for host in lab.hosts}, test)
    first_host = lab.hosts[0].name
    mpirun_result = fleet.run({first_host: command}, timeout_s=test.timeout_s + 60.0)[first_host]
    try:
        table = _read_results(fleet, first_host, mpirun_result)
    except ResultsError as error:
        last_lines = (mpirun_result.stderr.strip() or mpirun_result.stdout.strip()).splitlines()[-1:]
        raise CollectiveError(
            f"{test.program} ended with status {mpirun_result.exit_status} on {first_host} and no results: "
            f"{error} {''.join(last_lines)}"
        ) from error
    return NcclRun(
        table,
        parse_rings(mpirun_result.stdout + mpirun_result.stderr),
        mpirun_result.stdout + mpirun_result.stderr,
    )


def _read_results(fleet: Fleet, first_host: str, result: CommandResult) -> NcclTable:
    """Return the table from the JSON file that the output names, or from the output if the file is unreadable."""
    path = find_json_output_path(result.stdout)
    if path:
        cat_result = fleet.run({first_host: f"cat {shlex.quote(path)}"})[first_host]
        if cat_result.exit_status == 0:
            return parse_json(cat_result.stdout, path)
    return parse_text(result.stdout, f"output on {first_host}")


def import_nccl(path: Path | str) -> NcclTable:
    """Return the table of results in an output file of nccl-tests, which is JSON if it begins with a brace, else text.

    Raises `ResultsError`, naming file and line, if the file cannot be read or holds no row of results.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig", errors="replace")
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}. Give a file that nccl-tests wrote") from error
    parse_output = parse_json if text.lstrip().startswith("{") else parse_text
    return parse_output(text, str(path))
