"""Fixtures of all tests of `lightning`: no calibration of the user's is seen, and nobody's configuration is changed."""

import pytest

from lightning import LightningConfig


@pytest.fixture(autouse=True)
def _no_kept_calibrations(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("LIGHTBED_CALIBRATIONS", str(tmp_path_factory.mktemp("calibrations")))


@pytest.fixture(autouse=True)
def _plain_configuration():
    LightningConfig.reset()
    yield
    LightningConfig.reset()


@pytest.fixture
def clock():
    """Seconds that only the test lets pass."""

    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

        def wait(self, seconds):
            self.now += seconds

    return Clock()


@pytest.fixture(scope="session")
def kit():
    """Return the kit's twin; a test that changes its state gets one of its own."""
    pytest.importorskip("qick", reason="the twin is a QickConfig: pip install 'lightbed[kit]'")
    import lightning

    return lightning.connect("sim://kit?seed=5")
