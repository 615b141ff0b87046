"""Noise-aware training with torch, and its comparison with equal training without noise.

    from lightning.training import Emulation, emulate, fine_tune
    comparison = fine_tune(module, load_dataset("digits"), shape=(64,), noise=Noise("per-product-dense", sigma=5))
    print(comparison)                # before, without noise, with noise: float32, exact, noisy
    save_model(comparison.aware.model, "model.lng")      # of lightning.compiler

    with emulate(module, Emulation(noise)):        # in your own training loop
        loss(module(images), labels).backward()

| module | contents |
|---|---|
| `emulation` | `Emulation`: noise and scheme of the emulated hardware |
| `modules` | `emulate`: makes any module compute with rounding and noise, with gradients |
| `fitting` | `fit`, `Schedule`: the training loop |
| `fine_tuning` | `fine_tune`, `Comparison`: training with and without noise, evaluated by the executors |
| `curve` | accuracy against sigma, down to one half |

This training helps if the noise is high, but not at the noise of Lightning's prototype; see
docs/how-to/train-with-noise.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lightning.training.emulation import Emulation

if TYPE_CHECKING:
    from lightning.training.curve import Curve, accuracy_curve
    from lightning.training.fine_tuning import Comparison, Outcome, fine_tune
    from lightning.training.fitting import Schedule, fit
    from lightning.training.modules import emulate

__all__ = [
    "Comparison",
    "Curve",
    "Emulation",
    "Outcome",
    "Schedule",
    "accuracy_curve",
    "emulate",
    "fine_tune",
    "fit",
]

_LAZY_NAMES = {
    "Comparison": "fine_tuning",
    "Curve": "curve",
    "Outcome": "fine_tuning",
    "Schedule": "fitting",
    "accuracy_curve": "curve",
    "emulate": "modules",
    "fine_tune": "fine_tuning",
    "fit": "fitting",
}
"""Names imported at first use, with their modules, because nearly all need torch."""


def __getattr__(name: str) -> Any:
    if name in _LAZY_NAMES:
        return getattr(import_module(f"lightning.training.{_LAZY_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
