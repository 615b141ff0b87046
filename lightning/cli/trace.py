"""`lightning trace MODEL`: one request on the simulated smartNIC, cycle by cycle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightning.cli.options import AsJson
from lightning.cli.output import EXIT_OK, list_file_names, print_document

if TYPE_CHECKING:
    from fpga.smartnic.request_trace import RequestTrace
    from lightning.compiler import CompiledModel

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A .lng, an .onnx, or an .npz of weights.")]
Image = Annotated[
    Path | None,
    typer.Option(
        "--image", metavar="FILE", help="An image or .npy of raw bytes (default: random, by --seed)."
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of a random input.")]
Plot = Annotated[Path, typer.Option("--png", metavar="FILE", help="File of the plot (.png, .svg or .pdf).")]
CLOCK_MHZ = 250


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("trace")(trace)


def trace(
    model: Model,
    image: Image = None,
    seed: Seed = 0,
    png: Plot = Path("request.png"),
    *,
    as_json: AsJson = False,
) -> int:
    """Trace a request through the simulated smartNIC, and plot every cycle with the counts of its modules.

    The first trace builds the simulator, which takes a minute. For example: lightning trace lenet.lng --png request.png
    """
    from lightning.canvas import check_file, save
    from lightning.compiler.compilation import load_or_compile
    from lightning.serving.nic import decode_request_answer, trace_model
    from lightning.serving.request_plot import plot_request

    check_file(png)
    compiled_model = load_or_compile(model)
    request_trace = trace_model(compiled_model, model.stem, _read_bytes(compiled_model, image, seed))
    answer = decode_request_answer(request_trace)
    document = {
        "model": str(model),
        "cycles": request_trace.cycle_count,
        "class": answer.class_index,
        "layers": request_trace.layer_start_cycles.tolist(),
        "counts": _list_counts(request_trace),
    }
    cycle_count = request_trace.cycle_count
    timing_text = f"{cycle_count:,} cycles, {cycle_count / CLOCK_MHZ:.2f} us at {CLOCK_MHZ} MHz"
    save(plot_request(request_trace, f"A request for {model.stem} on the smartNIC", timing_text), png)
    if as_json:
        print_document(None, {"simulated": True, **document, "plot": str(png)})
        return EXIT_OK
    print(f"SIMULATED {model.stem}: class {answer.class_index} after {timing_text}")
    for name, entry in document["counts"].items():
        targets = ", ".join(f"{target:,}" for target in entry["targets"])
        print(f"  {name:<22} {entry['fires']:>6} times at {targets}")
    print("\n".join(list_file_names([png])))
    return EXIT_OK


def _read_bytes(compiled_model: CompiledModel, image: Path | None, seed: int) -> bytes:
    """Return the bytes of one input. Raise `InputError` for values that are not bytes."""
    import numpy as np

    from lightning.errors import InputError
    from lightning.evaluation.images import read_input
    from lightning.execution.interface import get_raw_shape

    shape = get_raw_shape(compiled_model.network)
    if image is None:
        return np.random.default_rng(seed).integers(0, 256, shape, np.uint8).tobytes()
    raw = np.asarray(read_input(image, compiled_model.network))
    if raw.min() < 0 or raw.max() > 255 or (raw != np.rint(raw)).any():
        raise InputError(
            f"{image} has values from {raw.min():g} to {raw.max():g}; the smartNIC takes only integers from 0 to 255",
            hint="Use an image",
        )
    return raw.astype(np.uint8).tobytes()


def _list_counts(request_trace: RequestTrace) -> dict[str, dict[str, Any]]:
    """Return for each count its targets in order, and how often it reached a target."""
    targets, fires = request_trace.find_targets(), request_trace.count_fires()
    return {
        name: {
            "targets": list(dict.fromkeys(targets[name][targets[name] > 0].tolist())),
            "fires": fires[name],
        }
        for name in request_trace.trace.counts
        if targets[name].any()
    }
