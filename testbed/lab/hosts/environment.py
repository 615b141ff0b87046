"""Settings with which MPI, NCCL and Gloo use the optical links of a lab: variables, host file, order of ranks."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.design.model import Topology
from testbed.design.topology.strides import list_rings
from testbed.errors import HostError
from testbed.lab.model import Lab, LabHost


@dataclass(frozen=True, slots=True)
class ProgramEnvironment:
    """Environment of a program on all hosts of a lab. `ranks` lists the hosts in the order of a ring.

    Neighbours in this order share a link, so each step of a ring over the ranks takes one hop.
    """

    variables: Mapping[str, str]
    ranks: tuple[LabHost, ...]

    @property
    def hostfile(self) -> str:
        """Text of an Open MPI host file, with one rank per host."""
        return "".join(f"{host.name} slots=1\n" for host in self.ranks)

    @property
    def shell_text(self) -> str:
        """The variables as lines for a POSIX shell."""
        return render_shell(self.variables)

    def as_json(self) -> dict[str, Any]:
        """Return variables, host file and ranks. A rank's `address` and `interfaces` belong to the optical links."""
        ranks = [
            {
                "rank": rank,
                "host": host.name,
                "management": str(host.management),
                "address": str(host.address),
                "interfaces": [nic.name for nic in host.nics],
            }
            for rank, host in enumerate(self.ranks)
        ]
        return {"variables": dict(self.variables), "hostfile": self.hostfile, "ranks": ranks}


def render_shell(variables: Mapping[str, str]) -> str:
    """Return variables as lines for a POSIX shell."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def make_program_environment(lab: Lab, topology: Topology) -> ProgramEnvironment:
    """Return the environment of programs on the hosts of a lab with this topology.

    Raises `HostError` if hosts name their NICs differently, because launchers give all ranks the same variables.
    """
    order = list_rings(topology)[0].order if topology.nodes > 1 else (0,)
    rank_hosts = tuple(lab.hosts[node] for node in order)
    return ProgramEnvironment(make_rank_variables(rank_hosts, f"{lab.path}: "), rank_hosts)


def make_rank_variables(rank_hosts: Sequence[LabHost], subject: str = "") -> dict[str, str]:
    """Return the environment variables of programs on these hosts. The first host runs rank 0.

    Raises `HostError`, prefixed with `subject`, if hosts name their NICs differently.
    """
    nic_names = {tuple(nic.name for nic in host.nics) for host in rank_hosts}
    if len(nic_names) > 1:
        names_text = "; ".join(",".join(names) for names in sorted(nic_names))
        raise HostError(
            f"{subject}hosts name their NICs differently ({names_text}), but launchers give all ranks "
            "the same variables: rename the interfaces on the hosts (`ip link set dev OLD name NEW`) and "
            "in the lab file"
        )
    interfaces = ",".join(nic_names.pop())
    variables = {
        "GLOO_SOCKET_IFNAME": interfaces,
        "NCCL_SOCKET_IFNAME": f"={interfaces}",  # with "=", NCCL takes these as exact names and not as prefixes
        "OMPI_MCA_btl_tcp_if_include": interfaces,
        "MASTER_ADDR": rank_hosts[0].name,
    }
    if any(host.user == "root" for host in rank_hosts):
        variables |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return variables
