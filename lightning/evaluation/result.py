"""Provenance of a result: everything that is needed to reproduce it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lightning.compiler import CompiledModel
from lightning.compiler.compilation import get_toolkit_version
from lightning.compiler.lng_file import model_hash
from lightning.execution.interface import Fidelity
from lightning.execution.noise import Noise
from lightning.kit.devices.identity import DeviceIdentity
from lightning.networks.network import Preprocessing

LIGHT_MODEL = DeviceIdentity("model of light", is_simulated=True)
"""Device of a result computed without a device, with or without noise."""


@dataclass(frozen=True)
class Provenance:
    """Model, settings and device of a run."""

    model: CompiledModel
    fidelity: Fidelity
    seeds: tuple[int, ...] = (0,)
    noise: Noise | None = None
    device: DeviceIdentity = LIGHT_MODEL
    calibration: str = ""
    """Identity of the calibration that the device or the noise comes from; empty without a calibration."""
    faults: tuple[str, ...] = ()
    """Names of the faults of the published emulator that the run reproduces."""

    @property
    def document(self) -> dict[str, Any]:
        """The provenance as plain values, for JSON."""
        return {
            "version": get_toolkit_version(),
            "model": self.model.network.name,
            "model_hash": model_hash(self.model),
            "scheme": self.model.scheme_in_words,
            "preprocessing": asdict(self.model.network.preprocessing),
            "fidelity": self.fidelity,
            "seed": self.seeds[0],
            "seeds": list(self.seeds),
            "noise": None if self.noise is None else asdict(self.noise),
            "calibration": self.calibration or (self.noise.identity if self.noise else "") or None,
            "faults": list(self.faults),
            "device": self.device.name,
            "simulated": self.device.is_simulated,
        }

    @property
    def description(self) -> str:
        """Description in words: `noisy, per-product, sigma 1.657 of 255, seed 0`, or `datapath, fastsim://`."""
        device = [] if self.device == LIGHT_MODEL else [self.device.name]
        return ", ".join(
            [self.fidelity, *device, *self._describe_noise(), *self._describe_seeds(), *self.faults]
        )

    def _describe_noise(self) -> list[str]:
        noise = self.noise
        if noise is None:
            return []
        words = [noise.place, f"sigma {noise.sigma:.4g} of 255"]
        words += [f"mean {noise.mean:.4g}"] if noise.mean else []
        words += [f"average of {noise.average}"] if noise.average > 1 else []
        return words + ([f"noise of {noise.identity}"] if noise.identity else [])

    def _describe_seeds(self) -> list[str]:
        if self.fidelity != "noisy":
            return []
        first_seed, last_seed = self.seeds[0], self.seeds[-1]
        return [f"seed {first_seed}" if first_seed == last_seed else f"seeds {first_seed} to {last_seed}"]


def describe_preprocessing(preprocessing: Preprocessing) -> str:
    """Return a description of how raw inputs are preprocessed.

    >>> (
    ...     describe_preprocessing(Preprocessing(scale=0.5, mean=(1.0, 2.0))),
    ...     describe_preprocessing(Preprocessing()),
    ... )
    ('raw inputs times 0.5, less 1, 2', 'raw inputs as they are')
    """
    steps = [f"times {preprocessing.scale:.6g}"] if preprocessing.scale != 1 else []
    steps += [f"less {_list_values(preprocessing.mean)}"] if any(preprocessing.mean) else []
    steps += [f"over {_list_values(preprocessing.deviation)}"] if set(preprocessing.deviation) != {1} else []
    return f"raw inputs {', '.join(steps) or 'as they are'}"


def _list_values(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.6g}" for value in values)


def round_values(values: Mapping[str, Any], digits: int = 6) -> dict[str, Any]:
    """Return the values with floats rounded to `digits` decimal places."""
    return {
        name: round(value, digits) if isinstance(value, float) else value for name, value in values.items()
    }
