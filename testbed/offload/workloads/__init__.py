"""Included input pipelines that need no download: images, speech, text and digits, each in a module.

Each module defines `dataset`, `transform`, `batch_size` and `step`, as a script does. The steps are timed waits instead
of computations on a GPU, and are marked `simulated`.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from testbed.errors import OffloadError

WORKLOADS = {
    "digits": "handwritten digits, rotated, shifted and noisy: numpy",
    "images": "photographs, decoded, cropped, flipped and recoloured: torchvision",
    "speech": "log-mel features of tones and noise: librosa",
    "text": "tokens of documents, with a vocabulary trained at import: tokenizers",
}
"""Workloads, each with its transform and library."""


def load_workload(name: str) -> ModuleType:
    """Import the module of a workload. Raises `OffloadError` if its library is not installed."""
    try:
        return import_module(f"{__name__}.{name}")
    except ImportError as error:
        raise OffloadError(f"the workload {name} needs {error.name}: pip install {error.name}") from error
