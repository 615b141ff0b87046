"""What a training job or a served model computes, before anybody says where: operators and who feeds whom.

An operator is what a strategy places as a whole: a layer, a block of a transformer, an embedding table. All sizes
are for one sample unless said otherwise; a sample is what the batch counts: an image, a sequence, a click.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Literal, get_args

from testbed.errors import WorkloadError

Way = Literal["data", "tensor", "place", "expert"]
"""How an operator may be spread: see `layout.Layout`."""


READ_BY_ROWS = ("table", "embedding")
"""Kinds of operators whose parameters are not all read in a pass."""

CUT_BY_HEADS = "cache"
"""Kind of operators that hold keys and values: cut over shards, each has those of its heads and hands on no others."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator.

    `kind` is a word for people, except "table" and "embedding": of these only the rows that samples name are read
    and updated, and `moved_bytes` counts them; of all other operators every parameter is read in each pass.
    `forward_flops` and `backward_flops` are floating-point operations (a multiply and an add are two);
    `moved_bytes` what it reads and writes in the memory of its device besides its parameters, forward;
    `output_bytes` what the next operators read. `parameter_bytes` are not for a sample but for all;
    `gradient_bytes` of them are summed by AllReduce among replicas (0 for tables that are updated row by row where
    they live). `forward_reduce_bytes` and `backward_reduce_bytes` are summed by AllReduce among the shards of a
    tensor-parallel operator (an AllGather counts half). `state_bytes` are what training or serving keeps beside the
    parameters on every replica: gradients, optimiser state. `routed` is to how many experts a sample goes; what is said
    for one sample counts all of them, only `output_bytes` travel once to each and back. `ways` are how it may be
    spread, the usual one first.
    """

    name: str
    kind: str
    forward_flops: float
    backward_flops: float
    parameter_bytes: int
    output_bytes: int
    moved_bytes: float = 0.0
    gradient_bytes: int = 0
    state_bytes: int = 0
    forward_reduce_bytes: int = 0
    backward_reduce_bytes: int = 0
    routed: int = 1
    ways: tuple[Way, ...] = ("data",)


@dataclass(frozen=True, slots=True)
class Workload:
    """Operators in an order in which they can be computed, and edges (producer, consumer) by place in it.

    `batch` is the samples of one iteration over all servers together. `training` is False for serving: then there
    is no backward pass and no gradient. `origin` says where the parameters are from.
    """

    name: str
    operators: tuple[Operator, ...]
    edges: tuple[tuple[int, int], ...]
    batch: int
    training: bool = True
    origin: str = ""

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise WorkloadError(f"{self.name}: a batch of {self.batch} samples; an iteration has at least 1")
        if not self.operators:
            raise WorkloadError(f"{self.name}: no operators; a workload has at least 1")
        for operator in self.operators:
            _check_operator(operator, self.name)
        names = [operator.name for operator in self.operators]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise WorkloadError(f"{self.name}: two operators are called {twice!r}; names must differ")
        for producer, consumer in self.edges:
            if not 0 <= producer < consumer < len(self.operators):
                raise WorkloadError(
                    f"{self.name}: edge {producer} -> {consumer}: operators are listed in the order of computing, "
                    f"0 to {len(self.operators) - 1}"
                )

    @property
    def places(self) -> Mapping[str, int]:
        """The place of each operator by its name."""
        return {operator.name: place for place, operator in enumerate(self.operators)}

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all parameters, once."""
        return sum(operator.parameter_bytes for operator in self.operators)

    def sliced(self, edge: tuple[int, int]) -> bool:
        """Whether both sides of an edge work on slices alone: caches of keys and values."""
        return all(self.operators[place].kind == CUT_BY_HEADS for place in edge)


_SIZES = tuple(
    name for name in Operator.__dataclass_fields__ if name.endswith(("_flops", "_bytes")) or name == "routed"
)


def _check_operator(operator: Operator, workload: str) -> None:
    """Sizes are numbers of 0 or more, a sample goes to 1 expert or more, and there is a way to lay it out."""
    for name in _SIZES:
        value, least = getattr(operator, name), 1 if name == "routed" else 0
        if not isfinite(value) or value < least:
            raise WorkloadError(
                f"{workload}: {operator.name}: {name} is {value}: give a finite number of {least} or more"
            )
    unknown = set(operator.ways) - set(get_args(Way))
    if unknown or not operator.ways:
        told = f"ways {sorted(unknown)} are unknown" if unknown else "it has no ways"
        raise WorkloadError(f"{workload}: {operator.name}: {told}: choose from {', '.join(get_args(Way))}")
