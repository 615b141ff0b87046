"""Hosts with a root of their own: writes of root stay on the host; the cost in memory."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import textwrap
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("jsonschema")

from sim.lab import supervisor
from sim.lab.document import parse_document
from sim.twins.hosts import netns
from sim.twins.hosts.netns import KernelFault
from sim.twins.hosts.own_root import MachineMount, check_device_nodes, parse_mounts

kernel = pytest.mark.kernel
ROOT = Path(__file__).parents[3]

TREES = ("/etc", "/usr", "/var/lib")
# Written by the machine itself, or by an interpreter that somebody else starts on it.
MACHINE_WRITES = (
    "/etc/resolv.conf",
    "/var/lib/apt/periodic",
    "/var/lib/chrony",
    "/var/lib/dhcp",
    "/var/lib/logrotate",
    "/var/lib/NetworkManager",
    "/var/lib/private",
    "/var/lib/systemd",
)
# As root on every host: make, change, replace, rename and remove, in every tree, in /dev and in the sysctls.
WRITES = r"""
for folder in /etc /usr /usr/bin /usr/lib /var/lib /var/lib/dpkg /opt /home /root /tmp /srv; do
    echo x > $folder/lightbed-was-here || exit 1
done
echo '192.0.2.1 wrong' >> /etc/hosts
echo other > /etc/hostname
echo 'x:x:77:' >> /etc/group
chmod 600 /etc/group; chown 1:1 /etc/group; touch /etc/fstab; setfattr -n user.x -v y /etc/group 2>/dev/null
mv /etc/ssh /etc/ssh-moved; rm -rf /etc/apt /var/lib/dpkg/info /usr/share/doc
cp --remove-destination /usr/bin/true /usr/bin/env; chmod 777 /usr/bin/true; ln /usr/bin/false /usr/bin/false-too
chmod 600 /dev/zero; chown 1:1 /dev/full; rm /dev/urandom; echo x > /dev/file
"""


def digest_of(tree):
    """Return what is true of every path of a tree, by path; of /etc also what is in the files."""
    found = {}
    for folder, folders, files in os.walk(tree):
        if folder.startswith(MACHINE_WRITES) or folder.endswith("__pycache__"):
            folders[:] = []
            continue
        for name in (*folders, *files):
            path = f"{folder}/{name}"
            if path.startswith(MACHINE_WRITES) or name == "__pycache__":
                continue
            status = os.lstat(path)
            facts = [status.st_mode, status.st_uid, status.st_gid]
            if name in files:  # that a folder's entries changed shows in its entries
                facts += [
                    status.st_ino,
                    status.st_size,
                    status.st_nlink,
                    status.st_mtime_ns,
                    status.st_ctime_ns,
                ]
                if Path(path).is_symlink():  # /etc/mtab leads to /proc, which others change
                    facts.append(str(Path(path).readlink()))
                elif tree == "/etc" and Path(path).is_file():
                    facts.append(hashlib.sha256(Path(path).read_bytes()).hexdigest())
            found[path] = facts
    return found


def modes_of_dev():
    """Return mode and owner of everything in the machine's /dev but terminals and shared memory, which come and go."""
    return {
        str(path): (path.lstat().st_mode, path.lstat().st_uid, path.lstat().st_gid)
        for path in sorted(Path("/dev").iterdir())
        if path.name not in ("pts", "shm", "mqueue")
    }


def sysctls(folder="/proc/sys"):
    """Return the machine's own settings by path; counters and random numbers, which change by themselves, left out."""
    found = {}
    for base, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in ("random", "neigh", "conf", "binfmt_misc")]
        for name in files:
            path = f"{base}/{name}"
            if name in ("inode-nr", "inode-state", "file-nr", "dentry-state", "nf_conntrack_count", "aio-nr"):
                continue
            if name.startswith(("ns_last_pid", "pty")) or path.startswith("/proc/sys/kernel/pty"):
                continue
            try:
                found[path] = Path(path).read_text(errors="replace")
            except OSError:
                continue
    return found


# Writes what it reads where that is not the host's own, and other numbers where it is; prints what could be written.
SET_ALL = r"""
import os
own = ("net/", "fs/mqueue/", "kernel/hostname", "kernel/domainname")
own += ("kernel/shm", "kernel/msg", "kernel/sem", "kernel/auto_msgmni")
for base, _, files in os.walk("/proc/sys"):
    for name in files:
        path = f"{base}/{name}"
        try:
            with open(path) as file:
                value = file.read().strip()
        except (OSError, UnicodeError):
            continue
        candidates = [value]
        if path.removeprefix("/proc/sys/").startswith(own):
            words = value.split()
            if words and all(word.isdigit() for word in words):
                candidates += [" ".join(str(int(word) + step) for word in words) for step in (-1, 1)]
        for candidate in candidates:
            try:
                with open(path, "w") as file:
                    file.write(candidate)
            except OSError:
                continue
            print(path)
"""


@pytest.mark.long
@kernel
@pytest.mark.parametrize("hosts", ["abc", "abcdefghijkl"])
def test_nothing_of_the_machine_changes_when_root_writes_on_every_host(kernel_labs, hosts):
    """Files of /etc, /usr and /var/lib, modes of /dev, and sysctls are the same after as before."""
    with kernel_labs.kernel(hosts=len(hosts)) as up:
        before = {tree: digest_of(tree) for tree in TREES}, modes_of_dev(), sysctls()
        for host in hosts:
            up.ssh(host, f"bash -c {_quoted(WRITES)}", check=False)
            assert up.ssh(host, "cat /etc/lightbed-was-here /etc/hostname").split() == ["x", "other"]
            written = up.ssh(host, f"/usr/bin/python3 -c {_quoted(SET_ALL)}").split()
            assert "/proc/sys/net/ipv4/ip_forward" in written
            assert "/proc/sys/kernel/shmmni" in written
        after = {tree: digest_of(tree) for tree in TREES}, modes_of_dev(), sysctls()
    for was, is_now in zip((*before[0].values(), *before[1:]), (*after[0].values(), *after[1:]), strict=True):
        assert {
            path: (fact, is_now.get(path)) for path, fact in was.items() if is_now.get(path) != fact
        } == {}
        assert is_now.keys() - was.keys() == set()


def _quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


@kernel
def test_sysctls_are_read_only_but_for_net_names_and_ipc(lab):
    """Written with what they hold already, so that nothing changes should one of them be writable."""
    same = SET_ALL.replace("(-1, 1)", "()")
    written = lab.ssh("a", f"/usr/bin/python3 -c {_quoted(same)}").split()
    roots = {path.split("/")[3] for path in written}
    names = {path.split("/")[4] for path in written if path.startswith("/proc/sys/kernel/")}
    assert roots == {"net", "kernel", "fs"}
    assert {path for path in written if "/fs/" in path} == {
        path for path in written if path.startswith("/proc/sys/fs/mqueue/")
    }
    assert {name for name in names if not name.startswith(("msg", "sem", "shm"))} <= {
        "hostname",
        "domainname",
        "auto_msgmni",
    }


@kernel
def test_hosts_do_not_see_what_another_writes(lab):
    lab.ssh("a", "echo mine > /etc/of-a; echo mine > /tmp/of-a; rm /etc/services")
    assert lab.ssh("b", "ls /etc/of-a /tmp/of-a 2>/dev/null; ls /etc/services || true") == "/etc/services"
    assert lab.ssh("a", "cat /etc/of-a /tmp/of-a").split() == ["mine", "mine"]


@kernel
@pytest.mark.parametrize(
    ("command", "refusal"),
    [
        ("mknod /tmp/disk b 8 0", "Operation not permitted"),
        ("date -s '1 Jan 2001'", "Operation not permitted"),
        ("echo b > /proc/sysrq-trigger", "Read-only file system|cannot create|No such file"),
        ("touch /sys/kernel/x", "Read-only file system|Permission denied"),
        ("fallocate -l 600M /too-large", "No space left on device"),
    ],
)
def test_what_would_reach_beyond_the_host_is_refused(lab, command, refusal):
    exit_status, said = lab.ssh("c", f"LC_ALL=C {command}", check=False)
    assert exit_status != 0
    assert any(each in said for each in refusal.split("|")), said


@kernel
def test_a_host_has_terminals_and_devices_and_no_disk(lab):
    nodes = lab.ssh("b", "find /dev -type b; ls /dev").split()
    assert {"null", "zero", "urandom", "tty", "ptmx", "pts", "shm", "fd"} <= set(nodes)
    assert [node for node in nodes if node.startswith("/dev/")] == []
    assert lab.ssh("b", "script -qc 'test -t 0 && echo terminal' /dev/null").strip() == "terminal"


@kernel
def test_every_host_logs_in_to_every_other_without_a_question(lab):
    for host in "abc":
        reached = "; ".join(f"ssh -o BatchMode=yes {other} hostname" for other in "abc")
        assert lab.ssh(host, reached).split() == ["a", "b", "c"]


@kernel
def test_a_host_costs_at_most_15_mb(kernel_labs):
    """The share in all pages that its processes map, and all of its memory file systems."""
    assert asyncio.run(_megabytes(kernel_labs.wiring(hosts=1))) <= 15


async def _megabytes(raw):
    async with AsyncExitStack() as stack:
        up = await supervisor.start_lab(parse_document(json.dumps(raw)), stack)
        pids = netns.list_processes([f"{up.lab_id}-a"])
        rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
        mapped_kb = sum(int(text.split("\nPss:")[1].split()[0]) for text in rollups)
        sshd = max(pids)
        held = [os.statvfs(f"/proc/{sshd}/root{folder}") for folder in ("/", "/run", "/dev", "/dev/shm")]
        held_kb = sum((each.f_blocks - each.f_bfree) * each.f_frsize for each in held) / 1024
    return (mapped_kb + held_kb) / 1024


# ---------------------------------------------------------------------------------------------- device nodes
def test_a_node_of_the_machine_that_is_no_device_is_refused_with_its_repair(tmp_path):
    (tmp_path / "null").write_text("somebody's plan")
    with pytest.raises(KernelFault, match=rf"rm {tmp_path}/null; mknod -m 666 {tmp_path}/null c 1 3"):
        check_device_nodes(tmp_path)


# ------------------------------------------------------------------------------ where there are no overlays
@kernel
def test_without_overlays_hosts_share_the_machines_root_and_the_reason_is_told(kernel_labs, monkeypatch):
    monkeypatch.setattr(supervisor, "probe_own_root", lambda *_: "no overlay in this kernel")

    async def look():
        async with AsyncExitStack() as stack:
            up = await supervisor.start_lab(parse_document(json.dumps(kernel_labs.wiring(hosts=1))), stack)
            (host,) = [pid for pid in netns.list_processes([f"{up.lab_id}-a"]) if "sshd" in _name(pid)]
            return up.make_ready_line(), Path(f"/proc/{host}/root/etc").stat().st_dev

    said, device = asyncio.run(look())
    assert said["shared_root"] == "no overlay in this kernel"
    assert device == Path("/etc").stat().st_dev


def _name(pid):
    return Path(f"/proc/{pid}/comm").read_text()


TWICE_OVERLAID = """
set -eu
mount -t tmpfs tmpfs /run
mkdir /run/u1 /run/w1 /run/m1 /run/u2 /run/w2 /run/m2
mount -t overlay -o lowerdir=/,upperdir=/run/u1,workdir=/run/w1 overlay /run/m1
mount -t overlay -o lowerdir=/run/m1,upperdir=/run/u2,workdir=/run/w2 overlay /run/m2
mount -t proc proc /run/m2/proc
exec chroot /run/m2 "$@"
"""
ASK = """
from sim.twins.hosts.own_root import MachineMount, probe_own_root
print(probe_own_root([MachineMount("/", True, 0o755)], {"unshare": "unshare"}))
"""


@kernel
def test_a_kernel_that_refuses_an_overlay_is_told_in_its_own_words(tmp_path):
    """Linux stacks two overlays and no third: a root that is an overlay on an overlay takes no more."""
    asked = [sys.executable, "-c", ASK]
    done = in_new_mounts(TWICE_OVERLAID, *asked)
    assert "mount" in done
    assert "/run/root" in done


def in_new_mounts(script, *arguments):
    command = ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script, "sh", *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


MOUNTS = """
set -eu
cd "$1"
mkdir tree; mount -t tmpfs -o mode=1777 tmpfs tree; echo old >tree/file
mkdir 'tree/a b'; mount -t tmpfs tmpfs 'tree/a b'; echo old >'tree/a b/file'
echo old >single; echo hidden >below; mount --bind single below
"$2" -c "$3" >script
cat >>script <<END
cd "$1"
echo new >tree/file; echo new >'tree/a b/file'; echo new >below
cat tree/file 'tree/a b/file' below; stat -c %a tree
END
unshare --uts --mount --ipc --pid --fork --mount-proc --propagation private /bin/sh -eus <script
cat tree/file 'tree/a b/file' below
"""
SCRIPT = """
from pathlib import Path
from sim.twins.hosts.own_root import parse_mounts, make_root_script
print("\\n".join(make_root_script(parse_mounts(Path("/proc/self/mountinfo").read_text()))))
"""


@kernel
def test_mounts_below_the_root_are_the_hosts_own_too(tmp_path):
    said = in_new_mounts(MOUNTS, str(tmp_path), sys.executable, SCRIPT).split()
    assert said == ["new", "new", "new", "1777", "old", "old", "old"]


# ---------------------------------------------------------------------------------- reading what is mounted
def test_mounts_are_read_outer_first_and_without_those_of_the_kernel(tmp_path):
    """Lines in the form of proc(5): fields, then ` - `, then type, source and options."""
    (tmp_path / "a b").mkdir(mode=0o750)
    (tmp_path / "file").write_text("")
    lines = f"""\
        30 27 0:27 / {tmp_path}/file rw - ext4 /dev/vda rw
        22 27 0:21 / /proc rw,relatime - proc proc rw
        23 27 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw
        24 27 0:6 / /dev/shm rw - tmpfs tmpfs rw
        25 27 0:6 / /run/user/0 rw - tmpfs tmpfs rw
        28 27 0:25 / {tmp_path}/a\\040b rw - ext4 /dev/vdb rw
        29 27 0:26 / {tmp_path}/a\\040b rw shared:1 - xfs /dev/vdc rw
        31 27 0:28 / /mnt/auto rw - autofs systemd-1 rw
        32 27 0:29 / /no/such/folder rw - nfs there:/ rw
        27 1 254:0 / / rw,relatime - ext4 /dev/vda rw"""
    root, folder, file = Path("/").stat(), (tmp_path / "a b").stat(), (tmp_path / "file").stat()
    assert parse_mounts(textwrap.dedent(lines)) == (
        MachineMount("/", True, root.st_mode & 0o7777, root.st_uid, root.st_gid),
        MachineMount(f"{tmp_path}/a b", True, 0o750, folder.st_uid, folder.st_gid),
        MachineMount(f"{tmp_path}/file", False, file.st_mode & 0o7777, file.st_uid, file.st_gid),
    )
