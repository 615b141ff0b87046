"""`testbed run`: a command on hosts of a lab, over circuits that are leased and patched for it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from testbed.commands.context import CommandContext
from testbed.commands.declare import REQUIRED, Command, argument, option
from testbed.commands.documents import EXIT_ERROR, Document, UnfinishedOperation, make_key_metadata
from testbed.commands.groups import MovingCommand, TopologyCommand
from testbed.errors import UsageError
from testbed.storage.owner import RUN_VARIABLE

if TYPE_CHECKING:
    from testbed.measure.program.light import LightGrant
    from testbed.measure.program.ranks import RankOutput, RankResult, Ranks

PROGRAM_PHASE = "program"


@dataclass(frozen=True, kw_only=True)
class ProgramRank:
    """A rank: its exit code (None if it was stopped), and the end of its output. Files of the run hold all output."""

    rank: int
    host: str
    exit_code: int | None
    seconds: float
    problem: str
    stdout: str
    stderr: str


@dataclass(frozen=True, kw_only=True)
class ProgramLink:
    """Traffic of one direction of a link. `peak_mbps` is the 95th percentile of the rates in windows of 0.1 s.

    `retransmitted` counts the TCP segments that the sending host sent again, over all of its links.
    """

    link: str
    sent_bytes: int
    mean_mbps: float
    peak_mbps: float
    limit_mbps: float
    dropped: int
    errors: int
    retransmitted: int


@dataclass(frozen=True, kw_only=True)
class ProgramDocument(Document):
    """Outcome of a program. `code` is the exit code of the rank that failed first, 0 if none did.

    `failed_rank` is None also for mpirun, whose exit code does not name a rank. `patched` is False if no circuit was
    changed. `restored` is False if the hosts could not be restored; `problem` says why.
    """

    run_id: str
    lab: str
    simulated: bool
    command: tuple[str, ...]
    reason: str
    lease: str
    code: int = field(metadata=make_key_metadata("exit_code"))
    failed_rank: int | None
    ranks: tuple[ProgramRank, ...]
    links: tuple[ProgramLink, ...]
    patched: bool
    patch_s: float
    seconds: float
    restored: bool
    problem: str
    unfinished: tuple[UnfinishedOperation, ...]

    def to_record(self) -> dict[str, Any]:
        """Return the JSON object to store in the run. It omits output, which is in files, and secrets."""
        from testbed.measure.results.run import redact_arguments

        document = self.to_json()
        ranks = [
            {name: value for name, value in rank.items() if name not in ("stdout", "stderr")}
            for rank in document["ranks"]
        ]
        return document | {"ranks": ranks, "command": list(redact_arguments(self.command))}

    @property
    def exit_code(self) -> int:
        """Exit code of the rank that failed first, or 1 if only the hosts were not restored."""
        return self.code or (0 if self.restored else EXIT_ERROR)


@dataclass(frozen=True, kw_only=True)
class RunProgram(MovingCommand, TopologyCommand, Command[ProgramDocument]):
    """`testbed run`."""

    details = (
        "Write the command after `--`. Each host starts it once, with the variables of its rank. At the end the hosts "
        "are given back as they were. The exit code is that of the rank that failed first, 3 without light or lease."
    )
    lane = "waiting"
    role = "developer"
    is_repeatable = False
    nodes: Annotated[
        int | None,
        option("Number of hosts, any that are free; default: those of the topology, or all.", least=1),
    ] = None
    wait: Annotated[
        float, option("Wait this long for the lease of the hosts.", metavar="SECONDS", least=0, most=86400)
    ] = 0.0
    reason: Annotated[str, option("Reason, stored with the lease.", metavar="TEXT", is_one_line=True)] = ""
    folder: Annotated[
        str,
        option(
            "Working directory on the hosts; default: this folder if the host has it, else the home directory.",
            "--chdir",
            metavar="FOLDER",
        ),
    ] = ""
    program: Annotated[
        tuple[str, ...],
        argument(
            "Command and its arguments, after `--`.", "-- COMMAND...", takes_rest=True, follows_dashes=True
        ),
    ] = REQUIRED

    def validate(self) -> None:
        """Raise `UsageError` without a command."""
        super().validate()
        if not self.program:
            raise UsageError(
                "testbed run needs a command: write it after `--`, as in `testbed run LAB -- hostname`"
            )

    def run(self, context: CommandContext) -> ProgramDocument:
        """Run the command. Raises `LightDenied`, `RefusedToMove`, `HostError` and the errors of opening a lab."""
        from testbed.errors import HostError
        from testbed.lab.simulated.lifecycle import find_hosts_in_use
        from testbed.measure.program.cleanup_process import CleanupProcess
        from testbed.measure.program.light import LightRequest, deny_light, provide_light
        from testbed.measure.program.ranks import start_guards
        from testbed.measure.results.run import redact_arguments
        from testbed.measure.results.store import RunStore
        from testbed.operate.apply import check_permission

        lab, runs_dir = context.running_lab, context.runs_dir
        check_permission(lab, self.really_move)
        host_mode = find_hosts_in_use(lab)
        if host_mode == "model":
            raise HostError(
                f"the hosts of lab '{lab.name}' are only modelled and run no program: start it as root, with "
                "`testbed sim up --hosts kernel`"
            )
        request = LightRequest(self.nodes, self.named_topology, self.wait)
        command_text = " ".join(shlex.join(redact_arguments(self.program)).split())
        with RunStore(runs_dir).begin_run(lab, lab.simulated, host_mode, seeds={}) as run:
            reason = f"run {run.run_id}: {self.reason or command_text}"[:200]
            assert context.lab_file is not None

            def add_note(line: str) -> None:
                if not context.is_quiet:
                    context.print_note(f"testbed run: {line}")

            with CleanupProcess(runs_dir, context.lab_file, run.run_id, reason) as cleanup:
                with provide_light(lab, request, runs_dir, cleanup, add_note) as light:
                    ranks = self._make_ranks(light, run.run_id, context)
                    try:
                        with deny_light():
                            launch = start_guards(light.fleet, light.hosts)
                        ranks.run(launch, run.directory / "ranks")
                    except BaseException:
                        run.add_phase(
                            PROGRAM_PHASE, self._describe(run.run_id, light, ranks, context).to_record()
                        )
                        raise
                document = self._describe(run.run_id, light, ranks, context)
            run.add_phase(PROGRAM_PHASE, document.to_record())
        if RUN_VARIABLE in os.environ and not context.is_quiet:  # a service keeps only the end of the output
            for rank in document.ranks:
                context.say(*(f"[{rank.rank}:{rank.host}] {line}" for line in rank.stdout.splitlines()))
        for line in (
            *_summarise(document, ranks),
            *(operation.format_line() for operation in document.unfinished),
        ):
            add_note(line)
        return document

    def _make_ranks(self, light: LightGrant, run_id: str, context: CommandContext) -> Ranks:
        from testbed.measure.program.ranks import Program, Ranks

        is_in_service = RUN_VARIABLE in os.environ
        program = Program(
            argv=self.program,
            hosts=light.hosts,
            variables=light.variables,
            run_id=run_id,
            folder=self.folder or ("" if is_in_service else str(Path.cwd())),
            needs_folder=bool(self.folder),
        )

        is_silent = context.is_quiet or is_in_service
        return Ranks(
            program,
            (lambda _output: None) if is_silent else _print_output,
            lambda: light.lease_keeper.problem,
        )

    def _describe(
        self, run_id: str, light: LightGrant, ranks: Ranks, context: CommandContext
    ) -> ProgramDocument:
        failed_result = ranks.failed_result
        return ProgramDocument(
            run_id=run_id,
            lab=light.lab.name,
            simulated=light.lab.simulated,
            command=self.program,
            reason=self.reason,
            lease=light.lease_keeper.lease_id,
            code=(failed_result.exit_code or 0) if failed_result else 0,
            failed_rank=None if failed_result is None or ranks.program.is_mpi else failed_result.rank,
            ranks=tuple(
                ProgramRank(
                    rank=result.rank,
                    host=result.host.name,
                    exit_code=result.exit_code,
                    seconds=result.elapsed_s,
                    problem=result.problem,
                    stdout=result.stdout,
                    stderr=result.stderr,
                )
                for result in ranks.results
            ),
            links=tuple(link for result in ranks.results for link in _list_links(light, result)),
            patched=light.was_patched,
            patch_s=light.patch_s,
            seconds=max((result.elapsed_s for result in ranks.results), default=0.0),
            restored=not light.problem,
            problem=light.problem,
            unfinished=context.find_unfinished_operations(),
        )


def _list_links(light: LightGrant, rank: RankResult) -> Iterator[ProgramLink]:
    """Yield the traffic of a host's NICs. A NIC without a link in the topology is listed by its own name."""
    from testbed.design.model import Nic

    lab = light.lab
    node = next(index for index, host in enumerate(lab.hosts) if host.name == rank.host.name)
    for nic_index, nic in enumerate(lab.hosts[node].nics):
        counter_by_name = rank.counters_by_nic.get(nic.name)
        if not counter_by_name:
            continue
        link = light.design.wiring.link_by_transmitter.get(Nic(node, nic_index)) if light.design else None
        yield ProgramLink(
            link=lab.link_label(link) if link else f"{rank.host.name}/{nic.name}",
            sent_bytes=counter_by_name.get("tx_bytes", 0),
            mean_mbps=counter_by_name.get("tx_bytes", 0) * 8e-6 / rank.elapsed_s if rank.elapsed_s else 0.0,
            peak_mbps=rank.rates_by_nic[nic.name]["peak"] * 8e-6,
            limit_mbps=lab.link.rate_mbps,
            dropped=counter_by_name.get("tx_dropped", 0) + counter_by_name.get("rx_dropped", 0),
            errors=counter_by_name.get("tx_errors", 0) + counter_by_name.get("rx_errors", 0),
            retransmitted=rank.retransmitted_segments,
        )


def _print_output(output: RankOutput) -> None:
    """Print a piece of output immediately, with the rank and host in front of each line."""
    stream = sys.stderr if output.is_error else sys.stdout
    text = output.text.encode(stream.encoding or "utf-8", "replace").decode(stream.encoding or "utf-8")
    for line in text.splitlines():
        print(f"[{output.rank}:{output.host}] {line}", file=stream, flush=True)


def _summarise(document: ProgramDocument, ranks: Ranks) -> Iterator[str]:
    """Yield lines for people on how a program ended."""
    if ranks.failed_result is not None:
        failed_result = ranks.failed_result
        subject = "mpirun" if ranks.program.is_mpi else f"rank {failed_result.rank}"
        problem = f" ({failed_result.problem})" if failed_result.problem else ""
        stopped_hosts = [result.host.name for result in ranks.results if result.exit_code is None]
        stopped_text = f"; stopped: {', '.join(stopped_hosts)}" if stopped_hosts else ""
        outcome = f"ended first with {failed_result.exit_code}{problem}{stopped_text}"
        yield f"{subject} on host {failed_result.host.name} {outcome}"
    if document.links:
        busiest_link = max(document.links, key=lambda link: link.mean_mbps)
        total_bytes = sum(link.sent_bytes for link in document.links)
        yield (
            f"{total_bytes / 1e6:.1f} MB on {len(document.links)} links; busiest: {busiest_link.link}, "
            f"{busiest_link.mean_mbps:.1f} Mbit/s on average, {busiest_link.peak_mbps:.1f} at peak"
        )
    yield f"run {document.run_id}: exit code {document.code}, {document.seconds:.1f} s, output in its folder `ranks`"
