"""Workloads, before anybody says where they run: operators of a training job or a served model, and who feeds whom.

An operator is what a strategy places as a whole: a layer, a block of a transformer, an embedding table. All sizes
are for one sample unless said otherwise; a sample is what the batch counts: an image, a sequence, a click.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from sys import float_info
from typing import Any, Literal, get_args

from testbed.errors import WorkloadError

Way = Literal["data", "tensor", "place", "expert"]
"""How an operator may be spread: see `sharding.Sharding`."""

Edge = tuple[int, int]
"""Producer and consumer, by place among the operators."""

LARGEST = 1 << 50
"""Bytes of parameters, or of what passes in an iteration, at most: sums of them are then exact in floating point."""

READ_BY_ROWS = ("table", "embedding")
"""Kinds of operators whose parameters are not all read in a pass."""

CUT_BY_HEADS = "cache"
"""Kind of operators that hold keys and values: cut over shards, each has those of its heads and hands on no others."""

SIDES = ("prefill", "decode")
"""What reads prompts and what writes answers: operators of a served model are named after it, `prefill.mlp0`."""


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
    for one sample counts all of them, only `output_bytes` travel once to each and back. `shared_bytes` are parameters
    of another operator that it reads in each pass, too: the words that a tied head shares with the embedding. `ways`
    are how it may be spread, the usual one first; `most_shards` into how many pieces at most: heads, experts, columns.
    None is no bound. Groups of an `evenly_spaced` one are never side by side, as where its data lies fixes them.
    `divided_bytes` of parameters and state are cut over replicas. Outputs of an operator with a `segment` are computed
    again for the backward pass, those of one segment at a time; 0 keeps them. See `choice`.
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
    shared_bytes: int = 0
    ways: tuple[Way, ...] = ("data",)
    most_shards: int | None = None
    evenly_spaced: bool = False
    divided_bytes: int = 0
    segment: int = 0

    @property
    def side(self) -> str:
        """The one of `SIDES` to which it belongs; empty where there are none."""
        first = self.name.partition(".")[0]
        return first if first in SIDES else ""

    @property
    def shard_limit(self) -> float:
        """`most_shards` as a number to compare with."""
        return float("inf") if self.most_shards is None else self.most_shards


@dataclass(frozen=True, slots=True)
class Workload:
    """Operators in an order in which they can be computed, and edges (producer, consumer) by place in it.

    `batch` is the samples of one iteration over all servers together. `training` is False for serving: then there
    is no backward pass and no gradient. `origin` says where the parameters are from.
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
            raise WorkloadError(f"{self.name}: no operators; a workload has at least 1")
        for operator in self.operators:
            _check_operator(operator, self.name)
        names = [operator.name for operator in self.operators]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise WorkloadError(f"{self.name}: two operators are named {twice!r}; names must be unique")
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
        """The place of each operator by its name."""
        return {operator.name: place for place, operator in enumerate(self.operators)}

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all parameters, once."""
        return sum(operator.parameter_bytes for operator in self.operators)

    def is_sliced(self, edge: Edge) -> bool:
        """Return whether both sides of an edge work on slices alone: caches of keys and values."""
        return all(self.operators[place].kind == CUT_BY_HEADS for place in edge)

    def edge_bytes(self, edge: Edge) -> int:
        """Return what passes along an edge, a sample: the producer's output.

        Into a cache go the keys and values that it keeps, which attention makes beside its output.
        """
        producer, consumer = (self.operators[place] for place in edge)
        is_filled = consumer.kind == CUT_BY_HEADS != producer.kind
        return consumer.output_bytes if is_filled else producer.output_bytes


def is_whole(value: Any) -> bool:
    """Return whether it is an integer, Python's or numpy's."""
    return isinstance(value, Integral) and not isinstance(value, bool)


_RATES = ("forward_flops", "backward_flops", "moved_bytes")
"""Sizes that need not be whole: they are averages of an example."""
_SIZES = tuple(
    name for name in Operator.__dataclass_fields__ if name.endswith("_bytes") and name not in _RATES
)


def _check_operator(operator: Operator, workload: str) -> None:
    """Check that sizes are numbers of 0 or more, a sample goes to 1 expert or more, and some sharding is legal."""
    sizes = [(name, 0) for name in (*_RATES, *_SIZES)] + [("routed", 1)]
    if operator.most_shards is not None:
        sizes.append(("most_shards", 1))
    for name, least in sizes:
        value = getattr(operator, name)
        if name in _RATES:
            fits, told = least <= value <= float_info.max, f"a finite number of {least} or more"
        else:
            fits = is_whole(value) and least <= value <= LARGEST
            told = f"a whole number from {least} to {LARGEST}"
        if not fits:
            raise WorkloadError(f"{workload}: {operator.name}: {name} is {value}: give {told}")
    unknown = set(operator.ways) - set(get_args(Way))
    if unknown or not operator.ways:
        told = f"ways {sorted(unknown)} are unknown" if unknown else "it has no ways"
        raise WorkloadError(f"{workload}: {operator.name}: {told}: choose from {', '.join(get_args(Way))}")
