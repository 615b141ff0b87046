"""Kernel network namespaces: made by name, entered by one thread at a time, removed with all that runs in them.

Everything here needs root and Linux. `batch` runs one `ip` or `tc` process for any number of lines;
`call_in` and `socket_in` enter a namespace without a process, in a thread of their own: the kernel keeps
a network namespace per thread, so the rest of the program stays where it is.
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
_NAMED = Path("/run/netns")
_COMMAND_TIMEOUT_S = 30.0
_READY_TIMEOUT_S = 5.0
# <linux/sockios.h>, <linux/ethtool.h>, <linux/if.h>
_SIOCGIFFLAGS, _SIOCETHTOOL, _ETHTOOL_GLINK = 0x8913, 0x8946, 0x0A
_IFF_UP, _IFF_RUNNING = 0x01, 0x40
_libc = ctypes.CDLL(None, use_errno=True)

T = TypeVar("T")


class KernelFault(LightbedError):
    """The kernel, or a program that we run on it, did not do what we asked.

    `code` is a stable word for programs, `hint` says what a person can do.
    """

    def __init__(self, what: str, *, hint: str = "", code: str = "kernel") -> None:
        self.what = what
        self.hint = hint
        self.code = code
        super().__init__(f"{what}. {hint}" if hint else what)


def batch(tool: Literal["ip", "tc"], lines: Sequence[str], namespace: str | None = None) -> None:
    """Run `lines` in order as one `ip -batch` or `tc -batch`; stop at the first that fails.

    Raises `KernelFault` naming the line and the error of the tool. No lines, no process.
    """
    if not lines:
        return
    command = [tool, *(["-n", namespace] if namespace else []), "-batch", "-"]
    text = "".join(f"{line}\n" for line in lines)
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False
        )
    except FileNotFoundError as error:
        hint = "apt-get install --no-install-recommends iproute2"
        raise KernelFault(f"{tool} is not installed", hint=hint, code="no_tools") from error
    except subprocess.TimeoutExpired as error:
        raise KernelFault(f"`{tool} -batch` gave no answer for {_COMMAND_TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        raise KernelFault(_find_failed_line(tool, lines, done.stderr))


def _find_failed_line(tool: str, lines: Sequence[str], stderr: str) -> str:
    """Return the line of a batch that failed, as the tool numbers it, with the tool's own words."""
    at = re.search(r"Command failed -:(\d+)", stderr)
    line = lines[int(at.group(1)) - 1] if at else lines[0]
    output = " ".join(part for part in stderr.splitlines() if not part.startswith("Command failed"))
    return f"`{tool} {line}` failed: {output.strip()}"


def add(names: Iterable[str]) -> None:
    """Make network namespaces of these names. Raises `KernelFault` with code `no_namespaces` if it may not."""
    try:
        batch("ip", [f"netns add {name}" for name in names])
    except KernelFault as error:
        hint = "Run where root may make network namespaces (CAP_SYS_ADMIN), or choose hosts_mode model"
        raise KernelFault(error.what, hint=hint, code="no_namespaces") from error


def delete(names: Iterable[str]) -> None:
    """Remove the named namespaces that exist. Their links go with them once nothing runs there."""
    present = set(list_namespaces())
    batch("ip", [f"netns del {name}" for name in names if name in present])


def list_namespaces(prefix: str = "") -> tuple[str, ...]:
    """Return names of the machine's named network namespaces that start with `prefix`, sorted."""
    with suppress(FileNotFoundError):
        return tuple(sorted(path.name for path in _NAMED.iterdir() if path.name.startswith(prefix)))
    return ()


def pids(names: Iterable[str]) -> tuple[int, ...]:
    """Return processes that live in any of the named namespaces, in one pass over /proc."""
    wanted = {identity for name in names if (identity := _identity(_NAMED / name)) is not None}
    if not wanted:
        return ()
    processes = (path for path in Path("/proc").iterdir() if path.name.isdecimal())
    return tuple(int(path.name) for path in processes if _identity(path / "ns/net") in wanted)


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode, which identify a namespace; None when it is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def end_processes(names: Sequence[str], timeout_s: float = 5.0) -> None:
    """Kill everything that runs in the named namespaces and wait until it is gone.

    Raises `KernelFault` naming what is left after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while left := pids(names):
        if time.monotonic() > deadline:
            raise KernelFault(f"processes {left} in {', '.join(names)} do not end", code="stuck")
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def call_in(namespace: str, function: Callable[[], T]) -> T:
    """Call `function` in a thread that has entered the named network namespace, and end the thread."""

    def enter() -> T:
        _enter(namespace)
        return function()

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix=namespace) as thread:
        return thread.submit(enter).result()


def await_ready(namespace: str, links: Iterable[str]) -> None:
    """Wait until those of `links` that are set up, and whose far ends are, can send.

    A link shows its carrier at once, but the kernel attaches its queue later, in a worker, and drops without a word
    what is sent before. Raises `KernelFault` when that takes too long.
    """
    call_in(namespace, lambda: _await_ready(namespace, links))


def _await_ready(namespace: str, links: Iterable[str]) -> None:
    deadline = time.monotonic() + _READY_TIMEOUT_S
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for link in links:
            while not _is_ready(asking, link):
                if time.monotonic() > deadline:
                    raise KernelFault(f"{link} in {namespace} has light, but does not come up", code="stuck")
                time.sleep(0.001)


def _is_ready(asking: socket.socket, link: str) -> bool:
    """Return True if a link can send; so is one that is gone or set down, for there is nothing to wait for."""
    try:
        flags = _flags(asking, link)
        # Asking for the carrier makes new kernels (6.8) attach the queue now, and others finish what they have begun.
        carrier = array.array("I", [_ETHTOOL_GLINK, 0])
        fcntl.ioctl(asking, _SIOCETHTOOL, struct.pack("16sP", link.encode(), carrier.buffer_info()[0]))
    except OSError as error:
        if error.errno == errno.ENODEV:
            return True
        raise
    return not flags & _IFF_UP or bool(flags & _IFF_RUNNING)


def _flags(asking: socket.socket, link: str) -> int:
    reply = fcntl.ioctl(asking, _SIOCGIFFLAGS, struct.pack("16sh14x", link.encode(), 0))
    return int(struct.unpack_from("16sh", reply)[1])


def _enter(namespace: str) -> None:
    """Move the calling thread into the named namespace, for good."""
    try:
        handle = os.open(_NAMED / namespace, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise KernelFault(f"there is no network namespace {namespace}") from error
    try:
        if _libc.setns(handle, _CLONE_NEWNET) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise KernelFault(f"cannot enter the network namespace {namespace}: {reason}")
    finally:
        os.close(handle)


def socket_in(namespace: str | None, host: str, port: int) -> socket.socket:
    """Return a TCP socket bound to `host:port` inside the namespace (None: where we are), ready to listen.

    Raises `KernelFault`, with code `address_in_use` when somebody else has the address.
    """
    from sim.twins.wire.listener import bind_socket  # imports asyncio, which listing labs does without

    try:
        if namespace is None:
            return bind_socket(host, port)
        return call_in(namespace, lambda: bind_socket(host, port))
    except OSError as error:
        raise KernelFault(
            f"cannot listen on {host}:{port}: {error.strerror}",
            hint="Free the address, or give the lab another subnet",
            code="address_in_use" if error.errno == errno.EADDRINUSE else "kernel",
        ) from error


def set_sysctls(namespace: str, values: Mapping[str, object]) -> None:
    """Write kernel parameters under `net/` of the namespace; keys are paths such as `ipv6/conf/all/x`.

    A parameter that this kernel lacks is left out: there is nothing to switch off then. Raises `KernelFault`
    where /proc/sys may not be written, as in many containers.
    """

    def write() -> None:
        for key, value in values.items():
            write_sysctl(key, value)

    call_in(namespace, write)


def write_sysctl(key: str, value: object) -> None:
    """Write one kernel parameter in the network namespace of the calling thread; see `set_sysctls`."""
    try:
        Path("/proc/sys/net", key).write_text(f"{value}\n")
    except FileNotFoundError:
        return
    except OSError as error:
        raise KernelFault(
            f"cannot set net/{key}: {error.strerror}",
            hint="Run where root may write /proc/sys, or choose hosts_mode model",
            code="no_sysctl",
        ) from error
