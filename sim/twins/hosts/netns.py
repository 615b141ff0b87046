"""Named kernel network namespaces: creation, removal, processes, and calls inside a namespace.

All functions need Linux, and most need root. `run_batch` runs one `ip` or `tc` process for any number of commands.
`call_in_namespace` and `bind_in_namespace` start no process: a new thread enters the namespace. The kernel keeps the
current network namespace of each thread separately, so the other threads are not affected.
"""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import os
import re
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeVar

from lightbed.errors import LightbedError

_CLONE_NEWNET = 0x40000000
_NAMESPACE_FOLDER = Path("/run/netns")
_COMMAND_TIMEOUT_S = 30.0
_READY_TIMEOUT_S = 5.0
# <linux/sockios.h>, <linux/ethtool.h>, <linux/if.h>
_SIOCGIFFLAGS, _SIOCETHTOOL, _ETHTOOL_GLINK = 0x8913, 0x8946, 0x0A
_IFF_UP, _IFF_RUNNING = 0x01, 0x40
_libc = ctypes.CDLL(None, use_errno=True)

T = TypeVar("T")


class KernelFault(LightbedError):
    """A failure of the kernel, or of a program that configures it.

    `code` is a stable identifier for programs. `hint` tells a person what to do.
    """

    def __init__(self, problem: str, *, hint: str = "", code: str = "kernel") -> None:
        self.what = problem
        self.hint = hint
        self.code = code
        super().__init__(f"{problem}. {hint}" if hint else problem)


def run_batch(tool: Literal["ip", "tc"], lines: Sequence[str], namespace: str | None = None) -> None:
    """Run `lines` in order with one `ip -batch` or `tc -batch`, and stop at the first line that fails.

    Raise `KernelFault` with the failed line and the tool's error. Without lines, do nothing.
    """
    if not lines:
        return
    command = [tool, *(["-n", namespace] if namespace else []), "-batch", "-"]
    text = "".join(f"{line}\n" for line in lines)
    try:
        process = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False
        )
    except FileNotFoundError as error:
        hint = "apt-get install --no-install-recommends iproute2"
        raise KernelFault(f"{tool} is not installed", hint=hint, code="no_tools") from error
    except subprocess.TimeoutExpired as error:
        raise KernelFault(f"`{tool} -batch` gave no answer for {_COMMAND_TIMEOUT_S:g} s") from error
    if process.returncode != 0:
        raise KernelFault(_find_failed_line(tool, lines, process.stderr))


def _find_failed_line(tool: str, lines: Sequence[str], stderr: str) -> str:
    """Return an error message with the failed line of a batch and the tool's output, which has the line number."""
    match = re.search(r"Command failed -:(\d+)", stderr)
    line = lines[int(match.group(1)) - 1] if match else lines[0]
    output = " ".join(part for part in stderr.splitlines() if not part.startswith("Command failed"))
    return f"`{tool} {line}` failed: {output.strip()}"


def add_namespaces(names: Iterable[str]) -> None:
    """Create named network namespaces. Raise `KernelFault` with code `no_namespaces` if that is not permitted."""
    try:
        run_batch("ip", [f"netns add {name}" for name in names])
    except KernelFault as error:
        hint = "Run where root may create network namespaces (CAP_SYS_ADMIN), or set `hosts_mode` to `model`"
        raise KernelFault(error.what, hint=hint, code="no_namespaces") from error


def delete_namespaces(names: Iterable[str]) -> None:
    """Remove named namespaces, if they exist. The kernel removes their links once no process uses them."""
    present_names = set(list_namespaces())
    run_batch("ip", [f"netns del {name}" for name in names if name in present_names])


def list_namespaces(prefix: str = "") -> tuple[str, ...]:
    """Return the sorted names of the machine's network namespaces that start with `prefix`."""
    with suppress(FileNotFoundError):
        return tuple(
            sorted(path.name for path in _NAMESPACE_FOLDER.iterdir() if path.name.startswith(prefix))
        )
    return ()


def list_processes(namespaces: Iterable[str]) -> tuple[int, ...]:
    """Return the ids of the processes in any of the named namespaces."""
    identities = {
        identity
        for name in namespaces
        if (identity := _read_namespace_identity(_NAMESPACE_FOLDER / name)) is not None
    }
    if not identities:
        return ()
    processes = (path for path in Path("/proc").iterdir() if path.name.isdecimal())
    return tuple(
        int(path.name) for path in processes if _read_namespace_identity(path / "ns/net") in identities
    )


def _read_namespace_identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode that identify a namespace, or None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def end_processes(namespaces: Sequence[str], timeout_s: float = 5.0) -> None:
    """Kill all processes in the named namespaces, and wait until they have ended.

    Raise `KernelFault` with the remaining processes if some still run after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while remaining_processes := list_processes(namespaces):
        if time.monotonic() > deadline:
            raise KernelFault(
                f"processes {remaining_processes} in {', '.join(namespaces)} do not end", code="stuck"
            )
        for pid in remaining_processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def call_in_namespace(namespace: str, function: Callable[[], T]) -> T:
    """Call `function` in a new thread inside the named network namespace, and return its result."""

    def enter() -> T:
        _enter_namespace(namespace)
        return function()

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix=namespace) as thread:
        return thread.submit(enter).result()


def await_links_ready(namespace: str, links: Iterable[str]) -> None:
    """Wait until links can send. Do not wait for links that are missing or set down.

    A link shows its carrier at once, but a kernel worker attaches the queue of the link later. Until then, the kernel
    silently drops packets. Raise `KernelFault` if this takes longer than `_READY_TIMEOUT_S`.
    """
    call_in_namespace(namespace, lambda: _await_links_ready(namespace, links))


def _await_links_ready(namespace: str, links: Iterable[str]) -> None:
    deadline = time.monotonic() + _READY_TIMEOUT_S
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for link in links:
            while not _is_link_ready(sock, link):
                if time.monotonic() > deadline:
                    raise KernelFault(f"{link} in {namespace} has light, but does not come up", code="stuck")
                time.sleep(0.001)


def _is_link_ready(sock: socket.socket, link: str) -> bool:
    """Return True if a link can send, or if it is missing or set down."""
    try:
        flags = _read_flags(sock, link)
        # Reading the carrier makes newer kernels (6.8) attach the queue now; older kernels attach it by themselves.
        carrier = array.array("I", [_ETHTOOL_GLINK, 0])
        fcntl.ioctl(sock, _SIOCETHTOOL, struct.pack("16sP", link.encode(), carrier.buffer_info()[0]))
    except OSError as error:
        if error.errno == errno.ENODEV:
            return True
        raise
    return not flags & _IFF_UP or bool(flags & _IFF_RUNNING)


def _read_flags(sock: socket.socket, link: str) -> int:
    reply = fcntl.ioctl(sock, _SIOCGIFFLAGS, struct.pack("16sh14x", link.encode(), 0))
    return int(struct.unpack_from("16sh", reply)[1])


def _enter_namespace(namespace: str) -> None:
    """Move the calling thread into the named namespace permanently. Raise `KernelFault` if that fails."""
    try:
        handle = os.open(_NAMESPACE_FOLDER / namespace, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise KernelFault(f"network namespace {namespace} does not exist") from error
    try:
        if _libc.setns(handle, _CLONE_NEWNET) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise KernelFault(f"cannot enter the network namespace {namespace}: {reason}")
    finally:
        os.close(handle)


def bind_in_namespace(namespace: str | None, host: str, port: int) -> socket.socket:
    """Return a TCP socket that is bound to `host:port` inside a namespace (None for the current one).

    Raise `KernelFault` if that fails, with code `address_in_use` if the address is in use.
    """
    from sim.twins.wire.listener import bind_socket  # imports asyncio, which a list of labs does not need

    try:
        if namespace is None:
            return bind_socket(host, port)
        return call_in_namespace(namespace, lambda: bind_socket(host, port))
    except OSError as error:
        raise KernelFault(
            f"cannot listen on {host}:{port}: {error.strerror}",
            hint="Free the address, or give the lab another subnet",
            code="address_in_use" if error.errno == errno.EADDRINUSE else "kernel",
        ) from error


def set_sysctls(namespace: str, values: Mapping[str, object]) -> None:
    """Write kernel parameters under `net/` of the namespace. Keys are paths such as `ipv6/conf/all/x`.

    Skip parameters that the kernel does not have. Raise `KernelFault` if /proc/sys is not writable, as in many
    containers.
    """

    def write() -> None:
        for key, value in values.items():
            write_sysctl(key, value)

    call_in_namespace(namespace, write)


def write_sysctl(key: str, value: object) -> None:
    """Write one kernel parameter in the network namespace of the calling thread. See `set_sysctls` for errors."""
    try:
        Path("/proc/sys/net", key).write_text(f"{value}\n")
    except FileNotFoundError:
        return
    except OSError as error:
        raise KernelFault(
            f"cannot set net/{key}: {error.strerror}",
            hint="Run where root may write /proc/sys, or set `hosts_mode` to `model`",
            code="no_sysctl",
        ) from error
