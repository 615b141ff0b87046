"""Operators for building models, with the formulas for their sizes, and the assembly of workloads.

All formulas are for one sample. A matrix product of (a, b) with (b, c) takes 2abc floating-point operations. The
backward pass takes twice as many as the forward pass: the gradients of the weights and of the input are two products of
the same size. (The input of the first layer needs no gradient, but it is counted, as in the rule 6ND.) Element-wise
work (activations, normalisation, softmax) counts as bytes moved, not as operations, since memory limits it. Every
tensor between two kernels is written once and read once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from testbed.design.workloads.model import Operator, Way, Workload


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes per number, and bytes of state per parameter: gradient, master copy, optimiser state.

    Tables have no state, since their rows are updated in place.
    """

    number_bytes: int
    state_bytes: int
    is_training: bool = True

    @property
    def backward_ratio(self) -> float:
        """Backward operations per forward operation."""
        return 2.0 if self.is_training else 0.0


#: Single precision with plain gradient descent, as in the TopoOpt artifact.
SINGLE_PRECISION = Precision(number_bytes=4, state_bytes=4)
#: Half precision with Adam: 2 bytes of gradient, 12 bytes of master copy and two moments (ZeRO, SC 2020, section 3.1).
MIXED_PRECISION = Precision(number_bytes=2, state_bytes=14)
#: Half precision for inference.
SERVING_PRECISION = Precision(number_bytes=2, state_bytes=0, is_training=False)


def make_operator(
    name: str,
    kind: str,
    *,
    flops: float,
    parameter_count: int,
    output_count: int,
    moved_count: float,
    precision: Precision,
    ways: tuple[Way, ...] = ("data",),
    forward_reduce_count: int = 0,
    backward_reduce_count: int = 0,
    routed: int = 1,
    shared_count: int = 0,
    most_shards: int | None = None,
) -> Operator:
    """Return an operator from sizes in numbers instead of bytes. Its backward pass takes twice the forward FLOPs."""
    number_bytes, is_training = precision.number_bytes, precision.is_training
    return Operator(
        name=name,
        kind=kind,
        forward_flops=flops,
        backward_flops=precision.backward_ratio * flops,
        parameter_bytes=parameter_count * number_bytes,
        output_bytes=output_count * number_bytes,
        moved_bytes=moved_count * number_bytes,
        gradient_bytes=parameter_count * number_bytes if is_training else 0,
        state_bytes=parameter_count * precision.state_bytes,
        forward_reduce_bytes=forward_reduce_count * number_bytes,
        backward_reduce_bytes=backward_reduce_count * number_bytes if is_training else 0,
        routed=routed,
        shared_bytes=shared_count * number_bytes,
        ways=ways,
        most_shards=most_shards,
    )


def make_dense(
    name: str,
    input_width: int,
    output_width: int,
    *,
    has_bias: bool = True,
    ways: tuple[Way, ...] = ("data", "tensor", "place"),
    precision: Precision = SINGLE_PRECISION,
) -> Operator:
    """Return a dense layer: 2 x inputs x outputs operations.

    Tensor parallelism splits its columns. The forward pass then needs an AllGather of the output (half an AllReduce),
    the backward pass an AllReduce of the gradient of the input.
    """
    return make_operator(
        name,
        "dense",
        flops=2.0 * input_width * output_width,
        parameter_count=input_width * output_width + has_bias * output_width,
        output_count=output_width,
        moved_count=input_width + output_width,
        precision=precision,
        ways=ways,
        forward_reduce_count=(output_width + 1) // 2,
        backward_reduce_count=input_width,
        most_shards=output_width,
    )


def make_table(name: str, row_count: int, width: int, rows_per_sample: int) -> Operator:
    """Return an embedding table. A sample reads and adds `rows_per_sample` rows, with `width` additions per row.

    A placed table (`place`) is updated in place. Copies on several servers (`data`) need an AllReduce of the whole
    table, as in frameworks with dense gradients.
    """
    number_bytes = SINGLE_PRECISION.number_bytes
    parameter_bytes = row_count * width * number_bytes
    addition_count = float(rows_per_sample * width)
    return Operator(
        name=name,
        kind="embedding",
        forward_flops=addition_count,
        backward_flops=addition_count,
        parameter_bytes=parameter_bytes,
        output_bytes=width * number_bytes,
        moved_bytes=(addition_count + width) * number_bytes
        + rows_per_sample * 8,  # rows, their sum, 64-bit indices
        gradient_bytes=parameter_bytes,
        ways=("place", "data"),
    )


def make_convolution(
    name: str,
    channels: tuple[int, int],
    kernel_size: int,
    sides: tuple[int, int],
    *,
    has_bias: bool = True,
    pooled_side: int | None = None,
) -> Operator:
    """Return a convolution: 2 k^2 c_in c_out operations per position of the output.

    `channels` are the (input, output) channels, and `sides` the sides of the (input, output) maps. If `pooled_side` is
    given, a pooling to maps of this side follows.
    """
    (input_channels, output_channels), (input_side, output_side) = channels, sides
    weight_count = kernel_size * kernel_size * input_channels * output_channels
    written_count = output_channels * output_side * output_side
    output_count = written_count if pooled_side is None else output_channels * pooled_side * pooled_side
    return make_operator(
        name,
        "convolution",
        flops=2.0 * weight_count * output_side * output_side,
        parameter_count=weight_count + has_bias * output_channels,
        output_count=output_count,
        moved_count=input_channels * input_side * input_side
        + written_count
        + (written_count + output_count) * (pooled_side is not None),
        precision=SINGLE_PRECISION,
    )


def merge_operators(
    name: str, kind: str, operators: list[Operator], extra_parameter_count: int = 0
) -> Operator:
    """Return several operators merged into one operator, with the output of the last.

    `extra_parameter_count` counts single-precision parameters that belong to no part, for example of normalisation.
    """
    extra_bytes = extra_parameter_count * SINGLE_PRECISION.number_bytes
    return Operator(
        name=name,
        kind=kind,
        forward_flops=sum(part.forward_flops for part in operators),
        backward_flops=sum(part.backward_flops for part in operators),
        parameter_bytes=sum(part.parameter_bytes for part in operators) + extra_bytes,
        output_bytes=operators[-1].output_bytes,
        moved_bytes=sum(part.moved_bytes for part in operators),
        gradient_bytes=sum(part.gradient_bytes for part in operators) + extra_bytes,
        state_bytes=sum(part.state_bytes for part in operators) + extra_bytes,
    )


class WorkloadBuilder:
    """Builder of a workload from operators and edges."""

    def __init__(self) -> None:
        self._operators: list[Operator] = []
        self._edges: list[tuple[int, int]] = []

    def add_operator(self, operator: Operator, *producers: int) -> int:
        """Add an operator that reads the outputs of the operators `producers`, and return its index."""
        index = len(self._operators)
        self._operators.append(operator)
        self._edges += [(source, index) for source in producers]
        return index

    def add_chain(self, operators: Iterable[Operator], *inputs: int) -> tuple[int, ...]:
        """Add a chain of operators, the first of which reads `inputs`. Return the index of the last as new inputs."""
        for operator in operators:
            inputs = (self.add_operator(operator, *inputs),)
        return inputs

    def build_workload(self, name: str, batch: int, *, origin: str, training: bool = True) -> Workload:
        """Return the workload of all added operators."""
        return Workload(name, tuple(self._operators), tuple(self._edges), batch, training, origin)
