"""Paths of the release before lead to the modules at their new places, with a warning."""

import importlib
import sys
import warnings

import pytest
from libraries import skip_without

import lightning

skip_without("numba", reason="imports every room: pip install 'lightbed[kit,inference,serve]'")
skip_without("qick", reason="imports every room: pip install 'lightbed[kit,inference,serve]'")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("calibration", "kit.calibration"),
        ("calibration.store", "kit.calibration.store"),
        ("calibration.batch", "kit.calibration.measurement.batch"),
        ("instruments.errors", "kit.instruments.errors"),
        ("execution.seam", "execution.interface"),
        ("serving.hot", "serving.http.fast_path"),
    ],
)
def test_a_former_path_is_the_same_module(old, new):
    room = f"lightning.{old.partition('.')[0]}"
    for name in [each for each in sys.modules if room in ("lightning.calibration", "lightning.instruments")]:
        if name == room or name.startswith(f"{room}."):
            del sys.modules[name]
    sys.modules.pop(f"lightning.{old}", None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module = importlib.import_module(f"lightning.{old}")
    assert f"lightning.{old} is now lightning.{new}" in {str(each.message) for each in caught}
    assert module is importlib.import_module(f"lightning.{new}")


def test_former_names_of_public_classes_are_kept():
    from lightning.execution import Faults, Quirks
    from lightning.kit.dot import inspect, look
    from lightning.serving import Loaded, ModelInstance

    assert (Faults, look, Loaded) == (Quirks, inspect, ModelInstance)
    assert importlib.import_module("lightning.kit.devices").connect is lightning.connect
