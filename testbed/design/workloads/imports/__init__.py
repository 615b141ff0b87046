"""Workloads from real models and traces: ONNX files, torch modules and Chakra execution traces.

`import_workload` reads ONNX files (extra `onnx`) and task graphs. `torch_module.import_torch` reads a torch module.
Imports of models report how they counted each type of computation.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sim.models.network.taskgraph import TaskGraph, read_task_graph
from testbed.design.workloads.imports.onnx_model import import_onnx
from testbed.design.workloads.imports.torch_module import import_torch
from testbed.design.workloads.imports.traced import Estimate, ImportedModel
from testbed.errors import WorkloadError

__all__ = ["Estimate", "ImportedModel", "import_onnx", "import_torch", "import_workload"]


def import_workload(
    path: str | Path,
    *,
    batch: int = 1,
    training: bool = True,
    dimensions: Mapping[str, int] | None = None,
) -> ImportedModel | TaskGraph:
    """Return the workload of an ONNX model (`.onnx`) with `batch` samples per iteration, or a task graph (`.npz`).

    The options apply only to ONNX models. Raises `WorkloadError` if the file cannot be read or is invalid.
    """
    suffix = Path(path).suffix.lower()
    if suffix == ".onnx":
        return import_onnx(path, batch=batch, training=training, dimensions=dimensions)
    if suffix != ".npz":
        raise WorkloadError(f"{path}: give an ONNX model (.onnx) or a task graph (.npz)")
    try:
        return read_task_graph(path)
    except OSError as error:
        raise WorkloadError(f"{path}: {error.strerror}: give a readable file") from error
    except ValueError as error:
        raise WorkloadError(str(error)) from error
