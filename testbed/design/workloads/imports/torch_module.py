"""Workloads from torch modules, which run once on tensors without values (the meta device).

The trace records every computation of torch, regardless of the Python code that calls it. Weights are replaced by their
shapes, so a module may be larger than the memory. Shared weights count once. Control flow must not depend on values.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from lightbed.wording import describe_extra
from testbed.design.workloads.imports.traced import (
    ImportedModel,
    Source,
    TracedComputation,
    TracedKind,
    assemble_model,
    count_attention_flops,
    count_convolution_flops,
    count_product_flops,
    count_transposed_flops,
    unite_computation_indices,
    unite_weights,
)
from testbed.errors import WorkloadError

#: Indices of the two factors of a product among the arguments.
_PRODUCTS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(
        ("mm", "bmm", "matmul", "mv", "dot", "linear", "_int_mm", "_scaled_mm", "_grouped_mm"), (0, 1)
    ),
    **dict.fromkeys(("addmm", "addmv", "baddbmm", "addbmm", "_addmm_activation"), (1, 2)),
}
_TABLES = frozenset(("embedding", "_embedding_bag", "_embedding_bag_forward_only"))
#: Calls that compute nothing, although torch does not mark them as views.
_WITHOUT_COMPUTING = frozenset(("_unsafe_view", "lift_fresh", "alias"))


def import_torch(
    module: Any, inputs: Sequence[Any], *, batch: int, training: bool = True, name: str | None = None
) -> ImportedModel:
    """Return the workload of a torch module with `batch` samples per iteration.

    `inputs` are example tensors for its `forward`, on any device, including `meta`. The first dimension of the first
    input is the number of samples. All parameters count as trained. Raises `WorkloadError` for inputs without samples,
    and if the module cannot run without values.
    """
    torch = _import_torch_package()
    label = name or type(module).__name__
    if not inputs or not inputs[0].dim():
        raise WorkloadError(f"{label}: give example inputs; the first must have a dimension of samples")
    if not inputs[0].shape[0]:
        raise WorkloadError(f"{label}: the first example input has no samples: give at least 1")
    trace = _Trace(label)
    meta_tensors = {
        key: torch.empty_like(value, device="meta").requires_grad_(value.requires_grad)
        for key, value in _list_tensors(module)
    }
    examples = tuple(value.to("meta") for value in inputs)
    trace.begin(dict(module.named_parameters()), meta_tensors, examples)
    try:
        with torch.device("meta"), trace.name_by_submodule(module), _make_recorder(trace):
            torch.func.functional_call(module, meta_tensors, examples)
    except Exception as error:
        raise WorkloadError(
            f"{label} cannot run on tensors without values: {error}; control flow must not depend on "
            "values, and constant tensors must be buffers"
        ) from error
    return assemble_model(
        label,
        trace.traced_computations,
        samples=int(inputs[0].shape[0]),
        batch=batch,
        training=training,
        origin=f"torch module {type(module).__qualname__}",
    )


def _import_torch_package() -> Any:
    try:
        import torch
    except ImportError as error:
        raise WorkloadError(
            f"reading a torch module needs torch ({error}): {describe_extra('collectives')}"
        ) from error
    return torch


def _list_tensors(module: Any) -> Iterator[tuple[str, Any]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _make_recorder(trace: _Trace) -> Any:
    """Return a dispatch mode that records computations. Torch calls it for every computation, below autograd."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            trace.record(func, (*args, *(kwargs or {}).values()), result)
            return result

    return Recorder()


class _Trace:
    """Trace of a run: all computations so far, and the source of each tensor.

    Tensors are identified by `id`, so the trace keeps all tensors alive.
    """

    def __init__(self, label: str) -> None:
        self.traced_computations: list[TracedComputation] = []
        self._modules = [label]
        self._tensors: list[Any] = []
        self._sources: dict[int, Source] = {}

    def begin(
        self, parameters: Mapping[str, Any], meta_tensors: Mapping[str, Any], inputs: Sequence[Any]
    ) -> None:
        """Record the sources of parameters and inputs."""
        for key in parameters:
            self._set_source(meta_tensors[key], Source(weights={key: _count_bytes(meta_tensors[key])}))
        for value in inputs:
            self._set_source(value, Source(depends_on_input=True))

    @contextmanager
    def name_by_submodule(self, module: Any) -> Iterator[None]:
        """Name all computations in this context after the submodule that runs them."""
        handles = []
        for name, submodule in module.named_modules():
            if name:
                handles.append(
                    submodule.register_forward_pre_hook(lambda *_, name=name: self._modules.append(name))
                )
                handles.append(submodule.register_forward_hook(lambda *_: self._modules.pop() and None))
        try:
            yield
        finally:
            for hook in handles:
                hook.remove()

    def record(self, func: Any, arguments: Sequence[Any], result: Any) -> None:
        """Record one call of torch."""
        name = func.overloadpacket.__name__
        tensors = list(_flatten(arguments))
        sources = [self._sources.get(id(tensor), Source()) for tensor in tensors]
        results = list(_flatten((result,)))
        source = self._trace_call(func, name, arguments, tensors, sources, results)
        for tensor in results:
            self._set_source(tensor, source)

    def _trace_call(
        self,
        func: Any,
        name: str,
        arguments: Sequence[Any],
        tensors: Sequence[Any],
        sources: Sequence[Source],
        results: Sequence[Any],
    ) -> Source:
        if sources and (func.is_view or name in _WITHOUT_COMPUTING):
            return sources[0]
        weights = unite_weights(sources)
        weight_flags = [self._is_weight(argument) for argument in arguments]
        call_count = _count_call(name, arguments, weight_flags, results)
        only_weights = call_count.kind != "dense" or all(source.weights for source in sources)
        if only_weights and not any(source.depends_on_input for source in sources):
            return Source(weights=weights)
        floating_results = [tensor for tensor in results if tensor.is_floating_point()]
        output_bytes = sum(map(_count_bytes, floating_results or results))
        data = zip(tensors, sources, strict=True)
        read_bytes = sum(_count_bytes(tensor) for tensor, source in data if source.depends_on_input)
        self.traced_computations.append(
            TracedComputation(
                self._modules[-1],
                name,
                call_count.kind,
                unite_computation_indices(sources),
                call_count.flops,
                weights,
                read_bytes + call_count.rows_bytes,
                output_bytes,
                call_count.how,
            )
        )
        return Source(computation_indices=(len(self.traced_computations) - 1,), depends_on_input=True)

    def _is_weight(self, argument: Any) -> bool:
        source = self._sources.get(id(argument), Source())
        return bool(source.weights) and not source.depends_on_input

    def _set_source(self, tensor: Any, source: Source) -> None:
        self._tensors.append(tensor)
        self._sources[id(tensor)] = source


class _CallCount(NamedTuple):
    kind: TracedKind
    flops: float
    how: str
    rows_bytes: int = 0


def _count_call(
    name: str, arguments: Sequence[Any], weight_flags: Sequence[bool], results: Sequence[Any]
) -> _CallCount:
    """Return the kind and operations of one call. `weight_flags` marks the arguments that are weights."""
    if name in _PRODUCTS:
        factors = _PRODUCTS[name]
        left_shape, right_shape = (tuple(arguments[index].shape) for index in factors)
        if name == "linear":
            right_shape = right_shape[::-1]
        is_dense = any(weight_flags[index] for index in factors)
        return _CallCount(
            "dense" if is_dense else "other", count_product_flops(left_shape, right_shape), "2 m n k"
        )
    if name == "convolution":
        return _count_convolution(arguments, results)
    if name in _TABLES:
        read_count = prod(arguments[1].shape) * arguments[0].shape[1]
        size = read_count * arguments[0].element_size()
        return _CallCount("embedding" if weight_flags[0] else "other", 0.0, "bytes moved", size)
    if name.startswith("_scaled_dot_product"):
        shapes = [tuple(argument.shape) for argument in arguments[:3]]
        return _CallCount("other", count_attention_flops(*shapes), "2 s t (d + e) per head")
    return _CallCount("other", 0.0, "bytes moved")


def _count_convolution(arguments: Sequence[Any], results: Sequence[Any]) -> _CallCount:
    inputs, weight = (tuple(argument.shape) for argument in arguments[:2])
    is_transposed = arguments[6]
    if is_transposed:
        return _CallCount(
            "convolution", count_transposed_flops(inputs, weight), "2 per kernel weight and input value"
        )
    flops = count_convolution_flops(tuple(results[0].shape), weight)
    return _CallCount("convolution", flops, "2 per kernel weight and output value")


def _flatten(values: Sequence[Any]) -> Iterator[Any]:
    """Yield all tensors in arguments and lists of arguments."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flatten(value)
        elif hasattr(value, "element_size"):
            yield value


def _count_bytes(tensor: Any) -> int:
    size: int = tensor.numel() * tensor.element_size()
    return size


def import_factory(name: str, *, batch: int, training: bool = True) -> ImportedModel:
    """Return the workload of `MODULE:FACTORY`, a function that returns a torch module and its example input or inputs.

    The current folder is on the module path. Raises `WorkloadError` for a missing module or function, for an error in
    the user's code, and for any other result.
    """
    module_name, _, factory_name = name.partition(":")
    if not module_name or not factory_name:
        raise WorkloadError(f"--torch {name!r} is not MODULE:FACTORY (example: --torch my_models:make)")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except ImportError as error:
        raise WorkloadError(f"--torch {name}: {error}; give a module that Python can import") from error
    except AttributeError as error:
        raise WorkloadError(f"--torch {name}: {error}; give a function of that module") from error
    except Exception as error:
        raise _make_user_code_error(name, error) from error
    try:
        result = factory()
    except Exception as error:
        raise _make_user_code_error(name, error) from error
    if not isinstance(result, tuple) or len(result) != 2:
        raise WorkloadError(f"--torch {name}: it must return a pair, the module and its example inputs")
    module, inputs = result
    examples = inputs if isinstance(inputs, tuple | list) else (inputs,)
    return import_torch(module, tuple(examples), batch=batch, training=training, name=factory_name)


def _make_user_code_error(name: str, error: Exception) -> WorkloadError:
    """Return an error with the line of the user's code that raised: a traceback would mostly show our code."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    code_line = f"{Path(frame.filename).name}, line {frame.lineno}"
    return WorkloadError(f"--torch {name}: {code_line} raised {type(error).__name__}: {error}; fix it there")
