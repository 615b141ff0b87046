"""`lightning sweep MODULATOR`: the transfer curve of one modulator, without a calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightning.cli.options import TWIN, AsJson, Csv, Device, Png, Shots
from lightning.cli.output import EXIT_OK, list_file_names, mark_simulated, print_document, write_csv
from lightning.errors import CalibrationError

if TYPE_CHECKING:
    from lightning.kit.calibration.document import Outcome
    from lightning.kit.calibration.measurement.steps import Bench
    from lightning.kit.calibration.measurement.transfer import Sweep

Modulator = Annotated[int, typer.Argument(min=0, max=3, metavar="MODULATOR", help="0 to 3.")]
Points = Annotated[
    int,
    typer.Option(
        min=16, max=4096, help="Number of gain words to measure, spread evenly over the whole range."
    ),
]


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

    Meanwhile the other modulator of its pair is fully open, and the other pair is dark. No calibration is needed, and
    none is changed. For example: lightning sweep 0 --png curve.png
    """
    from lightning.kit.connection import connect
    from lightning.kit.devices.identity import read_identity

    soc = connect(device)
    identity = read_identity(soc)
    measured_sweep = measure_sweep(soc, modulator, points, shots)
    if png is not None:
        from lightning.kit.plots import save, transfer_curves

        save(transfer_curves({modulator: measured_sweep}, identity), png)
    if csv is not None:
        rows = zip(
            measured_sweep.words.tolist(),
            measured_sweep.levels.tolist(),
            measured_sweep.curve.compute_level(measured_sweep.words).tolist(),
            strict=True,
        )
        write_csv(csv, ("word", "level", "fit"), rows, identity)
    if as_json:
        samples = {
            "words": measured_sweep.words.tolist(),
            "levels": [round(y, 3) for y in measured_sweep.levels.tolist()],
        }
        print_document(
            identity, {**_list_figures(measured_sweep), **samples, "written": list_file_names((png, csv))}
        )
    else:
        figures = _list_figures(measured_sweep)
        print(
            mark_simulated(
                f"modulator {measured_sweep.index} of {identity.name}, {measured_sweep.words.size} points",
                identity,
            )
        )
        print(
            f"null at word {figures['null_word']:.0f}, quadrature {figures['quadrature_word']:.0f},"
            f" peak {figures['peak_word']:.0f}: V_pi is {figures['half_wave_word']:.0f} words"
        )
        print(
            f"swing {figures['swing_counts']:.0f} counts; residuals as a share of the swing: sin² fit "
            f"{measured_sweep.residual:.3%}, polynomial of degree 2 {figures['polynomial_residual']:.2%}, "
            f"Chebyshev polynomial of degree 3 {figures['chebyshev_residual']:.2%}"
        )
        for name in list_file_names((png, csv)):
            print(f"written: {name}")
    return EXIT_OK


def measure_sweep(soc: Any, modulator: int, point_count: int, shots: int) -> Sweep:
    """Measure delay and brightness of the light, then sweep the modulator.

    Raise `CalibrationError` if a measurement fails, for example without light, or if no curve can be fitted.
    """
    from lightning.kit.calibration.measurement.steps import Bench, measure_delay, measure_light
    from lightning.kit.calibration.measurement.transfer import sweep_modulators
    from lightning.kit.devices.identity import read_identity

    bench = Bench(soc, shots=shots)
    try:
        for step in (measure_delay, measure_light):
            _check_passed(step(bench), bench)
        return sweep_modulators(
            bench.make_reader(),
            bench.rough_curves,
            point_count=point_count,
            shots=shots,
            modulators=[modulator],
        )[modulator]
    except ValueError as error:
        if isinstance(error, CalibrationError):
            raise
        raise CalibrationError(
            f"no transfer curve can be fitted ({error})",
            device=read_identity(soc).name,
            hint=(
                "Check that the laser is on and the fibres are connected; `lightning scope` shows the "
                "waveform"
            ),
        ) from error


def _check_passed(outcome: Outcome, bench: Bench) -> None:
    from lightning.kit.devices.identity import read_identity

    if not outcome.passed:
        raise CalibrationError(
            f"{outcome.step}: {outcome.figure}; required: {outcome.limit}",
            device=read_identity(bench.soc).name,
            hint=outcome.hint,
        )


def _list_figures(measured_sweep: Sweep) -> dict[str, Any]:
    curve = measured_sweep.curve
    return {
        "modulator": measured_sweep.index,
        "half_wave_word": round(curve.half_wave, 1),
        "null_word": round(curve.null, 1),
        "quadrature_word": round(curve.quadrature, 1),
        "peak_word": round(curve.peak, 1),
        "swing_counts": round(curve.amplitude, 1),
        "residual": measured_sweep.residual,
        "polynomial_residual": measured_sweep.polynomial_residual(),
        "chebyshev_residual": measured_sweep.chebyshev_residual(),
    }
