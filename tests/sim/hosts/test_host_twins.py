"""Files and scripts of a host before it boots; the running host is a matter of `test_lab`."""

from __future__ import annotations

import os
import subprocess
from ipaddress import IPv4Interface

import pytest

from sim.twins.hosts.keys import KeyPair, LabKeys, make_ssh_files
from sim.twins.hosts.netns import KernelFault
from sim.twins.hosts.own_root import MachineMount, make_root_script
from sim.twins.hosts.spec import HOME_FOLDER, HostSpec
from sim.twins.hosts.twin import find_tools, format_sshd_config, make_boot_script, make_etc_files

FABRIC = (("10.100.1.100", "a.fabric"), ("10.100.1.1", "nic1.a.fabric"))
A = HostSpec("a", "lb000000-a", IPv4Interface("10.97.0.11/24"), 22, ("nic1",), FABRIC)
B = HostSpec("b", "lb000000-b", IPv4Interface("10.97.0.12/24"), 2222, ("nic1",))
PASSWD = "root:x:0:0:root:/root:/bin/zsh\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n"
KEY = "ssh-ed25519 AAAA 'quoted' $HOME"
KEYS = LabKeys(
    login_key=KeyPair("private of root\n", "ssh-ed25519 LOGIN root@lab"),
    server_keys={
        "a": KeyPair("private of a\n", "ssh-ed25519 AAA a"),
        "b": KeyPair("...", "ssh-ed25519 BBB b"),
    },
)
TOOLS = {"sshd": "/usr/sbin/sshd", "ssh-keygen": "/usr/bin/ssh-keygen", "setpriv": "/usr/bin/setpriv"}


def pretend_tools(folder, names):
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return str(folder)


def test_the_account_keeps_the_machines_users_and_gets_a_home_of_its_own():
    assert make_etc_files(A, [A, B], PASSWD, "/bin/bash")["passwd"].splitlines() == [
        f"root:x:0:0:root:{HOME_FOLDER}:/bin/bash",
        "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin",
    ]


def test_every_host_knows_all_hosts_by_their_management_address_and_those_of_the_fabric():
    assert make_etc_files(B, [A, B], PASSWD, "/bin/bash")["hosts"].splitlines() == [
        "127.0.0.1 localhost",
        "10.97.0.11 a",
        "10.100.1.100 a.fabric",
        "10.100.1.1 nic1.a.fabric",
        "10.97.0.12 b",
    ]


def test_hosts_log_in_to_each_other_with_one_key_and_know_each_others_servers():
    assert make_ssh_files(A, [A, B], KEYS, KEY) == {
        "/run/etc/ssh_host_ed25519_key": "private of a\n",
        "/run/etc/authorized_keys": f"{KEY}\nssh-ed25519 LOGIN root@lab\n",
        "/run/home/.ssh/id_ed25519": "private of root\n",
        "/run/home/.ssh/id_ed25519.pub": "ssh-ed25519 LOGIN root@lab\n",
        "/run/home/.ssh/known_hosts": (
            "a,10.97.0.11 ssh-ed25519 AAA\n[b]:2222,[10.97.0.12]:2222 ssh-ed25519 BBB\n"
        ),
        "/run/home/.ssh/config": "Host b 10.97.0.12\n  Port 2222\n",
    }


def test_the_server_listens_on_the_management_address_alone_and_takes_keys_alone():
    words = dict(line.split(" ", 1) for line in format_sshd_config(B).splitlines())
    facts = {key: words[key] for key in ("ListenAddress", "Port", "PasswordAuthentication", "UsePAM")}
    assert facts == {
        "ListenAddress": "10.97.0.12",
        "Port": "2222",
        "PasswordAuthentication": "no",
        "UsePAM": "no",
    }


ROOT = make_root_script((MachineMount("/", True, 0o755), MachineMount("/mnt/it's", True, 0o1777, 5, 6)))


@pytest.mark.process
@pytest.mark.parametrize("own_root", [(), ROOT])
def test_the_boot_script_is_shell_whatever_the_key_says(own_root):
    ssh = make_ssh_files(A, [A, B], KEYS, KEY)
    script = make_boot_script(A, make_etc_files(A, [A], PASSWD, "/bin/bash"), ssh, TOOLS, own_root)
    checked = subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.process
def test_the_boot_script_writes_every_file_as_it_is(tmp_path):
    etc, ssh = make_etc_files(A, [A, B], PASSWD, "/bin/bash"), {"/run/etc/authorized_keys": f"{KEY}\n"}
    script = make_boot_script(A, etc, ssh, TOOLS)
    writing = script[script.index("printf ") : script.index("chmod 644")].replace(">/run/etc", f">{tmp_path}")
    subprocess.run(["sh", "-eu"], input=writing, text=True, check=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        **etc,
        "sshd_config": format_sshd_config(A),
        "authorized_keys": f"{KEY}\n",
    }


def test_tools_are_found_where_they_are(tmp_path):
    names = ("sshd", "ssh-keygen", "ip", "tc", "unshare", "nsenter", "setpriv", "mount")
    place = pretend_tools(tmp_path, names)
    assert find_tools(place) == {name: f"{place}/{name}" for name in names}


def test_missing_tools_are_all_named_with_one_line_to_run(tmp_path):
    place = pretend_tools(tmp_path, ("ssh-keygen", "unshare", "nsenter", "setpriv", "mount"))
    with pytest.raises(KernelFault, match="not installed on this machine: sshd, ip, tc") as caught:
        find_tools(place)
    assert caught.value.hint == "apt-get install --no-install-recommends iproute2 openssh-server"
    assert caught.value.code == "no_sshd"


def test_without_iproute_alone_the_code_says_so(tmp_path):
    place = pretend_tools(tmp_path, ("sshd", "ssh-keygen", "unshare", "nsenter", "setpriv", "mount"))
    with pytest.raises(KernelFault) as caught:
        find_tools(place)
    assert caught.value.code == "no_tools"


@pytest.mark.kernel
def test_the_machine_under_test_has_the_tools():
    assert all(os.access(path, os.X_OK) for path in find_tools().values())
