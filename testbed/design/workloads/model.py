"""Workloads, independent of servers: operators of a training job or a served model, and the edges between them.

An operator is the unit that a strategy shards: a layer, a block of a transformer, an embedding table. Sizes are per
sample unless stated otherwise. A sample is the unit of the batch: an image, a sequence, a click.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from sys import float_info
from typing import Any, Literal, get_args

from testbed.errors import WorkloadError

Way = Literal["data", "tensor", "place", "expert"]
"""Way of sharding an operator, see the module `sharding`."""

Edge = tuple[int, int]
"""Producer and consumer, by index among the operators."""

MAX_BYTES = 1 << 50
"""Maximum bytes of parameters, or of an iteration's traffic, so that their sums are exact in floating point."""

READ_BY_ROWS = ("table", "embedding")
"""Kinds of operators whose passes read only some rows of the parameters."""

CACHE_KIND = "cache"
"""Kind of operators that hold keys and values. Each shard holds and passes on only the keys and values of its heads."""

SIDES = ("prefill", "decode")
"""Sides of a served model: `prefill` reads prompts, `decode` writes answers. Operators are named `prefill.mlp0`."""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of a workload.

    - `kind`: a label, except for "table", "embedding" and "cache". Passes read and update only the rows of tables and
      embeddings that samples need, which `moved_bytes` counts. A pass of any other operator reads all parameters.
    - `forward_flops`, `backward_flops`: floating-point operations (a multiply and an add are two).
    - `moved_bytes`: bytes that the forward pass reads and writes in device memory, without parameters.
    - `output_bytes`: bytes that the next operators read.
    - `parameter_bytes`: bytes per operator, not per sample.
    - `gradient_bytes`: bytes that an AllReduce among replicas sums (0 for tables that are updated row by row in place).
    - `forward_reduce_bytes`, `backward_reduce_bytes`: bytes that an AllReduce among the shards of a tensor-parallel
      operator sums (an AllGather counts half).
    - `state_bytes`: bytes on every replica besides the parameters: gradients, optimiser state.
    - `routed`: number of experts per sample. Sizes per sample are sums over these experts, except `output_bytes`, which
      travel to each expert and back.
    - `popularity`: fraction of the samples that each expert gets; empty if all get the same.
    - `shared_bytes`: parameters of another operator that each pass also reads, such as the word vectors that a tied
      head shares with the embedding.
    - `ways`: the allowed ways of sharding, the default first.
    - `most_shards`: maximum number of shards (heads, experts, columns), or None.
    - `evenly_spaced`: whether a replica's shards must be on evenly spaced servers, because those servers hold its data.
    - `divided_bytes`: bytes of parameters and state that are divided over replicas.
    - `segment`: if not 0, outputs are computed again for the backward pass, one segment at a time, see `choice`.
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
        """Side of the operator, one of `SIDES`, or ""."""
        prefix = self.name.partition(".")[0]
        return prefix if prefix in SIDES else ""

    @property
    def shard_limit(self) -> float:
        """`most_shards` as a number, infinity without a limit."""
        return float("inf") if self.most_shards is None else self.most_shards


@dataclass(frozen=True, slots=True)
class Workload:
    """Operators in order of execution, and edges (producer, consumer) by index in this order.

    `batch` is the number of samples of one iteration over all servers. `training` is False for serving, which has no
    backward pass and no gradients. `origin` names the source of the sizes. Raises `WorkloadError` for invalid values.
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
            repeated_name = next(name for name in names if names.count(name) > 1)
            raise WorkloadError(
                f"{self.name}: two operators are named {repeated_name!r}; names must be unique"
            )
        for producer, consumer in self.edges:
            if not 0 <= producer < consumer < len(self.operators):
                raise WorkloadError(
                    f"{self.name}: edge {producer} -> {consumer}: operators are listed in order of execution, 0 "
                    f"to {len(self.operators) - 1}"
                )
        sent_bytes = sum(self.compute_edge_bytes(edge) for edge in self.edges)
        for operator in self.operators:
            sent_bytes += operator.output_bytes * operator.routed
            sent_bytes += operator.forward_reduce_bytes + operator.backward_reduce_bytes
        if self.batch * sent_bytes > MAX_BYTES:
            raise WorkloadError(
                f"{self.name}: a batch of {self.batch} samples that each pass on {sent_bytes} bytes exceeds "
                f"{MAX_BYTES} bytes per iteration: give a smaller batch"
            )

    @property
    def index_by_operator(self) -> Mapping[str, int]:
        """Index of each operator, by name."""
        return {operator.name: op_index for op_index, operator in enumerate(self.operators)}

    @property
    def parameter_bytes(self) -> int:
        """Total bytes of parameters, without copies."""
        return sum(operator.parameter_bytes for operator in self.operators)

    def is_sliced(self, edge: Edge) -> bool:
        """Return whether both ends of an edge work only on slices, as caches of keys and values do."""
        return all(self.operators[op_index].kind == CACHE_KIND for op_index in edge)

    def compute_edge_bytes(self, edge: Edge) -> int:
        """Return the bytes per sample on an edge: the producer's `output_bytes`.

        An edge from another operator into a cache carries the cache's own `output_bytes`: keys and values, which
        attention computes besides its output.
        """
        producer, consumer = (self.operators[op_index] for op_index in edge)
        is_cache_fill = consumer.kind == CACHE_KIND != producer.kind
        return consumer.output_bytes if is_cache_fill else producer.output_bytes


def is_whole(value: Any) -> bool:
    """Return whether a value is an integer of Python or numpy, but not a boolean."""
    return isinstance(value, Integral) and not isinstance(value, bool)


_FRACTIONAL_FIELDS = ("forward_flops", "backward_flops", "moved_bytes")
"""Fields that may be fractions: averages per sample."""
_INTEGER_FIELDS = tuple(
    name
    for name in Operator.__dataclass_fields__
    if name.endswith("_bytes") and name not in _FRACTIONAL_FIELDS
)


def _check_operator(operator: Operator, workload_name: str) -> None:
    """Raise `WorkloadError` unless all sizes are in range, `routed` is at least 1, and all ways are known."""
    field_minima = [(name, 0) for name in (*_FRACTIONAL_FIELDS, *_INTEGER_FIELDS)] + [("routed", 1)]
    if operator.most_shards is not None:
        field_minima.append(("most_shards", 1))
    for name, minimum in field_minima:
        value = getattr(operator, name)
        if name in _FRACTIONAL_FIELDS:
            is_valid, requirement = (
                minimum <= value <= float_info.max,
                f"a finite number of {minimum} or more",
            )
        else:
            is_valid = is_whole(value) and minimum <= value <= MAX_BYTES
            requirement = f"a whole number from {minimum} to {MAX_BYTES}"
        if not is_valid:
            raise WorkloadError(f"{workload_name}: {operator.name}: {name} is {value}: give {requirement}")
    unknown_ways = set(operator.ways) - set(get_args(Way))
    if unknown_ways or not operator.ways:
        problem = f"ways {sorted(unknown_ways)} are unknown" if unknown_ways else "it has no ways"
        raise WorkloadError(
            f"{workload_name}: {operator.name}: {problem}: choose from {', '.join(get_args(Way))}"
        )
