"""Choice of the torch build: without a GPU, the CPU build, which is a tenth of the size."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

VERSION = "2.13.0"
VISION = "torchvision==0.28.0"
"""torchvision for this torch. The package index has only builds for CUDA; with the CPU build of torch, their transforms
run, but their compiled operators do not load."""


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """A requirement that selects one build of torch, and the reason for it."""

    requirement: str
    reason: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for uv."""


def has_gpu(devices: Path = Path("/dev"), path: str | None = None) -> bool:
    """Return whether this machine may have a GPU for CUDA."""
    return any(devices.glob("nvidia*")) or shutil.which("nvidia-smi", path=path) is not None


def choose_build(
    *,
    gpu: bool,
    torch_index: str,
    no_index: bool,
    is_available: Callable[[TorchBuild], bool],
    version: str = VERSION,
) -> TorchBuild:
    """Return the build to install.

    With a GPU or a `torch_index`, it is the default build of the indexes. Otherwise it is the CPU build of pip's
    configured folders and indexes, else the CPU build of PyTorch's own index, else the default build, which has CUDA.
    `is_available` says whether uv finds a build.
    """
    default = f"torch=={version}"
    if torch_index:
        return TorchBuild(default, "with TORCH_INDEX")
    if gpu:
        return TorchBuild(default, "with a GPU here")
    configured = TorchBuild(f"{default}+cpu", "the CPU build, since there is no GPU here")
    if is_available(configured):
        return configured
    pytorch = TorchBuild(
        default, "the CPU build of PyTorch's index, since there is no GPU here", {"UV_TORCH_BACKEND": "cpu"}
    )
    if not no_index and is_available(pytorch):
        return pytorch
    return TorchBuild(
        default,
        "with CUDA, some 3 GB, although there is no GPU here: no CPU build was found (make clean install"
        " TORCH_INDEX=URL takes it from the index that the PyTorch download page names for CPU)",
    )


def make_no_retry_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return variables with which uv does not retry, because this machine may be unable to reach an index."""
    return {"UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": environ.get("UV_HTTP_TIMEOUT", "15")}
