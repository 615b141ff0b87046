"""A program on hosts of a lab, one rank per host: its environment, its start under guards, its output and its end.

A guard on each host ends the rank there if our connection breaks, or if no heartbeat arrives for `HEARTBEAT_TIMEOUT_S`.
Open MPI's `mpirun` runs only on the first host. It starts ranks on the other hosts through us instead of ssh, so that
guards watch these ranks too.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import IO, Any

from testbed.errors import Interrupted
from testbed.lab.hosts.fleet import Fleet, Launch
from testbed.lab.model import LabHost
from testbed.leases.heartbeat import keep_alive
from testbed.operate.engine.consent import is_interrupted

MPI_LAUNCHERS = frozenset({"mpirun", "mpiexec", "orterun"})
MASTER_PORT = 29500
HEARTBEAT_TIMEOUT_S = 20.0
"""Time without a heartbeat after which a guard ends its rank."""
HEARTBEAT_INTERVAL_S = 2.0
POLL_INTERVAL_S = 0.2
STOP_TIMEOUT_S = 4.0
"""Time in which ranks must report after a request to stop."""
LOST_EXIT_CODE = 255
"""Exit code of a rank whose host was lost, the same as ssh uses."""
MAX_TAIL_CHARACTERS = 1 << 16
"""Number of characters at the end of a rank's output that its result keeps. Files hold the whole output."""
_MPI_TAG = re.compile(r"\[\d+,(\d+)\]<(stdout|stderr)>:")


@dataclass(frozen=True, slots=True)
class RankOutput:
    """A piece of a rank's output, usually a line. `is_error` is True for standard error."""

    rank: int
    host: str
    text: str
    is_error: bool


@dataclass(slots=True)
class RankResult:
    """Result of one rank: its exit code (None if it was stopped), seconds, and the traffic of its host's NICs.

    `counters_by_nic` are increments of the kernel's counters during the program. `rates_by_nic` holds for each NIC a
    number of time windows, and the 95th percentile of the rates in these windows, in bytes/s. Windows last 0.1 s, or
    longer if the program runs for hours. `problem` says why a rank has no exit code of its own.
    """

    rank: int
    host: LabHost
    exit_code: int | None = None
    elapsed_s: float = 0.0
    counters_by_nic: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    rates_by_nic: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    retransmitted_segments: int = 0
    problem: str = ""
    stdout: str = ""
    stderr: str = ""
    has_started: bool = False
    has_ended: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """A command and the environment of its ranks.

    `folder` is the working directory on the hosts. On a host without it, the rank uses the home directory, or fails if
    `needs_folder` is set.
    """

    argv: tuple[str, ...]
    hosts: tuple[LabHost, ...]
    variables: Mapping[str, str]
    run_id: str
    folder: str = ""
    needs_folder: bool = False

    @property
    def is_mpi(self) -> bool:
        """True if the command is an MPI launcher, which starts the ranks itself."""
        return Path(self.argv[0]).name in MPI_LAUNCHERS

    def make_spec(self, rank: int, argv: Sequence[str]) -> dict[str, Any]:
        """Return the input of `testbed/node/rank.py`: a command and the environment of one rank."""
        host = self.hosts[rank]
        python = Path(host.python)
        spec: dict[str, Any] = {
            "argv": list(argv),
            "folder": self.folder,
            "needs_folder": self.needs_folder,
            "variables": {**self.variables, **make_rank_variables(rank, self.hosts, self.run_id)},
            "path": [str(python.parent)] if python.is_absolute() else [],
            "nics": [nic.name for nic in host.nics],
        }
        if self.is_mpi:
            spec["variables"] |= {
                "OMPI_MCA_orte_leave_session_attached": "1",
                "OMPI_MCA_orte_tag_output": "1",
                "OMPI_MCA_plm_rsh_no_tree_spawn": "1",  # only the first host can start ranks on others
            }
            spec |= {
                "spawns": rank == 0,
                "hostfile": "".join(f"{host.name} slots=1\n" for host in self.hosts),
            }
        return spec


def make_rank_variables(rank: int, hosts: Sequence[LabHost], run_id: str) -> dict[str, str]:
    """Return the variables that tell a rank its number: our own, torch.distributed's and Open MPI's.

    `PET_*` set the options of torchrun, so `torchrun train.py` needs none. The first host is given by its address,
    because the hosts of a real lab may not resolve the names of the lab file.
    """
    rank_count, master_address = str(len(hosts)), str(hosts[0].management)
    return {
        "TESTBED_RANK": str(rank),
        "TESTBED_SIZE": rank_count,
        "TESTBED_HOST": hosts[rank].name,
        "TESTBED_HOSTS": ",".join(host.name for host in hosts),
        "TESTBED_RUN": run_id,
        "RANK": str(rank),
        "WORLD_SIZE": rank_count,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(rank),
        "NODE_RANK": str(rank),
        "MASTER_ADDR": master_address,
        "MASTER_PORT": str(MASTER_PORT),
        "PET_NNODES": rank_count,
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": master_address,
        "PET_MASTER_PORT": str(MASTER_PORT),
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": rank_count,
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
        "OMPI_COMM_WORLD_NODE_RANK": "0",
        "PYTHONUNBUFFERED": "1",
    }


def start_guards(fleet: Fleet, hosts: Sequence[LabHost]) -> Launch:
    """Start a guard on each host, with a rank that waits for its command. Raises `HostError`."""
    program_by_name = {
        name: resources.files("testbed.node").joinpath(name).read_bytes() for name in ("guard.py", "rank.py")
    }
    remote_folder = fleet.put(program_by_name)
    return fleet.start({host.name: _make_command(host, remote_folder) for host in hosts}, keep_output=False)


def _make_command(host: LabHost, remote_folder: str) -> str:
    guard_command = [
        host.python,
        "-IS",
        f"{remote_folder}/guard.py",
        "--deadline",
        f"{HEARTBEAT_TIMEOUT_S:g}",
        "--renew",
    ]
    return shlex.join(
        [*guard_command, "--clean", remote_folder, "--", host.python, "-IS", f"{remote_folder}/rank.py"]
    )


class Ranks:
    """The ranks of a program.

    `failed_result` is the rank that failed first, or None. `on_output` receives each piece of output as it arrives.
    `find_problem` returns why the program must stop, or "".
    """

    def __init__(
        self,
        program: Program,
        on_output: Callable[[RankOutput], object] = lambda _output: None,
        find_problem: Callable[[], str] = lambda: "",
    ) -> None:
        self.program = program
        self.results = [RankResult(rank, host) for rank, host in enumerate(program.hosts)]
        self.failed_result: RankResult | None = None
        self._on_output = on_output
        self._find_problem = find_problem
        self._rank_by_host = {host.name: rank for rank, host in enumerate(program.hosts)}
        self._file_by_stream: dict[tuple[int, bool], IO[bytes]] = {}
        self._has_ended = False

    def run(self, launch: Launch, folder: Path) -> None:
        """Run the program until all ranks have ended. If a rank fails, stop the others.

        The output of each rank goes to `RANK-HOST.out` and `RANK-HOST.err` in `folder`. Raises `Interrupted` if the
        caller is cancelled or `find_problem` finds a problem.
        """
        with launch, self._open_files(folder):
            try:
                # Heartbeats come from a thread, so that slow output does not delay them.
                with keep_alive(lambda: launch.send("\n"), HEARTBEAT_INTERVAL_S):
                    self._receive_until_end(launch)
                    self._stop_ranks(launch)
            finally:
                launch.close_input()
        for result in self.results:
            if result.exit_code is None and not result.problem:
                result.problem = (
                    "stopped, because another rank had failed" if self.failed_result else "not started"
                )

    @contextmanager
    def _open_files(self, folder: Path) -> Iterator[None]:
        folder.mkdir(parents=True, exist_ok=True)
        digit_count = len(str(len(self.results) - 1))
        for result in self.results:
            for is_error in (False, True):
                name = f"{result.rank:0{digit_count}}-{result.host.name}.{'err' if is_error else 'out'}"
                self._file_by_stream[result.rank, is_error] = (folder / name).open("wb", buffering=0)
        try:
            yield
        finally:
            for file in self._file_by_stream.values():
                file.close()

    def _receive_until_end(self, launch: Launch) -> None:
        """Receive events until all ranks have ended, or one has failed."""
        while not (self.failed_result or self._has_ended):
            ended_hosts = [host for host in self._rank_by_host if host not in launch.running]
            # Everything that a host sent before it ended is in the queue by now.
            self._receive_for(launch, 0.0 if ended_hosts else POLL_INTERVAL_S)
            for host in ended_hosts:
                self._judge_end(launch, self.results[self._rank_by_host[host]])
            if is_interrupted():
                raise Interrupted("the program was cancelled, and its ranks were stopped")
            if problem := self._find_problem():
                raise Interrupted(f"{problem}: the ranks of the program were stopped")

    def _receive_for(self, launch: Launch, seconds: float) -> None:
        deadline_s = time.monotonic() + seconds
        for host, line in launch.read_lines(seconds):
            self._handle_line(launch, host, line)
            if self.failed_result or self._has_ended or (seconds and time.monotonic() > deadline_s):
                return

    def _stop_ranks(self, launch: Launch) -> None:
        """Stop the ranks that still run, and wait for their reports."""
        if not self.program.is_mpi or self.failed_result:
            launch.send("stop\n")  # the daemons of Open MPI end by themselves after mpirun
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while time.monotonic() < deadline_s and any(
            result.has_started and not result.has_ended and result.host.name in launch.running
            for result in self.results
        ):
            for host, line in launch.read_lines(0.1):
                self._handle_line(launch, host, line)

    def _handle_line(self, launch: Launch, host: str, line: str) -> None:
        """Handle one line of `rank.py`, or of its guard."""
        result = self.results[self._rank_by_host[host]]
        try:
            event = json.loads(line)
            kind = event["event"]
        except (ValueError, TypeError, KeyError):
            return  # a guard prints an empty line before its last one
        if kind == "ready":
            if not self.program.is_mpi or result.rank == 0:
                self._start(launch, result, self.program.argv)
        elif kind == "spawn":
            self._spawn(launch, result, event)
        elif kind == "out":
            self._forward_output(result, event["text"], is_error=event["stream"] == "stderr")
        elif kind == "rank":
            self._store_end(result, event)
        elif kind == "guard" and event["reason"] == "deadline":
            result.problem = f"host {host} received no heartbeat for {HEARTBEAT_TIMEOUT_S:g} s"

    def _start(self, launch: Launch, result: RankResult, argv: Sequence[str]) -> None:
        result.has_started = True
        launch.send(json.dumps(self.program.make_spec(result.rank, argv)) + "\n", result.host.name)

    def _spawn(self, launch: Launch, launcher: RankResult, event: Mapping[str, Any]) -> None:
        """Run a command of mpirun on another host. The program fails if that host is not waiting for a command."""
        target_result = self.results[self._rank_by_host.get(event["host"], launcher.rank)]
        if target_result.has_started:
            launcher.problem = (
                f"mpirun wants to start ranks on {event['host']}, which is not another host of the program"
            )
            self._mark_failed(launcher, 1)
            return
        self._start(launch, target_result, ("/bin/sh", "-c", event["command"]))

    def _forward_output(self, result: RankResult, text: str, *, is_error: bool) -> None:
        if self.program.is_mpi and (tag := _MPI_TAG.match(text)) and int(tag[1]) < len(self.results):
            result, is_error = self.results[int(tag[1])], tag[2] == "stderr"
            text = text[tag.end() :]
        self._file_by_stream[result.rank, is_error].write(text.encode(errors="surrogateescape"))
        if is_error:
            result.stderr = (result.stderr + text)[-MAX_TAIL_CHARACTERS:]
        else:
            result.stdout = (result.stdout + text)[-MAX_TAIL_CHARACTERS:]
        self._on_output(RankOutput(result.rank, result.host.name, text, is_error))

    def _store_end(self, result: RankResult, event: Mapping[str, Any]) -> None:
        result.has_ended = True
        result.exit_code = None if event["stopped"] else event["exit_code"]
        result.elapsed_s, result.counters_by_nic, result.rates_by_nic = (
            event["seconds"],
            event["nics"],
            event["rates"],
        )
        result.retransmitted_segments = event["retransmitted"]
        is_launcher = self.program.is_mpi and result.rank == 0
        self._has_ended |= is_launcher or all(other_result.has_ended for other_result in self.results)
        if result.exit_code and (is_launcher or not self.program.is_mpi):
            self._mark_failed(result, result.exit_code)

    def _mark_failed(self, result: RankResult, code: int) -> None:
        if self.failed_result is None:
            result.exit_code, self.failed_result = code, result

    def _judge_end(self, launch: Launch, result: RankResult) -> None:
        """Mark a rank as failed if its connection has ended without a `rank` event."""
        if result.has_ended or self._has_ended:
            return
        command_result = launch.get_result(result.host.name)
        last_line = (command_result.stderr.strip() or "no message").splitlines()[-1]
        lost_message = f"the connection to host {result.host.name} was lost"
        result.problem = result.problem or (
            lost_message if command_result.exit_status == -1 else f"the rank did not start: {last_line}"
        )
        self._mark_failed(result, LOST_EXIT_CODE)
