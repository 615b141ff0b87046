"""Other people's programs on simulated hosts, as docs/how-to/your-own-programs.md has them: none is changed for us."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from libraries import skip_without
from nccl_reader import read_graphs, read_topology
from needs import needs

skip_without("asyncssh")
skip_without("jsonschema")
skip_without("pydantic")

from testbed.lab.hosts.environment import make_program_environment
from testbed.lab.hosts.fleet import SshFleet
from testbed.lab.hosts.nccl_files import make_files, read_hardware
from testbed.lab.inventory import load_lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.operate.design import build_design
from testbed.operate.journal import Journal
from testbed.operate.session import open_lab

pytestmark = pytest.mark.kernel
ROOT = Path(__file__).parents[2]
PATIENCE_S = 90.0


def installed(*programs):
    """Skip a test where a program of somebody else is missing."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    missing = [program for program in programs if shutil.which(program, path=path) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)}: installed by `make install-test`")


@pytest.fixture(scope="module")
@needs("process", "socket")
def bench(tmp_path_factory):
    """Provide four hosts of two NICs each, joined to a ring and routed, and the environment of programs on them."""
    lab = load_lab(ROOT / "labs" / "testbed12.yaml")
    hosts = tuple(replace(host, nics=host.nics[:2]) for host in lab.hosts[:4])
    four = replace(lab, name=f"programs-{os.getpid()}", hosts=hosts)
    path = tmp_path_factory.mktemp("programs")
    with start_lab(four, hosts="kernel", may_move=True) as up, Journal(path / "journal.sqlite") as journal:
        design = build_design(up.lab)
        with open_lab(up.lab, journal, model_hosts=False) as session:
            session.bring_up(design)
        with SshFleet(up.lab) as fleet:
            yield SimpleNamespace(
                lab=up.lab, fleet=fleet, environment=make_program_environment(up.lab, design.topology)
            )


def run(bench, commands, stdin=None):
    """Return what each command prints, by host; every one has the variables of `testbed env`."""
    shell = bench.environment.shell_text
    done = bench.fleet.run(
        {host: f"{shell}{command}" for host, command in commands.items()}, stdin=stdin, timeout_s=PATIENCE_S
    )
    assert {host: (each.exit_status, each.stderr) for host, each in done.items() if each.exit_status} == {}
    return {host: each.stdout for host, each in done.items()}


def sent_over_the_fabric(bench):
    """Return bytes that the hosts have sent on their NICs."""
    count = "cat /sys/class/net/nic*/statistics/tx_bytes"
    return sum(
        int(word) for text in run(bench, dict.fromkeys("abcd", count)).values() for word in text.split()
    )


@installed("iperf3")
def test_iperf3_measures_a_link(bench):
    """A link has a rate that is known; TCP gets some of it, and not more."""
    with bench.fleet.start({"b": "iperf3 --server --one-off --json"}) as server:
        asked = "until ss -ltn | grep -q :5201; do sleep 0.05; done"
        run(bench, {"b": asked})
        report = json.loads(run(bench, {"a": "iperf3 --client b.fabric --time 1 --json"})["a"])
        server.wait(PATIENCE_S)
    mbps = report["end"]["sum_received"]["bits_per_second"] / 1e6
    assert 0 < mbps <= 1.1 * bench.lab.link.rate_mbps
    assert report["start"]["connected"][0]["remote_host"] == "10.100.2.100"


LISTED = """
import ctypes
class Entry(ctypes.Structure):
    pass
Entry._fields_ = [("next", ctypes.POINTER(Entry)), ("name", ctypes.c_char_p), ("flags", ctypes.c_uint),
                  ("address", ctypes.POINTER(ctypes.c_ushort))]
first = ctypes.POINTER(Entry)()
ctypes.CDLL(None).getifaddrs(ctypes.byref(first))
names = []
while first:
    entry = first.contents
    if entry.address and entry.address[0] == 2 and entry.name.startswith(b"nic"):
        names.append(entry.name.decode())
    first = entry.next
print(*dict.fromkeys(names))
"""
"""Print the NICs that have an IPv4 address, in the order in which NCCL lists and numbers them."""


def test_nccl_files_number_nics_as_the_host_lists_them(bench):
    hardware, reasons = read_hardware(bench.fleet, bench.lab)
    design = build_design(bench.lab)
    files = make_files(bench.lab, design.topology, design.wiring, design.routes, hardware, reasons)
    listed = run(
        bench,
        dict.fromkeys("abcd", f"{bench.lab.hosts[0].python} -"),
        stdin=dict.fromkeys("abcd", LISTED),
    )
    assert reasons == {}
    for host, names in listed.items():
        topology = read_topology(files.texts_by_host[host]["topology.xml"])
        assert [topology.nets[number] for number in range(2)] == names.split()
        assert len(names.split()) == 2
        assert read_graphs(files.texts_by_host[host]["ring-1.xml"], topology, 1)[0][0].gpus == (0,)
    assert (
        "a, b, c, d: nic1, nic2 have no PCI device: attached to the processor, as NCCL assumes"
        in files.assumptions
    )


# The interval stands in lldpd's own configuration: lldpd starts paused until its own lldpcli has read that, and an
# lldpcli of ours that runs meanwhile reads "paused", changes the interval and writes both back.
LLDPD = (
    "echo configure lldp tx-interval 1 >/etc/lldpd.d/interval.conf && mkdir -p /run/lldpd && lldpd -I 'nic*'"
)


@installed("lldpd")
def test_lldpd_names_the_neighbours_of_the_ring(bench):
    run(bench, dict.fromkeys("abcd", LLDPD))
    names = "lldpcli -f keyvalue show neighbors | sed -n 's/.*chassis.name=//p' | sort"
    wait = f"for i in $(seq 150); do [ $({names} | wc -l) = 2 ] && break; sleep 0.2; done; {names}"
    seen = run(bench, dict.fromkeys("abcd", wait))
    run(bench, dict.fromkeys("abcd", "pkill lldpd"))
    assert {host: [name.split(".")[0] for name in text.split()] for host, text in seen.items()} == {
        "a": ["b", "d"],
        "b": ["a", "c"],
        "c": ["b", "d"],
        "d": ["a", "c"],
    }


SUM = """
import socket, torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.full((100_000,), float(dist.get_rank() + 1))
dist.all_reduce(value)
print(socket.gethostname(), dist.get_rank(), value[-1].item())
dist.destroy_process_group()
"""


@pytest.mark.long
def test_torchrun_sums_over_the_links(bench):
    torchrun = Path(bench.lab.hosts[0].python).with_name("torchrun")
    before = sent_over_the_fabric(bench)
    commands = {
        host.name: f"cat >sum.py; {torchrun} --nnodes 4 --node-rank {rank} --nproc-per-node 1"
        " --master-addr $MASTER_ADDR --master-port 29500 sum.py"
        for rank, host in enumerate(bench.environment.ranks)
    }
    printed = run(bench, commands, stdin=dict.fromkeys(commands, SUM))
    assert [printed[host.name].split() for host in bench.environment.ranks] == [
        [host.name, str(rank), "10.0"] for rank, host in enumerate(bench.environment.ranks)
    ]
    assert sent_over_the_fabric(bench) - before > 4 * 100_000 * 4, "the numbers took the optical links"


RING = r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    static double mine[65536], sums[65536];
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < 65536; i++) mine[i] = rank + 1;
    MPI_Allreduce(mine, sums, 65536, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    printf("%d of %d: %g\n", rank, ranks, sums[65535]);
    MPI_Finalize();
    return 0;
}
"""


@installed("mpirun", "mpicc")
def test_mpirun_starts_its_ranks_over_ssh_and_sums_over_the_links(bench):
    before = sent_over_the_fabric(bench)
    prepare = "cat >sum.c; mpicc sum.c -o sum; for other in b c d; do scp -q sum $other:; done"
    run(bench, {"a": prepare}, stdin={"a": RING})
    run(bench, {"a": "cat >hosts"}, stdin={"a": bench.environment.hostfile})
    printed = run(bench, {"a": "mpirun --hostfile hosts ./sum"})["a"]
    assert sorted(printed.splitlines()) == [f"{rank} of 4: 10" for rank in range(4)]
    assert sent_over_the_fabric(bench) - before > 4 * 65536 * 8


DASK = ROOT / ".venv-clients" / "bin"
DASK_SUM = """
import socket
from distributed import Client
with Client("tcp://a:8786", timeout="60s") as client:
    client.wait_for_workers(3, timeout=60)
    print(sorted(client.run(socket.gethostname).values()), client.submit(sum, range(100)).result())
"""


@pytest.mark.long
@pytest.mark.skipif(
    not (DASK / "dask").exists(), reason="`make install-test` makes .venv-clients, with dask in it"
)
def test_dask_ssh_starts_its_workers_over_ssh(bench):
    """One host starts a scheduler on itself and workers on three; from another, work is sent to them."""
    names = "".join(f"{name}\\n" for name in "bcd")
    command = f"{DASK}/dask ssh --scheduler a --remote-python {DASK}/python --nthreads 1 --hostfile workers"
    with bench.fleet.start({"a": f"printf '{names}' >workers; {command}"}):
        printed = run(bench, {"d": f"cat >sum.py; {DASK}/python sum.py"}, stdin={"d": DASK_SUM})["d"]
    assert printed.split("\n")[0] == "['b', 'c', 'd'] 4950"


@installed("ansible")
def test_ansible_writes_to_the_hosts_and_to_nothing_else(bench, tmp_path):
    lines = [f"{host.name} ansible_host={host.management}" for host in bench.lab.hosts]
    lines += [
        "[all:vars]",
        f"ansible_ssh_private_key_file={bench.lab.ssh_key}",
        "ansible_user=root",
        "ansible_python_interpreter=/usr/bin/python3",
        "ansible_ssh_common_args=-F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null",
    ]
    inventory = tmp_path / "inventory"
    inventory.write_text("\n".join(lines) + "\n")
    with tempfile.TemporaryDirectory() as sockets:  # their paths have to be short
        done = subprocess.run(
            ["ansible", "all", "-i", str(inventory), "-m", "copy", "-a", "content=lab dest=/etc/of-the-lab"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env={
                **os.environ,
                "HOME": str(tmp_path),
                "LC_ALL": "C.UTF-8",
                "ANSIBLE_SSH_CONTROL_PATH_DIR": sockets,
            },
        )
    assert (done.returncode, done.stdout.count("CHANGED")) == (0, 4), done.stdout + done.stderr
    assert run(bench, dict.fromkeys("abcd", "cat /etc/of-the-lab")) == dict.fromkeys("abcd", "lab")
    assert not Path("/etc/of-the-lab").exists()
