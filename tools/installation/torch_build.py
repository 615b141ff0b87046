"""The build of torch that suits the machine: without a GPU the CPU build, which is a tenth of the size."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

VERSION = "2.13.0"
VISION = "torchvision==0.28.0"
"""torchvision of the same torch. The package index has it for torch with CUDA alone; beside the CPU build its
transforms run, and its compiled operators do not load."""


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """A requirement that leads to one build of torch, and why that one."""

    requirement: str
    reason: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for uv."""


def has_gpu(devices: Path = Path("/dev"), path: str | None = None) -> bool:
    """Return whether CUDA may find a GPU here."""
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

    With a GPU, or with an index that was named for torch, it is the best that the indexes have. Without, it is the
    CPU build of the folders and indexes that pip is configured with, else that of PyTorch's own index, else again the
    best that the indexes have, which is then the CUDA build. `is_available` is asked whether uv finds a build.
    """
    best = f"torch=={version}"
    if torch_index:
        return TorchBuild(best, "with TORCH_INDEX")
    if gpu:
        return TorchBuild(best, "with a GPU here")
    here = TorchBuild(f"{best}+cpu", "the CPU build, since there is no GPU here")
    if is_available(here):
        return here
    theirs = TorchBuild(
        best, "the CPU build of PyTorch's index, since there is no GPU here", {"UV_TORCH_BACKEND": "cpu"}
    )
    if not no_index and is_available(theirs):
        return theirs
    return TorchBuild(
        best,
        "with CUDA, some 3 GB, although there is no GPU here: no CPU build was found (make clean install"
        " TORCH_INDEX=URL takes it from the index that the PyTorch download page names for CPU)",
    )


def uv_without_patience(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return variables with which uv asks an index once: it may be one that this machine cannot reach."""
    return {"UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": environ.get("UV_HTTP_TIMEOUT", "15")}
