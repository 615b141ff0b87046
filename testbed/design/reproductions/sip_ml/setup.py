"""Sizes of the reproduction, and the trained models."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from testbed.design.workloads.catalogue import workload
from testbed.design.workloads.model import Workload


@dataclass(frozen=True, slots=True)
class Model:
    """A model of the paper, as built from our catalogue. `batch` is the global batch.

    `catalogue_name` is its name in the catalogue. `released_weight_bytes` is the size of its weights in the released
    scripts.
    """

    name: str
    catalogue_name: str
    preset: str | None
    batch: int
    released_weight_bytes: float
    settings: dict[str, Any] = field(default_factory=dict)

    def build(self) -> Workload:
        """Return the workload with the global batch."""
        return workload(self.catalogue_name, 1, preset=self.preset, batch=self.batch, **self.settings)


MODELS = (
    Model("resnet50", "resnet50", None, 8192, 250e6),
    # The paper does not specify its transformer. BERT with 12 layers of width 1,024 has 736 MB of weights.
    Model("transformer", "bert", None, 1024, 700e6),
    Model("gpt-355m", "gpt", "350m", 1024, 6.8e9, {"sequence": 1024}),
)


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of a reproduction.

    The cluster has `gpu_count` GPUs. A copy of the model uses `gpus_per_copy` GPUs; figure 2 compares several
    `gpus_per_copy_choices`. `wavelength_counts` and `rates_gbps` are the numbers of wavelengths and the rates of a GPU
    that are compared.
    """

    gpu_count: int
    gpus_per_copy: int
    gpus_per_copy_choices: tuple[int, ...]
    wavelength_counts: tuple[int, ...]
    rates_gbps: tuple[float, ...]


PAPER = Scale(
    1024, 8, (1, 2, 4, 8, 16), (20, 40, 80, 160, 320), (128, 200, 256, 400, 512, 1024, 2048, 4096, 8192)
)
QUICK = Scale(64, 4, (1, 4), (20, 80), (200, 400, 2048))
"""Small scale that only tests that everything runs."""
