"""Random workloads on random shardings, and an operator whose sizes a test names."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.design.workloads.model import Operator, Workload
from testbed.design.workloads.roofline import Cluster
from testbed.design.workloads.sharding import Sharding, Strategy

WAYS = ("data", "tensor", "place", "expert")


def operator(name, **sizes):
    usual = {
        "kind": "dense",
        "forward_flops": 0.0,
        "backward_flops": 0.0,
        "parameter_bytes": 0,
        "output_bytes": 0,
        "ways": WAYS,
    }
    return Operator(name=name, **(usual | sizes))


def random_sharding(rng, nodes, way=None):
    """Return any grid on any of the servers: not only those that a search would try."""
    way = way or str(rng.choice(WAYS))
    servers = [int(server) for server in rng.permutation(nodes)[: rng.integers(1, nodes + 1)]]
    shards = {"data": 1, "place": len(servers)}.get(way, int(rng.integers(1, len(servers) + 1)))
    replicas = len(servers) // shards
    return Sharding(way, tuple(tuple(servers[row * shards : (row + 1) * shards]) for row in range(replicas)))


def random_operator(rng, name):
    return operator(
        name,
        kind=str(rng.choice(["dense", "table", "cache"])),
        forward_flops=float(rng.integers(1, 100)) * 1e9,
        backward_flops=float(rng.integers(1, 100)) * 1e9,
        parameter_bytes=int(rng.integers(0, 3)) * 1001,
        output_bytes=int(rng.integers(0, 60)),
        gradient_bytes=int(rng.integers(0, 2)) * int(rng.integers(0, 2000)),
        forward_reduce_bytes=int(rng.integers(0, 2)) * 31,
        backward_reduce_bytes=int(rng.integers(0, 2)) * 17,
        routed=int(rng.integers(1, 3)),
    )


def random_case(rng):
    """Return a workload, a strategy and a cluster; chains are as frequent as anything."""
    nodes, count = int(rng.integers(1, 10)), int(rng.integers(1, 7))
    operators = tuple(random_operator(rng, f"op{place}") for place in range(count))
    chained = rng.random() < 0.5
    edges = [
        (producer, consumer)
        for consumer in range(count)
        for producer in range(consumer)
        if (producer == consumer - 1 if chained else rng.random() < 0.4)
    ]
    workload = Workload("random", operators, tuple(edges), int(rng.integers(1, 40)), bool(rng.random() < 0.8))
    shardings = [random_sharding(rng, nodes) for _ in range(1 if rng.random() < 0.3 else 3)]
    chosen = tuple(shardings[rng.integers(len(shardings))] for _ in range(count))
    microbatches = int(rng.integers(1, min(4, workload.batch) + 1))
    return workload, Strategy(chosen, microbatches), Cluster(nodes)


@pytest.fixture(scope="session")
def make_operator():
    """Return an operator of no size, but for what is named."""
    return operator


@pytest.fixture(scope="session")
def any_sharding():
    """Return a random sharding: generator, nodes, way."""
    return random_sharding


@pytest.fixture(scope="session")
def random_cases():
    """Return so many random cases of a seed."""

    def cases(seed, count):
        rng = np.random.default_rng(seed)
        return [random_case(rng) for _ in range(count)]

    return cases
