"""Options of how a model is run, which `infer`, `evaluate` and `sensitivity` share, and what they amount to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from lightning.cli.options import TWIN
from lightning.errors import ConfigError, OutOfRange
from lightning.execution.quirks import EMULATOR, Quirks

if TYPE_CHECKING:
    from lightning.compiler import CompiledModel
    from lightning.evaluation.result import Provenance
    from lightning.execution.interface import Executor, Fidelity
    from lightning.execution.noise import Noise, Place

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A .lng, an .onnx, or an .npz of weights w1, w2, ...")
]
Fidelities = Annotated[
    str | None,
    typer.Option(
        "--fidelity",
        metavar="KIND",
        help="exact, noisy, device or datapath; exact where nothing is said of noise.",
    ),
]
Places = Annotated[
    str | None,
    typer.Option("--noise", metavar="PLACE", help="per-output, per-product (default) or per-product-dense."),
]
Sigma = Annotated[
    float | None,
    typer.Option("--sigma", min=0, max=65535, help="Noise of a readout, of 255; default 1.657, as measured."),
]
Mean = Annotated[float | None, typer.Option("--mean", help="Error that is always there, of 255.")]
Average = Annotated[int, typer.Option("--average", min=1, help="Readouts of which the mean is taken.")]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**64 - 1, help="Of the noise.")]
MaybeSeed = Annotated[int | None, typer.Option("--seed", min=0, max=2**64 - 1, help="Of the noise; 0.")]
MaybeDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        "-d",
        metavar="ADDRESS",
        help="Of --fidelity device, and of --calibrated; LIGHTBED_DEVICE, if not given.",
    ),
]
Bus = Annotated[
    str | None, typer.Option("--bus", metavar="ADDRESS", help="Of --fidelity datapath, e.g. fastsim://.")
]
Calibrated = Annotated[
    bool, typer.Option("--calibrated", help="Noise as the calibration of --device measured it.")
]
FaultNames = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        metavar="NAME",
        help="As the published emulator: last-layer-normalised, signs-dropped, or emulator for both.",
    ),
]

SIMULATED_BUS = "fastsim://"
NO_QUIRKS = Quirks()


@dataclass(frozen=True)
class Run:
    """Fidelity, noise and whereabouts, checked."""

    fidelity: Fidelity
    noise: Noise | None
    device: Any
    """A soc of `--fidelity device`, connected already; of the others nothing."""
    bus: str
    average: int
    quirks: Quirks = NO_QUIRKS

    def seed_of(self, given: int | None, *, compared: bool = False) -> int:
        """Return the first seed, 0 unless one was given. Raises `ConfigError` where nothing is random.

        `compared`: with noise, which is in the table whatever the fidelity is.
        """
        if given is not None and self.fidelity in ("exact", "datapath") and not compared:
            raise ConfigError(
                f"a seed is given, but fidelity {self.fidelity} is deterministic",
                hint="Leave --seed out, or use --fidelity noisy",
            )
        return given or 0

    def open(self, model: CompiledModel, seed: int) -> Executor:
        """Return an executor for this model.

        Raises `ConfigError` for faults of a scheme that the model does not have.
        """
        from lightning.execution import open_executor

        if self.quirks != NO_QUIRKS and not model.shift_normalised:
            raise ConfigError(
                f"faults are given, but the model has scheme {model.scheme}",
                hint="Compile it with --scheme published, or leave --fault out",
            )
        return open_executor(
            model,
            self.fidelity,
            noise=self.noise,
            seed=seed,
            device=self.device,
            bus=self.bus,
            average=self.average if self.fidelity == "device" else 1,
            quirks=self.quirks,
        )

    def provenance(self, model: CompiledModel, seeds: tuple[int, ...]) -> Provenance:
        """Return what a result says of its origin."""
        return replace(self._provenance(model, seeds), faults=names_of(self.quirks))

    def _provenance(self, model: CompiledModel, seeds: tuple[int, ...]) -> Provenance:
        from lightning.evaluation.result import Provenance
        from lightning.kit.devices.identity import DeviceIdentity

        if self.fidelity == "datapath":
            return Provenance(model, self.fidelity, seeds, device=DeviceIdentity(self.bus, simulated=True))
        if self.fidelity != "device":
            return Provenance(model, self.fidelity, seeds, self.noise)
        from lightning.execution.multipliers.device import identity_of_calibration
        from lightning.kit.calibration.store import require
        from lightning.kit.devices.identity import identity_of

        calibration = identity_of_calibration(require(self.device))
        return Provenance(model, self.fidelity, seeds, None, identity_of(self.device), calibration)


def choose_run(
    fidelity: str | None,
    place: str | None,
    sigma: float | None,
    mean: float | None,
    average: int = 1,
    device: str | None = None,
    bus: str | None = None,
    faults: Sequence[str] | None = None,
    *,
    calibrated: bool = False,
) -> Run:
    """Return what the options amount to. Raises `OutOfRange` and `ConfigError` for what does not go together."""
    from lightning.execution.interface import Fidelity

    noise_given = calibrated or any(each is not None for each in (place, sigma, mean))
    kind = one_of("fidelity", fidelity or ("noisy" if noise_given else "exact"), get_args(Fidelity))
    if noise_given and kind != "noisy":
        raise ConfigError(
            f"noise options are given, but fidelity {kind} has no noise",
            hint="Use --fidelity noisy, or leave the noise options out",
        )
    if average > 1 and kind not in ("noisy", "device"):
        raise ConfigError(
            f"fidelity {kind} has nothing to average", hint="Leave --average out, or use --fidelity noisy"
        )
    # Nobody is to believe that a device or a bus answered which was not asked.
    if device is not None and kind != "device" and not calibrated:
        raise ConfigError(
            f"a device is given, but fidelity {kind} uses none",
            hint="Use --fidelity device; for the noise measured on it use --calibrated; or leave --device out",
        )
    if bus is not None and kind != "datapath":
        raise ConfigError(
            f"a bus is given, but fidelity {kind} uses none",
            hint="Use --fidelity datapath, or leave --bus out",
        )
    noise = noise_of(place, sigma, mean, average, device, calibrated=calibrated) if kind == "noisy" else None
    departures = quirks_of(faults or ())
    soc = _connect(device) if kind == "device" else None
    return Run(kind, noise, soc, bus or SIMULATED_BUS, average, departures)


def quirks_of(names: Sequence[str]) -> Quirks:
    """Return the quirks of these names. Raises `OutOfRange`.

    >>> quirks_of(["signs-dropped"])
    Quirks(last_layer_normalised=False, signs_dropped=True)
    """
    every = names_of(EMULATOR)
    asked = {one_of("fault", each, (*every, "emulator")) for each in names}
    return Quirks(**{each.replace("-", "_"): True for each in every if asked & {each, "emulator"}})


def names_of(quirks: Quirks) -> tuple[str, ...]:
    """Return the names of quirks on the command line.

    >>> names_of(EMULATOR)
    ('last-layer-normalised', 'signs-dropped')
    """
    return tuple(name.replace("_", "-") for name, there in asdict(quirks).items() if there)


def noise_of(
    place: str | None,
    sigma: float | None,
    mean: float | None,
    average: int,
    device: str | None,
    *,
    calibrated: bool,
) -> Noise:
    """Return the noise as given, as measured on the prototype, or as a device's calibration has it."""
    from lightning.compiler.measured import MEASURED_SIGMA
    from lightning.execution.noise import PLACES, Noise

    where: Place = one_of("noise", place or "per-product", tuple(PLACES))
    if not calibrated:
        return Noise(where, MEASURED_SIGMA if sigma is None else sigma, mean or 0.0, average=average)
    if sigma is not None or mean is not None:
        raise ConfigError(
            "--calibrated takes sigma and mean from a calibration, but others are given",
            hint="Leave --sigma and --mean out",
        )
    from lightning.execution.multipliers.device import noise_of_calibration
    from lightning.kit.calibration.store import require

    return replace(noise_of_calibration(require(_connect(device))), place=where, average=average)


def one_of(option: str, word: str, known: tuple[str, ...]) -> Any:
    """Return the word, if it is known. Raises `OutOfRange`."""
    if word not in known:
        raise OutOfRange(f"--{option} {word!r} is not known", hint=f"Choose {', '.join(known)}")
    return word


def _connect(device: str | None) -> Any:
    from lightning.kit.connection import connect

    return connect(device or os.environ.get("LIGHTBED_DEVICE") or TWIN)
