"""Shared options for fidelity and noise, and the `Run` that they select."""

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
FidelityName = Annotated[
    str | None,
    typer.Option(
        "--fidelity",
        metavar="KIND",
        help="exact, noisy, device or datapath; default noisy with noise options, else exact.",
    ),
]
NoisePlace = Annotated[
    str | None,
    typer.Option("--noise", metavar="PLACE", help="per-output, per-product (default) or per-product-dense."),
]
Sigma = Annotated[
    float | None,
    typer.Option(
        "--sigma", min=0, max=65535, help="Noise of a readout in units of 1/255; default 1.657, as measured."
    ),
]
Mean = Annotated[float | None, typer.Option("--mean", help="Constant error of a readout in units of 1/255.")]
Average = Annotated[int, typer.Option("--average", min=1, help="Number of readouts to average.")]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**64 - 1, help="Seed of the noise.")]
MaybeSeed = Annotated[
    int | None, typer.Option("--seed", min=0, max=2**64 - 1, help="Seed of the noise; default 0.")
]
MaybeDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        "-d",
        metavar="ADDRESS",
        help="Device for --fidelity device and for --calibrated; default LIGHTBED_DEVICE.",
    ),
]
Bus = Annotated[
    str | None, typer.Option("--bus", metavar="ADDRESS", help="Bus for --fidelity datapath, e.g. fastsim://.")
]
Calibrated = Annotated[
    bool, typer.Option("--calibrated", help="Use the noise that the calibration of --device measured.")
]
FaultNames = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        metavar="NAME",
        help="Reproduce a fault of the published emulator: last-layer-normalised, signs-dropped, or emulator for both.",
    ),
]

SIMULATED_BUS = "fastsim://"
NO_QUIRKS = Quirks()


@dataclass(frozen=True)
class Run:
    """Checked settings of a run: fidelity, noise, and device or bus."""

    fidelity: Fidelity
    noise: Noise | None
    device: Any
    """The connected soc for fidelity `device`, else None."""
    bus: str
    average: int
    quirks: Quirks = NO_QUIRKS

    def choose_seed(self, seed: int | None, *, has_table: bool = False) -> int:
        """Return the given seed, or 0. Raise `ConfigError` for a given seed if nothing is random.

        `has_table` is true if the run includes the comparison table, which has noise at every fidelity.
        """
        if seed is not None and self.fidelity in ("exact", "datapath") and not has_table:
            raise ConfigError(
                f"a seed is given, but fidelity {self.fidelity} is deterministic",
                hint="Leave --seed out, or use --fidelity noisy",
            )
        return seed or 0

    def open(self, model: CompiledModel, seed: int) -> Executor:
        """Open an executor for the model.

        Raise `ConfigError` for quirks if the model is not of the `published` scheme.
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

    def make_provenance(self, model: CompiledModel, seeds: tuple[int, ...]) -> Provenance:
        """Return the provenance of a result of this run."""
        return replace(self._make_provenance(model, seeds), faults=name_quirks(self.quirks))

    def _make_provenance(self, model: CompiledModel, seeds: tuple[int, ...]) -> Provenance:
        from lightning.evaluation.result import Provenance
        from lightning.kit.devices.identity import DeviceIdentity

        if self.fidelity == "datapath":
            return Provenance(model, self.fidelity, seeds, device=DeviceIdentity(self.bus, is_simulated=True))
        if self.fidelity != "device":
            return Provenance(model, self.fidelity, seeds, self.noise)
        from lightning.execution.multipliers.device import describe_calibration
        from lightning.kit.calibration.store import require as require_calibration
        from lightning.kit.devices.identity import read_identity

        calibration = describe_calibration(require_calibration(self.device))
        return Provenance(model, self.fidelity, seeds, None, read_identity(self.device), calibration)


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
    """Return the run that the options select, connected to its device for fidelity `device`.

    Raise `OutOfRange` for an unknown value, `ConfigError` for contradictory options, and the errors of `connect`.
    """
    from lightning.execution.interface import Fidelity

    has_noise_options = calibrated or any(option is not None for option in (place, sigma, mean))
    chosen_fidelity = check_choice(
        "fidelity", fidelity or ("noisy" if has_noise_options else "exact"), get_args(Fidelity)
    )
    if has_noise_options and chosen_fidelity != "noisy":
        raise ConfigError(
            f"noise options are given, but fidelity {chosen_fidelity} does not use them",
            hint="Use --fidelity noisy, or leave the noise options out",
        )
    if average > 1 and chosen_fidelity not in ("noisy", "device"):
        raise ConfigError(
            f"fidelity {chosen_fidelity} has no noise, so averaging has no effect",
            hint="Leave --average out, or use --fidelity noisy",
        )
    # Refuse a device or bus that the run does not use, so that nobody takes the result for one from this hardware.
    if device is not None and chosen_fidelity != "device" and not calibrated:
        raise ConfigError(
            f"a device is given, but fidelity {chosen_fidelity} uses none",
            hint="Use --fidelity device; for the noise measured on it use --calibrated; or leave --device out",
        )
    if bus is not None and chosen_fidelity != "datapath":
        raise ConfigError(
            f"a bus is given, but fidelity {chosen_fidelity} uses none",
            hint="Use --fidelity datapath, or leave --bus out",
        )
    noise = (
        choose_noise(place, sigma, mean, average, device, calibrated=calibrated)
        if chosen_fidelity == "noisy"
        else None
    )
    quirks = parse_quirks(faults or ())
    soc = _connect(device) if chosen_fidelity == "device" else None
    return Run(chosen_fidelity, noise, soc, bus or SIMULATED_BUS, average, quirks)


def parse_quirks(names: Sequence[str]) -> Quirks:
    """Return the quirks of these names. Raise `OutOfRange` for an unknown name.

    >>> parse_quirks(["signs-dropped"])
    Quirks(last_layer_normalised=False, signs_dropped=True)
    """
    quirk_names = name_quirks(EMULATOR)
    chosen_names = {check_choice("fault", fault, (*quirk_names, "emulator")) for fault in names}
    return Quirks(
        **{name.replace("-", "_"): True for name in quirk_names if chosen_names & {name, "emulator"}}
    )


def name_quirks(quirks: Quirks) -> tuple[str, ...]:
    """Return the names of quirks on the command line.

    >>> name_quirks(EMULATOR)
    ('last-layer-normalised', 'signs-dropped')
    """
    return tuple(name.replace("_", "-") for name, is_set in asdict(quirks).items() if is_set)


def choose_noise(
    place: str | None,
    sigma: float | None,
    mean: float | None,
    average: int,
    device: str | None,
    *,
    calibrated: bool,
) -> Noise:
    """Return the noise: from the calibration of a device if `calibrated`, else from the arguments.

    The default sigma is the prototype's. Raise `OutOfRange` for an unknown place, and `ConfigError` for sigma or mean
    with `calibrated`.
    """
    from lightning.compiler.measured import MEASURED_SIGMA
    from lightning.execution.noise import PLACES, Noise

    noise_place: Place = check_choice("noise", place or "per-product", tuple(PLACES))
    if not calibrated:
        return Noise(noise_place, MEASURED_SIGMA if sigma is None else sigma, mean or 0.0, average=average)
    if sigma is not None or mean is not None:
        raise ConfigError(
            "--calibrated takes sigma and mean from a calibration, but others are given",
            hint="Leave --sigma and --mean out",
        )
    from lightning.execution.multipliers.device import make_calibration_noise
    from lightning.kit.calibration.store import require as require_calibration

    return replace(
        make_calibration_noise(require_calibration(_connect(device))), place=noise_place, average=average
    )


def check_choice(option: str, value: str, known_values: tuple[str, ...]) -> Any:
    """Return the value of an option. Raise `OutOfRange` if it is not one of the known values."""
    if value not in known_values:
        raise OutOfRange(f"--{option} {value!r} is not known", hint=f"Choose {', '.join(known_values)}")
    return value


def _connect(device: str | None) -> Any:
    from lightning.kit.connection import connect

    return connect(device or os.environ.get("LIGHTBED_DEVICE") or TWIN)
