"""The pipelines that are shipped: their elements, the same for the same seed, and a library that is missing."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest
from libraries import library

torch = library("torch", reason="needs lightbed[offload]")

from testbed.errors import OffloadError
from testbed.offload.session import load_script
from testbed.offload.stages import Pipeline, Runner

pytestmark = pytest.mark.torch
LIBRARIES = {"digits": "sklearn", "images": "torchvision", "speech": "librosa", "text": "tokenizers"}
SHAPES = {"digits": (1, 64, 64), "images": (3, 224, 224), "speech": (80, 201), "text": (256,)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "digits",
        "images",
        pytest.param("speech", marks=pytest.mark.long),  # librosa is compiled once an environment
        "text",
    ],
)
def test_elements_of_a_workload(name):
    if find_spec(LIBRARIES[name]) is None:
        pytest.skip("needs lightbed[offload-workloads]")
    script = load_script(name)
    assert script.is_simulated
    runner = Runner(Pipeline(script.dataset, script.transform, None, seed=1))
    batch, again = runner.prepare_batch((3, 4), epoch=0), runner.prepare_batch((3, 4), epoch=0)
    values, same = (each if name == "text" else each[0] for each in (batch, again))
    assert tuple(values.shape) == (2, *SHAPES[name])
    assert torch.equal(values, same)
    assert len(torch.unique(values)) > 10
    assert not torch.equal(values[0], values[1])


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "testbed.offload.workloads.text", raising=False)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(OffloadError, match=r"the workload text needs tokenizers: pip install tokenizers"):
        load_script("text")
