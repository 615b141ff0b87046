"""A supervisor as a process, for tests: started, asked over its sockets and over SSH, ended whatever happened."""

from __future__ import annotations

import itertools
import json
import os
import select
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from sim.lab.claims import find_claims_folder
from sim.twins.hosts import netns

PATIENCE_S = 60.0
ROOT = Path(__file__).resolve().parents[3]
HOSTS = "abcdefghijkl"
# Workers of one run share out the subnets; two runs at once rarely begin at the same.
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_third = itertools.count(os.getppid() * 37 + 256 * _worker // _workers)
_pids_of = {}


def free_subnet(start="10.97"):
    return f"{start}.{next(_third) % 256}"


def document(hosts=3, *, subnet="10.97.0", mode="kernel", key="ssh-ed25519 AAAA test", nics=2):
    """Return a lab with one switch; transmitter k of host h ends in input h*nics+k+1, receivers likewise."""
    ports = hosts * nics
    return {
        "version": 1,
        "lab": "under-test",
        "hosts_mode": mode,
        "management": f"{subnet}.0/24",
        "control": f"{subnet}.1:7000",
        "link": {"rate_mbps": 100, "mtu": 9000},
        "authorized_key": key,
        "switches": [
            {
                "name": "ocs1",
                "kind": "polatis",
                "inputs": ports,
                "outputs": ports,
                "scpi": f"{subnet}.2:5025",
                "tl1": f"{subnet}.2:3082",
                "control": f"{subnet}.2:7025",
                "switch_time_s": 0.001,
            }
        ],
        "hosts": [
            {
                "name": HOSTS[host],
                "management": f"{subnet}.{11 + host}",
                "ssh_port": 22,
                "nics": [
                    {
                        "name": f"nic{nic + 1}",
                        "transmit": {"switch": "ocs1", "port": host * nics + nic + 1},
                        "receive": {"switch": "ocs1", "port": ports + host * nics + nic + 1},
                    }
                    for nic in range(nics)
                ],
            }
            for host in range(hosts)
        ],
    }


def sim_lab(*arguments, text=""):
    done = subprocess.run(
        [sys.executable, "-m", "sim.lab", *arguments],
        input=text,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, json.loads(done.stdout.splitlines()[0]), done.stderr


def status():
    return {entry["id"]: entry for entry in sim_lab("--status")[1]}


def traces(lab_id):
    """Whatever bears the lab's id in the kernel, in the process table or among the claims."""
    names = [path.name for path in Path("/run/netns").glob(f"{lab_id}*")]
    links = [link for _, link in socket.if_nameindex() if link.startswith(lab_id)]
    claims = [path.name for path in find_claims_folder().glob(f"{lab_id}*")]
    return names + links + claims


def host_processes(lab_id):
    """Those processes of the lab's hosts, as they were when it was ready, that still run."""
    return [pid for pid in _pids_of[lab_id] if runs(pid)]


def runs(pid):
    """Return True if a process is there and not merely waiting for its parent to take note of its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def eventually(fact):
    deadline = time.monotonic() + PATIENCE_S
    while not (value := fact()):
        assert time.monotonic() < deadline
        select.select([], [], [], 0.01)
    return value


class Supervised:
    """A supervisor process and what its ready line said."""

    def __init__(self, process, ready, key):
        self.process, self.ready, self.key = process, ready, key
        self.lab_id = ready.get("lab_id", "")
        if ready.get("hosts") == "kernel":
            _pids_of[self.lab_id] = netns.list_processes(netns.list_namespaces(f"{self.lab_id}-"))
            assert len(_pids_of[self.lab_id]) >= 2, "each host has an SSH server"

    def ssh_command(self, host, command):
        address = self.ready["subnet"].replace(".0/24", f".{11 + HOSTS.index(host)}")
        options = [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
            "BatchMode=yes",
        ]
        flags = [word for option in options for word in ("-o", option)]
        return ["ssh", "-F", "none", "-i", self.key, *flags, f"root@{address}", command]

    def ssh(self, host, command, *, check=True):
        """Return what a command on the host prints; with `check` off its exit status and both outputs."""
        done = subprocess.run(
            self.ssh_command(host, command),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if not check:
            return done.returncode, done.stdout + done.stderr
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def scpi(self, line):
        """Send one raw line and `*OPC?`, and wait until the switch says that it is complete."""
        with socket.create_connection(
            (self.ready["subnet"].replace(".0/24", ".2"), 5025), PATIENCE_S
        ) as wire:
            wire.sendall(f"{line}\r\n*OPC?\r\n".encode())
            assert wire.makefile().readline().strip() == "1"

    def control(self, device, request):
        host, port = self.ready["control"][device].split(":")
        with socket.create_connection((host, int(port)), PATIENCE_S) as wire:
            wire.sendall(json.dumps(request).encode() + b"\n")
            return json.loads(wire.makefile().readline())

    def carrier(self, host):
        return self.ssh(host, "cat /sys/class/net/nic1/carrier /sys/class/net/nic2/carrier").split()

    def end_input(self):
        self.process.stdin.close()
        return self.process.wait(PATIENCE_S)


@contextmanager
def supervised(raw, *arguments, key=None):
    """Return a supervisor on a document (or on a file named in `arguments`); ended after, whatever became of it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sim.lab", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        if raw is not None:
            process.stdin.write(json.dumps(raw) + "\n")
            process.stdin.flush()
        yield Supervised(process, json.loads(process.stdout.readline()), key)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        process.stdin.close()
        process.stdout.close()


class Labs:
    """Actions of tests on labs: write documents, start, look for what they left."""

    document = staticmethod(document)
    free_subnet = staticmethod(free_subnet)
    supervised = staticmethod(supervised)
    sim_lab = staticmethod(sim_lab)
    status = staticmethod(status)
    traces = staticmethod(traces)
    host_processes = staticmethod(host_processes)
    runs = staticmethod(runs)
    eventually = staticmethod(eventually)

    def __init__(self, key=None):
        self.key = key

    def wiring(self, hosts=2, subnet=None):
        """Return a document that this object's key opens."""
        return document(
            hosts, subnet=subnet or free_subnet(), key=Path(f"{self.key}.pub").read_text().strip()
        )

    @contextmanager
    def kernel(self, *arguments, hosts=2, subnet=None):
        with supervised(self.wiring(hosts, subnet), *arguments, key=self.key) as up:
            assert up.ready["ready"] is True, up.ready
            yield up

    def refusal(self, raw):
        """Exit status and the one line of a supervisor that does not start."""
        with supervised(raw) as up:
            return up.process.wait(PATIENCE_S), up.ready


@pytest.fixture(scope="session")
def labs():
    """Return labs without anybody who could log in."""
    return Labs()


@pytest.fixture(scope="session")
def kernel_labs(tmp_path_factory):
    path = tmp_path_factory.mktemp("key") / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return Labs(str(path))


@pytest.fixture(scope="module")
def lab(kernel_labs):
    """Return three hosts with two NICs each, for all tests of a module."""
    with kernel_labs.kernel(hosts=3) as up:
        yield up
