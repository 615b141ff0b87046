"""Workloads from real models: ONNX files and torch modules.

`files.workload_from_file` reads ONNX files (extra `onnx`) and task graphs; `torch_module.import_torch` takes a module.
Both say how each type of computation was counted.
"""

from testbed.design.workloads.imports.files import workload_from_file
from testbed.design.workloads.imports.onnx_model import import_onnx
from testbed.design.workloads.imports.torch_module import import_torch
from testbed.design.workloads.imports.traced import Estimate, Imported

__all__ = ["Estimate", "Imported", "import_onnx", "import_torch", "workload_from_file"]
