"""The operators that models are built of, with the formulas for their sizes, and how they are put together.

All formulas are for one sample. A matrix product of (a, b) with (b, c) takes 2abc floating-point operations. The
backward pass takes twice the forward: the gradient of the weights and that of the input are products of the same
size (the input of the first layer needs none; it is counted all the same, as 6ND does). Element-wise work
(activations, normalisation, softmax) is counted in bytes moved, not in operations: it is bound by memory. Every
tensor between two kernels is written once and read once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from testbed.design.workloads.model import Operator, Way, Workload


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes of a number, and bytes kept beside each parameter: gradient, master copy, optimiser state.

    Tables keep nothing: their rows are updated in place.
    """

    number: int
    state: int
    training: bool = True

    @property
    def backward(self) -> float:
        """Backward operations for each forward one."""
        return 2.0 if self.training else 0.0


#: Single precision with plain gradient descent, as in the TopoOpt artifact.
SINGLE = Precision(number=4, state=4)
#: Half precision with Adam: 2 bytes of gradient, 12 of master copy and two moments (ZeRO, SC 2020, section 3.1).
MIXED = Precision(number=2, state=14)
#: Half precision, nothing to learn.
SERVING = Precision(number=2, state=0, training=False)


def operator(
    name: str,
    kind: str,
    *,
    flops: float,
    parameters: int,
    output: int,
    moved: float,
    precision: Precision,
    ways: tuple[Way, ...] = ("data",),
    forward_reduce: int = 0,
    backward_reduce: int = 0,
    routed: int = 1,
    shared: int = 0,
    most_shards: int | None = None,
) -> Operator:
    """Return an operator of sizes in numbers instead of bytes, with the backward pass of matrix products."""
    number, train = precision.number, precision.training
    return Operator(
        name=name,
        kind=kind,
        forward_flops=flops,
        backward_flops=precision.backward * flops,
        parameter_bytes=parameters * number,
        output_bytes=output * number,
        moved_bytes=moved * number,
        gradient_bytes=parameters * number if train else 0,
        state_bytes=parameters * precision.state,
        forward_reduce_bytes=forward_reduce * number,
        backward_reduce_bytes=backward_reduce * number if train else 0,
        routed=routed,
        shared_bytes=shared * number,
        ways=ways,
        most_shards=most_shards,
    )


def dense(
    name: str,
    inputs: int,
    outputs: int,
    *,
    bias: bool = True,
    ways: tuple[Way, ...] = ("data", "tensor", "place"),
    precision: Precision = SINGLE,
) -> Operator:
    """Return a dense layer: 2 x inputs x outputs.

    As tensor parallel its columns are split: an AllGather of the output forward (half an AllReduce), an AllReduce of
    the gradient of the input backward.
    """
    return operator(
        name,
        "dense",
        flops=2.0 * inputs * outputs,
        parameters=inputs * outputs + bias * outputs,
        output=outputs,
        moved=inputs + outputs,
        precision=precision,
        ways=ways,
        forward_reduce=(outputs + 1) // 2,
        backward_reduce=inputs,
        most_shards=outputs,
    )


def table(name: str, rows: int, width: int, bag: int) -> Operator:
    """Return an embedding table of which a sample reads and adds `bag` rows: bag x width additions.

    Placed, its rows are updated where they live. Copied to several servers (data), the copies are kept equal by an
    AllReduce of the whole table, as frameworks do with dense gradients.
    """
    number = SINGLE.number
    parameters = rows * width * number
    lookups = float(bag * width)
    return Operator(
        name=name,
        kind="embedding",
        forward_flops=lookups,
        backward_flops=lookups,
        parameter_bytes=parameters,
        output_bytes=width * number,
        moved_bytes=(lookups + width) * number + bag * 8,  # rows, their sum, 64-bit indices
        gradient_bytes=parameters,
        ways=("place", "data"),
    )


def convolution(
    name: str,
    channels: tuple[int, int],
    kernel: int,
    side: tuple[int, int],
    *,
    bias: bool = True,
    pooled: int | None = None,
) -> Operator:
    """Return a convolution of (inputs, outputs) channels, maps of (read, written) side: 2 k^2 c_in c_out per output.

    With `pooled`, a pooling follows that leaves maps of this side, and those are what is passed on.
    """
    (inputs, outputs), (read, written) = channels, side
    weights = kernel * kernel * inputs * outputs
    wrote = outputs * written * written
    passed = wrote if pooled is None else outputs * pooled * pooled
    return operator(
        name,
        "convolution",
        flops=2.0 * weights * written * written,
        parameters=weights + bias * outputs,
        output=passed,
        moved=inputs * read * read + wrote + (wrote + passed) * (pooled is not None),
        precision=SINGLE,
    )


def merge(name: str, kind: str, parts: list[Operator], extra_parameters: int = 0) -> Operator:
    """Return several operators that a strategy places as one; the output is that of the last.

    `extra_parameters` are single precision numbers that belong to none of the parts, as those of normalisation.
    """
    extra = extra_parameters * SINGLE.number
    return Operator(
        name=name,
        kind=kind,
        forward_flops=sum(part.forward_flops for part in parts),
        backward_flops=sum(part.backward_flops for part in parts),
        parameter_bytes=sum(part.parameter_bytes for part in parts) + extra,
        output_bytes=parts[-1].output_bytes,
        moved_bytes=sum(part.moved_bytes for part in parts),
        gradient_bytes=sum(part.gradient_bytes for part in parts) + extra,
        state_bytes=sum(part.state_bytes for part in parts) + extra,
    )


class Assembly:
    """Operators and edges so far. `add` answers with the operator's place, for those that read it."""

    def __init__(self) -> None:
        self._operators: list[Operator] = []
        self._edges: list[tuple[int, int]] = []

    def add(self, operator: Operator, *inputs: int) -> int:
        """Add one more operator, which reads the outputs of `inputs`."""
        place = len(self._operators)
        self._operators.append(operator)
        self._edges += [(source, place) for source in inputs]
        return place

    def chain(self, operators: Iterable[Operator], *inputs: int) -> tuple[int, ...]:
        """Return operators one after the other, the first of which reads `inputs`; what to read after them."""
        for operator in operators:
            inputs = (self.add(operator, *inputs),)
        return inputs

    def workload(self, name: str, batch: int, *, origin: str, training: bool = True) -> Workload:
        """Return all of it."""
        return Workload(name, tuple(self._operators), tuple(self._edges), batch, training, origin)
