"""The simulated kit at the full rate of its converters: speed, and accuracy of all 65,536 products and of dot products.

One JSON line; `--only` selects parts. Each numerical library has one thread, and all share one core.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import lightning
from lightning.kit.calibration.decoder import compute_accuracy, compute_true_product, fit_decoder
from lightning.kit.calibration.document import Calibration
from lightning.kit.calibration.guided import calibrate
from lightning.kit.calibration.measurement.batch import Readings
from lightning.kit.calibration.measurement.transfer import find_coarse_curves, sweep_modulators
from lightning.kit.compute import LightningCompute
from lightning.kit.dot import VectorCore
from sim.twins.rfsoc.kit import receiver
from sim.twins.rfsoc.kit.optics import compute_detector_power_w
from sim.twins.rfsoc.kit.plant import make_kit

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
KIT_SHOTS = 400
"""The kit's 4 repetitions times 100 soft averages."""
FACTORS = np.arange(256)
LENGTH = 784
REPEATS = 30


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), default=sorted(PARTS))
    parser.add_argument("--factors", type=int, default=256, help="number of values per operand, up to 256")
    options = parser.parse_args()
    on_one_core()
    report: dict[str, Any] = {"benchmark": "kit"}
    factors = np.unique(np.linspace(0, 255, options.factors).round().astype(np.int64))
    for name in options.only:
        report |= PARTS[name](factors)
    print(json.dumps(report))
    return 0


def on_one_core() -> None:
    """Pin this process to one core, and restart it unless each numerical library is set to one thread.

    Libraries read these variables only when they are loaded.
    """
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if any(os.environ.get(name) != "1" for name in THREADS):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | dict.fromkeys(THREADS, "1"))


@dataclass
class Times:
    """Wall time and processor time of each repetition, in s.

    The processor time is not affected by other processes on the machine.
    """

    wall: list[float] = field(default_factory=list)
    core: list[float] = field(default_factory=list)

    def milliseconds(self) -> dict[str, float]:
        return {
            "median": round(1e3 * statistics.median(self.wall), 2),
            "least": round(1e3 * min(self.wall), 2),
            "median_of_core": round(1e3 * statistics.median(self.core), 2),
        }


def timed(work: Callable[[Any], Any], over: Iterable[Any]) -> Times:
    times = Times()
    for each in over:
        wall, core = time.perf_counter(), time.process_time()
        work(each)
        times.wall.append(time.perf_counter() - wall)
        times.core.append(time.process_time() - core)
    return times


def calibrate_device(address: str) -> tuple[Any, Calibration]:
    """Connect to a device and calibrate it; return both."""
    device = lightning.connect(address)
    calibration = calibrate(device).calibration
    assert calibration is not None
    return device, calibration


def acquisition(_: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Measure `acquire_decimated` with the kit's defaults: 100 averages of 4 shots of 250 samples."""
    device, calibration = calibrate_device("sim://kit")
    config = lightning.Configuration()
    config.update(dac_0=100, dac_1=50, dac_2=200, dac_3=20)
    runtime = lightning.LightningControl(device, config, calibration=calibration)
    timed(lambda _: runtime.acquire_decimated(device), range(5))
    times = timed(lambda _: runtime.acquire_decimated(device), range(REPEATS))
    return {"acquire_decimated_ms": times.milliseconds(), "asked_acquire_decimated_ms": 20}


def calibration(_: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Measure the guided calibration, which sweeps each of the four modulators with 256 points."""
    times = timed(lambda _: calibrate(lightning.connect("sim://kit")), range(4))
    return {
        "calibration_s": round(statistics.median(times.wall[1:]), 2),
        "calibration_first_s": round(times.wall[0], 2),
        "asked_calibration_s": 10,
    }


def products(factors: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Measure all products of the factors, with noise and without."""
    a, b = (grid.ravel() for grid in np.meshgrid(factors, factors))
    report: dict[str, Any] = {"products": int(a.size), "below_converters_wrong": below_converters(a, b)}
    report["asked_below_converters_wrong"] = 0
    device, kit_calibration = calibrate_device("sim://kit?seed=3")
    for shots, window, asked in ((1, 1, 99.7), (KIT_SHOTS, None, 99.85)):
        compute = LightningCompute(device, kit_calibration, window=window)
        answers: list[npt.NDArray[np.int64]] = []
        times = timed(lambda n, on=compute, to=answers: to.append(on.multiply(a, b, shots=n)), [shots])
        report[f"shots_{shots}"] = {
            "accuracy": round(compute_accuracy(answers[0], a, b), 4),
            "asked_accuracy": asked,
            "seconds": round(times.wall[0], 1),
            "seconds_of_core": round(times.core[0], 1),
            "asked_seconds": 300,
        }
    for bits, asked in ((16, 0.005), (12, 0.04)):
        report[f"noise_off_{bits}_bits"] = off_by_one(a, b, bits) | {"asked_share": asked}
    return report


def off_by_one(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64], bits: int) -> dict[str, float]:
    """Measure the errors with the integers of the board, without noise."""
    device, kit_calibration = calibrate_device(f"sim://kit?noise=off&adc_bits={bits}")
    answers = LightningCompute(device, kit_calibration, window=1).multiply(a, b, shots=4)
    off = np.abs(answers - np.rint(compute_true_product(a, b)))
    return {"share": round(float(np.mean(off > 0)), 5), "most": int(off.max())}


def below_converters(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> int:
    """Count the wrong products of the kit's light itself, in float64, with words that need not be whole."""
    rows = LightOnly()
    curves = [sweep.curve for _, sweep in sorted(sweep_modulators(rows, find_coarse_curves(rows)).items())]
    angles = np.arcsin(np.sqrt(np.arange(256) / 255))
    exact = np.array([[curve.find_setting(angle) for angle in angles] for curve in curves])

    def levels(values: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return rows.read(np.stack([exact[i][values[:, i]] for i in range(4)], axis=1)).levels

    training = np.random.default_rng(1).integers(0, 256, (600, 4))
    training[:300, 2:], training[300:, :2] = 0, 0
    decoder = fit_decoder(levels(training), training / 255, shared_gain=1.0, full_scale=rows.COUNTS)
    values = np.stack([a, b, np.zeros_like(a), np.zeros_like(a)], axis=1)
    lit = np.tile([True, False], (a.size, 1))
    decoded = np.rint(decoder.decode(levels(values), values / 255, lit))
    return int((decoded != np.rint(compute_true_product(a, b))).sum())


class LightOnly:
    """Readings of words as the light at the receiver of a simulated kit, without samples and integers."""

    COUNTS = 32768.0

    def __init__(self) -> None:
        self.kit = make_kit({"seed": "5", "vary": "yes", "noise": "off"})

    def read(self, words: npt.ArrayLike, *, shots: int = 1) -> Readings:
        drives = np.asarray(words, dtype=float).T / 32768.0
        light, idle = (self._counts(list(each)) for each in (drives, np.zeros((4, 1))))
        levels = light - idle
        return Readings(levels, float(idle[0]), np.repeat(levels[:, None], shots, axis=1))

    def _counts(self, drives: list[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
        now = self.kit.state.snapshot
        current = receiver.compute_current_a(now.parameters, compute_detector_power_w(now, drives))
        return self.COUNTS * receiver.compute_level(now.parameters, current)


def dots(_: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Measure dot products of 784 signed values, with new values each time, and a product with a matrix of 300 rows."""
    device, kit_calibration = calibrate_device("sim://kit?seed=3")
    core = VectorCore(device, kit_calibration)
    tuning_times = timed(lambda _: core.tune(), range(2))
    rng = np.random.default_rng(8)
    pairs = rng.integers(-255, 256, (REPEATS, 2, LENGTH))
    truth = pairs.prod(axis=1).sum(axis=1) / 255
    report: dict[str, Any] = {"asked_dot_784_ms": 20, "tune_s": round(tuning_times.wall[1], 2)}
    for shots in (1, 4, 16):
        results: list[float] = []
        times = timed(
            lambda pair, n=shots, to=results: to.append(core.analogue_dot(*pair, shots=n).item()), pairs
        )
        report[f"dot_784_shots_{shots}"] = {"ms": times.milliseconds()} | dot_errors(
            np.array(results) - truth
        )
    matrix, vector = rng.integers(-255, 256, (300, LENGTH)), rng.integers(0, 256, LENGTH)
    rows: list[npt.NDArray[np.int64]] = []
    times = timed(lambda _: rows.append(core.matvec(matrix, vector, shots=1)), range(1))
    errors = dot_errors(rows[0] - matrix @ vector / 255)
    return report | {"matvec_300x784_shots_1": {"s": round(times.wall[0], 2)} | errors}


def dot_errors(errors: npt.NDArray[np.float64]) -> dict[str, float]:
    """Return the accuracy of sums of 784 products, relative to the largest sum, and the error in units of 1/255."""
    rms = float(np.sqrt(np.mean(errors**2)))
    return {
        "accuracy": round(100 - 100 * rms / (LENGTH * 255), 4),
        "rms": round(rms, 2),
        "rms_per_root_of_length": round(rms / LENGTH**0.5, 3),
        "mean": round(float(errors.mean()), 2),
    }


PARTS: dict[str, Callable[[npt.NDArray[np.int64]], dict[str, Any]]] = {
    "acquisition": acquisition,
    "calibration": calibration,
    "dots": dots,
    "products": products,
}


if __name__ == "__main__":
    sys.exit(main())
