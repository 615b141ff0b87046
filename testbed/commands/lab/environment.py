"""`testbed env`: variables and a host file, with which torchrun, mpirun and others use a lab's optical links."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from testbed.commands.context import CommandContext
from testbed.commands.declare import option
from testbed.commands.documents import (
    OMIT_NONE,
    Document,
    UnfinishedOperation,
    describe_unfinished_operations,
)
from testbed.commands.groups import TopologyCommand

if TYPE_CHECKING:
    from testbed.lab.hosts.environment import ProgramEnvironment
    from testbed.lab.hosts.nccl_files import HostHardware
    from testbed.lab.model import Lab
    from testbed.operate.choice import DesignChoice

ENVIRONMENT_FILE = "env.sh"


@dataclass(frozen=True, kw_only=True)
class Rank:
    """A rank and its host. Ranks are numbered along a ring. `address` and `interfaces` belong to the optical links."""

    rank: int
    host: str
    management: str
    address: str
    interfaces: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NcclRingFile:
    """NCCL's graph file for the rings of one stride. `graph` is its name on all hosts. `hosts` are in rank order."""

    graph: str
    stride: int
    channels: int
    hosts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NcclHostFiles:
    """NCCL's files of a host, and the variables with which NCCL reads them. The variables select the first graph."""

    topology: Path
    graphs: tuple[Path, ...]
    environment: Path
    variables: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class NcclFilesDocument:
    """NCCL's files by host, the rings, and sentences on assumptions."""

    rings: tuple[NcclRingFile, ...]
    hosts: dict[str, NcclHostFiles]
    assumed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class EnvironmentDocument(Document):
    """Environment variables, the text of an Open MPI host file, the ranks, and with `--nccl` NCCL's files."""

    variables: dict[str, str]
    hostfile: str
    ranks: tuple[Rank, ...]
    unfinished: tuple[UnfinishedOperation, ...]
    nccl: NcclFilesDocument | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True, kw_only=True)
class Environment(TopologyCommand):
    """`testbed env`."""

    lane = "reading"  # the queue of its runs in the service
    role = "viewer"
    as_shell: Annotated[bool, option("Print only the variables, as lines for a shell.", "--shell")] = False
    nccl: Annotated[
        Path | None,
        option("Write topology and graph files of NCCL, a folder per host.", metavar="DIR", is_local=True),
    ] = None

    def run(self, context: CommandContext) -> EnvironmentDocument:
        """Return the variables and the host file for programs. With `nccl`, read the hardware and write NCCL's files.

        Raises `HostError` if hosts name their NICs differently, or have more devices than NCCL reads.
        """
        from testbed.lab.hosts.environment import make_program_environment
        from testbed.operate.choice import choose_design

        choice = choose_design(context.running_lab, self.named_topology, context.runs_dir)
        environment = make_program_environment(choice.lab, choice.design.topology)
        if self.as_shell:
            context.say(*environment.shell_text.splitlines())
            for line in () if context.is_quiet else choice.describe_unfinished():
                context.print_note(line)  # on standard error: a shell evaluates standard output
        else:
            context.say(choice.format_heading(), *choice.format_warnings(), *choice.describe_unfinished())
            context.say(*(f"{name}={value}" for name, value in environment.variables.items()))
            rows = [
                [rank, host.name, host.management, host.address]
                for rank, host in enumerate(environment.ranks)
            ]
            context.say_table("Ranks along a ring", ["rank", "host", "management", "fabric"], rows)
        nccl_document = self._write_nccl(context, choice, environment) if self.nccl else None
        document = environment.as_json()
        return EnvironmentDocument(
            variables=document["variables"],
            hostfile=document["hostfile"],
            ranks=tuple(Rank(**row | {"interfaces": tuple(row["interfaces"])}) for row in document["ranks"]),
            unfinished=describe_unfinished_operations(choice.unfinished),
            nccl=nccl_document,
        )

    def _write_nccl(
        self, context: CommandContext, choice: DesignChoice, environment: ProgramEnvironment
    ) -> NcclFilesDocument:
        from lightbed.output_file import write_output
        from testbed.lab.hosts.nccl_files import (
            TOPOLOGY_FILE,
            make_files,
            make_variables,
            render_environment,
        )

        assert self.nccl is not None
        hardware, reason_by_host = _read_hardware(choice.lab)
        design = choice.design
        files = make_files(
            choice.lab, design.topology, design.wiring, design.routes, hardware, reason_by_host
        )
        files_by_host = {}
        nccl_folder = self.nccl.absolute()
        for host, text_by_file in files.texts_by_host.items():
            host_folder = nccl_folder / host
            host_folder.mkdir(parents=True, exist_ok=True)
            for name, text in text_by_file.items():
                write_output(host_folder / name, text)
            script = render_environment(environment.variables, str(nccl_folder), host, files.rings)
            write_output(host_folder / ENVIRONMENT_FILE, script)
            for graph in host_folder.glob("ring-*.xml"):
                if graph.name not in text_by_file:  # a graph of an earlier topology
                    graph.unlink(missing_ok=True)
            variables = make_variables(str(host_folder), files.rings)
            graphs = tuple(host_folder / ring.graph_file_name for ring in files.rings)
            files_by_host[host] = NcclHostFiles(
                topology=host_folder / TOPOLOGY_FILE,
                graphs=graphs,
                environment=host_folder / ENVIRONMENT_FILE,
                variables=variables,
            )
        rings = tuple(
            NcclRingFile(
                graph=ring.graph_file_name,
                stride=ring.stride,
                channels=len(ring.channels),
                hosts=tuple(choice.lab.hosts[node].name for node in ring.order),
            )
            for ring in files.rings
        )
        lines = [f"assumed: {line}" for line in files.assumptions]
        lines += [f"{ring.graph}: ranks in the order {', '.join(ring.hosts)}" for ring in rings]
        file_names = [TOPOLOGY_FILE, *(ring.graph for ring in rings), ENVIRONMENT_FILE]
        lines.append(f"{self.nccl}/HOST: {', '.join(file_names)} of {', '.join(files_by_host)}")
        if not self.as_shell:
            context.say(*lines)
        for line in lines if self.as_shell and not context.is_quiet else ():
            context.print_note(line)
        return NcclFilesDocument(rings=rings, hosts=files_by_host, assumed=files.assumptions)


def _read_hardware(lab: Lab) -> tuple[dict[str, HostHardware], dict[str, str]]:
    """Return the hardware of hosts that answer in time, and for each other host the reason why it is unknown."""
    from testbed.errors import HostError
    from testbed.lab.hosts.fleet import SshFleet, run_where_possible
    from testbed.lab.hosts.nccl_files import read_hardware
    from testbed.lab.simulated.lifecycle import find_hosts_in_use, is_up

    if lab.simulated:
        reason = "the lab is not up" if not is_up(lab) else "the hosts are only modelled"
        if not is_up(lab) or find_hosts_in_use(lab) == "model":
            return {}, {host.name: reason for host in lab.hosts}
    try:
        with SshFleet(lab, skip_unreachable=True) as fleet:
            (hardware, unreadable_hosts), failed_hosts = run_where_possible(
                lambda reachable_fleet: read_hardware(reachable_fleet, lab), fleet
            )
            return hardware, {**fleet.unreachable, **failed_hosts, **unreadable_hosts}
    except HostError as error:  # an error that names no host concerns all hosts
        return {}, {host.name: error.reasons.get(host.name, str(error)) for host in lab.hosts}
