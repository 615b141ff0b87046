"""Training that knows the noise, with torch; always compared with as much training without.

    from lightning.training import Emulation, emulate, fine_tune
    found = fine_tune(module, load_dataset("digits"), shape=(64,), noise=Noise("per-product-dense", sigma=5))
    print(found)                     # before, without noise, with noise: float32, exact, noisy
    save_model(found.aware.model, "model.lng")      # of lightning.compiler

    with emulate(module, Emulation(noise)):        # or a loop of your own
        loss(module(images), labels).backward()

| module | what it is for |
|---|---|
| `emulation` | `Emulation`: whose noise, which scheme |
| `modules` | any module on emulated light: rounded, noisy, with gradients |
| `fitting` | `fit`, `Schedule`: the training loop |
| `fine_tuning` | `fine_tune`, `Comparison`: with noise and without, both run on the real executors |
| `curve` | accuracy over sigma, as far down as one half |

It helps where noise is high, and not at that of Lightning's prototype: see docs/how-to/train-with-noise.md.
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

_LATER = {
    "Comparison": "fine_tuning",
    "Curve": "curve",
    "Outcome": "fine_tuning",
    "Schedule": "fitting",
    "accuracy_curve": "curve",
    "emulate": "modules",
    "fine_tune": "fine_tuning",
    "fit": "fitting",
}
"""Imported when they are asked for: nearly all need torch."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"lightning.training.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
