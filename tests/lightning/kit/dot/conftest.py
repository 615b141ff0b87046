"""One calibration for all tests of vectors."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest


@pytest.fixture(scope="session")
def calibration():
    """Return the calibration of the kit as the factory made it, without noise, and as if it were made now."""
    pytest.importorskip("qick", reason="the twin is a QickConfig: pip install 'lightbed[kit]'")
    import lightning
    from lightning.kit.calibration.form import from_json

    factory = from_json(lightning.connect("sim://kit?noise=off&adc_bits=16").factory_calibration())
    return replace(factory, made=datetime.now(UTC))
