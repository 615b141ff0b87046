"""`lightning compile NETWORK -o MODEL.lng`: quantisation of a trained network for photonic hardware."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from lightning.cli.options import AsJson, Shapes, Values
from lightning.cli.output import EXIT_OK, print_document, warn
from lightning.compiler.measured import MEASURED_SIGMA
from lightning.errors import InputError, OutOfRange

if TYPE_CHECKING:
    from lightning.compiler import CompiledModel
    from lightning.networks.network import Preprocessing

Network = Annotated[
    Path, typer.Argument(metavar="NETWORK", help="An .onnx, or an .npz of w1, w2, ... (b1, ...).")
]
Output = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="The .lng to write (default: NETWORK.lng here), or a tensor that the network returns; repeatable.",
    ),
]
SchemeName = Annotated[
    str | None,
    typer.Option(
        "--scheme", help="published (default for an .npz without biases) or scaled (default otherwise)."
    ),
]
Samples = Annotated[
    str | None,
    typer.Option(
        metavar="DATA",
        help="Raw inputs to measure ranges on: a .npy, an .npz of x or of inputs by name, digits, mnist:DIR, "
        "nsl-kdd:DIR.",
    ),
]
RangeName = Annotated[
    str, typer.Option("--ranges", help="Choice of activation ranges: error, min-max, percentile or entropy.")
]
Percentile = Annotated[float, typer.Option(help="Percentile of the magnitudes, for --ranges percentile.")]
Sigma = Annotated[
    float,
    typer.Option(
        min=0, help="Noise of a readout in units of 1/255, for which --ranges error chooses ranges."
    ),
]
PerTensor = Annotated[bool, typer.Option("--per-tensor", help="Use one weight scale per layer, not per row.")]
Wavelengths = Annotated[int, typer.Option(min=1, max=64, help="Products that share a detector sample.")]
Cores = Annotated[int, typer.Option(min=1, max=65536, help="Number of cores; each computes different rows.")]
Lanes = Annotated[int, typer.Option(min=1, max=1024, help="Samples per clock cycle.")]
SkipZeros = Annotated[bool, typer.Option("--skip-zeros", help="Do not send products whose weight is 0.")]
Wrap = Annotated[bool, typer.Option("--wrap", help="Sums wrap to 16 bits, as in the published datapath.")]
PerfectScaling = Annotated[
    bool,
    typer.Option(
        "--perfect-scaling",
        help="Scheme published: scale activations to exactly 255 instead of shifting them.",
    ),
]
Seed = Annotated[
    int, typer.Option(min=0, help="Seed of the selection of samples, if there are more than are used.")
]
Scale = Annotated[float | None, typer.Option(help="Factor by which raw inputs are multiplied first.")]
Mean = Annotated[
    str | None, typer.Option(metavar="M[,M...]", help="Mean that is then subtracted, one per channel.")
]
Deviation = Annotated[
    str | None,
    typer.Option(metavar="D[,D...]", help="Deviation by which the difference is divided, one per channel."),
]
Layout = Annotated[str | None, typer.Option(help="Layout of raw inputs: as-is, or HWC (channels last).")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compile")(compile_file)


def compile_file(
    network: Network,
    output: Output = None,
    scheme: SchemeName = None,
    samples: Samples = None,
    ranges: RangeName = "error",
    percentile: Percentile = 99.9,
    sigma: Sigma = MEASURED_SIGMA,
    wavelengths: Wavelengths = 1,
    cores: Cores = 1,
    lanes: Lanes = 16,
    scale: Scale = None,
    mean: Mean = None,
    deviation: Deviation = None,
    layout: Layout = None,
    seed: Seed = 0,
    shape: Shapes = None,
    value: Values = None,
    *,
    per_tensor: PerTensor = False,
    skip_zeros: SkipZeros = False,
    wrap: Wrap = False,
    perfect_scaling: PerfectScaling = False,
    as_json: AsJson = False,
) -> int:
    """Quantise a trained network, tile it over lanes, wavelengths and cores, and report on every layer.

    For example: lightning compile digits.onnx --samples digits --scale 0.00392 -o digits.lng
    """
    from lightning.cli.explain import format_summary
    from lightning.compiler import Hardware, Options, load_or_compile, save_model
    from lightning.compiler.explain import report
    from lightning.compiler.options import Ranges, Scheme
    from lightning.networks.imports.onnx.choices import parse_choices
    from lightning.networks.preprocess import pack_named_inputs

    hardware = Hardware(lanes, wavelengths, cores, skip_zeros=skip_zeros)
    scheme = scheme or ("published" if perfect_scaling else None)
    options = Options(
        scheme=cast(Scheme, scheme or "scaled"),
        per_channel=not per_tensor,
        ranges=cast(Ranges, ranges),
        percentile=percentile,
        sigma=sigma,
        wrap=wrap,
        perfect_scaling=perfect_scaling,
        hardware=hardware,
        seed=seed,
    )
    preprocessing = _make_preprocessing(scale, mean, deviation, layout)
    output_names, output_path = _split_outputs(network, output or [])
    choices = parse_choices(shape or [], value or [], output_names)
    samples_data = None if samples is None else load_samples(samples)
    if network.suffix == ".lng":
        raise OutOfRange(
            f"{network} is already compiled", hint="Give the .onnx or .npz file, or run `lightning explain`"
        )
    model = load_or_compile(
        network, samples_data, options, preprocessing, choices, choose_scheme=scheme is None
    )
    raw_inputs = (
        pack_named_inputs(model.network, samples_data) if isinstance(samples_data, dict) else samples_data
    )
    warnings = (
        [] if raw_inputs is None or preprocessing else warn(_find_warnings(model, str(samples), raw_inputs))
    )
    model_path = output_path or Path(f"{network.stem}.lng")
    save_model(model, model_path)
    compiled_report = report(model)
    if as_json:
        print_document(None, {"written": [str(model_path)], "warnings": warnings, **compiled_report.document})
    else:
        print(
            "\n".join(
                [
                    *format_summary(compiled_report),
                    "",
                    f"{compiled_report.cycles:,} cycles per image, written to {model_path}",
                ]
            )
        )
    return EXIT_OK


def _split_outputs(network: Path, option_values: list[str]) -> tuple[list[str], Path | None]:
    """Return the names of tensors and the file in the values of --output. Raise `OutOfRange` for two files."""
    from lightning.networks.imports.onnx.file import read_tensor_names

    tensor_names = read_tensor_names(network) if option_values and network.suffix == ".onnx" else frozenset()
    output_names = [value for value in option_values if value in tensor_names]
    files = [Path(value) for value in option_values if value not in tensor_names]
    if len(files) > 1:
        raise OutOfRange(
            f"--output names {files[0]} and {files[1]}; neither is a tensor of {network.name}",
            hint="Name one file, and tensors of the network",
        )
    return output_names, files[0] if files else None


def _find_warnings(model: CompiledModel, name: str, raw_inputs: Any) -> Iterator[str]:
    """Return the warnings about the range of the samples."""
    from lightning.evaluation.warnings import find_data_warnings

    return find_data_warnings(model, name, raw_inputs)


def load_samples(name: str) -> Any:
    """Return samples: the array of a .npy, the arrays of an .npz by name, or the training part of a data set.

    Raise `InputError` for a file without arrays, and `DatasetError` for a data set that cannot be read.
    """
    from zipfile import BadZipFile

    import numpy as np

    if Path(name).suffix not in {".npy", ".npz"}:
        from lightning.evaluation import load_dataset

        dataset = load_dataset(name)
        samples = dataset.separate_samples().train_x
        # Warn the user, because ranges from test images may improve a later evaluation on these images.
        if not len(dataset.train_x):
            sys.stderr.write(
                f"warning: {name} has no training part; ranges are measured on {len(samples)} of its test images\n"
            )
        return samples
    if not Path(name).is_file():
        raise InputError(f"there is no file {name}", hint="Check the path")
    try:
        arrays = np.load(name, allow_pickle=False)
        return (
            arrays
            if isinstance(arrays, np.ndarray)
            else {array_name: arrays[array_name] for array_name in arrays.files}
        )
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise InputError(
            f"{name} holds no samples", hint="Give a .npy of raw inputs, or an .npz with an array x"
        ) from error


def _make_preprocessing(
    scale: float | None, mean: str | None, deviation: str | None, layout: str | None
) -> Preprocessing | None:
    """Return the preprocessing of the options. Without options return None, which selects the importer's own."""
    from lightning.networks.network import Preprocessing

    if scale is None and mean is None and deviation is None and layout is None:
        return None
    return Preprocessing(
        1.0 if scale is None else scale,
        _parse_numbers("--mean", mean or "0"),
        _parse_numbers("--deviation", deviation or "1"),
        layout or "as-is",
    )


def _parse_numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise OutOfRange(
            f"{option} {text!r} is not a valid list of numbers", hint="Write 0.5 or 0.48,0.45,0.41"
        ) from None
