"""A root of its own for a host: the machine's file systems below, a memory file system of limited size above.

What a host writes lands in its memory file system; what it reads and has not written is the machine's. /proc/sys is
read-only but for what belongs to the host's own namespaces; /dev holds no disk of the machine. This keeps programs that
mean well apart. Root on a host is still root of the machine's kernel: it is no prison.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sim.twins.hosts.netns import KernelFault

OVERLAY_SIZE = "512m"
_PROBE_TIMEOUT_S = 20.0
# Made by the kernel, or by us in a way of their own. autofs would mount something as soon as it is looked at.
_OWN_FOLDERS = ("/proc", "/sys", "/dev", "/run")
_NO_FILES = ("autofs", "nsfs")
# No disk, no memory of the machine, no console; accelerators and tunnels as far as the machine has them.
_DEVICES = "null zero full random urandom tty fuse net/tun kfd nvidia* dri infiniband"
_NUMBERS = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}
# `net` is of the network namespace, host and domain name of the UTS namespace, the others of the IPC namespace.
_OWN_SYSCTLS = (
    "net fs/mqueue kernel/hostname kernel/domainname kernel/shm* kernel/msg* kernel/sem* kernel/auto_msgmni"
)
# Of these the last lies among the settings of the network, and is the whole kernel's all the same.
_READ_ONLY = "sysrq-trigger irq mtrr bus fs acpi scsi sys/net/netfilter/nf_hooks_lwtunnel"
# Clock, modules, ports, log and device nodes are the machine's.
LEFT_OUT = "-sys_time,-sys_module,-sys_rawio,-syslog,-mknod,-wake_alarm"


@dataclass(frozen=True, slots=True)
class MachineMount:
    """A mount of the machine that a host sees: a folder with its owner and mode, or a single file."""

    point: str
    is_folder: bool
    mode: int
    user: int = 0
    group: int = 0


def machine_mounts(mountinfo: str) -> tuple[MachineMount, ...]:
    """Return mounts of the machine that hold files, the outer before the inner; `mountinfo` is of /proc/self.

    What we may not look at is left out: a host sees the empty folder below it.
    """
    found = {}
    for line in mountinfo.splitlines():
        fields, _, kind = line.partition(" - ")
        point = _unescape(fields.split(" ")[4])
        if kind.split(" ")[0] not in _NO_FILES and not _is_below(point, _OWN_FOLDERS):
            found[point] = _mount_at(point)
    return tuple(mount for _, mount in sorted(found.items()) if mount is not None)


def _unescape(point: str) -> str:
    r"""Return a path of mountinfo, which writes spaces and the like as octal numbers.

    >>> _unescape(r"/mnt/a\040b")
    '/mnt/a b'
    """
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), point)


def _is_below(point: str, folders: Iterable[str]) -> bool:
    return any(point == folder or point.startswith(f"{folder}/") for folder in folders)


def _mount_at(point: str) -> MachineMount | None:
    try:
        status = Path(point).stat()
    except OSError:
        return None
    is_folder = stat.S_ISDIR(status.st_mode)
    if not is_folder and not stat.S_ISREG(status.st_mode):
        return None
    return MachineMount(point, is_folder, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)


def own_root_script(mounts: Sequence[MachineMount]) -> tuple[str, ...]:
    """Return lines of shell that give fresh namespaces a root of their own, and move into it.

    They stop (`set -e`) where the kernel refuses the root's overlay. Another file system that no overlay takes is
    read-only on the host.
    """
    return (
        f"mount -t tmpfs -o mode=755,size={OVERLAY_SIZE} tmpfs /run",
        "mkdir /run/root /run/lower /run/upper /run/work",
        *(line for at, mount in enumerate(mounts) for line in _mount_lines(at, mount)),
        "cd /run/root",
        *_device_lines(),
        *_kernel_lines(),
        "mount -t tmpfs -o mode=755,size=256m tmpfs run",
        "mkdir -m 1777 run/lock",
        "mkdir run/machine",
        "pivot_root . run/machine",
        "cd /",
        "umount -l /run/machine",
        "rmdir /run/machine",
    )


def _mount_lines(at: int, mount: MachineMount) -> list[str]:
    source, target = shlex.quote(mount.point), shlex.quote(f"/run/root{mount.point}")
    if not mount.is_folder:
        return [f"cp -p --remove-destination {source} {target}"]
    # The machine's path may hold what the options of an overlay cannot; a number never does.
    lower, upper, work = (f"/run/{part}/{at}" for part in ("lower", "upper", "work"))
    overlay = f"mount -t overlay -o lowerdir={lower},upperdir={upper},workdir={work} overlay {target}"
    if mount.point != "/":
        overlay += f" 2>/dev/null || mount -o bind,ro {source} {target}"
    return [
        f"mkdir {lower} {upper} {work}",
        f"chmod {mount.mode:o} {upper}",
        *([f"chown {mount.user}:{mount.group} {upper}"] if mount.user or mount.group else []),
        f"mount --bind {source} {lower}",
        overlay,
    ]


def _device_lines() -> list[str]:
    """Return lines that fill dev: nodes that harm nobody, terminals, shared memory and queues of its own."""
    return [
        "mount -t tmpfs -o mode=755,size=64k tmpfs dev",
        f"set --; for node in $(cd /dev && echo {_DEVICES}); do",
        '  if [ -e "/dev/$node" ]; then set -- "$@" "$node"; fi',
        "done",
        '(cd /dev && cp -a --parents "$@" /run/root/dev)',
        "ln -s /proc/self/fd dev/fd; ln -s fd/0 dev/stdin; ln -s fd/1 dev/stdout; ln -s fd/2 dev/stderr",
        "mkdir dev/pts dev/shm dev/mqueue",
        "mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts dev/pts",
        "ln -s pts/ptmx dev/ptmx",
        "mount -t mqueue mqueue dev/mqueue || rmdir dev/mqueue",
    ]


def _kernel_lines() -> list[str]:
    """Return lines that mount proc and sys, read-only where they are the machine's."""
    return [
        "mount -t proc -o nosuid,nodev,noexec proc proc",
        "mount --bind proc/sys proc/sys",
        f"(cd proc/sys; for own in {_OWN_SYSCTLS}; do if [ -e $own ]; then mount --bind $own $own; fi; done)",
        "mount -o remount,bind,ro proc/sys",
        f"(cd proc; for path in {_READ_ONLY}; do if [ -e $path ]; then mount -o bind,ro $path $path; fi; done)",
        "mount -t sysfs -o nosuid,nodev,noexec sysfs sys",
        "if [ -d sys/devices/virtual/net ]; then",
        "  mount --bind sys/devices/virtual/net sys/devices/virtual/net",
        "fi",
        "mount -o remount,bind,ro sys",
    ]


def check_device_nodes(folder: Path = Path("/dev")) -> None:
    """Raise `KernelFault` for a node of the machine that is not the device of its name: hosts get copies of them."""
    for name, (major, minor) in _NUMBERS.items():
        try:
            found = (folder / name).stat()
        except FileNotFoundError:
            continue
        allowed = [os.makedev(major, minor)] + [os.makedev(1, 9)] * (
            name == "random"
        )  # as in some containers
        if not stat.S_ISCHR(found.st_mode) or found.st_rdev not in allowed:
            node = folder / name
            raise KernelFault(
                f"{node} of this machine is not the device of that name, and hosts would get a copy of it",
                hint=f"As root: rm {node}; mknod -m 666 {node} c {major} {minor}",
            )


def refusal_of_own_root(mounts: Sequence[MachineMount], tools: Mapping[str, str]) -> str:
    """Return why this kernel gives a host no root of its own, by trying; empty where it does."""
    fresh = ["--uts", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
    try:
        tried = subprocess.run(
            [tools["unshare"], *fresh, "--propagation", "private", "/bin/sh", "-eus"],
            input="\n".join((*own_root_script(mounts), "")),
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
            env={"PATH": os.environ.get("PATH", os.defpath)},
        )
    except subprocess.TimeoutExpired:
        return f"no root of its own within {_PROBE_TIMEOUT_S:g} s"
    if tried.returncode == 0:
        return ""
    return " ".join(tried.stderr.split()) or f"exit status {tried.returncode}"
