"""Simulated hosts as sets of kernel namespaces, each with an OpenSSH server.

A host has its own network, hostname, processes, /run, /dev/shm and home directory. In /etc it has its own files
hostname, hosts, passwd and shadow. If the kernel supports overlays, the host also has its own root file system
(`own_root`). Otherwise it can write to the machine's root, and TMPDIR is a directory of its own.

Booting a host writes nothing on the machine. The host's first process reads a shell script from its standard input. The
script sets the host up in memory file systems, which disappear with the process. When the supervisor ends for any
reason, the kernel kills the first process of each host, and with it all other processes of the host.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from sim.twins.hosts.netns import KernelFault, run_batch, set_sysctls
from sim.twins.hosts.own_root import DROPPED_CAPABILITIES
from sim.twins.hosts.redirects import LinkShape
from sim.twins.hosts.spec import (
    COMMANDS_FOLDER,
    ETC_FOLDER,
    HOME_FOLDER,
    SEARCH_PATH,
    HostSpec,
    format_hosts_file,
)

MANAGEMENT_LINK = "mgmt"
_START_TIMEOUT_S = 20.0
# All hosts share a few processors, and these settings save a fifth of the processor time of a collective. The machine's
# congestion control may be BBR, which uses a timer for each flow, although the NIC's queue already limits the rate.
# TCP sends the data of a millisecond at once. On a slow link, that would be a single packet, so set a minimum: seven
# packets of 9000 bytes (the MTU of labs) are the 64 KiB that the kernel can send at once.
_TCP_SYSCTLS = {"ipv4/tcp_congestion_control": "reno", "ipv4/tcp_min_tso_segs": 7}
_PACKAGE_BY_TOOL = {
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
}


def find_tools(search_path: str = SEARCH_PATH) -> dict[str, str]:
    """Return the paths of the programs that a host needs, by name.

    Raise `KernelFault` if programs are missing. Its hint is the apt command that installs them.
    """
    path_by_tool: dict[str, str] = {}
    for tool in _PACKAGE_BY_TOOL:
        candidates = (Path(folder, tool) for folder in search_path.split(":"))
        path = next((str(candidate) for candidate in candidates if os.access(candidate, os.X_OK)), None)
        if path:
            path_by_tool[tool] = path
    missing_tools = [tool for tool in _PACKAGE_BY_TOOL if tool not in path_by_tool]
    if missing_tools:
        packages = " ".join(sorted({_PACKAGE_BY_TOOL[tool] for tool in missing_tools}))
        raise KernelFault(
            f"not installed on this machine: {', '.join(missing_tools)}",
            hint=f"apt-get install --no-install-recommends {packages}",
            code="no_sshd" if "sshd" in missing_tools else "no_tools",
        )
    return path_by_tool


def build_network(spec: HostSpec, shape: LinkShape) -> None:
    """Configure and set up the loopback, the management link and the NICs. NICs get a rate but no address."""
    set_sysctls(spec.namespace, _TCP_SYSCTLS)
    run_batch(
        "ip",
        [
            "link set lo up",
            f"addr add {spec.address} dev {MANAGEMENT_LINK}",
            f"link set {MANAGEMENT_LINK} up",
            *(f"link set {nic} up" for nic in spec.nics),
        ],
        spec.namespace,
    )
    run_batch("tc", [line for nic in spec.nics for line in shape.make_queue_commands(nic)], spec.namespace)


def format_sshd_config(spec: HostSpec) -> str:
    """Return the configuration of the SSH server. Only root can log in, with a key, in up to 200 sessions at once."""
    return f"""\
Port {spec.ssh_port}
ListenAddress {spec.address.ip}
HostKey {ETC_FOLDER}/ssh_host_ed25519_key
AuthorizedKeysFile {ETC_FOLDER}/authorized_keys
AuthenticationMethods publickey
PermitRootLogin prohibit-password
AllowUsers root
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PidFile none
PrintMotd no
PrintLastLog no
X11Forwarding no
Compression no
MaxStartups 200
MaxSessions 200
LogLevel INFO
SetEnv PATH={COMMANDS_FOLDER}:{SEARCH_PATH} TMPDIR=/run/tmp
Subsystem sftp internal-sftp
"""


def make_etc_files(
    spec: HostSpec, hosts: Iterable[HostSpec], machine_passwd: str, shell: str
) -> Mapping[str, str]:
    """Return the content of the host's own files in /etc, by name."""
    accounts = [line for line in machine_passwd.splitlines() if line and not line.startswith("root:")]
    return {
        "hostname": f"{spec.name}\n",
        "hosts": format_hosts_file(hosts),
        "passwd": "\n".join([f"root:x:0:0:root:{HOME_FOLDER}:{shell}", *accounts]) + "\n",
        # sshd refuses a locked root ("!") even with a key. "*" only means that no password is valid.
        "shadow": "root:*:19000:0:99999:7:::\n",
    }


def make_boot_script(
    spec: HostSpec,
    etc_files: Mapping[str, str],
    ssh_files: Mapping[str, str],
    tool_paths: Mapping[str, str],
    root_script: Sequence[str] = (),
    command_files: Mapping[str, str] | None = None,
) -> str:
    """Return the shell script that sets up a host in new namespaces, and then becomes its SSH server.

    `etc_files` maps names to files of /etc, `ssh_files` maps paths to other files, and `command_files` maps names to
    programs. `root_script` holds the shell lines that build a separate root. Without them, the host has the machine's
    root.
    """
    files = {
        **{f"{ETC_FOLDER}/{name}": text for name, text in etc_files.items()},
        f"{ETC_FOLDER}/sshd_config": format_sshd_config(spec),
        **ssh_files,
        **{f"{COMMANDS_FOLDER}/{name}": text for name, text in (command_files or {}).items()},
    }
    server_command = f"{tool_paths['sshd']} -D -e -f {ETC_FOLDER}/sshd_config"
    return "\n".join(
        [
            "set -eu",
            f"export PATH={SEARCH_PATH}",
            f"hostname {spec.name} 2>/dev/null || echo {spec.name} >/proc/sys/kernel/hostname",
            *(
                root_script
                or ("mount -t sysfs sysfs /sys", "mount -t tmpfs -o mode=755,size=256m tmpfs /run")
            ),
            "mount -t tmpfs -o mode=1777,size=256m tmpfs /dev/shm",
            f"mkdir -p -m 755 /run/sshd {ETC_FOLDER} {COMMANDS_FOLDER}",
            f"mkdir -p -m 700 {HOME_FOLDER} {HOME_FOLDER}/.ssh /run/tmp",
            "umask 077",
            *(f"printf %s {shlex.quote(text)} >{path}" for path, text in files.items()),
            f"chmod 644 {ETC_FOLDER}/hostname {ETC_FOLDER}/hosts {ETC_FOLDER}/passwd",
            *(_make_etc_lines(etc_files, has_own_root=bool(root_script))),
            *_make_command_lines(command_files or (), has_own_root=bool(root_script)),
            "umask 022",
            f"cd {HOME_FOLDER}",
            *(
                _make_server_lines(server_command, tool_paths)
                if root_script
                else [f"exec {server_command} </dev/null"]
            ),
            "",
        ]
    )


def _make_etc_lines(names: Iterable[str], *, has_own_root: bool) -> list[str]:
    """Return shell lines that install files in /etc: as copies if the host has its own root, else as bind mounts."""
    if has_own_root:
        return [f"cp -p --remove-destination {' '.join(f'{ETC_FOLDER}/{name}' for name in names)} /etc/"]
    return [f"[ ! -e /etc/{name} ] || mount --bind {ETC_FOLDER}/{name} /etc/{name}" for name in names]


def _make_command_lines(names: Iterable[str], *, has_own_root: bool) -> list[str]:
    """Return shell lines that make programs executable. If the host has its own root, link them in /usr/local/sbin.

    Through the links, the shell finds the programs without the PATH of SSH sessions.
    """
    paths = [f"{COMMANDS_FOLDER}/{name}" for name in names]
    links = [f"ln -sf {' '.join(paths)} /usr/local/sbin/"] if paths and has_own_root else []
    return [f"chmod 755 {' '.join(paths)}", *links] if paths else []


def _make_server_lines(server_command: str, tool_paths: Mapping[str, str]) -> list[str]:
    """Return shell lines that become the SSH server. Drop capabilities that affect the machine, if possible."""
    drop_prefix = f"{tool_paths['setpriv']} --bounding-set {DROPPED_CAPABILITIES}"
    return [
        f"less='{drop_prefix}'; $less true 2>/dev/null || less=",
        f"exec $less {server_command} </dev/null",
    ]


def _make_shell_command(spec: HostSpec, tool_paths: Mapping[str, str]) -> list[str]:
    """Return the command that runs a shell for the boot script in the namespaces of the host.

    It enters the network namespace and creates the others. When the supervisor ends, the kernel kills `unshare`
    (`setpriv --pdeathsig`), and then process 1 of the host (`--kill-child`).
    """
    command_prefix = [
        tool_paths["setpriv"],
        "--pdeathsig",
        "KILL",
        tool_paths["nsenter"],
        f"--net=/run/netns/{spec.namespace}",
    ]
    new_namespaces = ["--uts", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return [
        *command_prefix,
        tool_paths["unshare"],
        *new_namespaces,
        "--propagation",
        "private",
        "/bin/sh",
        "-s",
    ]


class HostTwin:
    """A running host. Start it from the main thread, because the kernel kills the host when that thread ends."""

    def __init__(self, spec: HostSpec, process: Process) -> None:
        self.spec = spec
        self._process = process
        self._last_log_lines: deque[str] = deque(maxlen=20)
        self._listening_event = asyncio.Event()
        self._log_task = asyncio.create_task(self._read_log())

    @classmethod
    async def start(cls, spec: HostSpec, script: str, tool_paths: Mapping[str, str]) -> HostTwin:
        """Boot a host, and return when its SSH server listens. Raise `KernelFault` with the output of the host."""
        process = await asyncio.create_subprocess_exec(
            *_make_shell_command(spec, tool_paths),
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=PIPE,
            start_new_session=True,
            env={"PATH": SEARCH_PATH},
        )
        host = cls(spec, process)
        try:
            await host._boot(script)
        except BaseException:
            await host.stop()
            raise
        return host

    async def _boot(self, script: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError, ConnectionResetError):
            self._process.stdin.write(script.encode())
            await self._process.stdin.drain()
        self._process.stdin.close()
        listening_task = asyncio.create_task(self._listening_event.wait())
        await asyncio.wait(
            {listening_task, self._log_task}, timeout=_START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
        )
        listening_task.cancel()
        if not self._listening_event.is_set():
            output = " | ".join(self._last_log_lines) or "nothing"
            raise KernelFault(f"host {self.spec.name} did not start; it printed: {output}", code="host")

    async def _read_log(self) -> None:
        """Store the last lines of the host's log, and set `_listening_event` when the SSH server listens."""
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            text = line.decode(errors="replace").strip()
            self._last_log_lines.append(text)
            if text.startswith("Server listening on"):
                self._listening_event.set()

    async def stop(self) -> None:
        """Kill the host with all its processes, and wait for its end."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        self._log_task.cancel()
        with suppress(asyncio.CancelledError):
            await self._log_task
