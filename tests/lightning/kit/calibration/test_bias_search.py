"""The bias through the supply's twin, over VISA."""

from __future__ import annotations

import pytest
from libraries import skip_without

skip_without("qick")
skip_without("pyvisa")

import lightning
from lightning.kit.calibration.measurement import alignment
from lightning.kit.calibration.measurement.bench import Bench
from lightning.kit.calibration.measurement.steps import STEPS
from lightning.kit.instruments import open_bench


class Supply:
    """A supply whose voltages nobody listens to."""

    limit_v = 12.0

    def __init__(self):
        self.set = {1: 3.0}

    def set_voltage_v(self, output, voltage_v):
        self.set[output] = voltage_v

    def read_voltage_v(self, output):
        return self.set[output]


@pytest.mark.socket
def test_the_steps_switch_the_laser_on_and_set_every_null():
    soc = lightning.connect("sim://kit?seed=51&vary=yes&drift=off&laser=off&bias_v_1=4.6&bias_v_2=1.9")
    with open_bench(soc.bench()) as instruments:
        bench = Bench(soc, instruments=instruments)
        outcomes = [STEPS[name](bench) for name in ("laser", "delay", "light", "polarisation", "bias")]
    assert all(outcome.passed for outcome in outcomes), outcomes
    assert not any(outcome.skipped for outcome in outcomes)
    found = bench.conditions
    for i in range(4):
        assert soc.knobs[f"bias_v_{i}"] == pytest.approx(soc.knobs[f"null_v_{i}"], abs=0.02)
        assert found[f"half_wave_{i}_v"] == pytest.approx(soc.knobs[f"v_pi_{i}"], rel=0.01)
        assert found[f"bias_{i}_v"] == pytest.approx(soc.knobs[f"bias_v_{i}"], abs=1e-3)
    assert found["laser_dbm"] == pytest.approx(10.0, abs=0.1)
    assert "meter_dbm" in found


@pytest.mark.socket
def test_null_quadrature_and_peak_lie_half_a_half_wave_apart():
    soc = lightning.connect("sim://kit?seed=52&drift=off")
    bench = Bench(soc)
    with open_bench(soc.bench()) as instruments:
        found = alignment.find_null(bench.make_reader(), instruments.bias, 2)
    assert found.null_v == pytest.approx(3.0, abs=0.02)
    assert found.quadrature_v == pytest.approx(5.5, abs=0.03)
    assert found.peak_v == pytest.approx(8.0, abs=0.05)
    assert found.initial_v == pytest.approx(3.0, abs=0.01)


def test_a_supply_that_moves_nothing_gets_its_voltage_back():
    soc = lightning.connect("sim://kit?seed=53&drift=off")
    supply = Supply()
    with pytest.raises(ValueError, match="does not follow the bias"):
        alignment.find_null(Bench(soc).make_reader(), supply, 0)
    assert supply.set[1] == 3.0
