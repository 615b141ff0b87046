"""Slurm's jobs get light (docs/how-to/run-jobs-with-slurm.md): its own daemons, on the hosts of a simulated lab."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from libraries import skip_without
from needs import needs

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from dataclasses import replace

from testbed import open_lab
from testbed.lab.hosts.fleet import SshFleet
from testbed.lab.inventory import load_lab, render_lab
from testbed.lab.simulated.lifecycle import start_lab

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "slurm"
PATIENCE_S = 30.0
HOSTS = "abcdefghijkl"
USER = "daemon"
"""The person who submits jobs: not root, who may do everything."""
NEEDED = ("slurmctld", "slurmd", "sbatch", "munged")
MISSING = [
    name for name in NEEDED if shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None
]

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.long,
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)}: installed by `make install-test`"),
]

CONF = """
ClusterName=bench
SlurmctldHost={machine}({controller})
SlurmctldPort={port}
SlurmdPort={slurmd_port}
SlurmUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
SchedulerParameters=sched_min_interval=100000,bf_interval=1
KillWait=2
MinJobAge=300
{nodes}
PartitionName=lab Nodes=ALL Default=YES MaxTime=60 DefaultTime=10
"""

JOB = """#!/bin/sh
#SBATCH --output={output}
peers=$(scontrol show hostnames)
exec 2>/dev/null
srun --ntasks-per-node=1 --ntasks=$SLURM_NNODES sh -c "
    for peer in $(echo $peers); do ping -nqc 1 -W 2 \\$peer.fabric >/dev/null && echo \\$SLURMD_NODENAME \\$peer; done"
for other in {others}; do ping -nqc 1 -W 1 $other.fabric >/dev/null && echo strange $other; done
echo done >{output}.done
until [ -e {output}.end ]; do sleep 0.1; done
"""


def await_that(check, what, patience_s=None):
    """Return the first true value of a check, polled until a deadline."""
    patience_s = patience_s or PATIENCE_S
    deadline = time.monotonic() + patience_s
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {patience_s:g} s: {what()}"
        time.sleep(0.1)


@contextmanager
def daemon(*command, log, **options):
    """Run a daemon of this machine in the foreground until the block ends."""
    with log.open("ab") as out:
        process = subprocess.Popen(list(map(str, command)), stdout=out, stderr=out, **options)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Cluster:
    """Slurm's commands for the person who submits jobs, and the lab beneath."""

    def __init__(self, folder, fleet, lab_file, environment):
        self.folder, self.fleet, self.lab_file, self.environment = folder, fleet, lab_file, environment

    def ask(self, *command, user=None, check=True):
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, check=False, timeout=30, cwd="/",
            env=self.environment, user=user, extra_groups=[] if user else None,
        )  # fmt: skip
        assert not check or done.returncode == 0, (command, done.stderr)
        return done.stdout.strip() if check else (done.returncode, done.stderr)

    def submit(self, comment, others="", **options):
        """Submit a job as a person, and return its number."""
        output = f"/tmp/light-{time.monotonic_ns()}"
        script = self.folder / f"{Path(output).name}.sh"
        script.write_text(JOB.format(output=output, others=others))
        words = [f"--{key}={value}" for key, value in options.items()]
        number = self.ask("sbatch", "--parsable", f"--comment={comment}", *words, script, user=USER)
        return SimpleNamespace(number=number, output=output)

    def comment(self, job):
        """Return the comment, as people see it."""
        return self.ask(
            "squeue", "--noheader", "--states=all", f"--jobs={job.number}", "-O", "comment:400"
        ).strip()

    def state(self, job):
        return self.ask("squeue", "--noheader", "--states=all", f"--jobs={job.number}", "--format=%T")

    def hosts(self, job):
        return self.ask("squeue", "--noheader", "--states=all", f"--jobs={job.number}", "--format=%N")

    def await_comment(self, job, pattern):
        def story():
            log = self.folder / "slurmctld.log"
            return f"{pattern}: {self.state(job)} {self.comment(job)}\n{log.read_text()[-3000:]}\n{self.light_log()}"

        return await_that(lambda: re.search(pattern, self.comment(job)), story)

    def light_log(self):
        log = self.folder / "light.log"
        return log.read_text() if log.exists() else ""

    def first_host(self, job):
        names = self.ask("scontrol", "show", "hostnames", self.hosts(job)).split()
        return names[0]

    def pings(self, job):
        """Return the pairs of hosts of a job that reach each other over the light, once it has tried all."""
        host = self.first_host(job)
        command = f"until [ -e {job.output}.done ]; do sleep 0.1; done; cat {job.output}"
        done = self.fleet.run({host: command}, timeout_s=90)[host]
        assert done.exit_status == 0, (done, self.comment(job))
        return sorted(tuple(line.split()) for line in done.stdout.splitlines())

    def end(self, job):
        host = self.first_host(job)
        assert self.fleet.run({host: f"touch {job.output}.end"})[host].exit_status == 0
        await_that(lambda: self.state(job) == "COMPLETED", lambda: f"{self.state(job)} {self.comment(job)}")

    def leases(self):
        with open_lab(self.lab_file, runs_dir=self.folder / "runs") as lab:
            return {lease.reason: lease for lease in lab.command("lease list").leases}


@pytest.fixture(scope="module")
@needs("process", "socket")
def cluster(tmp_path_factory):
    """Start twelve hosts with munged and slurmd on each, and munged, slurmctld and `light.py watch` on this machine."""
    with tempfile.TemporaryDirectory(prefix="lightbed-slurm-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        lab = replace(load_lab(ROOT / "labs" / "testbed12.yaml"), name=f"slurm-{os.getpid()}")
        with start_lab(lab, hosts="kernel", may_move=True) as up, SshFleet(up.lab) as fleet:
            (folder / "lab.yaml").write_text(render_lab(up.lab))
            yield from start_slurm(folder, up.lab, fleet)


def start_slurm(folder, lab, fleet):
    for name in ("light.py", "light-prolog", "light-epilog", "job_submit.lua"):
        shutil.copy(EXAMPLES / name, folder)
    names = ("HOME", "XDG_STATE_HOME", "LIGHTBED_LOCK_DIR", "LIGHTBED_DATA")
    kept = "".join(f"{name}={os.environ[name]}\n" for name in names if name in os.environ)
    (folder / "light.env").write_text(
        f"TESTBED_LAB={folder}/lab.yaml\nTESTBED_PYTHON={sys.executable}\nLIGHTBED_RUNS={folder}/runs\n"
        f"TESTBED_PATIENCE_S=30\nTESTBED_LOG={folder}/light.log\nPYTHONPATH={ROOT}\nSLURM_CONF={folder}/slurm.conf\n{kept}"
    )
    nodes = "\n".join(
        f"NodeName={host.name} NodeAddr={host.management} CPUs=1 RealMemory=64" for host in lab.hosts
    )
    controller = str(next(lab.management.hosts()))
    fragment = (EXAMPLES / "slurm.conf").read_text().replace("/etc/slurm/", f"{folder}/")
    port = 21000 + os.getpid() % 4000
    conf = fragment + CONF.format(
        machine=os.uname().nodename.partition(".")[0], controller=controller, folder=folder, nodes=nodes,
        port=port, slurmd_port=port + 1,
    )  # fmt: skip
    (folder / "slurm.conf").write_text(conf)
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    (folder / "state").mkdir()
    munged = (
        f"munged --foreground --force --key-file={folder}/munge.key --socket={folder}/munge.socket"
        f" --pid-file={folder}/munged.pid --log-file={folder}/munged.log --seed-file={folder}/munged.seed"
    )
    key = (folder / "munge.key").read_bytes().hex()
    prepare = (
        f"mkdir -p {folder}/spool && chmod 755 {folder} && cat >{folder}/slurm.conf &&"
        f" echo CgroupPlugin=cgroup/v1 >{folder}/cgroup.conf && rm -f {folder}/munge.key &&"
        f' python3 -c \'import sys; open("{folder}/munge.key", "wb").write(bytes.fromhex("{key}"))\' &&'
        f" chmod 400 {folder}/munge.key"
    )
    done = fleet.run(dict.fromkeys(HOSTS, prepare), stdin=dict.fromkeys(HOSTS, conf))
    assert [one for one in done.values() if one.exit_status] == []
    environment = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf"}
    run = (
        f"export PATH=/usr/sbin:/usr/bin:/sbin:/bin SLURM_CONF={folder}/slurm.conf; {munged} & exec slurmd -D"
    )
    with (
        daemon(*munged.split(), log=folder / "munged.out"),
        daemon("/usr/sbin/slurmctld", "-D", log=folder / "slurmctld.out", env=environment, cwd=folder),
        fleet.start(dict.fromkeys(HOSTS, run)),
    ):
        cluster = Cluster(folder, fleet, folder / "lab.yaml", environment)

        def is_ready():
            code, _ = cluster.ask("scontrol", "ping", check=False)
            return not code and cluster.ask("sinfo", "--noheader", "--states=idle", "--format=%D") == "12"

        await_that(is_ready, lambda: (folder / "slurmctld.log").read_text()[-3000:])
        watch = {**environment, "PYTHONPATH": str(ROOT), "TESTBED_LAB": str(folder / "lab.yaml")}
        with daemon(sys.executable, folder / "light.py", "watch", log=folder / "watch.log", env=watch):
            yield cluster


def all_pairs(hosts):
    return sorted((one, other) for one in hosts for other in hosts)


def test_jobs_run_side_by_side_each_on_its_own_circuits_and_others_say_what_they_wait_for(cluster):
    with open_lab(cluster.lab_file, runs_dir=cluster.folder / "runs") as lab:
        assert lab.apply().verified  # an earlier topology, whose circuits join all hosts
        one = cluster.submit("testbed: nodes=4 demand=4:64MiB", others="e f")
        two = cluster.submit("testbed: nodes=4", others="a l")
        for job, hosts in ((one, "abcd"), (two, "efgh")):
            cluster.await_comment(job, r"; has light: 16 circuits, epoch \d+, lease ")
            assert cluster.pings(job) == all_pairs(hosts)
        lease = lab.lease(["host:j"], reason="ann looks at her laser", ttl="10m")
        three = cluster.submit("testbed: nodes=4 demand=2:1e6")
        strange = cluster.submit("two\nlines", nodes=12)
        four = cluster.submit("testbed: nodes=6")
        cluster.await_comment(three, rf"demand=2:1e6; waits for light: lease {lease.id} of \S+ holds host:j$")
        cluster.await_comment(
            four, r"nodes=6; waits for hosts: needs 6, 0 are idle; job \d+ of daemon holds \S+ until"
        )
        assert (cluster.state(three), cluster.state(four)) == ("CONFIGURING", "PENDING")
        assert cluster.ask("squeue", "--noheader", f"--jobs={strange.number}", "--format=%k") == "two\nlines"
        cluster.ask("scancel", strange.number)
        lease.release()
        cluster.await_comment(three, "has light: 16 circuits")
        assert cluster.pings(three) == all_pairs("ijkl")
        assert cluster.pings(one) == all_pairs("abcd")
        cluster.end(one)
        cluster.end(two)
        cluster.await_comment(four, "has light: 24 circuits")
        assert cluster.pings(four) == all_pairs("abcdef")
        cluster.end(three)
        cluster.end(four)
        await_that(lambda: cluster.leases() == {}, lambda: f"{cluster.leases()} {cluster.light_log()}")


def test_requests_that_are_not_valid_are_refused_with_a_reason_and_other_jobs_are_left_alone(cluster):
    script = cluster.folder / "true.sh"
    script.write_text("#!/bin/sh\ntrue\n")

    def try_to(*words):
        return cluster.ask(*words, user=USER, check=False)

    for words, fault in (
        (["--comment=testbed: nodes=4 demand=3:1e6"], "4 nodes cannot be divided into groups of 3"),
        (["--comment=testbed: demand=4:1e6"], "nodes=N is missing; write for example --comment"),
        (["--comment=testbed: nodes=4\ndemand=4:1e6"], "characters include a line end"),
        (["--comment=testbed: nodes=4", "--nodes=2"], "nodes=4 and --nodes differ"),
    ):
        code, text = try_to("sbatch", *words, script)
        assert (code, fault in text) == (1, True), text
    plain = cluster.ask("sbatch", "--parsable", "--comment=my job", "--output=/dev/null", script, user=USER)
    plain = SimpleNamespace(number=plain)
    await_that(lambda: cluster.state(plain) == "COMPLETED", lambda: cluster.state(plain))
    assert cluster.comment(plain) == "my job"


def test_a_job_that_gets_no_light_goes_back_to_the_queue_and_a_cancelled_one_leaves_no_lease(cluster):
    settings = cluster.folder / "light.env"
    text = settings.read_text()
    with open_lab(cluster.lab_file, runs_dir=cluster.folder / "runs") as lab:
        lease = lab.lease([f"host:{host}" for host in HOSTS], reason="ann measures", ttl="10m")
        waiting = cluster.submit("testbed: nodes=2")
        cluster.await_comment(waiting, rf"waits for light: lease {lease.id} of ")
        change = ("scontrol", "update", f"JobId={waiting.number}", "Comment=mine")
        code, fault = cluster.ask(*change, user=USER, check=False)
        assert (code, "denied" in fault) == (1, True), fault
        assert len(cluster.leases()) == 2
        cluster.ask("scancel", waiting.number, user=USER)
        await_that(lambda: set(cluster.leases()) == {"ann measures"}, cluster.light_log)
        settings.write_text(text.replace("PATIENCE_S=30", "PATIENCE_S=1"))
        impatient = cluster.submit("testbed: nodes=2")
        cluster.await_comment(impatient, rf"; got no light within 1 s: lease {lease.id} of \S+ holds host:a$")
        await_that(lambda: cluster.state(impatient) == "PENDING", lambda: cluster.state(impatient))
        await_that(lambda: set(cluster.leases()) == {"ann measures"}, cluster.light_log)
        settings.write_text(text)
        lease.release()
        cluster.ask(
            "scontrol", "update", f"JobId={impatient.number}", "StartTime=now"
        )  # not two minutes later
        cluster.await_comment(impatient, "has light: 8 circuits")
        cluster.end(impatient)


def test_a_job_is_held_where_waiting_does_not_help(cluster):
    settings = cluster.folder / "light.env"
    text = settings.read_text()
    settings.write_text(text.replace("lab.yaml", "lost.yaml"))
    job = cluster.submit("testbed: nodes=3")
    cluster.await_comment(job, "; got no light: .*lost.yaml")
    reason = ("squeue", "--noheader", f"--jobs={job.number}", "--format=%T %r")
    await_that(
        lambda: cluster.ask(*reason).startswith("PENDING job requeued in held state"),
        lambda: cluster.ask(*reason),
    )
    settings.write_text(text)
    cluster.ask("scontrol", "release", job.number)
    cluster.ask("scontrol", "update", f"JobId={job.number}", "StartTime=now")
    cluster.await_comment(job, "has light: 12 circuits")
    assert cluster.pings(job) == all_pairs("abc")
    cluster.end(job)
