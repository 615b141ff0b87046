"""`calibrate`: the guided run of all steps on a device, and its calibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np

from lightning import errors
from lightning.kit.calibration.document import Calibration, Modulator, Outcome, Timing
from lightning.kit.calibration.measurement.batch import Window
from lightning.kit.calibration.measurement.bench import Bench
from lightning.kit.calibration.measurement.steps import REQUIRED_STEPS, STEPS
from lightning.kit.calibration.measurement.transfer import PARTNERS
from lightning.kit.calibration.store import RawData
from lightning.kit.devices.identity import read_identity

Report = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class GuidedRun:
    """Outcome of a guided run."""

    outcomes: tuple[Outcome, ...]
    calibration: Calibration | None
    """None if the calibration depends on a failed step."""
    raw: RawData

    @property
    def passed(self) -> bool:
        """True if there is a calibration and every step passed; a skipped step counts as passed."""
        return self.calibration is not None and all(outcome.passed for outcome in self.outcomes)


def run_guided(
    soc: Any,
    *,
    instruments: Any = None,
    report: Report | None = None,
    turn_paddles: Callable[[Callable[[], float]], None] | None = None,
    shots: int = 4,
    seed: int = 0,
    now: datetime | None = None,
    origin: Literal["measured", "factory"] = "measured",
) -> GuidedRun:
    """Run all steps on this device, and call `report` with each outcome.

    `instruments` has the attributes laser, bias and meter, each an instrument or None. `turn_paddles` adjusts the
    polarisation; its argument is a function that reads the light. Errors of the device and the instruments propagate.
    A measurement outside its limit is a failed step, not an exception.
    """
    bench = Bench(soc, shots=shots, rng=np.random.default_rng(seed), turn_paddles=turn_paddles)
    if instruments is not None:
        bench.instruments = instruments
    outcomes: list[Outcome] = []
    for name, step in STEPS.items():
        outcomes.append(_run_step(name, step, bench))
        if report is not None:
            report(outcomes[-1])
        if name in REQUIRED_STEPS and not outcomes[-1].passed and _lacks_result(bench, name):
            return GuidedRun(tuple(outcomes), None, bench.raw_data)
    calibration = _make_calibration(bench, tuple(outcomes), now or datetime.now(UTC), origin)
    return GuidedRun(tuple(outcomes), calibration, bench.raw_data)


def calibrate(soc: Any, **options: Any) -> GuidedRun:
    """Calibrate with `run_guided`, and raise `CalibrationError` if a step failed."""
    run = run_guided(soc, **options)
    for outcome in run.outcomes:
        if not outcome.passed:
            raise errors.CalibrationError(
                f"the step {outcome.step!r} failed: {outcome.figure}; required: {outcome.limit}",
                device=read_identity(soc).name,
                hint=outcome.hint,
            )
    return run


def _run_step(name: str, step: Callable[[Bench], Outcome], bench: Bench) -> Outcome:
    """Run a step and return its outcome. If its fit raises `ValueError`, the step has failed."""
    try:
        return step(bench)
    except ValueError as error:
        if isinstance(error, errors.LightningError):
            raise
        return Outcome(
            name,
            False,
            str(error),
            "a fit",
            "check that the laser is on and the fibres are connected, then start again",
        )


def _lacks_result(bench: Bench, name: str) -> bool:
    """Return whether a failed step left no result. After a step that only missed its limit, the run continues."""
    has_result = {
        "delay": bool(bench.arrivals),
        "light": False,
        "transfer": bool(bench.sweeps),
        "gain": bench.encoders is not None,
        "decoder": bench.decoder is not None,
    }
    return not has_result[name]


def _make_calibration(
    bench: Bench, outcomes: tuple[Outcome, ...], made_at: datetime, origin: Literal["measured", "factory"]
) -> Calibration | None:
    if bench.encoders is None or bench.decoder is None or bench.noise is None:
        return None
    modulator_0, modulator_1, modulator_2, modulator_3 = (_make_modulator(bench, index) for index in range(4))
    device = read_identity(bench.soc)
    tick_ns = 1e3 / float(bench.soc["readouts"][bench.readout]["f_output"])
    return Calibration(
        device=device.name,
        made=made_at,
        origin=origin,
        simulated=device.is_simulated,
        readout=bench.readout,
        modulators=(modulator_0, modulator_1, modulator_2, modulator_3),
        decoder=bench.decoder,
        noise=bench.noise,
        timing=Timing(bench.arrival_ticks, tick_ns, Window.for_arrival(bench.arrival_ticks).offset),
        conditions={**bench.conditions, "firmware": device.firmware, "shots": bench.shots},
        outcomes=outcomes,
    )


def _make_modulator(bench: Bench, index: int) -> Modulator:
    assert bench.encoders is not None
    sweep, partner = bench.sweeps[index], bench.sweeps[PARTNERS[index]]
    return Modulator(
        channel=bench.channels[index],
        curve=sweep.curve,
        encoder=bench.encoders.full_encoders[index],
        shared=bench.encoders.shared_encoders[index],
        partner_share=float(partner.curve.compute_share(sweep.partner_word)),
    )
