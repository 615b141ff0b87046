import numpy as np
import pytest

from testbed.design.workloads.model import Operator, Workload
from testbed.design.workloads.roofline import Cluster


class Valley:
    """Points of three numbers below ten; cheapest at `lowest`, on the topology made for it."""

    lowest = (7, 2, 5)

    def get_start_point(self):
        return (0, 0, 0)

    def draw_neighbour(self, point, chance):
        place = int(chance.integers(3))
        return (*point[:place], int(chance.integers(10)), *point[place + 1 :])

    def compute_cost_s(self, point, origin):
        far = sum((a - b) ** 2 for a, b in zip(point, self.lowest, strict=True))
        unfit = sum(abs(a - b) for a, b in zip(point, origin, strict=True))
        return 0.010 + 0.001 * far + 0.0003 * unfit


@pytest.fixture
def valley():
    return Valley()


def table(name, size=1 << 20, output=4096):
    return Operator(name, "embedding", 1e6, 1e6, size, output, moved_bytes=8192.0, ways=("place", "data"))


def dense(name, size=1 << 22, ways=("data", "tensor"), **sizes):
    return Operator(
        name, "dense", 2e9, 4e9, size, 8192, gradient_bytes=size, state_bytes=size,
        forward_reduce_bytes=8192, backward_reduce_bytes=8192, ways=ways, **sizes,
    )  # fmt: skip


@pytest.fixture(scope="module")
def little():
    """Return two tables and three dense layers."""
    operators = (table("t0"), table("t1"), dense("bottom"), dense("top0"), dense("top1"))
    return Workload("little", operators, ((0, 3), (1, 3), (2, 3), (3, 4)), batch=64)


@pytest.fixture
def random_workload():
    """Return a chain of layers and some tables that feed its middle, of random sizes, from a generator."""

    def make(chance: np.random.Generator, layers=3, tables=2):
        def size(low, high):
            return int(2 ** chance.uniform(low, high))

        operators = [table(f"t{i}", size(18, 24), size(10, 15)) for i in range(tables)]
        operators += [dense(f"d{i}", size(18, 25)) for i in range(layers)]
        edges = [(i, tables + layers - 1) for i in range(tables)]
        edges += [(tables + i, tables + i + 1) for i in range(layers - 1)]
        return Workload("random", tuple(operators), tuple(edges), batch=size(5, 8))

    return make


@pytest.fixture(scope="module")
def four():
    return Cluster(4)


@pytest.fixture
def pairs_alone():
    """Return five tables and what pools their rows, each on a server: all bytes go between pairs."""

    def make(number):
        chance = np.random.default_rng([number, 1])
        tables = [
            Operator(
                f"t{i}", "embedding", 0.0, 0.0, 1 << 20, int(2 ** chance.uniform(10, 20)), ways=("place",)
            )
            for i in range(5)
        ]
        pooled = [Operator(f"p{i}", "dense", 1e3, 1e3, 1 << 10, 64, ways=("place",)) for i in range(5)]
        edges = tuple((i, 5 + int(chance.integers(5))) for i in range(5))
        return Workload("pairs", (*tables, *pooled), edges, batch=96)

    return make
