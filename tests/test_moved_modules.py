"""Paths of the release before lead to the modules at their new places, which stay what they are."""

from __future__ import annotations

import importlib
import sys

import pytest
from libraries import skip_without

import fpga
import lightning
import ocs_drivers
import sim.models.network
import testbed.design
import testbed.measure
from lightbed.errors import LightbedError
from lightbed.moved import MovedModules

skip_without("numba", reason="imports every room: pip install 'lightbed[kit,inference,serve]'")
skip_without("qick", reason="imports every room: pip install 'lightbed[kit,inference,serve]'")
skip_without("sqlalchemy", reason="imports every room: pip install 'lightbed[testbed]'")

OURS = (fpga, lightning, ocs_drivers, sim.models.network, testbed.design, testbed.measure)
MOVED = {
    former: new
    for finder in sys.meta_path
    if isinstance(finder, MovedModules)
    for former, new in finder.moved.items()
}


def test_every_package_that_moved_modules_is_looked_at():
    rooms = {former.rpartition(".")[0] for former in MOVED}
    assert {"lightning", "ocs_drivers", "sim.models.network", "testbed.design", "testbed.measure"} <= rooms


@pytest.mark.parametrize("former", sorted(MOVED))
def test_a_former_path_is_the_module_at_its_new_path(monkeypatch, former):
    if former == "lightning.networks.imports.torch_module":
        pytest.importorskip("torch")
    new = importlib.import_module(MOVED[former])
    spec = new.__spec__
    monkeypatch.delitem(sys.modules, former, raising=False)

    with pytest.warns(DeprecationWarning, match=f"{former} is now {MOVED[former]}"):
        module = importlib.import_module(former)

    assert module is new
    assert new.__spec__ is spec
    assert spec.name == MOVED[former]
    monkeypatch.delitem(sys.modules, former, raising=False)


def test_what_is_not_at_the_new_place_is_not_promised():
    finders = [finder for finder in sys.meta_path if isinstance(finder, MovedModules)]
    assert [finder.find_spec("lightning.calibration.nonsense", None) for finder in finders] == [None] * len(
        finders
    )


def test_the_former_name_of_a_hint_can_be_set_and_given():
    error = ocs_drivers.OcsError("silent", cure="look")
    assert (error.hint, error.cure) == ("look", "look")
    other = LightbedError("x")
    other.cure = "look again"
    assert other.hint == "look again"
