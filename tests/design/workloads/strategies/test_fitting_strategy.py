"""The strategy to begin with: the usual one, or cut over as few servers as memory asks for."""

from __future__ import annotations

import pytest

from testbed.design.workloads.catalogue import workload
from testbed.design.workloads.roofline import Cluster, check_memory
from testbed.design.workloads.strategies import check_strategy, default_strategy, fitting_strategy
from testbed.errors import OutOfMemory


@pytest.mark.parametrize("name", ["dlrm", "bert", "vgg16", "gpt"])
def test_what_fits_is_the_default_strategy(name):
    model = workload(name, 12)

    assert fitting_strategy(model, Cluster(12)) == default_strategy(model, 12)


@pytest.mark.parametrize(("preset", "nodes", "shards"), [("13b", 12, 2), ("13b", 7, 7)])
def test_what_no_server_holds_is_cut_over_as_few_as_suffice(preset, nodes, shards):
    model, cluster = workload("gpt", nodes, preset=preset), Cluster(nodes)
    with pytest.raises(OutOfMemory):
        check_memory(model, default_strategy(model, nodes), cluster)

    strategy = fitting_strategy(model, cluster)

    check_memory(model, strategy, cluster)
    check_strategy(model, strategy, nodes)
    assert {sharding.shards for sharding in strategy.shardings if sharding.way == "tensor"} == {shards}


def test_experts_stay_cut_when_everything_else_has_to_be():
    """Twelve servers cannot share eight experts evenly: six hold them all, twice; attention is cut in two."""
    model, cluster = workload("moe", 12), Cluster(12)
    with pytest.raises(OutOfMemory):
        check_memory(model, default_strategy(model, 12), cluster)

    strategy = fitting_strategy(model, cluster)

    check_memory(model, strategy, cluster)
    check_strategy(model, strategy, 12)
    shards = {
        operator.kind: sharding.shards
        for operator, sharding in zip(model.operators, strategy.shardings, strict=True)
    }
    assert shards == {"embedding": 2, "attention": 2, "router": 1, "experts": 6, "head": 2}


def test_what_fits_nowhere_is_reported_of_the_default_strategy():
    model, cluster = workload("gpt", 2, preset="175b"), Cluster(2)

    assert fitting_strategy(model, cluster) == default_strategy(model, 2)
    with pytest.raises(OutOfMemory):
        check_memory(model, fitting_strategy(model, cluster), cluster)
