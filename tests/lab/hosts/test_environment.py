"""Variables, host file and order of ranks for other people's launchers."""

from __future__ import annotations

import subprocess

import pytest
from libraries import skip_without

skip_without("pydantic")

from testbed.design.model import Topology
from testbed.design.topology.circulants import find_topology
from testbed.errors import HostError
from testbed.lab.hosts.environment import make_program_environment
from testbed.lab.inventory import parse_lab


def of(text, nodes, degree, **options):
    return make_program_environment(parse_lab(text, "x.yaml"), find_topology(nodes, degree, **options))


def test_the_environment_of_a_small_lab_in_full(small_lab_text):
    found = of(small_lab_text(3, 2), 3, 2).as_json()
    assert found["variables"] == {
        "GLOO_SOCKET_IFNAME": "nic1,nic2",
        "NCCL_SOCKET_IFNAME": "=nic1,nic2",
        "OMPI_MCA_btl_tcp_if_include": "nic1,nic2",
        "MASTER_ADDR": "a",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    assert found["hostfile"] == "a slots=1\nb slots=1\nc slots=1\n"
    assert found["ranks"][1] == {
        "rank": 1,
        "host": "b",
        "management": "10.99.0.12",
        "address": "10.100.2.100",
        "interfaces": ["nic1", "nic2"],
    }


@pytest.mark.parametrize("simplex", [False, True])
@pytest.mark.parametrize(("nodes", "degree"), [(2, 1), (5, 2), (12, 2), (12, 4), (16, 3)])
def test_each_rank_has_a_link_to_the_next(small_lab_text, nodes, degree, simplex):
    topology = find_topology(nodes, degree, simplex=simplex)
    order = [rank.name for rank in of(small_lab_text(nodes, degree), nodes, degree, simplex=simplex).ranks]
    at = [ord(name) - ord("a") for name in order]
    assert sorted(at) == list(range(nodes))
    assert {(at[k], at[(k + 1) % nodes]) for k in range(nodes)} <= set(topology.edges)


def test_hosts_that_name_their_nics_differently_are_refused(small_lab_text):
    text = small_lab_text(3, 2)
    last = text.rindex("name: nic2")
    with pytest.raises(HostError, match=r"name their NICs differently \(nic1,eno9; nic1,nic2\).*ip link set"):
        of(text[:last] + "name: eno9" + text[last + len("name: nic2") :], 3, 2)


def test_an_unprivileged_user_is_not_told_to_run_as_root(small_lab_text):
    text = small_lab_text(3, 2).replace("ssh: {", "ssh: {user: mpi, ")
    assert "OMPI_ALLOW_RUN_AS_ROOT" not in of(text, 3, 2).variables


@pytest.mark.process
def test_the_shell_gives_every_variable_back(small_lab_text):
    found = of(small_lab_text(3, 2), 3, 2)
    done = subprocess.run(
        ["sh"], input=f"{found.shell_text}env\n", capture_output=True, text=True, check=True, env={}
    )
    assert set(found.variables.items()) <= {tuple(line.split("=", 1)) for line in done.stdout.splitlines()}


def test_ranks_follow_the_stride_of_a_topology_whose_ring_is_not_the_lab_files_order(small_lab_text):
    edges = sorted({(node, (node + step) % 12) for node in range(12) for step in (5, 7)})
    topology = Topology(nodes=12, degree=2, simplex=False, strides=(5,), edges=tuple(edges))
    found = make_program_environment(parse_lab(small_lab_text(12, 2), "x.yaml"), topology)
    assert "".join(host.name for host in found.ranks) == "afkdibglejch"
