"""`lightning infer MODEL IMAGE`: classification of one image or one array of raw values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightning.cli import noise_options
from lightning.cli.options import AsJson
from lightning.cli.output import EXIT_OK, collect_saturation, print_document, warn

if TYPE_CHECKING:
    from lightning.compiler import CompiledModel
    from lightning.evaluation.images import Raw
    from lightning.execution.interface import Answers

Image = Annotated[
    Path,
    typer.Argument(
        metavar="IMAGE", help="An image (.png), an .npy of raw values, or an .npz of inputs by name."
    ),
]
Resize = Annotated[bool, typer.Option("--resize", help="Scale the image to the size that the model takes.")]
Key = Annotated[
    int, typer.Option("--key", min=0, max=2**64 - 1, help="Key of the image, which selects its noise.")
]

LISTED_CLASSES = 5
"""Number of classes to list."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("infer")(infer)


def infer(
    model: noise_options.Model,
    image: Image,
    fidelity: noise_options.FidelityName = None,
    noise: noise_options.NoisePlace = None,
    sigma: noise_options.Sigma = None,
    mean: noise_options.Mean = None,
    average: noise_options.Average = 1,
    seed: noise_options.MaybeSeed = None,
    key: Key = 0,
    device: noise_options.MaybeDevice = None,
    bus: noise_options.Bus = None,
    fault: noise_options.FaultNames = None,
    *,
    calibrated: noise_options.Calibrated = False,
    resize: Resize = False,
    as_json: AsJson = False,
) -> int:
    """Classify an image with a model.

    For example: lightning infer model.lng seven.png --fidelity noisy
    """
    from lightning.compiler.compilation import load_or_compile
    from lightning.evaluation.images import read_input
    from lightning.evaluation.warnings import find_clipping_warnings

    run = noise_options.choose_run(
        fidelity, noise, sigma, mean, average, device, bus, fault, calibrated=calibrated
    )
    seed = run.choose_seed(seed)
    compiled_model = load_or_compile(model)
    raw_input = read_input(image, compiled_model.network, resize=resize)
    warnings = warn(_find_warnings(compiled_model, image, raw_input))
    answers = _run_model(run, compiled_model, raw_input, seed, key)
    warnings += warn(find_clipping_warnings(compiled_model, 1, answers.counters))
    provenance = run.make_provenance(compiled_model, (seed,))
    if as_json:
        answer = {"image": str(image), "key": key, **_make_document(compiled_model, answers)}
        print_document(None, {**provenance.document, **answer, "warnings": warnings})
    else:
        simulated_suffix = "  SIMULATED" if provenance.device.is_simulated else ""
        print(f"class {answers.classes[0]} ({provenance.description}){simulated_suffix}")
        print("\n".join(f"  {entry['class']:>5}  {entry['score']:g}" for entry in list_best(answers)))
    return EXIT_OK


def _make_document(compiled_model: CompiledModel, answers: Answers) -> dict[str, Any]:
    """Return the answer, with the outputs by name if the network has named outputs."""
    from lightning.networks.preprocess import unpack

    answer = {"class": int(answers.classes[0]), "scores": answers.scores[0].ravel().tolist()}
    arrays_by_output = (
        unpack(compiled_model.network, answers.scores) if compiled_model.network.outputs else {}
    )
    outputs = (
        {"outputs": {name: array[0].tolist() for name, array in arrays_by_output.items()}}
        if arrays_by_output
        else {}
    )
    return {**answer, **outputs, "cycles": answers.cycles, "counters": dict(answers.counters)}


def _run_model(
    run: noise_options.Run, compiled_model: CompiledModel, raw_input: Raw, seed: int, key: int
) -> Answers:
    import numpy as np

    executor = run.open(compiled_model, seed)
    try:
        with collect_saturation():
            return executor.run(raw_input, np.array([key], dtype=np.uint64))
    finally:
        executor.close()


def _find_warnings(compiled_model: CompiledModel, image: Path, raw_input: Raw) -> Iterator[str]:
    from lightning.evaluation.images import loses_colours
    from lightning.evaluation.warnings import find_data_warnings

    yield from find_data_warnings(compiled_model, image.name, raw_input)
    if loses_colours(image, compiled_model.network):
        yield f"{image.name} has colours, and {compiled_model.network.name} takes grey levels: colours become grey"


def list_best(answers: Answers) -> list[dict[str, Any]]:
    """Return the `LISTED_CLASSES` classes with the largest scores, largest first, and equal scores by class."""
    import numpy as np

    scores = answers.scores[0].ravel()
    best_classes = np.argsort(-scores, kind="stable")[:LISTED_CLASSES]
    return [
        {"class": int(class_number), "score": float(scores[class_number])} for class_number in best_classes
    ]
