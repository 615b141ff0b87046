"""Installed software, and whether it goes together."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from lightbed.wording import install_extra
from lightning import name_conflict
from lightning.doctor.finding import Finding, State
from lightning.doctor.purposes import purposes
from lightning.kit.calibration import store

QICK = (0, 2, 436)
"""The version that programs here are made for, and tested with."""
LIBRARIES: Mapping[str, tuple[State, str, str]] = {
    "qick": ("bad", "programs cannot be compiled, and the twin cannot run", "qick"),
    "Pyro4": ("warning", "boards in the network (qick://HOST) cannot be reached", "qick"),
    "psutil": ("warning", "boards in the network (qick://HOST) cannot be reached", "qick"),
    "matplotlib": ("warning", "no plots can be drawn", "kit"),
    "numba": ("warning", "the twin is many times slower", "kit"),
    "pyvisa": ("warning", "laser, bias supply and power meter cannot be used", "visa"),
}
"""How bad it is without a library, what is lost, and the extra that brings it."""
PYRO_PORT = 8888


def environment() -> Iterator[Finding]:
    """Return what is installed here, and whether it goes together."""
    yield name_clash(sys.path)
    yield from versions(installed(), platform.machine())
    yield from purposes()
    yield calibrations(store.folder())
    yield servers(listening())


def name_clash(path: Sequence[str]) -> Finding:
    """PyTorch Lightning is a package of the same name."""
    foreign = name_conflict.find_foreign(path)
    if foreign:
        return Finding("name", "bad", f"another package named lightning: {foreign}", name_conflict.HINT)
    loss = name_conflict.find_loss(name_conflict.__file__)
    if loss:
        hint = "a copy is used in its place; install lightbed again for the command `lightning` and for type checkers"
        return Finding("name", "warning", f"{loss} went with another package named lightning", hint)
    return Finding("name", "ok", "no other package is named lightning (PyTorch Lightning would be)")


def installed() -> dict[str, str]:
    """Version of every library that matters, as far as it is here."""
    found = {}
    for library in ("numpy", "pynq", *LIBRARIES):
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return found


def versions(found: Mapping[str, str], machine: str) -> Iterator[Finding]:
    """Return the libraries that are missing, too old, or do not go together on a `machine` such as "x86_64"."""
    yield _numpy(found)
    for library, (state, lost, extra) in LIBRARIES.items():
        if library in found:
            yield Finding(library, "ok", found[library])
        else:
            hint = install_extra(extra)
            yield Finding(library, state, f"not installed: {lost}", hint)
    if "qick" in found and numbers(found["qick"]) < QICK:
        wanted = ".".join(map(str, QICK))
        yield Finding(
            "qick's version",
            "warning",
            f"{found['qick']}, and this is made for {wanted}",
            f"pip install 'qick>={wanted}'",
        )
    if "pynq" in found:
        yield _pynq(found, machine)


def _numpy(found: Mapping[str, str]) -> Finding:
    version = found.get("numpy", "not installed")
    if numbers(version) < (1, 26):
        return Finding("numpy", "bad", f"{version}, and 1.26 is the least", "pip install 'numpy>=1.26'")
    return Finding("numpy", "ok", version)


def _pynq(found: Mapping[str, str], machine: str) -> Finding:
    pynq, numpy = found["pynq"], found.get("numpy", "0")
    if machine in ("aarch64", "armv7l") and "qick" in found and numbers(pynq) >= (3, 1):
        return Finding(
            "pynq",
            "bad",
            f"{pynq}: QICK refuses PYNQ 3.1 and later on a board",
            "use an image with PYNQ 2.7 or 3.0.1, or drive the board from another computer (qick://HOST)",
        )
    if numbers(pynq) >= (4,) and numbers(numpy) >= (2,):
        return Finding(
            "pynq",
            "warning",
            f"{pynq} wants numpy below 2, and numpy is {numpy}",
            f"give PYNQ an environment of its own: {install_extra('pynq')}",
        )
    return Finding("pynq", "ok", pynq)


def numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers that can be compared; () where there are none.

    >>> numbers("0.2.436"), numbers("2.1rc1") < (2, 2)
    ((0, 2, 436), True)
    """
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def calibrations(folder: Path) -> Finding:
    """Return where calibrations are kept."""
    kept = len(list(folder.glob("*.json"))) if folder.is_dir() else 0
    return Finding("calibrations", "ok", f"{kept} kept in {folder}")


def listening() -> list[tuple[str, int]] | None:
    """Return the (address, port) of everything that listens on this machine; None where nobody says."""
    try:
        import psutil
    except ImportError:
        return None
    try:
        sockets = psutil.net_connections(kind="tcp")
    except (OSError, psutil.Error):
        return None
    return [(each.laddr.ip, each.laddr.port) for each in sockets if each.status == psutil.CONN_LISTEN]


def servers(found: Sequence[tuple[str, int]] | None) -> Finding:
    """Return a Pyro4 name server on this machine that others can reach: whoever reaches it can run anything here."""
    if found is None:
        return Finding("Pyro4 server", "ok", "not looked for (psutil cannot see the sockets)")
    open_to = sorted(
        {ip for ip, port in found if port == PYRO_PORT and not ip.startswith("127.") and ip != "::1"}
    )
    if open_to:
        return Finding(
            "Pyro4 server",
            "warning",
            f"port {PYRO_PORT} is open on {', '.join(open_to)}: Pyro4 authenticates nobody and runs what it is sent",
            "serve on the loopback interface or in a network of its own, and close the port in the firewall",
        )
    return Finding("Pyro4 server", "ok", f"nothing listens on port {PYRO_PORT} for other machines")
