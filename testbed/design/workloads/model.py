"""Workloads, independent of servers: operators of a training job or a served model, and the edges between them.

An operator is the unit that a strategy shards: a layer, a block of a transformer, an embedding table. All sizes are
per sample unless stated otherwise; a sample is the unit of the batch: an image, a sequence, a click.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from sys import float_info
from typing import Any, Literal, get_args

from testbed.errors import WorkloadError

Way = Literal["data", "tensor", "place", "expert"]
"""Way of sharding an operator: see `sharding.Sharding`."""

Edge = tuple[int, int]
"""Producer and consumer, by place among the operators."""

LARGEST = 1 << 50
"""Maximum bytes of parameters, or of an iteration's traffic, so that their sums are exact in floating point."""

READ_BY_ROWS = ("table", "embedding")
"""Kinds of operators of which a pass reads some rows of the parameters, not all."""

CUT_BY_HEADS = "cache"
"""Kind of operators that hold keys and values: each shard holds, and passes on, only those of its heads."""

SIDES = ("prefill", "decode")
"""Sides of a served model, which read prompts and write answers: names of operators begin with one, `prefill.mlp0`."""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of a workload.

    - `kind` is a label, except "table", "embedding" and "cache". Of tables and embeddings only the rows that samples
      name are read and updated, and `moved_bytes` counts them; of other operators each pass reads all parameters.
    - `forward_flops` and `backward_flops` are floating-point operations (a multiply and an add are two).
    - `moved_bytes` are read and written in device memory by the forward pass, besides parameters.
    - `output_bytes` are the bytes that the next operators read.
    - `parameter_bytes` are per operator, not per sample. AllReduce among replicas sums `gradient_bytes` of them (0 for
      tables that are updated row by row in place).
    - `forward_reduce_bytes` and `backward_reduce_bytes` are summed by AllReduce among the shards of a tensor-parallel
      operator (an AllGather counts half).
    - `state_bytes` are kept besides the parameters on every replica: gradients, optimiser state.
    - `routed` is the number of experts of a sample. All sizes per sample count all of them, except `output_bytes`,
      which travel once to each expert and back. `popularity` is the part of them that each expert gets; empty: the
      same for all.
    - `shared_bytes` are parameters of another operator that each pass also reads: the words that a tied head shares
      with the embedding.
    - `ways` are the allowed ways of sharding, the default first; `most_shards` is the maximum number of pieces (heads,
      experts, columns), None without a limit. Groups of an `evenly_spaced` operator are never side by side, because the
      location of its data fixes them.
    - `divided_bytes` of parameters and state are cut over replicas.
    - Outputs of an operator with a `segment` are computed again for the backward pass, one segment at a time; 0 keeps
      them. See `choice`.
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
    popularity: tuple[float, ...] = ()
    shared_bytes: int = 0
    ways: tuple[Way, ...] = ("data",)
    most_shards: int | None = None
    evenly_spaced: bool = False
    divided_bytes: int = 0
    segment: int = 0

    @property
    def side(self) -> str:
        """The operator's side, one of `SIDES`, or ""."""
        first = self.name.partition(".")[0]
        return first if first in SIDES else ""

    @property
    def shard_limit(self) -> float:
        """`most_shards` as a number; infinite without a limit."""
        return float("inf") if self.most_shards is None else self.most_shards


@dataclass(frozen=True, slots=True)
class Workload:
    """Operators in order of execution, and edges (producer, consumer) by place in that order.

    `batch` is the number of samples of one iteration over all servers. `training` is False for serving, which has no
    backward pass and no gradients. `origin` is the source of the parameters. Raises `WorkloadError` if it is not valid.
    """

    name: str
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]
    batch: int
    training: bool = True
    origin: str = ""

    def __post_init__(self) -> None:
        if not is_whole(self.batch) or self.batch < 1:
            raise WorkloadError(
                f"{self.name}: a batch of {self.batch} samples; give an integer of at least 1"
            )
        if not self.operators:
            raise WorkloadError(f"{self.name}: no operators; give at least one")
        for operator in self.operators:
            _check_operator(operator, self.name)
        names = [operator.name for operator in self.operators]
        if len(set(names)) != len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            raise WorkloadError(f"{self.name}: two operators are named {repeated!r}; names must be unique")
        for producer, consumer in self.edges:
            if not 0 <= producer < consumer < len(self.operators):
                raise WorkloadError(
                    f"{self.name}: edge {producer} -> {consumer}: operators are listed in order of execution, 0 "
                    f"to {len(self.operators) - 1}"
                )
        sent = sum(self.edge_bytes(edge) for edge in self.edges)
        for operator in self.operators:
            sent += operator.output_bytes * operator.routed
            sent += operator.forward_reduce_bytes + operator.backward_reduce_bytes
        if self.batch * sent > LARGEST:
            raise WorkloadError(
                f"{self.name}: a batch of {self.batch} samples that each pass on {sent} bytes exceeds "
                f"{LARGEST} bytes per iteration: give a smaller batch"
            )

    @property
    def places(self) -> Mapping[str, int]:
        """Place of each operator by its name."""
        return {operator.name: place for place, operator in enumerate(self.operators)}

    @property
    def parameter_bytes(self) -> int:
        """Total bytes of parameters, without copies."""
        return sum(operator.parameter_bytes for operator in self.operators)

    def is_sliced(self, edge: Edge) -> bool:
        """Return whether both ends of an edge work only on slices: caches of keys and values."""
        return all(self.operators[place].kind == CUT_BY_HEADS for place in edge)

    def edge_bytes(self, edge: Edge) -> int:
        """Return the bytes per sample on an edge: the producer's output.

        A cache receives the keys and values that it keeps, which attention computes besides its output.
        """
        producer, consumer = (self.operators[place] for place in edge)
        is_filled = consumer.kind == CUT_BY_HEADS != producer.kind
        return consumer.output_bytes if is_filled else producer.output_bytes


def is_whole(value: Any) -> bool:
    """Return whether a value is an integer, Python's or numpy's, but not a boolean."""
    return isinstance(value, Integral) and not isinstance(value, bool)


_RATES = ("forward_flops", "backward_flops", "moved_bytes")
"""Fields that may be fractions: averages per sample."""
_SIZES = tuple(
    name for name in Operator.__dataclass_fields__ if name.endswith("_bytes") and name not in _RATES
)


def _check_operator(operator: Operator, workload: str) -> None:
    """Raise `WorkloadError` unless sizes are in range, a sample goes to 1 expert or more, and its ways are known."""
    sizes = [(name, 0) for name in (*_RATES, *_SIZES)] + [("routed", 1)]
    if operator.most_shards is not None:
        sizes.append(("most_shards", 1))
    for name, least in sizes:
        value = getattr(operator, name)
        if name in _RATES:
            fits, requirement = least <= value <= float_info.max, f"a finite number of {least} or more"
        else:
            fits = is_whole(value) and least <= value <= LARGEST
            requirement = f"a whole number from {least} to {LARGEST}"
        if not fits:
            raise WorkloadError(f"{workload}: {operator.name}: {name} is {value}: give {requirement}")
    unknown = set(operator.ways) - set(get_args(Way))
    if unknown or not operator.ways:
        requirement = f"ways {sorted(unknown)} are unknown" if unknown else "it has no ways"
        raise WorkloadError(
            f"{workload}: {operator.name}: {requirement}: choose from {', '.join(get_args(Way))}"
        )
