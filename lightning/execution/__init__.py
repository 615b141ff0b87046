"""Execution of a compiled model, with four fidelities behind one interface.

    from lightning.execution import Noise, open_executor
    executor = open_executor(model, "noisy", noise=Noise(sigma=1.657), seed=1)
    answers = executor.run(images, keys)          # `keys`: image index or request id

| fidelity | products |
|---|---|
| `exact` | integers |
| `noisy` | integers with noise that depends on seed and image key |
| `device` | waveforms on the kit or its twin |
| `datapath` | a count-action datapath on a bus, with simulated light |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightbed.lazy import make_lazy_attributes

if TYPE_CHECKING:
    from lightning.execution.factory import open_executor
    from lightning.execution.interface import Answers, Executor, Fidelity, Multiplier
    from lightning.execution.noise import Noise
    from lightning.execution.quirks import EMULATOR, Quirks

__all__ = [
    "EMULATOR",
    "Answers",
    "Executor",
    "Fidelity",
    "Multiplier",
    "Noise",
    "Quirks",
    "open_executor",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = make_lazy_attributes(
        __name__,
        {
            "factory": "open_executor",
            "quirks": "EMULATOR Quirks",
            "interface": "Answers Executor Fidelity Multiplier",
            "noise": "Noise",
        },
    )
