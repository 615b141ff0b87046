"""A separate root file system for each host: an overlay of a limited memory file system over those of the machine.

Writes of a host go to its memory file system; files that it has not written are the machine's. /proc/sys is read-only
except for parameters of the host's own namespaces, and /dev contains no disk of the machine. Well-behaved programs are
kept apart, but this is not a security boundary: root on a host is still root for the machine's kernel.
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
# Mount points that each host gets separately, and file systems without files. Reading an autofs point would mount it.
_OWN_FOLDERS = ("/proc", "/sys", "/dev", "/run")
_NO_FILES = ("autofs", "nsfs")
# No disks, no memory devices, no console; accelerators and tunnels only if the machine has them.
_DEVICES = "null zero full random urandom tty fuse net/tun kfd nvidia* dri infiniband"
_NUMBERS = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}
# `net` belongs to the network namespace, host and domain name to the UTS namespace, the others to the IPC namespace.
_OWN_SYSCTLS = (
    "net fs/mqueue kernel/hostname kernel/domainname kernel/shm* kernel/msg* kernel/sem* kernel/auto_msgmni"
)
# The last one is below the network settings, but applies to the whole kernel.
_READ_ONLY = "sysrq-trigger irq mtrr bus fs acpi scsi sys/net/netfilter/nf_hooks_lwtunnel"
# Capabilities over what hosts share with the machine: clock, modules, I/O ports, kernel log, device nodes, wake alarms.
DROPPED_CAPABILITIES = "-sys_time,-sys_module,-sys_rawio,-syslog,-mknod,-wake_alarm"


@dataclass(frozen=True, slots=True)
class MachineMount:
    """A mount of the machine that a host sees: a directory with its owner and mode, or a single file."""

    point: str
    is_folder: bool
    mode: int
    user: int = 0
    group: int = 0


def machine_mounts(mountinfo: str) -> tuple[MachineMount, ...]:
    """Return the machine's mounts that contain files, outer before inner, from the content of /proc/self/mountinfo.

    Mounts without read permission are skipped: a host sees the empty directory below them.
    """
    mounts = {}
    for line in mountinfo.splitlines():
        fields, _, kind = line.partition(" - ")
        point = _unescape(fields.split(" ")[4])
        if kind.split(" ")[0] not in _NO_FILES and not _is_below(point, _OWN_FOLDERS):
            mounts[point] = _inspect_mount(point)
    return tuple(mount for _, mount in sorted(mounts.items()) if mount is not None)


def _unescape(point: str) -> str:
    r"""Decode a path of mountinfo, which contains special characters such as spaces as octal numbers.

    >>> _unescape(r"/mnt/a\040b")
    '/mnt/a b'
    """
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), point)


def _is_below(point: str, folders: Iterable[str]) -> bool:
    return any(point == folder or point.startswith(f"{folder}/") for folder in folders)


def _inspect_mount(point: str) -> MachineMount | None:
    try:
        status = Path(point).stat()
    except OSError:
        return None
    is_folder = stat.S_ISDIR(status.st_mode)
    if not is_folder and not stat.S_ISREG(status.st_mode):
        return None
    return MachineMount(point, is_folder, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)


def own_root_script(mounts: Sequence[MachineMount]) -> tuple[str, ...]:
    """Return shell lines that build a separate root file system in new namespaces, and make it the root.

    With `set -e`, the script stops if the kernel refuses the overlay of `/`. Other file systems that do not support an
    overlay are read-only on the host.
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
    # Use numbers instead of the machine's path, which may contain characters that overlay options cannot.
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
    """Return shell lines that fill dev with harmless device nodes, and separate terminals, shared memory and queues."""
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
    """Return shell lines that mount proc and sys, read-only except for parts that belong to the host."""
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
    """Raise `KernelFault` if a device node of the machine is not the device of its name, as hosts get copies of it."""
    for name, (major, minor) in _NUMBERS.items():
        try:
            status = (folder / name).stat()
        except FileNotFoundError:
            continue
        allowed = [os.makedev(major, minor)] + [os.makedev(1, 9)] * (
            name == "random"
        )  # some containers have urandom as random
        if not stat.S_ISCHR(status.st_mode) or status.st_rdev not in allowed:
            node = folder / name
            raise KernelFault(
                f"{node} of this machine is not the device of that name; hosts would get a copy of the wrong device",
                hint=f"As root: rm {node}; mknod -m 666 {node} c {major} {minor}",
            )


def probe_own_root(mounts: Sequence[MachineMount], tools: Mapping[str, str]) -> str:
    """Try to build a separate root; return the error, or an empty text if the kernel supports it."""
    fresh = ["--uts", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
    try:
        process = subprocess.run(
            [tools["unshare"], *fresh, "--propagation", "private", "/bin/sh", "-eus"],
            input="\n".join((*own_root_script(mounts), "")),
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
            env={"PATH": os.environ.get("PATH", os.defpath)},
        )
    except subprocess.TimeoutExpired:
        return f"building a separate root took more than {_PROBE_TIMEOUT_S:g} s"
    if process.returncode == 0:
        return ""
    return " ".join(process.stderr.split()) or f"exit status {process.returncode}"
