"""`testbed env`: variables and host file with which torchrun, mpirun and others use a lab's optical links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from testbed.commands.declare import option
from testbed.commands.documents import Document, UnfinishedOperation, describe_unfinished
from testbed.commands.groups import TopologyCommand
from testbed.commands.place import Place


@dataclass(frozen=True, kw_only=True)
class Rank:
    """A rank, in the order of a ring; `address` and `interfaces` are those of the optical links."""

    rank: int
    host: str
    management: str
    address: str
    interfaces: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class EnvironmentDocument(Document):
    """Environment variables, the text of an Open MPI host file, and the ranks."""

    variables: dict[str, str]
    hostfile: str
    ranks: tuple[Rank, ...]
    unfinished: tuple[UnfinishedOperation, ...]


@dataclass(frozen=True, kw_only=True)
class Environment(TopologyCommand):
    """`testbed env`."""

    lane = "reading"
    role = "viewer"
    as_shell: Annotated[bool, option("Print only the variables, as lines for a shell.", "--shell")] = False

    def run(self, place: Place) -> EnvironmentDocument:
        """Return the environment of programs. Raises `HostError` if hosts name their NICs differently."""
        from testbed.lab.hosts.environment import program_environment
        from testbed.operate.choice import choose_design

        choice = choose_design(place.running_lab, self.topology_name, place.runs_dir)
        environment = program_environment(choice.lab, choice.design.topology)
        if self.as_shell:
            place.say(*environment.shell.splitlines())
            for line in () if place.is_quiet else choice.describe_unfinished():
                place.tell(line)  # on standard error: a shell evaluates standard output
        else:
            place.say(choice.heading(), *choice.lines(), *choice.describe_unfinished())
            place.say(*(f"{name}={value}" for name, value in environment.variables.items()))
            rows = [
                [rank, host.name, host.management, host.address]
                for rank, host in enumerate(environment.ranks)
            ]
            place.say_table("Ranks along a ring", ["rank", "host", "management", "fabric"], rows)
        document = environment.as_json()
        return EnvironmentDocument(
            variables=document["variables"],
            hostfile=document["hostfile"],
            ranks=tuple(Rank(**row | {"interfaces": tuple(row["interfaces"])}) for row in document["ranks"]),
            unfinished=describe_unfinished(choice.left),
        )
