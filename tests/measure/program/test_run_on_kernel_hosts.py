"""`testbed run` on hosts that are real to the kernel: light, ranks, and everything given back, also after a kill."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from libraries import skip_without
from needs import needs

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")
skip_without("typer")

from ocs_drivers import open_switch
from ocs_drivers.model import CrossConnects
from testbed import open_lab
from testbed.commands.measure.run import ProgramDocument
from testbed.errors import LightDenied, UsageError
from testbed.lab.inventory import load_lab, render_lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.leases.listing import read_leases
from testbed.operate.unfinished import find_unfinished_operations
from testbed.storage.address import get_database_address

ROOT = Path(__file__).parents[3]
HOST_PYTHON = ROOT / ".venv-host" / "bin" / "python"
KILLS = 20

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(
        not HOST_PYTHON.exists(), reason="needs torch on the simulated hosts: `make install` makes .venv-host"
    ),
]

TRAIN = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
ones = torch.ones(1 << 20)
dist.all_reduce(ones)
print(dist.get_rank(), int(ones[0]), int(ones[-1]))
dist.destroy_process_group()
"""
SUM = """
#include <mpi.h>
#include <stdio.h>
int main(int count, char **words)
{
    int rank, sum;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%d %d\\n", rank, sum);
    MPI_Finalize();
    return rank == 2 && count > 1 ? 5 : 0;
}
"""


@contextmanager
def start(folder):
    """Start the 12-host lab; yield its lab file. Hosts see the folder."""
    file = folder / "lab.yaml"
    text = (ROOT / "labs" / "testbed12.yaml").read_text()
    file.write_text(text.replace("../.venv-host/bin/python", str(HOST_PYTHON)))
    with start_lab(load_lab(file), hosts="kernel", may_move=True) as started:
        file.write_text(render_lab(started.lab))
        yield file


@pytest.fixture(scope="module")
@needs("kernel")
def up(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    (folder / "train.py").write_text(TRAIN)
    (folder / "sum.c").write_text(SUM)
    subprocess.run(["mpicc", "sum.c", "-o", "sum"], cwd=folder, check=True)
    with start(folder) as file:
        yield file


@pytest.fixture
def lab(up, tmp_path, monkeypatch):
    monkeypatch.chdir(up.parent)
    with open_lab(up, runs_dir=tmp_path / "runs") as opened:
        yield opened
    assert read_circuits(up) == {}


def read_circuits(file):
    (switch,) = load_lab(file).switches
    with open_switch(switch.address) as device:
        return dict(device.read().connections.pairs)


def clear_switch(file):
    (switch,) = load_lab(file).switches
    with open_switch(switch.address) as device:
        device.apply(CrossConnects())


def wait_for_keepers(runs):
    deadline = time.monotonic() + 90
    words = ["pgrep", "-f", f"program.cleanup {runs}"]
    while subprocess.run(words, capture_output=True, check=False).returncode == 0:
        assert time.monotonic() < deadline, "the cleanup process does not end"
        time.sleep(0.1)


def living_leases(file, runs):
    return read_leases(get_database_address(runs), load_lab(file).name)


def test_a_program_runs_on_light_of_its_own_and_gives_it_back(lab, up, tmp_path):
    done = lab.run("python", "train.py", nodes=4, reason="a test")

    assert isinstance(done, ProgramDocument)
    assert (done.exit_code, done.patched, done.restored, done.failed_rank) == (0, True, True, None)
    assert done.unfinished == ()
    assert sorted(rank.stdout for rank in done.ranks) == [f"{rank} 4 4\n" for rank in range(4)]
    assert sum(link.sent_bytes for link in done.links) > 4 * 1.5 * (1 << 22)
    assert {link.limit_mbps for link in done.links} == {load_lab(up).link.rate_mbps}
    assert read_circuits(up) == {}
    assert living_leases(up, tmp_path / "runs") == ()
    kept = lab.command("runs query", "select status, hosts from runs").rows
    assert [list(row) for row in kept] == [["done", "kernel"]]
    assert (tmp_path / "runs" / done.run_id / "ranks" / f"0-{done.ranks[0].host}.out").exists()


def test_circuits_of_an_epoch_are_back_after_the_run(lab, up, tmp_path):
    assert lab.apply().verified
    before = read_circuits(up)
    done = lab.run("sh", "-c", "ping -c 1 -q $(echo $TESTBED_HOSTS | cut -d, -f2).fabric", hosts=["a", "c"])

    assert (done.exit_code, [rank.host for rank in done.ranks], done.patched) == (0, ["a", "c"], True)
    assert read_circuits(up) == before
    assert lab.verify().ok
    assert len(lab.epochs()) == 1
    with lab.lease():
        # The light of one's own lease is used as it is.
        on_mine = lab.run("hostname", nodes=3)
        assert (on_mine.exit_code, on_mine.patched, len(on_mine.ranks)) == (0, False, 3)
    clear_switch(up)


def test_light_or_lease_that_is_not_to_be_had_is_exit_code_3(lab, up, tmp_path, monkeypatch):
    other = open_lab(up, runs_dir=tmp_path / "runs")
    with other.lease(["host:a"], reason="mine"):
        with pytest.raises(LightDenied, match="not granted within 0 s") as denied:
            lab.run("true", hosts=["a", "b"])
        assert denied.value.exit_code == 3
        command = [sys.executable, "-m", "testbed.cli", "run", up, "--json", "--hosts-of", "a", "--", "true"]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"LIGHTBED_RUNS": str(tmp_path / "runs")},
        )
        assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (3, "light.denied")
    with other.lease(reason="mine") as mine, monkeypatch.context() as patch:
        # A lease is for its owner: nobody runs programs on it by knowing its id.
        patch.setattr("testbed.leases.store.get_default_owner", lambda: "bob@elsewhere")
        patch.setenv("LIGHTBED_LEASE", mine.id)
        with open_lab(up, runs_dir=tmp_path / "runs") as bob, pytest.raises(LightDenied, match="belongs to"):
            bob.run("true", nodes=2)
    with pytest.raises(UsageError, match="--nodes asks for 3"):
        lab.run("true", hosts=["a", "b"], nodes=3)
    with pytest.raises(LightDenied, match="it has no host z"):
        lab.run("true", hosts=["z"])


@pytest.mark.long
@pytest.mark.parametrize("nodes", [4, 8, 12])
def test_torch_and_mpi_programs_of_every_size(lab, nodes):
    trained = lab.run("python", "train.py", nodes=nodes)
    assert sorted(int(rank.stdout.split()[0]) for rank in trained.ranks) == list(range(nodes))
    assert {rank.stdout.split()[1] for rank in trained.ranks} == {str(nodes)}

    total = nodes * (nodes - 1) // 2
    summed = lab.run("mpirun", "./sum", nodes=nodes)
    assert (summed.exit_code, [rank.stdout for rank in summed.ranks]) == (
        0,
        [f"{rank} {total}\n" for rank in range(nodes)],
    )
    assert {link.link.split("/")[0] for link in summed.links} == {rank.host for rank in summed.ranks}
    assert lab.run("mpirun", "./sum", "fail", nodes=nodes).exit_code == 5


@pytest.mark.long
def test_a_host_that_dies_ends_the_program(lab, up, tmp_path):
    script = "if [ $TESTBED_HOST = b ]; then sleep 2; kill -9 $(ps -o ppid= -p $PPID); fi; sleep 300"
    done = lab.run("sh", "-c", script, hosts=["a", "b", "c"])
    assert done.failed_rank is not None
    assert (done.ranks[done.failed_rank].host, done.exit_code) == ("b", 255)
    assert living_leases(up, tmp_path / "runs") == ()


@pytest.mark.long
def test_a_dead_host_does_not_keep_the_others_from_getting_their_circuits_back(tmp_path):
    cut_off = "ip link set $(ip -o -4 addr | awk '/ 10[.]99[.]/{print $2}') down"
    with start(tmp_path) as file, open_lab(file, runs_dir=tmp_path / "runs") as lab:
        assert lab.apply().verified
        before = read_circuits(file)
        script = f"if [ $TESTBED_HOST = b ]; then sleep 2; {cut_off}; fi; sleep 300"
        done = lab.run("sh", "-c", script, hosts=["a", "b", "c"])
        assert (done.exit_code, done.restored) == (255, False)
        assert "is not installed again: b: " in done.problem
        assert read_circuits(file) == before
        assert living_leases(file, tmp_path / "runs") == ()
        with pytest.raises(LightDenied, match="marked broken"):
            lab.run("true", hosts=["a"])


@pytest.mark.long
@pytest.mark.parametrize("is_impatient", [False, True])
def test_ctrl_c_gives_everything_back(lab, up, tmp_path, is_impatient):
    """One Ctrl-C, or one every 0.1 s until the end, also while the hosts are restored."""
    runs, marker = tmp_path / "runs", f"32{is_impatient:04}"
    command = [sys.executable, "-m", "testbed.cli", "run", up, "--nodes", "4", "--", "sleep", marker]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=os.environ | {"LIGHTBED_RUNS": str(runs)}
    )
    while "verified" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    while is_impatient and process.poll() is None:
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
    code, lines = process.wait(60), process.stderr.read()
    process.stderr.close()
    # A Ctrl-C at the very end ends the interpreter itself.
    assert code in ((130, -signal.SIGINT) if is_impatient else (130,)), lines
    wait_for_keepers(runs)
    assert living_leases(up, runs) == (), lines
    assert read_circuits(up) == {}, lines
    assert subprocess.run(["pgrep", "-fx", f"sleep {marker}"], check=False).returncode == 1
    (row,) = lab.command("runs query", "select status from runs").rows
    assert list(row) == ["interrupted"]


@pytest.mark.long
def test_nothing_is_left_after_kills_at_random_moments(lab, up, tmp_path):
    """Twenty kills: all ranks gone, lease and light given back, the run kept with its reason."""
    seed = random.SystemRandom().randrange(1 << 32)

    moments, runs, stages = random.Random(seed), tmp_path / "runs", set()
    for number in range(KILLS):
        marker = f"31{number:04}"
        command = [sys.executable, "-m", "testbed.cli", "run", up, "--nodes", "4", "--", "sleep", marker]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=os.environ | {"LIGHTBED_RUNS": str(runs)}
        )
        # From the first line on, the lease is held; before it there is little to leave behind.
        if number % 4:
            process.stderr.readline()
        time.sleep(moments.uniform(0, 5))
        process.send_signal(signal.SIGKILL)
        process.wait()
        lines = process.stderr.read()
        process.stderr.close()
        stages.add("running" if "verified" in lines else "patching")
        wait_for_keepers(runs)
        assert living_leases(up, runs) == (), seed
        assert read_circuits(up) == {}, seed
        assert subprocess.run(["pgrep", "-fx", f"sleep {marker}"], check=False).returncode == 1, seed
        assert find_unfinished_operations(runs, load_lab(up)) == (), seed
        for status, error in lab.command("runs query", "select status, error from runs").rows:
            assert status == "interrupted", seed
            # A process that is killed before its cleanup process starts leaves no reason.
            assert (error or "testbed run was killed").startswith("testbed run was killed"), seed
    assert stages == {"running", "patching"}
