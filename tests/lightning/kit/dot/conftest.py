"""One calibration for all tests of vectors: a guided run takes seconds."""

import pytest


@pytest.fixture(scope="session")
def calibration():
    """Return the calibration of the kit as the factory made it, without noise."""
    pytest.importorskip("qick", reason="the twin is a QickConfig: pip install 'lightbed[kit]'")
    import lightning
    from lightning.kit.calibration.guided import guided_run

    run = guided_run(lightning.connect("sim://kit?noise=off&adc_bits=16"))
    assert run.calibration is not None
    return run.calibration
