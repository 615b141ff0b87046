"""`python -m sim.lab` as a process: real hosts over SSH, packets where a SCPI line sends them, and nothing left."""

from __future__ import annotations

import asyncio
import copy
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import AsyncExitStack, contextmanager
from ipaddress import IPv4Network
from pathlib import Path

import pytest

pytest.importorskip("jsonschema")

from sim.lab.claims import Claim, Holder, claims_folder, holder_of
from sim.lab.document import parse
from sim.lab.errors import LabError
from sim.lab.supervisor import start_lab

PATIENCE_S = 20.0
ROOT = Path(__file__).resolve().parents[2]
# Every process that runs these tests has subnets of its own, so that several may run at once.
_third = itertools.count(os.getpid() % 200)


def free_subnet():
    return f"10.97.{next(_third) % 256}"


def document(hosts=3, *, subnet="10.97.0", mode="kernel", key="ssh-ed25519 AAAA test", nics=2):
    """A lab with one switch; transmitter k of host h ends in input h*nics+k+1, receivers likewise."""
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
                "name": "abcdefgh"[host],
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


# ------------------------------------------------------------------------------------------- document


def refused(change):
    wrong = copy.deepcopy(document())
    change(wrong)
    with pytest.raises(LabError) as caught:
        parse(json.dumps(wrong))
    assert caught.value.code == "document"
    return caught.value.what.removeprefix("wiring document: ")


def test_a_good_document_has_its_defaults():
    raw = document()
    del raw["control"]
    parsed = parse(json.dumps(raw))
    assert (str(parsed.control), str(parsed.root_address)) == ("10.97.0.1:7000", "10.97.0.1")
    assert (parsed.link.burst_kb, parsed.link.latency_ms, parsed.switches[0].user) == (128, 50.0, "admin")
    assert [str(address) for address in parsed.twin_addresses] == ["10.97.0.2"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda d: d["hosts"][1].update(colour="red"), "hosts[1]: Additional properties are not allowed"),
        (lambda d: d["link"].update(mtu=100), "link.mtu: 100 is less than the minimum of 576"),
        (lambda d: d.pop("hosts"), "(top): 'hosts' is a required property"),
        (
            lambda d: d.update(management="10.97.0.7/24"),
            "management: '10.97.0.7/24': 10.97.0.7/24 has host bits",
        ),
        (lambda d: d.update(management="10.97.0.0/30"), "management: 10.97.0.0/30 is too small for a lab"),
        (
            lambda d: d["switches"][0].update(scpi="10.97.0.2"),
            "switches[0].scpi: '10.97.0.2' is not an address",
        ),
        (lambda d: d["hosts"][0].update(management="x"), "hosts[0].management: 'x' is not an IPv4 address"),
        (lambda d: d["hosts"][2].update(management="10.98.0.1"), "hosts[2].management: 10.98.0.1 is outside"),
        (
            lambda d: d["hosts"][2].update(management="10.97.0.11"),
            "hosts[2].management: address 10.97.0.11 is used at hosts[0].management already",
        ),
        (
            lambda d: d["hosts"][2].update(management="10.97.0.2"),
            "hosts[2].management: address 10.97.0.2 is used at switches[0].control already",
        ),
        (
            lambda d: d["hosts"][0].update(name="fab"),
            "hosts[0].name: the name fab is taken by the lab itself",
        ),
        (lambda d: d["hosts"][1].update(name="a"), "hosts[1].name: host a is used at hosts[0].name already"),
        (
            lambda d: d["hosts"][0]["nics"][1].update(name="nic1"),
            "hosts[0].nics[1].name: NIC nic1 is used at hosts[0].nics[0].name already",
        ),
        (
            lambda d: d["hosts"][0]["nics"][0]["transmit"].update(switch="ocs9"),
            "hosts[0].nics[0].transmit.switch: there is no switch ocs9",
        ),
        (
            lambda d: d["hosts"][0]["nics"][0]["transmit"].update(port=7),
            "hosts[0].nics[0].transmit.port: port 7 does not fit",
        ),
        (
            lambda d: d["hosts"][0]["nics"][0]["receive"].update(port=13),
            "hosts[0].nics[0].receive.port: port 13 does not fit",
        ),
        (
            lambda d: d["hosts"][1]["nics"][0]["transmit"].update(port=1),
            "hosts[1].nics[0].transmit: port ocs1:1 is used at hosts[0].nics[0].transmit already",
        ),
    ],
)
def test_a_wrong_document_is_refused_with_the_path_of_what_is_wrong(change, complaint):
    assert refused(change).startswith(complaint)


def test_what_is_not_json_is_refused():
    with pytest.raises(LabError, match="not JSON"):
        parse("hosts: []\n")


# --------------------------------------------------------------------------------------------- claims


@pytest.fixture
def own_claims(tmp_path, monkeypatch):
    monkeypatch.setattr("sim.lab.claims.claims_folder", lambda: tmp_path)
    return tmp_path


def test_a_claim_is_exclusive_says_who_holds_it_and_leaves_no_file(own_claims):
    claim = Claim.take("lb000000")
    assert claim is not None
    claim.write(Holder(os.getpid(), "mine", "10.97.0.0/24"))
    assert Claim.take("lb000000") is None
    assert holder_of("lb000000") == Holder(os.getpid(), "mine", "10.97.0.0/24")
    claim.release()
    assert list(own_claims.iterdir()) == []
    assert holder_of("lb000000") is None


def test_a_file_without_a_lock_is_no_claim(own_claims):
    (own_claims / "lb000000.lock").write_text('{"pid": 1, "lab": "x", "subnet": ""}')
    assert holder_of("lb000000") is None
    claim = Claim.take("lb000000")
    assert claim is not None
    claim.release()


def test_a_holder_that_has_not_written_yet_holds_all_the_same(own_claims):
    with (own_claims / "lb000000.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert holder_of("lb000000") == Holder(0, "", "")


# ---------------------------------------------------------------------------------- the lab as a process


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
    claims = [path.name for path in claims_folder().glob(f"{lab_id}*")]
    return names + links + claims


def host_processes(lab_id):
    """Processes outside the test whose command line names the lab: the first ones of its hosts."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if f"/run/netns/{lab_id}".encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


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

    def ssh_command(self, host, command):
        address = self.ready["subnet"].replace(".0/24", f".{11 + 'abcdefgh'.index(host)}")
        options = [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
            "BatchMode=yes",
        ]
        flags = [word for option in options for word in ("-o", option)]
        return ["ssh", "-F", "none", "-i", self.key, *flags, f"root@{address}", command]

    def ssh(self, host, command, *, check=True):
        """What a command on the host prints; with `check` off its exit status and both outputs."""
        address = self.ready["subnet"].replace(".0/24", f".{11 + 'abcdefgh'.index(host)}")
        options = [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
            "BatchMode=yes",
        ]
        flags = [word for option in options for word in ("-o", option)]
        done = subprocess.run(
            ["ssh", "-F", "none", "-i", self.key, *flags, f"root@{address}", command],
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
        """Sends one raw line and `*OPC?`, and waits until the switch says that it is complete."""
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


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    path = tmp_path_factory.mktemp("key") / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return str(path)


@contextmanager
def supervised(raw, *arguments, key=None):
    """A started supervisor; ended and tidied up after, whatever happened to it meanwhile."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sim.lab", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        process.stdin.write(json.dumps(raw) + "\n")
        process.stdin.flush()
        yield Supervised(process, json.loads(process.stdout.readline()), key)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        process.stdin.close()
        process.stdout.close()


@contextmanager
def kernel_lab(key, *arguments, subnet=None, hosts=2):
    raw = document(hosts, subnet=subnet or free_subnet(), key=Path(f"{key}.pub").read_text().strip())
    with supervised(raw, *arguments, key=key) as up:
        assert up.ready["ready"] is True, up.ready
        yield up


@pytest.fixture(scope="module")
def lab(key):
    with kernel_lab(key, hosts=3) as up:
        yield up


@pytest.mark.kernel
def test_the_ready_line_says_where_everything_is(lab):
    subnet = lab.ready["subnet"].removesuffix(".0/24")
    assert {name: value for name, value in lab.ready.items() if name != "seconds"} == {
        "ready": True,
        "simulated": True,
        "lab": "under-test",
        "lab_id": lab.lab_id,
        "hosts": "kernel",
        "pid": lab.process.pid,
        "subnet": f"{subnet}.0/24",
        "control": {"ocs1": f"{subnet}.2:7025", "plant": f"{subnet}.1:7000"},
    }
    assert lab.ready["seconds"] < 5


@pytest.mark.kernel
def test_status_knows_the_lab_as_live(lab):
    assert status()[lab.lab_id] == {
        "id": lab.lab_id,
        "lab": "under-test",
        "state": "live",
        "pid": lab.process.pid,
        "subnet": lab.ready["subnet"],
        "namespaces": 5,
        "simulated": True,
    }


@pytest.mark.kernel
def test_down_without_names_leaves_a_live_lab_alone(lab):
    assert lab.lab_id not in sim_lab("--down")[1]["removed"]
    assert lab.ssh("a", "hostname") == "a"


@pytest.mark.kernel
def test_each_host_is_a_machine_of_its_own(lab):
    namespaces = "readlink /proc/self/ns/net /proc/self/ns/uts /proc/self/ns/mnt /proc/self/ns/pid"
    facts = {host: lab.ssh(host, f"hostname; cat /etc/hostname; {namespaces}").split() for host in "abc"}
    assert {host: found[:2] for host, found in facts.items()} == {host: [host, host] for host in "abc"}
    for at, kind in enumerate(("net", "uts", "mnt", "pid"), start=2):
        ours = str(Path("/proc/self/ns", kind).readlink())
        assert len({ours, *(found[at] for found in facts.values())}) == 4


@pytest.mark.kernel
def test_each_host_has_a_home_and_a_run_of_its_own(lab):
    assert lab.ssh("a", "pwd; echo $HOME; echo ~root").split() == ["/run/home"] * 3
    lab.ssh("a", "touch ~/only-here /dev/shm/only-here $TMPDIR/only-here")
    assert lab.ssh("b", "ls -A ~ /dev/shm $TMPDIR | grep only-here || true") == ""
    assert not Path("/run/home").exists()
    assert not Path("/dev/shm/only-here").exists()


@pytest.mark.kernel
def test_the_machines_own_files_stay_as_they_are(lab):
    assert "/run/home" not in Path("/etc/passwd").read_text()
    assert socket.gethostname() not in "abc"


@pytest.mark.kernel
def test_lightbed_cannot_be_imported_on_a_host(lab):
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    for package in ("testbed", "sim", "ocs_drivers"):
        exit_status, said = lab.ssh("a", f"{python} -c 'import {package}'", check=False)
        assert (exit_status, f"No module named '{package}'" in said) == (1, True)


@pytest.mark.kernel
def test_a_stranger_is_not_let_in(lab, tmp_path):
    stranger = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(stranger)], check=True)
    exit_status, said = Supervised(lab.process, lab.ready, str(stranger)).ssh("a", "true", check=False)
    assert (exit_status, "Permission denied (publickey)" in said) == (255, True)


@pytest.mark.kernel
def test_hosts_know_each_other_by_name_on_the_management_network(lab):
    assert lab.ssh("a", "getent hosts c").split()[1] == "c"
    connect = "exec 3<>/dev/tcp/c/22 && head -c 7 <&3"
    assert lab.ssh("a", f"bash -c '{connect}'") == "SSH-2.0"


@pytest.mark.kernel
def test_nics_have_the_rate_and_size_of_the_document_and_no_address(lab):
    links = json.loads(lab.ssh("b", "ip -j addr show"))
    nics = {link["ifname"]: link for link in links if link["ifname"].startswith("nic")}
    assert {name: (link["mtu"], "UP" in link["flags"]) for name, link in nics.items()} == {
        "nic1": (9000, True),
        "nic2": (9000, True),
    }
    assert [entry for link in nics.values() for entry in link["addr_info"] if entry["family"] == "inet"] == []
    said = lab.ssh("b", "tc qdisc show dev nic1")
    assert "qdisc tbf" in said
    assert "rate 100Mbit burst 128Kb lat 50ms" in said


@pytest.mark.kernel
def test_a_raw_scpi_line_moves_packets_on_exactly_that_path(lab):
    """a/nic1 and b/nic1 hear each other while the circuits stand, and c/nic1 nobody."""
    lab.scpi(":oxc:swit:conn:only (@1,3),(@9,7)")
    assert [lab.carrier(host) for host in "abc"] == [["1", "0"], ["1", "0"], ["0", "0"]]
    assert hears(lab, "a", "b")
    assert hears(lab, "b", "a")
    assert not hears(lab, "a", "c")
    lab.scpi(":oxc:swit:conn:sub (@1),(@9)")
    assert [lab.carrier(host) for host in "abc"] == [["1", "0"], ["0", "0"], ["0", "0"]]
    assert not hears(lab, "a", "b")


LISTEN = """
import socket, sys
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5))
tap.bind(("nic1", 0x88B5))
tap.settimeout(float(sys.argv[1]))
print("listening", flush=True)
try:
    print(tap.recv(2000)[14:18].decode())
except TimeoutError:
    print("nothing")
"""
SEND = (
    "import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('nic1', 0)); "
    "s.send(b'\\xff' * 6 + b'\\x02' * 6 + b'\\x88\\xb5' + b'mark'.ljust(60))"
)


def hears(lab, sender, listener, window_s=0.3):
    """Whether a raw frame from nic1 of one host arrives at nic1 of another."""
    command = lab.ssh_command(listener, f"python3 - {window_s}")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as ear:
        ear.stdin.write(LISTEN)
        ear.stdin.close()
        assert ear.stdout.readline() == "listening\n"
        lab.ssh(sender, f'python3 -c "{SEND}"', check=False)
        return ear.stdout.readline() == "mark\n"


@pytest.mark.kernel
def test_a_cut_fibre_takes_the_carrier_and_a_splice_brings_it_back(lab):
    lab.scpi(":oxc:swit:conn:only (@1,3),(@9,7)")
    assert lab.control("plant", {"do": "cut", "fibre": "b/nic1:receive"})["ok"]
    assert [lab.carrier(host)[0] for host in "ab"] == ["1", "0"]
    assert lab.control("plant", {"do": "uncut", "fibre": "b/nic1:receive"})["ok"]
    assert [lab.carrier(host)[0] for host in "ab"] == ["1", "1"]


@pytest.mark.kernel
def test_a_taken_subnet_is_refused_with_code_and_cure_and_leaves_nothing(lab, key):
    subnet = lab.ready["subnet"].removesuffix(".0/24")
    before = set(status())
    exit_status, said, _ = sim_lab(text=json.dumps(document(2, subnet=subnet)))
    assert (exit_status, said["ready"], said["code"]) == (1, False, "subnet_taken")
    assert "another lab holds it" in said["error"]
    assert set(status()) == before


@pytest.mark.kernel
def test_a_subnet_that_overlaps_an_address_of_the_machine_is_refused(lab, key):
    """A claim of its own, but inside a network that this machine already has a route to."""
    raw = document(2, subnet=lab.ready["subnet"].removesuffix(".0/24"))
    raw["management"] = str(IPv4Network(lab.ready["subnet"]).supernet(prefixlen_diff=1))
    subnet = IPv4Network(raw["management"])
    raw["control"] = f"{subnet[1]}:7000"
    raw["switches"][0].update(scpi=f"{subnet[9]}:1", tl1=f"{subnet[9]}:2", control=f"{subnet[9]}:3")
    exit_status, said, _ = sim_lab(text=json.dumps(raw))
    assert (exit_status, said["code"]) == (1, "subnet_taken")
    assert f"{lab.lab_id}-0 uses" in said["error"]


@pytest.mark.kernel
def test_two_labs_stand_beside_each_other(lab, key):
    with kernel_lab(key) as other:
        assert other.lab_id != lab.lab_id
        assert (lab.ssh("a", "hostname"), other.ssh("a", "hostname")) == ("a", "a")
        assert {lab.lab_id, other.lab_id} <= set(status())
        other.end_input()
    assert traces(other.lab_id) == []
    assert lab.ssh("a", "hostname") == "a"


@pytest.mark.kernel
@pytest.mark.parametrize("way", ["input", "SIGTERM", "SIGINT"])
def test_nothing_is_left_when_the_lab_is_asked_to_end(key, way):
    with kernel_lab(key) as up:
        began_s = time.monotonic()
        if way == "input":
            assert up.end_input() == 0
        else:
            up.process.send_signal(signal.Signals[way])
            assert up.process.wait(PATIENCE_S) == 0
        assert time.monotonic() - began_s < 3
        assert (traces(up.lab_id), host_processes(up.lab_id)) == ([], [])


@pytest.mark.kernel
def test_a_detached_lab_outlives_its_input_and_ends_when_named(key):
    with kernel_lab(key, "--detached") as up:
        up.process.stdin.close()
        assert up.ssh("a", "hostname") == "a"
        assert sim_lab("--down", up.lab_id)[1] == {"removed": [up.lab_id]}
        assert up.process.wait(PATIENCE_S) == 0
        assert traces(up.lab_id) == []


@pytest.mark.kernel
def test_a_stopped_supervisor_is_killed_when_its_lab_is_named(key, monkeypatch):
    """SIGTERM reaches nobody there; what it leaves is removed like any debris."""
    monkeypatch.setattr("sim.lab.found._END_TIMEOUT_S", 0.3)
    from sim.lab.found import end_labs

    with kernel_lab(key) as up:
        up.process.send_signal(signal.SIGSTOP)
        assert end_labs([up.lab_id]) == (up.lab_id,)
        assert up.process.wait(PATIENCE_S) == -signal.SIGKILL
        assert (traces(up.lab_id), host_processes(up.lab_id)) == ([], [])


@pytest.mark.kernel
def test_a_killed_supervisor_takes_its_hosts_along_and_down_removes_the_rest(key):
    with kernel_lab(key) as up:
        up.process.kill()
        up.process.wait(PATIENCE_S)
        eventually(lambda: not host_processes(up.lab_id))
        found = status()[up.lab_id]
        assert (found["state"], found["pid"], found["namespaces"]) == ("debris", None, 4)
        assert up.lab_id in sim_lab("--down")[1]["removed"]
        assert traces(up.lab_id) == []


@pytest.mark.kernel
def test_processes_that_outlive_a_killed_supervisor_are_ended_by_down(key):
    """Somebody's shell in a host's network survives the host; its namespace must go all the same."""
    with kernel_lab(key) as up:
        inside = ["ip", "netns", "exec", f"{up.lab_id}-a", "sh", "-c", "echo in; exec sleep 60"]
        with subprocess.Popen(inside, stdout=subprocess.PIPE) as left:
            assert left.stdout.readline() == b"in\n"
            up.process.kill()
            up.process.wait(PATIENCE_S)
            sim_lab("--down")
            assert left.wait(PATIENCE_S) == -signal.SIGKILL
        assert traces(up.lab_id) == []


@pytest.mark.kernel
def test_a_new_lab_on_the_subnet_of_a_killed_one_starts(key):
    subnet = free_subnet()
    with kernel_lab(key, subnet=subnet) as killed:
        killed.process.kill()
        killed.process.wait(PATIENCE_S)
        with kernel_lab(key, subnet=subnet) as up:
            assert up.ssh("b", "hostname") == "b"
            assert traces(killed.lab_id) == []


@pytest.mark.kernel
def test_a_lab_that_fails_half_way_leaves_nothing(key):
    """The hosts stand already when the control address turns out to be taken on the root side."""
    raw = document(2, subnet=free_subnet(), key=Path(f"{key}.pub").read_text().strip())
    before = set(status())
    with socket.create_server(("0.0.0.0", 0)) as stranger:
        raw["control"] = raw["control"].replace("7000", str(stranger.getsockname()[1]))
        exit_status, said, _ = sim_lab(text=json.dumps(raw))
    assert (exit_status, said["ready"], said["code"]) == (1, False, "address_in_use")
    assert set(status()) == before


@pytest.mark.kernel
def test_a_key_is_needed_to_log_in():
    raw = document(2, subnet=free_subnet())
    del raw["authorized_key"]
    assert sim_lab(text=json.dumps(raw))[1]["error"].startswith("wiring document: authorized_key")


@pytest.mark.kernel
def test_ending_a_lab_that_is_not_there_names_those_that_are(lab):
    exit_status, said, _ = sim_lab("--down", "lbffffff")
    assert (exit_status, said["code"]) == (1, "no_such_lab")
    assert lab.lab_id in said["cure"]


# ---------------------------------------------------------------------------------------- without hosts


def loopback_document():
    return document(2, subnet=f"127.97.{next(_third) % 256}", mode="model")


def test_without_namespaces_twins_answer_on_loopback_and_the_line_says_model():
    with supervised(loopback_document()) as up:
        assert (up.ready["ready"], up.ready["hosts"]) == (True, "model")
        up.scpi(":oxc:swit:conn:only (@1),(@5)")
        assert up.control("ocs1", {"do": "truth"})["connections"] == [[1, 5]]
        assert up.control("plant", {"do": "truth"})["ok"]
        assert up.end_input() == 0
    assert traces(up.lab_id) == []


def test_a_document_may_come_from_a_file_and_then_input_is_only_the_life_line(tmp_path):
    wiring = tmp_path / "wiring.json"
    wiring.write_text(json.dumps(loopback_document(), indent=2))
    assert sim_lab(str(wiring))[:2][1]["ready"] is True


def test_a_file_that_is_not_there_is_named(tmp_path):
    exit_status, said, _ = sim_lab(str(tmp_path / "none.json"))
    assert (exit_status, said["code"]) == (1, "document")
    assert "none.json: No such file" in said["error"]


def test_two_labs_on_one_loopback_subnet_exclude_each_other():
    raw = loopback_document()
    with supervised(raw) as up:
        assert up.ready["ready"]
        assert sim_lab(text=json.dumps(raw))[1]["code"] == "subnet_taken"


def test_a_loopback_address_that_a_stranger_has_means_the_subnet_is_taken():
    raw = loopback_document()
    host, port = raw["switches"][0]["tl1"].split(":")
    with socket.create_server((host, int(port))):
        exit_status, said, complaints = sim_lab(text=json.dumps(raw))
    assert (exit_status, said["code"]) == (1, "subnet_taken")
    assert "Traceback" not in complaints


def test_without_root_kernel_hosts_are_refused_with_the_way_out(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match="need root.*--hosts model") as caught:
        asyncio.run(start_lab(parse(json.dumps(document(2))), AsyncExitStack()))
    assert caught.value.code == "not_root"
