"""Measurement of a twin's factory calibration on a nominal device.

    python -m lightning.kit.factory_calibration "sim://kit?drift=off" sim/twins/rfsoc/kit/factory_calibration.json

Run this if the twin's nominal kit, the readout's filter or the document format changes. The calibration is measured;
no parameter of the twin is copied.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lightning.kit.calibration.document import Outcome
from lightning.kit.calibration.form import to_text
from lightning.kit.calibration.guided import calibrate

SHOT_COUNT = 16
"""More shots than a user needs, so that the document's own noise is small."""


def write_factory_calibration(address: str, file: Path, *, shots: int = SHOT_COUNT) -> None:
    """Calibrate the device at this address and write the document. Raise `CalibrationError` if a step fails."""
    from lightning.kit.connection import connect

    run = calibrate(connect(address), shots=shots, origin="factory", report=_print_outcome)
    assert run.calibration is not None
    file.write_text(to_text(run.calibration), encoding="utf-8")
    sys.stdout.write(f"{run.calibration.describe()} -> {file}\n")


def _print_outcome(outcome: Outcome) -> None:
    sys.stdout.write(f"{outcome.step}: {outcome.figure}\n")


if __name__ == "__main__":
    write_factory_calibration(sys.argv[1], Path(sys.argv[2]))
