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
from sim.twins.rfsoc.address import parse_integer
from sim.twins.rfsoc.kit import receiver
from sim.twins.rfsoc.kit.knobs import KNOBS, KitKnobs, set_knobs
from sim.twins.rfsoc.kit.optics import (
    DRIFT_STEP_S,
    Samples,
    compute_detector_power_w,
    delay_output,
    draw_drift,
)
from sim.twins.rfsoc.kit.parameters import MODULATOR_COUNT, KitParameters, vary_modulators
from sim.twins.rfsoc.kit.state import KitState, Snapshot
from sim.twins.rfsoc.plant import Outputs, ReceivedSignal

if TYPE_CHECKING:
    from sim.twins.rfsoc.kit.bench import Bench

FACTORY_IDENTITY = "sim-kit-0001"
"""Identity of the kit with the default modulators of `KitParameters`. Only this kit has a factory calibration."""

DETECTOR_READOUT = 1
"""Readout that is connected to the detector, as in the published configuration."""

_MIN_RUN_LENGTH = 4
"""Minimum mean length of runs of equal samples for which the light is computed only once for each run."""
KIT_OPTIONS = frozenset({"seed", "vary", *KNOBS})
"""Options of an address that apply to the kit: `seed` (an integer, for all random numbers), `vary` (`yes` draws the
modulators at random), and every knob."""

STATE_FIELDS = frozenset(
    {
        *("laser", "shutter_open", "laser_dbm", "laser_dropped", "wavelength_nm", "bias_v"),
        *("polarisation_rad", "temperature_c", "drift", "drift_v_pi", "drift_time_s", "polarisation_rad2_s"),
        *("noise", "noise_lsb", "rin_db_hz", "thermal_a_rthz", "adc_enob", "jitter_s"),
    }
)
"""Fields that do not identify a device: settings, drift and noise."""


class PhotonicKit:
    """A laser, four modulators in two arms, a detector and an amplifier, between generators and readouts.

    Generators 0 to 3 drive modulators 0 to 3. If a smaller board has fewer generators, the other modulators stay at
    their bias. The readout `DETECTOR_READOUT` receives the light. Other readouts receive only the noise of their
    converters. Levels are exact in float64. With `noise` off, the results are deterministic.
    """

    def __init__(
        self,
        parameters: KitParameters | None = None,
        *,
        identity: str = FACTORY_IDENTITY,
        generator_count: int = MODULATOR_COUNT,
    ) -> None:
        self.identity = identity
        self.state = KitState(KitParameters() if parameters is None else parameters)
        self.knobs = KitKnobs(self.state)
        self._driven_count = min(generator_count, MODULATOR_COUNT)
        self._bench: Bench | None = None
        self._bench_lock = threading.Lock()
        self._pending_drift_s = 0.0

    @property
    def version(self) -> int:
        """Number that changes with every change of the kit."""
        return self.state.snapshot.version

    def factory_calibration(self) -> dict[str, Any] | None:
        """Return the factory calibration document of this device, or None if it has none.

        The document was measured like any other calibration, on a kit with default knobs and without drift.
        """
        path = resources.files(__package__) / "factory_calibration.json"
        if self.identity != FACTORY_IDENTITY or not path.is_file():
            return None
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return document

    @property
    def instruments(self) -> Bench:
        """Laboratory instruments of the kit. The first call of `bench` makes them serve."""
        from sim.twins.rfsoc.kit.bench import Bench

        with self._bench_lock:
            if self._bench is None:
                self._bench = Bench(self.state, self.identity)
                weakref.finalize(self, self._bench.request_stop).atexit = False
            return self._bench

    def bench(self) -> dict[str, str]:
        """Return the VISA resources of the instruments on the loopback interface, by role: laser, bias, meter."""
        return self.instruments.get_resources()

    def close(self) -> None:
        """Stop the instruments, if they were started."""
        if self._bench is not None:
            self._bench.close()

    def elapse(self, duration_s: float) -> None:
        """Advance device time. The kit drifts, and `version` changes, when at least a second has accumulated."""
        self._pending_drift_s += duration_s
        if self._pending_drift_s >= DRIFT_STEP_S:
            elapsed_s, self._pending_drift_s = self._pending_drift_s, 0.0
            if self.state.snapshot.parameters.drift:
                self.state.apply_drift(partial(draw_drift, duration_s=elapsed_s))

    def receive(
        self, readout: int, rate_hz: float, first: int, count: int, outputs: Outputs
    ) -> ReceivedSignal:
        """Return the signal at a readout, as `Plant.receive` specifies."""
        snapshot = self.state.snapshot
        kit = snapshot.parameters
        if readout != DETECTOR_READOUT:
            zeros = np.zeros(count)
            return ReceivedSignal(zeros, zeros, 0.0, receiver.compute_converter_noise(kit, zeros, zeros))
        photocurrent_a, slope_a_s = _compute_light(
            snapshot, self._driven_count, rate_hz, first, count, outputs
        )
        correlation = 0.0 if kit.noise == "constant" else receiver.compute_decay(kit, rate_hz)
        return ReceivedSignal(
            receiver.compute_level(kit, photocurrent_a),
            receiver.compute_noise(kit, photocurrent_a),
            correlation,
            receiver.compute_converter_noise(kit, photocurrent_a, slope_a_s),
        )


def _compute_light(
    snapshot: Snapshot, driven_count: int, rate_hz: float, first: int, count: int, outputs: Outputs
) -> tuple[Samples, Samples]:
    """Return the photocurrent after the receiver's pole at each sample of the converter, in A, and its slope in A/s.

    The light changes at the sample rate of the generators, so it is computed at that rate.
    """
    kit = snapshot.parameters
    fine_hz = outputs.get_rate_hz(0)
    ratio = round(fine_hz / rate_hz, 9)
    first_fine_sample = math.floor(first * ratio)
    warm_up_count = receiver.count_contributing_samples(kit, fine_hz)
    length = math.ceil((first + count - 1) * ratio) + 1 - first_fine_sample + warm_up_count
    drives = _compute_drives(kit, driven_count, fine_hz, first_fine_sample - warm_up_count, length, outputs)
    unfiltered_a = receiver.compute_current_a(kit, _compute_power_w(snapshot, drives))
    if len(unfiltered_a) == 1:
        return np.full(count, unfiltered_a[0]), np.zeros(count)
    filtered_a = pole.filter_staircase(unfiltered_a, receiver.compute_decay(kit, fine_hz))
    slope_a_s = receiver.compute_slope_a_s(kit, unfiltered_a, filtered_a)
    position = first * ratio - first_fine_sample + warm_up_count
    return _pick_samples(filtered_a, ratio, position, count), _pick_samples(slope_a_s, ratio, position, count)


def _compute_drives(
    kit: KitParameters, driven_count: int, rate_hz: float, first: int, count: int, outputs: Outputs
) -> list[Samples]:
    """Return the drive of each modulator, (count,), or (1,) if constant. Only the first `driven_count` are not zero."""
    drives = [np.zeros(1) for _ in kit.modulators]
    for index, modulator in enumerate(kit.modulators[:driven_count]):
        delay_s = (kit.delay_ns + modulator.skew_ns) * 1e-9
        drives[index] = delay_output(
            outputs, index, rate_hz=rate_hz, first=first, count=count, delay_s=delay_s
        )
    return drives


def _compute_power_w(snapshot: Snapshot, drives: Sequence[Samples]) -> Samples:
    """Return the power on the detector in W. Compute it only once for each run of samples with constant drives."""
    starts = _find_constant_runs(drives)
    if len(starts) == 0:
        return compute_detector_power_w(snapshot, drives)
    count = max(len(drive) for drive in drives)
    power_w = compute_detector_power_w(
        snapshot, [drive[starts] if len(drive) > 1 else drive for drive in drives]
    )
    return np.repeat(power_w, np.diff(starts, append=count))


def _find_constant_runs(drives: Sequence[Samples]) -> npt.NDArray[np.intp]:
    """Return the first sample of each run of equal samples, or an empty array if runs are too short to save time."""
    varying_drives = [drive for drive in drives if len(drive) > 1]
    if not varying_drives:
        return np.zeros(0, np.intp)
    is_change = np.zeros(len(varying_drives[0]), bool)
    is_change[0] = True
    for drive in varying_drives:
        is_change[1:] |= drive[1:] != drive[:-1]
    starts = np.flatnonzero(is_change)
    return starts if len(starts) * _MIN_RUN_LENGTH <= len(is_change) else np.zeros(0, np.intp)


def _pick_samples(fine_samples: Samples, ratio: float, start: float, count: int) -> Samples:
    """Return `count` values of `fine_samples`: the first at `start`, each `ratio` samples after the previous."""
    if ratio == int(ratio):
        return fine_samples[int(start) :: int(ratio)][:count]
    return np.asarray(np.interp(start + np.arange(count) * ratio, np.arange(len(fine_samples)), fine_samples))


def make_kit(
    options: Mapping[str, str], *, board: str = "", generator_count: int = MODULATOR_COUNT
) -> PhotonicKit:
    """Return the kit that the options describe, on a board with a number of generators.

    Without `vary`, the device is `sim-kit-0001`, and the seed determines only noise and drift. Other properties
    (`v_pi_0=5.8`) or another `board` make a device with another identity (`sim-kit-0001-7dc1bb`,
    `sim-kit-0001-zcu216`). Therefore no device gets the calibration of another. Raise `UnknownKnob` for an unknown
    option, and `ValueError` for an invalid value.
    """
    knobs = {name: value for name, value in options.items() if name not in ("seed", "vary")}
    seed = parse_integer("seed", options.get("seed", "1"))
    parameters = replace(KitParameters(), seed=seed)
    vary_text = options.get("vary", "no")
    if vary_text not in ("yes", "no"):
        raise ValueError(f"vary must be yes or no, not {vary_text!r}")
    is_varied = vary_text == "yes"
    if is_varied:
        parameters = vary_modulators(parameters, seed)
    identity = f"sim-kit-varied-{seed:04d}" if is_varied else FACTORY_IDENTITY
    changed_parameters = set_knobs(parameters, knobs)
    identity = "-".join(
        [identity, *_digest_changes(parameters, changed_parameters, knobs), *([board] if board else [])]
    )
    return PhotonicKit(changed_parameters, identity=identity, generator_count=generator_count)


def _digest_changes(
    nominal: KitParameters, changed_parameters: KitParameters, knobs: Mapping[str, str]
) -> list[str]:
    """Return a list with a short digest of the changed properties. The list is empty if the device is the same."""
    differences = [
        f"{name}={KNOBS[name].read(changed_parameters)!r}"
        for name in sorted(knobs)
        if KNOBS[name].field_name not in STATE_FIELDS
        and KNOBS[name].read(changed_parameters) != KNOBS[name].read(nominal)
    ]
    return [hashlib.sha256("&".join(differences).encode()).hexdigest()[:6]] if differences else []
