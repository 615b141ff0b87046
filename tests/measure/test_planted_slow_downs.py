"""Slow-downs planted on hosts that are real to the kernel: `runs explain` names each, and nothing on healthy hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("typer")
skip_without("pydantic")
skip_without("sqlalchemy")
skip_without("pyarrow")

from sim.models.network.taskgraph import TaskGraphBuilder
from testbed.cli.app import run_app
from testbed.design.evaluation.host_job import make_host_job
from testbed.design.fabrics.direct import route_job
from testbed.design.topology.circulants import find_topology
from testbed.lab.inventory import load_lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.measure.current_topology import measure_current_topology
from testbed.measure.plan_job import Checkpoint, run_on_hosts
from testbed.measure.results.store import RunStore
from testbed.operate.design import build_design, lay_out, replace_routes
from testbed.operate.journal import Journal
from testbed.operate.session import open_lab

ROOT = Path(__file__).parents[2]
LAB = ROOT / "labs" / "testbed12.yaml"
HOST_PYTHON = ROOT / ".venv-host" / "bin" / "python"
HOSTS, NICS, RATE_MBPS = 6, 2, 50.0
MIB = 1 << 20
BLKIO = Path("/sys/fs/cgroup/blkio")

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(
        not HOST_PYTHON.exists(), reason="needs torch on the simulated hosts: `make install` makes .venv-host"
    ),
]

RANKS = """
ranks=
for process in $(grep -lsE '(collective|iteration)[.]py' /proc/[0-9]*/cmdline); do
    grep -qs 'guard[.]py' $process || ranks="$ranks $(echo $process | cut -d/ -f3)"
done
"""
"""Shell lines that find the rank of a host, and its parent."""


def an_iteration():
    """Return computing on every host, three rounds of transfers, and an AllReduce of all."""
    random, job = np.random.default_rng(0), TaskGraphBuilder(HOSTS)
    last = [job.add_compute(host, 0.002) for host in range(HOSTS)]
    for _ in range(3):
        order = random.permutation(HOSTS).tolist()
        moved = [
            job.add_transfer(host, target, int(random.integers(10**6, 10**7)), predecessors=[last[host]])
            for host, target in enumerate(order)
            if host != target
        ]
    job.add_allreduce(tuple(range(HOSTS)), 10**7, predecessors=[*last, *moved])
    return job.build()


class Bench:
    """A lab that is up, and runs on it."""

    def __init__(self, session, runs_dir):
        self.session, self.fleet, self.lab = session, session.fleet, session.lab
        self.store = RunStore(runs_dir)
        self.rings = build_design(self.lab, name="rings")
        self.graph = an_iteration()
        topology = find_topology(HOSTS, NICS)
        self.planned = replace_routes(
            lay_out(self.lab, "job", topology), route_job(topology, self.graph, try_count=1)
        )
        self.design = None

    def bring_up(self, design):
        if self.design is not design:
            assert self.session.bring_up(design).verify_report.ok
            self.design = design

    def link(self, kind, nic):
        """Return the label of the link that a NIC sends on, and the label of the NIC at its other end."""
        wiring = (self.planned if kind == "job" else self.rings).wiring
        label = next(name for name in map(self.lab.link_label, wiring.links) if name.startswith(f"{nic} "))
        return label, label.partition(" -> ")[2]

    def run(self, kind):
        """Measure, and return the run's id; a job writes a checkpoint in every iteration."""
        self.bring_up(self.rings if kind == "nccl" else self.planned)
        with self.store.begin_run(self.lab, True, "kernel", seeds={}) as run:
            if kind == "nccl":
                measure_current_topology(
                    self.session,
                    self.rings,
                    run,
                    (MIB // 2, MIB),
                    120.0,
                    hosts="kernel",
                    on_progress=lambda *_: None,
                )
            else:
                job = make_host_job(
                    self.graph, self.planned.route_sets, self.lab.link.rate_mbps, target_s=0.5
                )
                done = run_on_hosts(
                    self.fleet,
                    self.lab,
                    self.planned.wiring,
                    job,
                    iterations=6,
                    deadline_s=120.0,
                    checkpoint=Checkpoint(4 * MIB),
                )
                run.add_rank_figures(done.rank_figures, done.flow_figures, done.link_figures)
        return run.run_id

    @contextmanager
    def command(self, host, on, off):
        assert self.fleet.run({host: on})[host].exit_status == 0
        try:
            yield
        finally:
            self.fleet.run({host: off})

    @contextmanager
    def script(self, host, text):
        """Run a shell script on a host, in a session of its own, and end it."""
        place, start = (
            "/run/tmp/plant.sh",
            "setsid sh {0} </dev/null >/dev/null 2>&1 & echo $! > /run/tmp/plant",
        )
        self.fleet.run({host: f"cat > {place}; {start.format(place)}"}, stdin={host: text})
        try:
            yield
        finally:
            self.fleet.run({host: f"kill -9 -- -$(cat /run/tmp/plant); {RANKS} kill -CONT $ranks; true"})

    def half_rate(self, nic, share=0.5):
        """Let a NIC send at a part of its rate."""
        host, _, name = nic.partition("/")
        tbf = "tc qdisc change dev {} root handle 1: tbf rate {}kbit burst 128kb latency 50ms"
        slow, usual = (tbf.format(name, round(RATE_MBPS * part * 1000)) for part in (share, 1))
        return self.command(host, slow, usual)

    def loss(self, nic, per_mille=20):
        """Drop packets that arrive at a NIC."""
        host, _, name = nic.partition("/")
        chain = (
            f"type filter hook ingress device {name} priority 0; numgen random mod 1000 < {per_mille} drop;"
        )
        on = f"nft 'table netdev planted {{ chain c {{ {chain} }}; }}'"
        return self.command(host, on, "nft delete table netdev planted")

    def late(self, host):
        """Stop the rank for a quarter of the time."""
        stop = "kill -STOP $ranks; sleep 0.1; kill -CONT $ranks; sleep 0.3"
        return self.script(host, f'while :; do {RANKS} [ -n "$ranks" ] && {{ {stop}; }}; sleep 0.01; done')

    def busy(self, host):
        """Run four busy loops on a host."""
        return self.script(host, " & ".join(["(while :; do :; done)"] * 4) + "; wait")

    @contextmanager
    def slow_disk(self, host):
        """Mount a disk of ten writes a second for the rank of a host: a loop device with a limit for its group."""
        if not (BLKIO / "blkio.throttle.write_iops_device").exists() and not BLKIO.is_dir():
            pytest.skip("needs the controller blkio of control groups, version 1")
        own = self.fleet.run({host: "readlink /proc/self/ns/mnt"})[host].stdout.strip()
        with ExitStack() as stack:
            image = f"/tmp/planted-disk-{os.getpid()}.img"
            call("truncate", "-s", "64M", image)
            stack.callback(os.unlink, image)
            call("mkfs.ext4", "-q", image)
            loop = call("losetup", "-f", "--show", image)
            stack.callback(call, "losetup", "-d", loop)
            device = Path(loop).stat().st_rdev
            major, minor = os.major(device), os.minor(device)
            node = f"rm -f /run/planted; mknod /run/planted b {major} {minor}"
            inside = next(iter(processes_in(own)))
            call("nsenter", "-t", inside, "-m", "sh", "-c", f"{node} && mount /run/planted /var/tmp")
            stack.callback(self.fleet.run, {host: "umount -l /var/tmp"})
            group = BLKIO / f"planted-{os.getpid()}"
            group.mkdir()
            stack.callback(leave_group, group)
            limit = group / "blkio.throttle.write_iops_device"
            limit.write_text(f"{major}:{minor} 10")
            stack.callback(limit.write_text, f"{major}:{minor} 0")
            ended = threading.Event()
            joining = threading.Thread(target=join_group, args=(group, own, ended))
            joining.start()
            stack.callback(joining.join)
            stack.callback(ended.set)
            yield


def call(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def processes_in(mount_namespace):
    """Yield the numbers of the processes in a mount namespace."""
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                if str((path / "ns/mnt").readlink()) == mount_namespace:
                    yield path.name
            except OSError:  # it has just ended
                continue


def join_group(group, mount_namespace, ended):
    """Move the processes of a host into a group, as they start, until the end."""
    while not ended.wait(0.2):
        move(processes_in(mount_namespace), group)


def leave_group(group):
    move((group / "cgroup.procs").read_text().split(), BLKIO)
    group.rmdir()


def move(processes, group):
    for process in processes:
        try:
            (group / "cgroup.procs").write_text(process)
        except OSError:  # it has just ended
            continue


@contextmanager
def load_from_outside():
    """Keep every processor of this machine busy twice."""
    busy = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(busy) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """Provide six hosts of two NICs."""
    whole, python = load_lab(LAB), str(HOST_PYTHON.absolute())
    hosts = tuple(replace(host, nics=host.nics[:NICS], python=python) for host in whole.hosts[:HOSTS])
    link = replace(whole.link, rate_mbps=RATE_MBPS, fit_rate=False)
    lab = replace(whole, name=f"slow-{os.getpid()}", hosts=hosts, link=link)
    with (
        start_lab(lab, hosts="kernel", may_move=True) as up,
        Journal(tmp_path_factory.mktemp("journal") / "journal.sqlite") as journal,
        open_lab(up.lab, journal) as session,
    ):
        yield Bench(session, tmp_path_factory.mktemp("runs"))


@pytest.fixture
def explain(bench, capsys):
    """Provide a function that returns the exit code and the findings of a run: cause, and link or host."""

    def explain(run_id):
        capsys.readouterr()
        code = run_app(["runs", "explain", run_id, "--runs-dir", str(bench.store.path), "--json"])
        document = json.loads(capsys.readouterr().out)
        assert (document["run_id"], document["ranks"], document["note"]) == (run_id, HOSTS, "")
        return code, [(one["cause"], one["link"] or one["host"]) for one in document["findings"]]

    return explain


@pytest.mark.long
@pytest.mark.slow
def test_a_rank_that_is_stopped_now_and_then_is_late(bench, explain):
    with bench.late("e"):
        run_id = bench.run("job")
    assert explain(run_id) == (2, [("late", "e")])


@pytest.mark.slow
def test_a_link_at_half_its_rate_is_slow_and_without_it_nothing_is(bench, explain):
    link, _ = bench.link("job", "c/nic1")
    bench.bring_up(bench.planned)
    with bench.half_rate("c/nic1"):
        run_id = bench.run("job")
    assert explain(run_id) == (2, [("link", link)])
    assert explain(bench.run("job")) == (0, [])


PLANTED = [
    (kind, cause, place)
    for kind, places in (
        ("nccl", ("a", "b/nic1", "c/nic2", "d", "e")),
        ("job", ("f", "c/nic1", "a/nic2", "b", "c")),
    )
    for cause, place in zip(("processor", "link", "retransmission", "late", "disk"), places, strict=True)
]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "cause", "place"), PLANTED)
def test_planted_slow_downs_are_named(bench, explain, kind, cause, place):
    subject, _, nic = place.partition("/")
    far = ""
    if nic:
        subject, far = bench.link(kind, place)
    plant = {
        "processor": lambda: bench.busy(place),
        "link": lambda: bench.half_rate(place),
        "retransmission": lambda: bench.loss(far),
        "late": lambda: bench.late(place),
        "disk": lambda: bench.slow_disk(place),
    }
    bench.bring_up(bench.rings if kind == "nccl" else bench.planned)
    with plant[cause]():
        run_id = bench.run(kind)
    assert explain(run_id) == (2, [(cause, subject)])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["nccl", "job"])
@pytest.mark.parametrize("load", [nullcontext, load_from_outside])
def test_healthy_hosts_have_no_finding_however_busy_the_machine(bench, explain, kind, load):
    with load():
        run_id = bench.run(kind)
    assert explain(run_id) == (0, [])
