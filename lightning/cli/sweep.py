"""`lightning sweep MODULATOR`: the transfer curve of one modulator, with nothing known about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightning.cli.options import TWIN, AsJson, Csv, Device, Png, Shots
from lightning.cli.output import DONE, list_written, mark_simulated, print_document, write_csv
from lightning.errors import CalibrationError

if TYPE_CHECKING:
    from lightning.kit.calibration.document import Outcome
    from lightning.kit.calibration.measurement.steps import Bench
    from lightning.kit.calibration.measurement.transfer import Sweep

Modulator = Annotated[int, typer.Argument(min=0, max=3, metavar="MODULATOR", help="0 to 3.")]
Points = Annotated[int, typer.Option(min=16, max=4096, help="Gain words over the range.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("sweep")(sweep)


def sweep(
    modulator: Modulator,
    device: Device = TWIN,
    points: Points = 256,
    shots: Shots = 4,
    png: Png = None,
    csv: Csv = None,
    *,
    as_json: AsJson = False,
) -> int:
    """Sweep the gain word of a modulator, and fit its transfer curve.

    Its partner stands open meanwhile, and the other pair is dark. No calibration is needed, and none is changed. For
    example: lightning sweep 0 --png curve.png
    """
    from lightning.kit.connection import connect
    from lightning.kit.devices.identity import identity_of

    soc = connect(device)
    whose = identity_of(soc)
    found = measure_sweep(soc, modulator, points, shots)
    if png is not None:
        from lightning.kit.plots import save, transfer_curves

        save(transfer_curves({modulator: found}, whose), png)
    if csv is not None:
        rows = zip(
            found.words.tolist(), found.levels.tolist(), found.curve.level(found.words).tolist(), strict=True
        )
        write_csv(csv, ("word", "level", "fit"), rows, whose)
    if as_json:
        samples = {"words": found.words.tolist(), "levels": [round(y, 3) for y in found.levels.tolist()]}
        print_document(whose, {**_figures(found), **samples, "written": list_written((png, csv))})
    else:
        figures = _figures(found)
        print(mark_simulated(f"modulator {found.index} of {whose.name}, {found.words.size} points", whose))
        print(
            f"null at word {figures['null_word']:.0f}, quadrature {figures['quadrature_word']:.0f},"
            f" peak {figures['peak_word']:.0f}: V_pi is {figures['half_wave_word']:.0f} words"
        )
        print(
            f"swing {figures['swing_counts']:.0f} counts; residual of the sin² fit {found.residual:.3%} "
            f"of the swing, of a polynomial of degree 2 {figures['polynomial_residual']:.2%}, of "
            f"Chebyshev of degree 3 {figures['chebyshev_residual']:.2%}"
        )
        for name in list_written((png, csv)):
            print(f"written: {name}")
    return DONE


def measure_sweep(soc: Any, modulator: int, points: int, shots: int) -> Sweep:
    """Find when light answers, how bright it is, and sweep. Raises `CalibrationError` where no light answers."""
    from lightning.kit.calibration.measurement.steps import Bench, delay, light
    from lightning.kit.calibration.measurement.transfer import sweep_all
    from lightning.kit.devices.identity import identity_of

    bench = Bench(soc, shots=shots)
    try:
        for step in (delay, light):
            _pass(step(bench), bench)
        return sweep_all(bench.reader(), bench.rough, points=points, shots=shots, which=[modulator])[
            modulator
        ]
    except ValueError as error:
        if isinstance(error, CalibrationError):
            raise
        raise CalibrationError(
            f"no transfer curve can be fitted ({error})",
            device=identity_of(soc).name,
            hint=(
                "Check that the laser is on and the fibres are connected; `lightning scope` shows the "
                "waveform"
            ),
        ) from error


def _pass(outcome: Outcome, bench: Bench) -> None:
    from lightning.kit.devices.identity import identity_of

    if not outcome.passed:
        raise CalibrationError(
            f"{outcome.step}: {outcome.figure}; required: {outcome.limit}",
            device=identity_of(bench.soc).name,
            hint=outcome.hint,
        )


def _figures(found: Sweep) -> dict[str, Any]:
    curve = found.curve
    return {
        "modulator": found.index,
        "half_wave_word": round(curve.half_wave, 1),
        "null_word": round(curve.null, 1),
        "quadrature_word": round(curve.quadrature, 1),
        "peak_word": round(curve.peak, 1),
        "swing_counts": round(curve.amplitude, 1),
        "residual": found.residual,
        "polynomial_residual": found.polynomial_residual(),
        "chebyshev_residual": found.chebyshev_residual(),
    }
