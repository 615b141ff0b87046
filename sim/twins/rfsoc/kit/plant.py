"""The photonic kit as a plant of the board, driven by four generators and read by one detector."""

from __future__ import annotations

import hashlib
import json
import math
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sim.models.photonics import pole
from sim.twins.rfsoc.address import whole
from sim.twins.rfsoc.kit import receiver
from sim.twins.rfsoc.kit.knobs import KNOBS, KitKnobs, turn
from sim.twins.rfsoc.kit.optics import DRIFT_STEP_S, Samples, delay_output, detect_power_w, draw_drift
from sim.twins.rfsoc.kit.parameters import MODULATORS, KitParameters, vary
from sim.twins.rfsoc.kit.state import KitState, Snapshot
from sim.twins.rfsoc.plant import Outputs, Received

if TYPE_CHECKING:
    from sim.twins.rfsoc.kit.bench import Bench

FACTORY_IDENTITY = "sim-kit-0001"
"""Identity of the kit with the modulators of `KitParameters`, the only one with a factory calibration."""

DETECTOR = 1
"""Readout that the detector is connected to, as in the published configuration."""

_MIN_RUN_LENGTH = 4
"""Mean length of runs of equal samples from which on the light is computed once for each run."""
KIT_OPTIONS = frozenset({"seed", "vary", *KNOBS})
"""Options of an address that apply to the kit: `seed` of all random numbers (an integer), `vary` (yes: random
modulators, from the seed), and every knob."""

STATE = frozenset(
    {
        *("laser", "shutter_open", "laser_dbm", "laser_dropped", "wavelength_nm", "bias_v"),
        *("polarisation_rad", "temperature_c", "drift", "drift_v_pi", "drift_time_s", "polarisation_rad2_s"),
        *("noise", "noise_lsb", "rin_db_hz", "thermal_a_rthz", "adc_enob", "jitter_s"),
    }
)
"""Fields that do not identify a device: settings, drift and noise."""


class PhotonicKit:
    """A laser, four modulators in two arms, a detector and an amplifier, between generators and readouts.

    Generators 0 to 3 drive modulators 0 to 3; a modulator without a generator (if a smaller board has fewer
    `generators`) stays at its bias. One readout (`DETECTOR`) receives the light, the others only the noise of their
    own converters. Levels are exact in float64; with `noise` off, the results are deterministic.
    """

    def __init__(
        self,
        parameters: KitParameters | None = None,
        *,
        identity: str = FACTORY_IDENTITY,
        generators: int = MODULATORS,
    ) -> None:
        self.identity = identity
        self.state = KitState(KitParameters() if parameters is None else parameters)
        self.knobs = KitKnobs(self.state)
        self._driven = min(generators, MODULATORS)
        self._bench: Bench | None = None
        self._bench_lock = threading.Lock()
        self._unspent_s = 0.0

    @property
    def version(self) -> int:
        """Number that changes with every change of the kit."""
        return self.state.now.version

    def factory_calibration(self) -> dict[str, Any] | None:
        """Return the factory calibration document of this device, or None if it has none.

        The document was measured like any other, on a kit with default knobs and no drift.
        """
        path = resources.files(__package__) / "factory_calibration.json"
        if self.identity != FACTORY_IDENTITY or not path.is_file():
            return None
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return document

    @property
    def instruments(self) -> Bench:
        """Laboratory instruments of the kit; they start to serve with the first call of `bench`."""
        from sim.twins.rfsoc.kit.bench import Bench

        with self._bench_lock:
            if self._bench is None:
                self._bench = Bench(self.state, self.identity)
                weakref.finalize(self, self._bench.signal_end).atexit = False
            return self._bench

    def bench(self) -> dict[str, str]:
        """Return the VISA resources of the instruments on the loopback interface, by role: laser, bias, meter."""
        return self.instruments.resources()

    def close(self) -> None:
        """Stop the instruments, if they were started."""
        if self._bench is not None:
            self._bench.close()

    def elapse(self, seconds: float) -> None:
        """Advance device time. The kit drifts when at least a second has accumulated; until then `version` stays."""
        self._unspent_s += seconds
        if self._unspent_s >= DRIFT_STEP_S:
            spent_s, self._unspent_s = self._unspent_s, 0.0
            if self.state.now.parameters.drift:
                self.state.drift(partial(draw_drift, seconds=spent_s))

    def receive(self, readout: int, rate_hz: float, first: int, count: int, outputs: Outputs) -> Received:
        """Return the signal at a readout, as `Plant.receive` specifies."""
        now = self.state.now
        kit = now.parameters
        if readout != DETECTOR:
            dark = np.zeros(count)
            return Received(dark, dark, 0.0, receiver.converter_noise(kit, dark, dark))
        light_a, slope_a_s = _compute_light(now, self._driven, rate_hz, first, count, outputs)
        correlation = 0.0 if kit.noise == "constant" else receiver.memory(kit, rate_hz)
        return Received(
            receiver.level(kit, light_a),
            receiver.noise(kit, light_a),
            correlation,
            receiver.converter_noise(kit, light_a, slope_a_s),
        )


def _compute_light(
    now: Snapshot, driven: int, rate_hz: float, first: int, count: int, outputs: Outputs
) -> tuple[Samples, Samples]:
    """Return the photocurrent at the converter's samples after the receiver's pole, in A, and its slope in A/s.

    The light is computed at the sample rate of the generators, at which it changes.
    """
    kit = now.parameters
    fine_hz = outputs.rate_hz(0)
    ratio = round(fine_hz / rate_hz, 9)
    begin = math.floor(first * ratio)
    warm = receiver.count_remembered(kit, fine_hz)
    length = math.ceil((first + count - 1) * ratio) + 1 - begin + warm
    drives = _compute_drives(kit, driven, fine_hz, begin - warm, length, outputs)
    before_a = receiver.current_a(kit, _power_w(now, drives))
    if len(before_a) == 1:
        return np.full(count, before_a[0]), np.zeros(count)
    behind_a = pole.response(before_a, receiver.memory(kit, fine_hz))
    slope_a_s = receiver.slope_a_s(kit, before_a, behind_a)
    place = first * ratio - begin + warm
    return _sample(behind_a, ratio, place, count), _sample(slope_a_s, ratio, place, count)


def _compute_drives(
    kit: KitParameters, driven: int, rate_hz: float, first: int, count: int, outputs: Outputs
) -> list[Samples]:
    """Return the drive of each modulator, (count,), or (1,) if constant; zero for all but the first `driven`."""
    drives = [np.zeros(1) for _ in kit.modulators]
    for index, one in enumerate(kit.modulators[:driven]):
        delay_s = (kit.delay_ns + one.skew_ns) * 1e-9
        drives[index] = delay_output(
            outputs, index, rate_hz=rate_hz, first=first, count=count, delay_s=delay_s
        )
    return drives


def _power_w(now: Snapshot, drives: Sequence[Samples]) -> Samples:
    """Return the power on the detector in W, computed once for each run of samples without a change of a drive."""
    starts = _find_constant_runs(drives)
    if len(starts) == 0:
        return detect_power_w(now, drives)
    count = max(len(drive) for drive in drives)
    power_w = detect_power_w(now, [drive[starts] if len(drive) > 1 else drive for drive in drives])
    return np.repeat(power_w, np.diff(starts, append=count))


def _find_constant_runs(drives: Sequence[Samples]) -> npt.NDArray[np.intp]:
    """Return the first sample of each run of equal samples; empty if grouping would not save time."""
    varying = [drive for drive in drives if len(drive) > 1]
    if not varying:
        return np.zeros(0, np.intp)
    changes = np.zeros(len(varying[0]), bool)
    changes[0] = True
    for drive in varying:
        changes[1:] |= drive[1:] != drive[:-1]
    starts = np.flatnonzero(changes)
    return starts if len(starts) * _MIN_RUN_LENGTH <= len(changes) else np.zeros(0, np.intp)


def _sample(fine: Samples, ratio: float, start: float, count: int) -> Samples:
    """Return `count` samples of the converter, `ratio` samples of the time line apart, the first at `start`."""
    if ratio == int(ratio):
        return fine[int(start) :: int(ratio)][:count]
    return np.asarray(np.interp(start + np.arange(count) * ratio, np.arange(len(fine)), fine))


def photonic_kit(options: Mapping[str, str], *, board: str = "", generators: int = MODULATORS) -> PhotonicKit:
    """Return the kit that the options describe, on a board with a number of generators.

    Without `vary`, the device is always `sim-kit-0001`; the seed only determines noise and drift. Other properties
    (`v_pi_0=5.8`) or another `board` make another device with another identity (`sim-kit-0001-7dc1bb`,
    `sim-kit-0001-zcu216`), so that no device gets the calibration of another.
    Raise `UnknownKnob` for an unknown option, and `ValueError` for an invalid value.
    """
    knobs = {name: value for name, value in options.items() if name not in ("seed", "vary")}
    seed = whole("seed", options.get("seed", "1"))
    parameters = replace(KitParameters(), seed=seed)
    text = options.get("vary", "no")
    if text not in ("yes", "no"):
        raise ValueError(f"vary must be yes or no, not {text!r}")
    is_varied = text == "yes"
    if is_varied:
        parameters = vary(parameters, seed)
    identity = f"sim-kit-varied-{seed:04d}" if is_varied else FACTORY_IDENTITY
    changed = turn(parameters, knobs)
    identity = "-".join([identity, *_digest_changes(parameters, changed, knobs), *([board] if board else [])])
    return PhotonicKit(changed, identity=identity, generators=generators)


def _digest_changes(nominal: KitParameters, changed: KitParameters, names: Mapping[str, str]) -> list[str]:
    """Return a list with a short digest of the changed properties, empty if the options leave the same device."""
    differences = [
        f"{name}={KNOBS[name].read(changed)!r}"
        for name in sorted(names)
        if KNOBS[name].field not in STATE and KNOBS[name].read(changed) != KNOBS[name].read(nominal)
    ]
    return [hashlib.sha256("&".join(differences).encode()).hexdigest()[:6]] if differences else []
