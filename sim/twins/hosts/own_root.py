"""A separate root file system for each host: a memory file system of limited size overlays the machine's file systems.

A host writes to its memory file system, and reads the machine's files where it has not written. /proc/sys is read-only
except for parameters of the host's own namespaces, and /dev contains no disk of the machine. This keeps well-behaved
programs apart, but is not a security boundary: root on a host is still root for the machine's kernel.
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
# Mount points that each host gets separately, and types of mounts without files. Reading an autofs mount mounts it.
_OWN_FOLDERS = ("/proc", "/sys", "/dev", "/run")
_FILELESS_TYPES = ("autofs", "nsfs")
# Excludes disks, memory devices and the console. A host gets accelerators and tunnels only if the machine has them.
_DEVICES = "null zero full random urandom tty fuse net/tun kfd nvidia* dri infiniband"
_DEVICE_NUMBERS = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}
# Parameters of the host's own namespaces: `net` is in the network namespace, host name and domain name are in the UTS
# namespace, and the others are in the IPC namespace.
_OWN_SYSCTLS = (
    "net fs/mqueue kernel/hostname kernel/domainname kernel/shm* kernel/msg* kernel/sem* kernel/auto_msgmni"
)
# The last path is below the network settings, but applies to the whole kernel.
_READ_ONLY_PATHS = "sysrq-trigger irq mtrr bus fs acpi scsi sys/net/netfilter/nf_hooks_lwtunnel"
# Capabilities that would affect the machine: clock, modules, I/O ports, kernel log, device nodes, wake alarms.
DROPPED_CAPABILITIES = "-sys_time,-sys_module,-sys_rawio,-syslog,-mknod,-wake_alarm"


@dataclass(frozen=True, slots=True)
class MachineMount:
    """A mount of the machine that a host sees: a directory or a single file, with its mode and owner."""

    mount_point: str
    is_folder: bool
    mode: int
    user_id: int = 0
    group_id: int = 0


def parse_mounts(mountinfo: str) -> tuple[MachineMount, ...]:
    """Return the machine's mounts that contain files, from the content of /proc/self/mountinfo. Outer mounts are first.

    Skip mounts that cannot be inspected. A host sees the empty directory below them.
    """
    mounts = {}
    for line in mountinfo.splitlines():
        fields, _, filesystem_part = line.partition(" - ")
        mount_point = _unescape(fields.split(" ")[4])
        if filesystem_part.split(" ")[0] not in _FILELESS_TYPES and not _is_below(mount_point, _OWN_FOLDERS):
            mounts[mount_point] = _inspect_mount(mount_point)
    return tuple(mount for _, mount in sorted(mounts.items()) if mount is not None)


def _unescape(mount_point: str) -> str:
    r"""Decode a path of mountinfo, in which special characters such as spaces are octal numbers.

    >>> _unescape(r"/mnt/a\040b")
    '/mnt/a b'
    """
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), mount_point)


def _is_below(mount_point: str, folders: Iterable[str]) -> bool:
    return any(mount_point == folder or mount_point.startswith(f"{folder}/") for folder in folders)


def _inspect_mount(mount_point: str) -> MachineMount | None:
    try:
        status = Path(mount_point).stat()
    except OSError:
        return None
    is_folder = stat.S_ISDIR(status.st_mode)
    if not is_folder and not stat.S_ISREG(status.st_mode):
        return None
    return MachineMount(mount_point, is_folder, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)


def make_root_script(mounts: Sequence[MachineMount]) -> tuple[str, ...]:
    """Return shell lines that build a separate root file system and make it the root. Run them in new namespaces.

    With `set -e`, the script stops if the kernel refuses the overlay of `/`. Any other file system that does not
    support an overlay is read-only on the host.
    """
    return (
        f"mount -t tmpfs -o mode=755,size={OVERLAY_SIZE} tmpfs /run",
        "mkdir /run/root /run/lower /run/upper /run/work",
        *(line for number, mount in enumerate(mounts) for line in _make_mount_lines(number, mount)),
        "cd /run/root",
        *_make_device_lines(),
        *_make_kernel_lines(),
        "mount -t tmpfs -o mode=755,size=256m tmpfs run",
        "mkdir -m 1777 run/lock",
        "mkdir run/machine",
        "pivot_root . run/machine",
        "cd /",
        "umount -l /run/machine",
        "rmdir /run/machine",
    )


def _make_mount_lines(number: int, mount: MachineMount) -> list[str]:
    source, target = shlex.quote(mount.mount_point), shlex.quote(f"/run/root{mount.mount_point}")
    if not mount.is_folder:
        return [f"cp -p --remove-destination {source} {target}"]
    # Use numbers, because the machine's path may contain characters that overlay options do not allow.
    lower, upper, work = (f"/run/{part}/{number}" for part in ("lower", "upper", "work"))
    overlay = f"mount -t overlay -o lowerdir={lower},upperdir={upper},workdir={work} overlay {target}"
    if mount.mount_point != "/":
        overlay += f" 2>/dev/null || mount -o bind,ro {source} {target}"
    return [
        f"mkdir {lower} {upper} {work}",
        f"chmod {mount.mode:o} {upper}",
        *([f"chown {mount.user_id}:{mount.group_id} {upper}"] if mount.user_id or mount.group_id else []),
        f"mount --bind {source} {lower}",
        overlay,
    ]


def _make_device_lines() -> list[str]:
    """Return shell lines that fill dev: harmless device nodes, and separate terminals, shared memory and queues."""
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


def _make_kernel_lines() -> list[str]:
    """Return shell lines that mount proc and sys. Kernel parameters are read-only except the host's own."""
    return [
        "mount -t proc -o nosuid,nodev,noexec proc proc",
        "mount --bind proc/sys proc/sys",
        f"(cd proc/sys; for own in {_OWN_SYSCTLS}; do if [ -e $own ]; then mount --bind $own $own; fi; done)",
        "mount -o remount,bind,ro proc/sys",
        f"(cd proc; for path in {_READ_ONLY_PATHS}; do if [ -e $path ]; then mount -o bind,ro $path $path; fi; done)",
        "mount -t sysfs -o nosuid,nodev,noexec sysfs sys",
        "if [ -d sys/devices/virtual/net ]; then",
        "  mount --bind sys/devices/virtual/net sys/devices/virtual/net",
        "fi",
        "mount -o remount,bind,ro sys",
    ]


def check_device_nodes(folder: Path = Path("/dev")) -> None:
    """Raise `KernelFault` if a device node of the machine is not the device of its name. Hosts get copies of nodes."""
    for name, (major, minor) in _DEVICE_NUMBERS.items():
        try:
            status = (folder / name).stat()
        except FileNotFoundError:
            continue
        allowed_devices = [os.makedev(major, minor)] + [os.makedev(1, 9)] * (
            name == "random"
        )  # in some containers, random is the device urandom
        if not stat.S_ISCHR(status.st_mode) or status.st_rdev not in allowed_devices:
            node = folder / name
            raise KernelFault(
                f"{node} of this machine is not the device of that name; hosts would get a copy of the wrong device",
                hint=f"As root: rm {node}; mknod -m 666 {node} c {major} {minor}",
            )


def probe_own_root(mounts: Sequence[MachineMount], tool_paths: Mapping[str, str]) -> str:
    """Try to build a separate root. Return the error, or an empty text if the kernel supports it."""
    new_namespaces = ["--uts", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
    try:
        process = subprocess.run(
            [tool_paths["unshare"], *new_namespaces, "--propagation", "private", "/bin/sh", "-eus"],
            input="\n".join((*make_root_script(mounts), "")),
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
