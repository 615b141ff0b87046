"""A program on hosts of a lab, one rank per host: its environment, its start under guards, its output and its end.

A guard on each host ends the program there if our connection breaks, or if no heartbeat arrives for `DEADLINE_S`. Open
MPI's `mpirun` is started on the first host only. It reaches the other hosts through us instead of ssh, so that guards
watch its ranks, too.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import IO, Any

from testbed.errors import Interrupted
from testbed.lab.hosts.fleet import Fleet, Launch
from testbed.lab.model import LabHost
from testbed.operate.engine.consent import is_interrupted

MPI_LAUNCHERS = frozenset({"mpirun", "mpiexec", "orterun", "prterun"})
MASTER_PORT = 29500
DEADLINE_S = 20.0
"""Time without a heartbeat after which a guard ends its rank."""
BEAT_S = 2.0
LOST = 255
"""Exit code of a rank whose host was lost, as ssh has it."""
TAIL_BYTES = 1 << 16
"""The end of a rank's output that its document holds; files hold all of it."""
_MPI_TAG = re.compile(r"\[\d+,(\d+)\]<(stdout|stderr)>:")


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of a rank's output, usually a line; `is_error` if it is from standard error."""

    rank: int
    host: str
    text: str
    is_error: bool


@dataclass(slots=True)
class RankResult:
    """Result of one rank: its exit code (None if it was stopped), seconds, and what the NICs of its host carried.

    `counters` are increments of the kernel's counters during the program; `rates` are the number of windows of 0.1 s
    and the 95th percentile of the rates in them, in bytes/s. `problem` says why a rank without an exit code ended.
    """

    rank: int
    host: LabHost
    exit_code: int | None = None
    seconds: float = 0.0
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    retransmitted: int = 0
    problem: str = ""
    stdout: str = ""
    stderr: str = ""


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """Results of the ranks, and the rank that failed first, None if none did."""

    ranks: tuple[RankResult, ...]
    failure: RankResult | None


@dataclass(frozen=True, slots=True)
class Program:
    """A command and the environment of its ranks.

    `folder` is the working directory on the hosts; the home directory is used on a host that does not have it.
    `master` is the address of rank 0.
    """

    argv: tuple[str, ...]
    hosts: tuple[LabHost, ...]
    variables: Mapping[str, str]
    run_id: str
    folder: str = ""
    master: str = ""

    @property
    def is_mpi(self) -> bool:
        """True if the command is an MPI launcher, which starts the ranks itself."""
        return Path(self.argv[0]).name in MPI_LAUNCHERS

    def make_spec(self, rank: int, argv: Sequence[str]) -> dict[str, Any]:
        """Return what `testbed/node/rank.py` reads: a command, and the environment of one rank."""
        host = self.hosts[rank]
        python = Path(host.python)
        spec: dict[str, Any] = {
            "argv": list(argv),
            "folder": self.folder,
            "variables": {**self.variables, **rank_variables(rank, self.hosts, self.run_id, self.master)},
            "path": [str(python.parent)] if python.is_absolute() else [],
            "nics": [nic.name for nic in host.nics],
        }
        if self.is_mpi:
            variables = {"OMPI_MCA_orte_leave_session_attached": "1", "OMPI_MCA_orte_tag_output": "1"}
            spec["variables"] |= variables
            spec |= {
                "spawns": rank == 0,
                "hostfile": "".join(f"{each.name} slots=1\n" for each in self.hosts),
            }
        return spec


def rank_variables(rank: int, hosts: Sequence[LabHost], run_id: str, master: str) -> dict[str, str]:
    """Return the variables that tell a rank its number: plain ones, those of torchrun, and those of Open MPI.

    `PET_*` are the options of torchrun, so that `torchrun train.py` needs none.
    """
    size, master = len(hosts), master or hosts[0].name
    return {
        "TESTBED_RANK": str(rank),
        "TESTBED_SIZE": str(size),
        "TESTBED_HOST": hosts[rank].name,
        "TESTBED_HOSTS": ",".join(host.name for host in hosts),
        "TESTBED_RUN": run_id,
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(rank),
        "NODE_RANK": str(rank),
        "MASTER_ADDR": master,
        "MASTER_PORT": str(MASTER_PORT),
        "PET_NNODES": str(size),
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": master,
        "PET_MASTER_PORT": str(MASTER_PORT),
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
        "OMPI_COMM_WORLD_NODE_RANK": "0",
        "PYTHONUNBUFFERED": "1",
    }


def run_program(
    fleet: Fleet, program: Program, folder: Path, on_output: Callable[[Output], object]
) -> ProgramResult:
    """Run a program to its end and return its result; if one rank fails, the others are stopped.

    `folder` receives the output of each rank, as `RANK-HOST.out` and `RANK-HOST.err`. Raises `HostError` if the program
    cannot be started on a host, and `Interrupted` if the caller is cancelled.
    """
    names = ("guard.py", "rank.py")
    remote = fleet.put({name: resources.files("testbed.node").joinpath(name).read_bytes() for name in names})
    commands = {host.name: _guard(host, remote) for host in program.hosts}
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        ranks = _Ranks(program, on_output, _open_files(stack, program.hosts, folder))
        launch = stack.enter_context(fleet.start(commands))
        ranks.follow(launch)
        ranks.await_daemons(launch)
        launch.close_input()
        for host, line in launch.lines(DEADLINE_S):
            ranks.receive(launch, host, line)
        for each in ranks.results:
            if each.exit_code is None and not each.problem:
                each.problem = "stopped, because another rank had failed" if ranks.failed else "not started"
    return ProgramResult(tuple(ranks.results), ranks.failed)


def _guard(host: LabHost, remote: str) -> str:
    guard = [host.python, "-IS", f"{remote}/guard.py", "--deadline", f"{DEADLINE_S:g}", "--renew", "--"]
    return shlex.join([*guard, host.python, "-IS", f"{remote}/rank.py"])


Files = Mapping[tuple[int, bool], IO[bytes]]


def _open_files(stack: ExitStack, hosts: Sequence[LabHost], folder: Path) -> Files:
    width = len(str(len(hosts) - 1))
    return {
        (rank, is_error): stack.enter_context(
            (folder / f"{rank:0{width}}-{host.name}.{'err' if is_error else 'out'}").open("wb", buffering=0)
        )
        for rank, host in enumerate(hosts)
        for is_error in (False, True)
    }


@dataclass
class _Ranks:
    """The ranks of a program while they run."""

    program: Program
    on_output: Callable[[Output], object]
    files: Files

    def __post_init__(self) -> None:
        self.results = [RankResult(rank, host) for rank, host in enumerate(self.program.hosts)]
        self.rank_of = {host.name: rank for rank, host in enumerate(self.program.hosts)}
        self.failed: RankResult | None = None
        self.is_complete = False

    def follow(self, launch: Launch) -> None:
        """Receive events until all ranks have ended, or one has failed."""
        beat_s = time.monotonic()
        running = set(launch.running)
        while launch.running and not (self.failed or self.is_complete):
            for host, line in launch.lines(min(BEAT_S, 0.2)):
                self.receive(launch, host, line)
                if self.failed or self.is_complete:
                    return
            if time.monotonic() - beat_s >= BEAT_S:
                beat_s = time.monotonic()
                launch.send("\n")
            if is_interrupted():
                raise Interrupted("the program was cancelled, and its ranks were stopped")
            for host in running - set(launch.running):
                self._note_lost(host)
            running = set(launch.running)

    def await_daemons(self, launch: Launch) -> None:
        """Give the daemons of Open MPI time to end by themselves after mpirun, so that they report their counters."""
        deadline_s = time.monotonic() + BEAT_S
        while self.program.is_mpi and self.is_complete and time.monotonic() < deadline_s:
            for host, line in launch.lines(0.1):
                self.receive(launch, host, line)
            if all(each.exit_code is not None for each in self.results):
                return

    def receive(self, launch: Launch, host: str, line: str) -> None:
        """Handle one line of `rank.py`, or of its guard."""
        result = self.results[self.rank_of[host]]
        try:
            event = json.loads(line)
            kind = event["event"]
        except (ValueError, TypeError, KeyError):
            return  # the last line of a guard begins with an empty one
        if kind == "ready":
            if not self.program.is_mpi or result.rank == 0:
                self._start(launch, result, self.program.argv)
        elif kind == "spawn" and event["host"] in self.rank_of:
            self._start(
                launch, self.results[self.rank_of[event["host"]]], ("/bin/sh", "-c", event["command"])
            )
        elif kind == "out":
            self._forward(result, event["text"], is_error=event["stream"] == "stderr")
        elif kind == "rank":
            self._end(result, event)
        elif kind == "guard" and event["reason"] == "deadline":
            result.problem = f"host {host} received no heartbeat for {DEADLINE_S:g} s"

    def _start(self, launch: Launch, result: RankResult, argv: Sequence[str]) -> None:
        launch.send(json.dumps(self.program.make_spec(result.rank, argv)) + "\n", result.host.name)

    def _forward(self, result: RankResult, text: str, *, is_error: bool) -> None:
        if self.program.is_mpi and (tag := _MPI_TAG.match(text)):
            result, is_error = self.results[int(tag[1]) % len(self.results)], tag[2] == "stderr"
            text = text[tag.end() :]
        self.files[result.rank, is_error].write(text.encode(errors="surrogateescape"))
        if is_error:
            result.stderr = (result.stderr + text)[-TAIL_BYTES:]
        else:
            result.stdout = (result.stdout + text)[-TAIL_BYTES:]
        self.on_output(Output(result.rank, result.host.name, text, is_error))

    def _end(self, result: RankResult, event: Mapping[str, Any]) -> None:
        result.exit_code, result.seconds = event["exit_code"], event["seconds"]
        result.counters, result.rates = event["nics"], event["rates"]
        result.retransmitted = event["retransmitted"]
        if result.exit_code and self.failed is None and not self.is_complete:
            self.failed = result
        if (self.program.is_mpi and result.rank == 0) or all(
            each.exit_code is not None for each in self.results
        ):
            self.is_complete = True

    def _note_lost(self, host: str) -> None:
        """Count a rank as failed whose connection ended without its exit code."""
        result = self.results[self.rank_of[host]]
        if result.exit_code is None and self.failed is None:
            result.exit_code = LOST
            result.problem = result.problem or f"the connection to host {host} was lost"
            self.failed = result
