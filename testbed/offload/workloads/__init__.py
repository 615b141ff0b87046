"""Real input pipelines that need no download, each in a module: images, speech, text, digits.

Each names what a script names: `dataset`, `transform`, `batch_size` and `step`. The steps are timed waits in place of a
GPU, marked `simulated`.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from testbed.errors import OffloadError

WORKLOADS = {
    "digits": "handwritten digits, turned, shifted and noisy: numpy",
    "images": "photographs, decoded, cropped, flipped and recoloured: torchvision",
    "speech": "log-mel features of tones and noise: librosa",
    "text": "tokens of documents, by a vocabulary trained on the spot: tokenizers",
}
"""Workloads, and what they do with which library."""


def load_workload(name: str) -> ModuleType:
    """Return the module of a workload. Raises `OffloadError` when its library is missing."""
    try:
        return import_module(f"{__name__}.{name}")
    except ImportError as error:
        raise OffloadError(f"the workload {name} needs {error.name}: pip install {error.name}") from error
