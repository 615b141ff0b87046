"""A factory of executors, by fidelity."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Any, get_args

from lightning.compiler.model import CompiledModel
from lightning.errors import OutOfRange
from lightning.execution.interface import Executor, Fidelity, Multiplier
from lightning.execution.interpreter import Interpreter
from lightning.execution.multipliers.exact import make_exact_multiplier
from lightning.execution.multipliers.noisy import check_seed, may_clip
from lightning.execution.noise import Noise, check_average, check_noise
from lightning.execution.quirks import Quirks
from lightning.optional import require


def open_executor(
    model: CompiledModel,
    fidelity: Fidelity = "exact",
    *,
    noise: Noise | None = None,
    seed: int = 0,
    device: Any = None,
    bus: Any = None,
    average: int = 1,
    quirks: Quirks | None = None,
) -> Executor:
    """Return an executor for `model`.

    Each fidelity uses some of the arguments:

    - `noisy`: `noise` (default: as measured on the prototype), `seed` and `average`.
    - `device`: `device` (an address, or the result of `lightning.connect`; default: the twin), `seed` and `average`.
    - `datapath`: `bus` (an address, or an open bus; default: the fast simulator).

    `quirks` apply to models of the published scheme. Raise `OutOfRange` for an invalid fidelity, noise, seed or
    average, and `MissingLibrary` for noise without numba.
    """
    if fidelity not in get_args(Fidelity):
        raise OutOfRange(
            f"fidelity {fidelity!r} is not known", hint=f"Choose one of: {', '.join(get_args(Fidelity))}"
        )
    seed, average = check_seed(seed), check_average(average)
    if average != 1 and fidelity in {"exact", "datapath"}:
        raise OutOfRange(
            f"fidelity {fidelity} has no noise, so averaging has no effect",
            hint="Leave `average` out, or choose noisy or device",
        )
    if fidelity == "exact":
        return _fuse_or_interpret(model, make_exact_multiplier(), fidelity, quirks)
    if fidelity == "noisy":
        return _open_noisy(model, noise or Noise(), seed, average, quirks)
    return Interpreter(
        model, _make_hardware_multiplier(model, fidelity, device, bus, average, seed), fidelity, quirks
    )


def _open_noisy(
    model: CompiledModel, noise: Noise, seed: int, average: int, quirks: Quirks | None
) -> Executor:
    require("numba", "for noise")
    from lightning.execution.multipliers.noisy import NoisyMultiplier, PerReadoutMultiplier

    checked_noise = check_noise(replace(noise, average=average) if average != 1 else noise)
    if may_clip(checked_noise, model.hardware):
        return Interpreter(model, PerReadoutMultiplier(model, checked_noise, seed), "noisy", quirks)
    multiplier = NoisyMultiplier(model, checked_noise, seed)
    return _fuse_or_interpret(model, multiplier, "noisy", quirks, checked_noise, seed)


def _fuse_or_interpret(
    model: CompiledModel,
    multiplier: Multiplier,
    fidelity: Fidelity,
    quirks: Quirks | None,
    noise: Noise | None = None,
    seed: int = 0,
) -> Executor:
    from lightning.execution.chain import Chain, FusedExecutor, is_supported

    interpreter = Interpreter(model, multiplier, fidelity, quirks)
    if not find_spec("numba") or not is_supported(model, noise):
        return interpreter
    return FusedExecutor(Chain(model, noise, seed, quirks), interpreter)


def _make_hardware_multiplier(
    model: CompiledModel, fidelity: Fidelity, device: Any, bus: Any, average: int, seed: int
) -> Multiplier:
    if fidelity == "device":
        from lightning.execution.multipliers.device import DeviceMultiplier

        return DeviceMultiplier("sim://kit" if device is None else device, average=average, seed=seed)
    from lightning.execution.multipliers.datapath import DatapathMultiplier

    return DatapathMultiplier(model, "fastsim://" if bus is None else bus)
