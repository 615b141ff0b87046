"""Named problems for six servers, so small that all strategies on all topologies can be simulated."""

from __future__ import annotations

from testbed.design.search.problem import Problem
from testbed.design.workloads.model import Operator, Way, Workload
from testbed.design.workloads.roofline import Cluster

KB, MB = 1 << 10, 1 << 20


def _layer(
    name: str, weights: int, output: int, flops: float, ways: tuple[Way, ...] = ("data", "tensor")
) -> Operator:
    return Operator(
        name, "dense", flops, 2 * flops, weights, output, gradient_bytes=weights,
        forward_reduce_bytes=output, backward_reduce_bytes=output, ways=ways,
    )  # fmt: skip


def _table(name: str, output: int) -> Operator:
    return Operator(name, "embedding", 1e5, 1e5, MB, output, ways=("place",))


def _problem(
    operators: tuple[Operator, ...],
    edges: tuple[tuple[int, int], ...],
    degree: int,
    batch: int,
    microbatches: int = 1,
) -> Problem:
    workload = Workload("instance", operators, edges, batch)
    return Problem(workload, Cluster(6), degree, 25, microbatches=microbatches)


_TOWER: tuple[Way, ...] = ("data", "place")

INSTANCES: dict[str, Problem] = {
    "one table": _problem((_table("t", 64 * KB), _layer("top", 8 * MB, KB, 1e8)), ((0, 1),), 2, 2),
    "one table, three links": _problem(
        (_table("t", 256 * KB), _layer("top", 8 * MB, KB, 1e8)), ((0, 1),), 3, 2
    ),
    "two tables": _problem(
        (_table("t0", 64 * KB), _table("t1", 32 * KB), _layer("top", 4 * MB, KB, 1e8, ("data",))),
        ((0, 2), (1, 2)), 2, 3,
    ),
    "two tables, three links": _problem(
        (_table("t0", 512 * KB), _table("t1", 512 * KB), _layer("top", 2 * MB, KB, 1e8, ("data",))),
        ((0, 2), (1, 2)), 3, 96, 2,
    ),
    "tower": _problem(
        (_layer("a", 32 * MB, 16 * KB, 1e9, _TOWER), _layer("b", 4 * MB, 16 * KB, 1e9, _TOWER)),
        ((0, 1),), 2, 4,
    ),
    "tower of three": _problem(
        tuple(_layer(name, 24 * MB, 16 * KB, 2e8, _TOWER) for name in "abc"), ((0, 1), (1, 2)), 2, 96, 4
    ),
    "tower, three links": _problem(
        (_layer("a", 64 * MB, 4 * KB, 1e8, _TOWER), _layer("b", 64 * MB, 4 * KB, 1e8, ("data", "tensor"))),
        ((0, 1),), 3, 96, 8,
    ),
    "sums of activations": _problem(
        (_layer("a", 16 * MB, 8 * KB, 1e9), _layer("b", 64 * MB, 8 * KB, 1e9)), ((0, 1),), 2, 4
    ),
    "sums of activations, three links": _problem(
        (_layer("a", 64 * MB, 64 * KB, 1e9), _layer("b", 256 * MB, KB, 1e9)), ((0, 1),), 3, 96, 2
    ),
    "experts": _problem(
        (
            _layer("gate", MB, 32 * KB, 1e7, ("data",)),
            Operator("experts", "dense", 1e9, 2e9, 96 * MB, 32 * KB, gradient_bytes=96 * MB, ways=("expert", "data")),
            _table("t", 64 * KB),
        ),
        ((0, 1),), 2, 6,
    ),
    "pairs alone": _problem(
        (_table("t", 256 * KB), Operator("pooled", "dense", 1e3, 1e3, KB, 64, ways=("place",))), ((0, 1),), 3, 96, 4
    ),
    "table into a cut layer": _problem(
        (_table("t", 16 * KB), _layer("a", 128 * MB, KB, 1e9), _layer("b", MB, KB, 1e8, ("data",))),
        ((0, 1), (1, 2)), 2, 96, 4,
    ),
}  # fmt: skip
"""Of two and three links a server; those of a batch of a few samples leave the number of microbatches open."""
