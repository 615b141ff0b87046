"""`lightning energy MODEL`: latency and energy of an inference by part, compared with digital hardware."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightning.cli.options import AsJson, Png
from lightning.cli.output import EXIT_OK, print_document
from lightning.costs import PRESETS

if TYPE_CHECKING:
    from lightning.compiler import CompiledModel
    from lightning.costs import Costs, Figure
    from lightning.costs.shot_noise import ShotPoint

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A .lng, or an .npz of weights without biases.")]
Presets = Annotated[
    str, typer.Option("--preset", help=f"Parts of the system: {', '.join(PRESETS)}, or all of them.")
]
ShotLimit = Annotated[
    str | None,
    typer.Option(
        "--shot-limit",
        metavar="DATA",
        help="Measure accuracy against photons on this data set (named as for `evaluate`).",
    ),
]
Limit = Annotated[int, typer.Option(min=1, help="Number of images for --shot-limit.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("energy")(energy)


def energy(
    model: Model,
    preset: Presets = "all",
    shot_limit: ShotLimit = None,
    limit: Limit = 1000,
    png: Png = None,
    *,
    as_json: AsJson = False,
) -> int:
    """Estimate time and energy of an image, with and without converters, compared with digital hardware.

    For example: lightning energy model.lng --preset chip
    """
    from lightning.compiler import load_or_compile
    from lightning.costs import estimate_costs
    from lightning.costs.shot_noise import SEED_COUNT

    compiled_model = load_or_compile(model)
    all_costs = [estimate_costs(compiled_model, name) for name in (PRESETS if preset == "all" else [preset])]
    points, exact_accuracy = (
        _measure_shot_points(compiled_model, shot_limit, limit) if shot_limit else ((), 0.0)
    )
    if png is not None:
        from lightning.canvas import save
        from lightning.costs.energy_plot import plot_energy, plot_shot_noise

        name = Path(model).stem
        save(plot_shot_noise(points, name, exact_accuracy) if points else plot_energy(all_costs, name), png)
    if as_json:
        settings = (
            {"data": shot_limit, "images": limit, "seeds": SEED_COUNT, "exact": exact_accuracy}
            if points
            else {}
        )
        shot_noise_document = {**settings, "points": [asdict(point) for point in points]}
        print_document(
            None,
            {
                **_describe_origin(compiled_model),
                **_make_document(all_costs),
                "shot_limit": shot_noise_document,
            },
        )
        return EXIT_OK
    for preset_costs in all_costs:
        print("\n".join(_format_table(preset_costs)))
    print("\n".join(_format_baselines(all_costs[0].work.macs)))
    if points:
        print("\n".join(_format_shot_points(points, exact_accuracy)))
    return EXIT_OK


def _describe_origin(compiled_model: CompiledModel) -> dict[str, Any]:
    from lightning.compiler.compilation import get_toolkit_version
    from lightning.compiler.lng_file import model_hash

    return {
        "version": get_toolkit_version(),
        "model": compiled_model.network.name,
        "model_hash": model_hash(compiled_model),
        "scheme": compiled_model.scheme_in_words,
    }


def _measure_shot_points(
    compiled_model: CompiledModel, dataset_name: str, limit: int
) -> tuple[tuple[ShotPoint, ...], float]:
    from lightning.costs.shot_noise import measure_shot_noise
    from lightning.evaluation import load_dataset
    from lightning.execution import open_executor

    dataset = load_dataset(dataset_name)
    inputs, labels = dataset.x[:limit], dataset.y[:limit]
    exact_accuracy = float((open_executor(compiled_model, "exact").run(inputs).classes == labels).mean())
    return measure_shot_noise(compiled_model, inputs, labels), exact_accuracy


def _make_document(all_costs: list[Costs]) -> dict[str, Any]:
    from lightning.costs import BASELINES

    return {
        "presets": {
            preset_costs.preset.name: _make_preset_document(preset_costs) for preset_costs in all_costs
        },
        "baselines": [
            {**asdict(baseline), "joules_per_mac": baseline.joules_per_mac} for baseline in BASELINES
        ],
    }


def _make_preset_document(costs: Costs) -> dict[str, Any]:
    return {
        "cycles": costs.work.cycles,
        "clock_hz": costs.clock_hz,
        "latency_s": costs.latency_s,
        "joules_per_image": costs.joules_per_image,
        "joules_without_converters": costs.joules_without_converters,
        "joules_per_mac": costs.joules_per_mac,
        "left_out": costs.preset.omitted_parts,
        "lines": [
            {
                "name": line.name,
                "group": line.group,
                "count": line.count,
                "per": line.counted_work,
                "each": asdict(line.unit_energy),
                "joules": line.joules,
            }
            for line in costs.lines
        ],
        "layers": {name: {**asdict(work), "cycles": work.cycles} for name, work in costs.layers.items()},
    }


def _format_table(costs: Costs) -> list[str]:
    from lightning.costs.presets import format_joules

    cycles = f"{costs.work.cycles:,} cycles at {costs.clock_hz / 1e6:g} MHz"
    lines = [
        f"{costs.preset.name}: {costs.preset.title}",
        f"  {cycles}: {costs.latency_s * 1e6:.1f} us per image",
    ]
    sources = list(dict.fromkeys(_cite_source(line.unit_energy) for line in costs.lines))
    lines += [
        f"  {line.name:<32}{format_joules(line.joules):>10}   {line.count:>8.4g}"
        f" x {_format_figure(line.unit_energy):<9}"
        f" ({sources.index(_cite_source(line.unit_energy)) + 1})"
        for line in costs.lines
    ]
    lines.append(
        f"  {'all':<32}{format_joules(costs.joules_per_image):>10}   {format_joules(costs.joules_per_mac)} per MAC"
    )
    lines.append(f"  {'without converters':<32}{format_joules(costs.joules_without_converters):>10}")
    lines += [f"  ({number}) {source}" for number, source in enumerate(sources, 1)]
    return [*lines, f"  Not included: {costs.preset.omitted_parts}", ""]


def _format_figure(figure: Figure) -> str:
    from lightning.costs.presets import format_joules

    return format_joules(figure.value) if figure.unit == "J" else f"{figure.value:.4g} {figure.unit}"


def _cite_source(figure: Figure) -> str:
    return f"{figure.source}{': ' + figure.assumed if figure.assumed else ''}"


def _format_baselines(macs: int) -> list[str]:
    from lightning.costs import BASELINES
    from lightning.costs.presets import format_joules

    lines = [f"digital hardware, {macs:,} MACs per image"]
    lines += [
        f"  {baseline.name:<32}{format_joules(baseline.joules_per_mac * macs):>10}   "
        f"{format_joules(baseline.joules_per_mac)} per MAC: {baseline.assumption} ({baseline.source})"
        for baseline in BASELINES
    ]
    return lines


def _format_shot_points(points: tuple[ShotPoint, ...], exact_accuracy: float) -> list[str]:
    from lightning.costs.presets import format_joules
    from lightning.costs.shot_noise import MIN_NORMAL_PHOTONS

    head = f"shot noise alone (accuracy without noise: {100 * exact_accuracy:.2f} %)"
    lines = [
        f"  {point.photons:>8g} photons per product  {format_joules(point.joules):>10}  {100 * point.accuracy:6.2f} %"
        f" +- {100 * point.spread:.2f}{'  *' if point.photons < MIN_NORMAL_PHOTONS else ''}"
        for point in points
    ]
    note = f"  * below {MIN_NORMAL_PHOTONS} photons a count is not normally distributed, unlike the noise drawn here"
    return ["", head, *lines, *([note] if points[0].photons < MIN_NORMAL_PHOTONS else [])]
