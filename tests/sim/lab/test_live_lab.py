"""A lab that is up: hosts that are machines of their own, and packets where a SCPI line sends them."""

from __future__ import annotations

import json
import shlex
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("jsonschema")

from sim.lab.claims import find_user

pytestmark = pytest.mark.kernel


def test_the_ready_line_says_where_everything_is(lab):
    subnet = lab.ready["subnet"].removesuffix(".0/24")
    assert {name: value for name, value in lab.ready.items() if name != "seconds"} == {
        "ready": True,
        "simulated": True,
        "lab": "under-test",
        "lab_id": lab.lab_id,
        "hosts": "kernel",
        "shared_root": "",
        "pid": lab.process.pid,
        "subnet": f"{subnet}.0/24",
        "control": {"ocs1": f"{subnet}.2:7025", "plant": f"{subnet}.1:7000"},
        "boards": {},
    }


def test_status_knows_the_lab_as_live(kernel_labs, lab):
    assert kernel_labs.status()[lab.lab_id] == {
        "id": lab.lab_id,
        "lab": "under-test",
        "state": "live",
        "pid": lab.process.pid,
        "subnet": lab.ready["subnet"],
        "namespaces": 5,
        "simulated": True,
        "rate_mbps": 100.0,
        "user": find_user(),
    }


def test_down_without_names_leaves_a_live_lab_alone(kernel_labs, lab):
    assert lab.lab_id not in kernel_labs.sim_lab("--down")[1]["removed"]
    assert lab.ssh("a", "hostname") == "a"


def test_each_host_is_a_machine_of_its_own(lab):
    namespaces = "readlink /proc/self/ns/net /proc/self/ns/uts /proc/self/ns/mnt /proc/self/ns/pid"
    facts = {host: lab.ssh(host, f"hostname; cat /etc/hostname; {namespaces}").split() for host in "abc"}
    assert {host: found[:2] for host, found in facts.items()} == {host: [host, host] for host in "abc"}
    for at, kind in enumerate(("net", "uts", "mnt", "pid"), start=2):
        ours = str(Path("/proc/self/ns", kind).readlink())
        assert len({ours, *(found[at] for found in facts.values())}) == 4


def test_each_host_has_a_home_and_a_run_of_its_own(lab):
    assert lab.ssh("a", "pwd; echo $HOME; echo ~root").split() == ["/run/home"] * 3
    lab.ssh("a", "touch ~/only-here /dev/shm/only-here $TMPDIR/only-here")
    assert lab.ssh("b", "ls -A ~ /dev/shm $TMPDIR | grep only-here || true") == ""
    assert not Path("/run/home").exists()
    assert not Path("/dev/shm/only-here").exists()


def test_the_machines_own_files_stay_as_they_are(lab):
    assert "/run/home" not in Path("/etc/passwd").read_text()
    assert socket.gethostname() not in "abc"


def test_lightbed_cannot_be_imported_on_a_host(lab):
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    for package in ("testbed", "sim", "ocs_drivers"):
        exit_status, said = lab.ssh("a", f"{python} -c 'import {package}'", check=False)
        assert (exit_status, f"No module named '{package}'" in said) == (1, True)


def test_a_stranger_is_not_let_in(lab, tmp_path):
    stranger = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(stranger)], check=True)
    exit_status, said = type(lab)(lab.process, lab.ready, str(stranger)).ssh("a", "true", check=False)
    assert (exit_status, "Permission denied (publickey)" in said) == (255, True)


def test_hosts_know_each_other_by_name_on_the_management_network(lab):
    assert lab.ssh("a", "getent hosts c").split()[1] == "c"
    connect = "exec 3<>/dev/tcp/c/22 && head -c 7 <&3"
    assert lab.ssh("a", f"bash -c '{connect}'") == "SSH-2.0"


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


# Listens until its input ends, which is after the frame has been sent; then a frame is there or will not come.
LISTEN = """
import select, socket, sys
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5))
tap.bind((sys.argv[1], 0x88B5))
print("listening", flush=True)
sys.stdin.read()
heard = select.select([tap], [], [], 0.2)[0]
print(tap.recv(2000)[14:18].decode() if heard else "nothing")
"""
SEND = (
    "import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('nic1', 0)); "
    "s.send(b'\\xff' * 6 + b'\\x02' * 6 + b'\\x88\\xb5' + b'mark'.ljust(60))"
)


def hears(lab, sender, listener):
    """Return True if a raw frame from nic1 of one host arrives at nic1 of another."""
    command = lab.ssh_command(listener, f"python3 -c {shlex.quote(LISTEN)} nic1")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as ear:
        assert ear.stdout.readline() == "listening\n"
        lab.ssh(sender, f'python3 -c "{SEND}"', check=False)
        ear.stdin.close()
        return ear.stdout.readline() == "mark\n"


def test_a_cut_fibre_takes_the_carrier_and_a_splice_brings_it_back(lab):
    lab.scpi(":oxc:swit:conn:only (@1,3),(@9,7)")
    assert lab.control("plant", {"do": "cut", "fibre": "b/nic1:receive"})["ok"]
    assert [lab.carrier(host)[0] for host in "ab"] == ["1", "0"]
    assert lab.control("plant", {"do": "uncut", "fibre": "b/nic1:receive"})["ok"]
    assert [lab.carrier(host)[0] for host in "ab"] == ["1", "1"]
