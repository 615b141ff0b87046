"""Light for the jobs of Slurm: light.py acquire | release | watch.

`acquire` (PrologSlurmctld) leases the hosts of a job, patches the topology that its comment asks for, and verifies
it. `release` (EpilogSlurmctld) ends the lease. `watch` runs beside slurmctld, and keeps the comments of queued jobs
current.

A comment is a request and a status: `testbed: nodes=4 demand=4:64MiB; waits for light: lease 7 of ann holds host:a`.
Leases of a job are found by reason and owner, so nothing is stored beside Slurm and the lab.
"""

import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from lightbed.errors import LightbedError
from testbed import Lab, open_lab
from testbed.errors import LeaseDenied, UsageError, VerifyFailed

MARK = "testbed:"
POLL_S = 2.0
SLURM_TIMEOUT_S = 60.0
"""Time for a command of Slurm."""
MARGIN_MINUTES = 10
"""Time of a lease beyond the job's limit: for starting the job, and for ending it."""
UNLIMITED_MINUTES = 30 * 24 * 60
TAKE_OVER_S = 10.0
"""Time to wait for ports of idle hosts: longer, and what was read of their circuits may be out of date."""
WAITING = ("Resources", "Priority", "ReqNodeNotAvail")
"""Reasons of Slurm for a job that waits for hosts; other reasons say enough by themselves."""
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_DEMAND = re.compile(r"(\d{1,4}):([1-9]\d*?)(e\d\d?|[KMGT]iB)?", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_COUNT = re.compile(r"[1-9]\d{0,3}", re.ASCII)
_TIME = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d\d)", re.ASCII)


@dataclass(frozen=True)
class Request:
    """Request for light in the comment of a job: a number of hosts, and demands in the form of `testbed apply`."""

    nodes: int
    demand: tuple[str, ...] = ()


def is_for_light(comment: str) -> bool:
    """Return whether a job asks for light."""
    return comment.startswith(MARK)


def parse_request(comment: str) -> Request:
    """Return the request of a comment for which `is_for_light` is true. Raises `UsageError`.

    >>> parse_request("testbed: nodes=4 demand=4:64MiB; waits for hosts")
    Request(nodes=4, demand=('4:67108864',))
    """
    nodes, demands = 0, []
    if _CONTROL.search(comment.partition(";")[0]):
        raise UsageError(
            "characters include a line end, a tab or another control character: separate words by blanks"
        )
    for word in request_of(comment).removeprefix(MARK).split():
        key, _, value = word.partition("=")
        if key == "nodes" and not nodes:
            nodes = int(value) if _COUNT.fullmatch(value) else 0
            if nodes < 2:
                raise UsageError(f"nodes={value} is not a number of nodes, 2 to 9999")
        elif key == "nodes":
            raise UsageError("nodes is given twice")
        elif key == "demand":
            demands.append(value)
        else:
            raise UsageError(f"{word!r} is unknown: its words are nodes=N and demand=NODES:BYTES")
    if not nodes:
        raise UsageError("nodes=N is missing")
    return Request(nodes, tuple(_parse_demand(text, nodes) for text in demands))


def _parse_demand(text: str, nodes: int) -> str:
    match = _DEMAND.fullmatch(text)
    if match is None:
        raise UsageError(f"demand={text} is not NODES:BYTES")
    group, number, unit = int(match[1]), int(match[2]), match[3] or ""
    if group < 2 or nodes % group:
        raise UsageError(f"demand={text}: {nodes} nodes cannot be divided into groups of {group}")
    factor = 10 ** int(unit[1:]) if unit.startswith("e") else _UNITS.get(unit, 1)
    return f"{group}:{number * factor}"


def request_of(comment: str) -> str:
    """Return a comment without its status."""
    return comment.partition(";")[0].rstrip()


def write_status(comment: str, status: str) -> str:
    """Return a comment with another status, on one line.

    >>> write_status("testbed: nodes=2; waits for hosts", "has light")
    'testbed: nodes=2; has light'
    """
    return f"{request_of(comment)}; {' '.join(status.split())}"


def count_lease_minutes(limit: str) -> int:
    """Return the minutes of the lease for the time limit of a job, as squeue prints it: `10:00`, `1-02:00:00`.

    A job without a limit gets a lease of 30 days.

    >>> count_lease_minutes("30:01")
    41
    """
    match = _TIME.fullmatch(limit)
    if match is None:
        return UNLIMITED_MINUTES
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) + (seconds > 0) + MARGIN_MINUTES


def find_foreign_ports(switches: Sequence[object], hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the ports of other hosts whose circuits a plan removes, as resources of a lease."""
    ports = []
    for switch in switches:
        for circuit in switch.circuits:
            if circuit.change == "remove":
                source, target = (nic.partition("/")[0] for nic in circuit.link.split(" -> "))
                ends = ((source, circuit.input_port), (target, circuit.output_port))
                ports += [f"port:{switch.switch}/{port}" for host, port in ends if host not in hosts]
    return tuple(sorted(set(ports)))


def describe_queue(nodes: int, idle: int, running: Sequence[tuple[str, ...]]) -> str:
    """Return the status of a job that waits for hosts; `running` are id, user, hosts and end of the others.

    >>> describe_queue(
    ...     4, 2, [("7", "ann", "a,b", "2026-11-24T10:20:00"), ("8", "bob", "c", "2026-11-24T09:00:00")]
    ... )
    'waits for hosts: needs 4, 2 are idle; job 8 of bob holds c until 2026-11-24T09:00:00'
    """
    status = f"waits for hosts: needs {nodes}, {idle} {'is' if idle == 1 else 'are'} idle"
    if not running:
        return status
    job, user, hosts, end = min(running, key=lambda one: one[3])
    return f"{status}; job {job} of {user} holds {hosts} until {end}"


# Slurm, by its commands: they are the interface that its versions keep.


class SlurmError(LightbedError, code="slurm", who="conflict"):
    """A command of Slurm failed or did not end in time; slurmctld may be busy or restarting, so try again later."""


def ask_slurm(*command: str) -> str:
    """Return what a command of Slurm prints. Raises `SlurmError`."""
    text = " ".join(command[:2])
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=SLURM_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmError(f"`{text}` did not run: {error}; see the log of slurmctld") from error
    if done.returncode:
        why = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise SlurmError(f"`{text}` failed: {why}; see the log of slurmctld")
    return done.stdout.strip()


def ask_squeue(job: str, *options: str) -> str:
    """Return what squeue prints of a job. Raises `SlurmError`, and `JobCancelled` for a job that Slurm has removed."""
    try:
        return ask_slurm("squeue", "--noheader", f"--jobs={job}", *options)
    except SlurmError as error:
        if "Invalid job id" in str(error):
            raise JobCancelled(job) from error
        raise


def set_comment(job: str, comment: str) -> None:
    """Set the comment of a job, or log why not: a job that has just ended needs none."""
    try:
        ask_slurm("scontrol", "update", f"JobId={job}", f"Comment={comment}")
    except SlurmError as error:
        log(f"job {job}: its comment was not set to {comment!r}: {error}")


def log(text: str) -> None:
    """Print a line with the time: the wrappers append it to the log."""
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}", flush=True)


class JobCancelled(Exception):
    """A job no longer starts: it was cancelled while its prolog ran."""


@dataclass(frozen=True)
class Job:
    """A job that asks for light, as Slurm describes it to its prolog; its hosts are in Slurm's order."""

    id: str
    cluster: str
    user: str
    comment: str
    hosts: tuple[str, ...] = ()
    minutes: int = 0

    @classmethod
    def from_environment(cls) -> "Job":
        """Return the job whose prolog or epilog this process is."""
        get = os.environ.get
        cluster, user = get("SLURM_CLUSTER_NAME", "slurm"), get("SLURM_JOB_USER", "")
        return cls(os.environ["SLURM_JOB_ID"], cluster, user, get("SLURM_JOB_COMMENT", ""))

    def find_hosts(self) -> "Job":
        """Return the job with its hosts and the minutes of its lease. Raises `SlurmError` and `JobCancelled`."""
        hosts = ask_slurm("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]).split()
        limit = ask_squeue(self.id, "--format=%l")
        if not limit:
            raise JobCancelled(self.id)
        return replace(self, hosts=tuple(hosts), minutes=count_lease_minutes(limit))

    @property
    def reason(self) -> str:
        """The reason of its leases, by which they are found among those of the same owner."""
        return f"Slurm job {self.id} of cluster {self.cluster}, user {self.user}"

    def say(self, status: str) -> None:
        """Write a status into the comment, or log why not. Raises `JobCancelled` for a job that no longer starts.

        Slurm lets the prolog of a cancelled job run on, and its epilog waits for it.
        """
        try:
            is_starting = bool(ask_squeue(self.id, "--states=CF", "--format=%A"))
        except SlurmError as error:
            log(f"job {self.id}: its comment was not set to {status!r}: {error}")
            return
        if not is_starting:
            raise JobCancelled(self.id)
        set_comment(self.id, write_status(self.comment, status))


# The lab, by the public interface of testbed.


def open_job_lab() -> Lab:
    """Return the lab of the settings."""
    return open_lab(os.environ["TESTBED_LAB"], really_move=os.environ.get("TESTBED_REALLY_MOVE") or None)


def wait_for_lease(lab: Lab, resources: Sequence[str], job: Job, deadline: float) -> str:
    """Return the id of a granted lease; the job says what it waits for. Raises `LeaseDenied` at the deadline."""
    request = lab.command("lease request", resources, ttl=f"{job.minutes}m", reason=job.reason)
    while True:
        (lease,) = request.leases
        if lease.state == "granted":
            return lease.id
        job.say(f"waits for light: {lease.waits_for}")
        if time.monotonic() >= deadline:
            lab.command("lease release", lease.id)
            raise LeaseDenied(lease.waits_for)
        time.sleep(POLL_S)
        request = lab.command("lease extend", lease.id)


def bring_light(job: Job, request: Request, deadline: float) -> str:
    """Lease the hosts of a job, patch its topology, and return its status. Raises `LightbedError`.

    Circuits between the job's hosts and idle ones are in the way. They are removed under a lease that also covers
    their ports of the idle hosts, and is short: the lease of the job must not keep other jobs from these hosts.
    """
    # A named method: otherwise a job without a demand would get what an earlier job left on the same hosts.
    topology = {"hosts_of": ",".join(job.hosts), "method": "geometric", "demand": request.demand}
    resources = [f"host:{host}" for host in job.hosts]
    applied = None
    while True:
        with open_job_lab() as lab:
            lease = wait_for_lease(lab, resources, job, deadline)
            plan = lab.plan(**topology, take_over=True)
            if applied and plan.stored_epoch == applied.epoch and not plan.has_changes:
                return describe_light(applied, lease)  # nobody came between the two leases
            foreign = find_foreign_ports(plan.switches, job.hosts)
            if foreign:
                lab.command("lease release", lease)
                until = min(deadline, time.monotonic() + TAKE_OVER_S)
                lease = wait_for_lease(lab, [*resources, *foreign], job, until)
        job.say("gets light")
        applied = apply_under(lease, **topology, take_over=bool(foreign))
        if not foreign:
            return describe_light(applied, lease)
        with open_job_lab() as lab:
            lab.command("lease release", lease)


def apply_under(lease: str, **options: object) -> object:
    """Apply a topology under a lease, and return the document. Raises `VerifyFailed` if the proof has findings."""
    os.environ["LIGHTBED_LEASE"] = lease  # for the lab that is opened next
    try:
        with open_job_lab() as lab:
            applied = lab.apply(**options)
    finally:
        del os.environ["LIGHTBED_LEASE"]
    if not applied.verified:
        raise VerifyFailed("; ".join(f"{one.subject}: {one.detail}" for one in applied.findings))
    return applied


def describe_light(applied: object, lease: str) -> str:
    """Return the status of a job that has light."""
    return f"has light: {applied.circuits} circuits, epoch {applied.epoch}, lease {lease}"


def release_leases(job: Job) -> int:
    """Release all leases and requests of a job, and return their number. Waits while one is in use.

    Anybody may request a lease with the reason of a job. The lab releases a lease for its owner and for those whom the
    owner allows; leases of jobs allow nobody. So a lease is the job's if it allows nobody and the lab releases it.
    """
    count = 0
    deadline = time.monotonic() + 60
    with open_job_lab() as lab:
        for lease in lab.command("lease list").leases:
            while lease.reason == job.reason and not lease.allowed:
                try:
                    lab.command("lease release", lease.id)
                    count += 1
                    break
                except LeaseDenied as error:
                    if error.code == LeaseDenied.code:  # it has just ended, or is somebody else's
                        log(f"job {job.id}: left alone: {error}")
                        break
                    if (
                        time.monotonic() >= deadline
                    ):  # in use by its prolog, which was killed while it patched
                        raise
                    time.sleep(POLL_S)
    return count


def bring_light_until(job: Job, deadline: float) -> str:
    """Find the hosts of a job and return what `bring_light` returns; try again after conflicts, until the deadline.

    Raises `LightbedError` and `JobCancelled`.
    """
    while True:
        try:
            release_leases(job)  # of a prolog that was killed with its slurmctld, or of the last attempt
            if not job.hosts:
                job = job.find_hosts()
                log(f"job {job.id} on {','.join(job.hosts)}: {request_of(job.comment)}")
            request = parse_request(job.comment)
            if request.nodes != len(job.hosts):
                raise UsageError(f"nodes={request.nodes}, but Slurm chose {len(job.hosts)} nodes")
            return bring_light(job, request, deadline)
        except LightbedError as error:
            log(f"job {job.id}: {error.code}: {error}")
            if error.who != "conflict" or time.monotonic() >= deadline:
                raise
            job.say(f"waits for light: {error}")
        time.sleep(POLL_S)


def read_patience() -> float:
    """Return the seconds within which a job must get light, from the settings. Raises `UsageError`."""
    text = os.environ.get("TESTBED_PATIENCE_S", "600")
    with suppress(ValueError):
        patience_s = float(text)
        if 0 <= patience_s < math.inf:
            return patience_s
    raise UsageError(f"TESTBED_PATIENCE_S={text} is not a number of seconds: correct light.env")


def acquire() -> int:
    """Get light for the job of this prolog. Return 0, or 1 if Slurm must not start the job now."""
    job = Job.from_environment()
    within = ""
    try:
        patience_s = read_patience()
        within = f" within {patience_s:g} s"
        status = bring_light_until(job, time.monotonic() + patience_s)
        job.say(status)
    except JobCancelled:
        log(f"job {job.id}: cancelled")
        return 1  # its epilog releases the leases
    except LightbedError as error:
        must_wait = error.who == "conflict"
        fail(job, f"got no light{within if must_wait else ''}: {error}", must_hold=not must_wait)
        return 1
    log(f"job {job.id}: {status}")
    return 0


def fail(job: Job, status: str, *, must_hold: bool) -> None:
    """Say why a job gets no light. Slurm puts it back into the queue; with `must_hold` somebody has to act first."""
    log(f"job {job.id}: {status}")
    with suppress(LightbedError):
        release_leases(job)
    try:
        job.say(status)
        if must_hold:
            ask_slurm("scontrol", "requeuehold", job.id)
    except JobCancelled:
        log(f"job {job.id}: cancelled")
    except SlurmError as error:  # jobs of srun and salloc cannot be requeued: Slurm cancels them
        log(f"job {job.id}: not held: {error}")


def release() -> int:
    """Give the light of the job of this epilog back. Return 1 if its lease could not be released."""
    job = Job.from_environment()
    try:
        count = release_leases(job)
    except LightbedError as error:
        log(f"job {job.id}: {error.code}: {error}; the lease ends by itself")
        return 1
    log(f"job {job.id}: released {count} leases")
    return 0


def explain_queue() -> None:
    """Write into the comment of every queued job what it waits for. Raises `SlurmError` if the queue is not read."""
    queued = ask_slurm("squeue", "--noheader", "--states=PD", "--format=%A|%r|%k").split("\n")
    # A comment may have line ends, and then lines that look like other jobs: these are asked by themselves below.
    rows = [row for row in (line.split("|", 2) for line in queued) if len(row) == 3 and row[0].isdecimal()]
    jobs = dict.fromkeys(job for job, reason, comment in rows if reason in WAITING and is_for_light(comment))
    if not jobs:
        return
    others = ask_slurm("squeue", "--noheader", "--states=CF,R,CG,S", "--format=%A|%u|%N|%e").split("\n")
    running = [row for row in (tuple(line.split("|")) for line in others) if len(row) == 4]
    counts = ask_slurm("sinfo", "--noheader", "--states=idle", "--format=%D").split()
    idle = sum(int(count) for count in counts if count.isdecimal())
    for job in jobs:
        try:
            explain_job(job, idle, running)
        except SlurmError as error:
            log(f"job {job}: its comment was not set: {error}")
        except (JobCancelled, UsageError):  # it ended, or a line of a comment only looks like it
            continue


def explain_job(job: str, idle: int, running: Sequence[tuple[str, ...]]) -> None:
    """Write into the comment of a job what it waits for, if it still does.

    Raises `SlurmError`, `JobCancelled` if Slurm has removed the job, and `UsageError` for a comment that is not valid.
    """
    reason, _, comment = ask_squeue(job, "--states=PD", "--format=%r|%k").partition("|")
    if reason not in WAITING or not is_for_light(comment):
        return
    status = write_status(comment, describe_queue(parse_request(comment).nodes, idle, running))
    if status != comment:
        set_comment(job, status)


def watch(every_s: float = 5.0) -> int:
    """Keep the comments of queued jobs current until interrupted."""
    while True:
        try:
            explain_queue()
        except SlurmError as error:  # slurmctld restarts: go on
            log(f"the queue was not read: {error}")
        time.sleep(every_s)


if __name__ == "__main__":
    commands = {"acquire": acquire, "release": release, "watch": watch}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(f"usage: light.py {' | '.join(commands)}")
    sys.exit(commands[sys.argv[1]]())
