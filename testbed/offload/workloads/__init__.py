"""Included input pipelines that need no download, one per module: images, speech, text and digits.

Each module defines `dataset`, `transform`, `batch_size` and `step`, as a script does. The steps are timed waits in
place of computations on a GPU, so the modules are marked `simulated`.
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
"""Names of the workloads, with their transforms and libraries."""


def load_workload(name: str) -> ModuleType:
    """Import the module of a workload. Raises `OffloadError` if its library is not installed."""
    try:
        return import_module(f"{__name__}.{name}")
    except ImportError as error:
        raise OffloadError(f"the workload {name} needs {error.name}: pip install {error.name}") from error
