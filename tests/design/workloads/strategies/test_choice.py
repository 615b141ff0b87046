"""Strategies by name, and jobs that take them."""

from __future__ import annotations

import pytest

from testbed.design.evaluation.job import open_job
from testbed.design.workloads.catalogue import workload
from testbed.design.workloads.choice import WorkloadChoice
from testbed.design.workloads.roofline import Cluster
from testbed.design.workloads.strategies import (
    data_parallel,
    disaggregate,
    fitting_strategy,
    is_named,
    make_named_strategy,
    pipeline_parallel,
)
from testbed.errors import StrategyError, WorkloadError

SMALL = {"layers": 2, "hidden": 64, "heads": 4, "vocabulary": 100}


def test_names_are_those_of_the_functions():
    job, cluster = workload("gpt", 4, sequence=8, **SMALL), Cluster(4)
    assert make_named_strategy("data", job, cluster) == data_parallel(job, 4)
    assert make_named_strategy("default", job, cluster) == fitting_strategy(job, cluster)
    assert make_named_strategy("pipeline:2:8", job, cluster) == pipeline_parallel(job, 4, 2, 8)
    served = workload("serve", 4, kv_heads=2, inner=128, prompt=8, **SMALL)
    halves, one = (disaggregate(served, cluster, count) for count in (2, 1))
    assert make_named_strategy("disaggregated", served, cluster) == halves != one
    assert make_named_strategy("disaggregated:1", served, cluster) == one


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pipeline", "give pipeline:STAGES:MICROBATCHES"),
        ("pipeline:2", "give pipeline:STAGES:MICROBATCHES"),
        ("pipeline:2:many", "give pipeline:STAGES:MICROBATCHES"),
        ("pipeline:-2:4", "give pipeline:STAGES:MICROBATCHES"),
        ("data:3", "give data"),
        ("default:", "give default"),
        ("disaggregated:1:2", "give disaggregated or disaggregated:PREFILL_SERVERS"),
        ("pipeline:3:2", "3 stages of 6 operators on 4 servers"),
        ("tensor", "give one of default, data, pipeline, hybrid, disaggregated"),
    ],
)
def test_the_form_is_shown(text, told):
    job, cluster = workload("gpt", 4, sequence=8, **SMALL), Cluster(4)
    with pytest.raises(StrategyError, match=told):
        make_named_strategy(text, job, cluster)


def test_files_are_no_names():
    assert not any(is_named(text) for text in ("plan.json", "data.json", "pipelines:2:2", "./data"))
    assert all(is_named(text) for text in ("data", "default", "pipeline:2:2", "disaggregated"))


def test_a_served_model_sends_its_cache():
    """Requests x tokens x keys and values of 32 numbers x 2 bytes x layers."""
    settings = SMALL | {"kv_heads": 2, "inner": 128, "prompt": 10, "batch": 40}
    job = open_job(WorkloadChoice("serve", settings={key: str(value) for key, value in settings.items()}), 4)
    assert job.traffic.pairs.sum() == 40 * 10 * 2 * 32 * 2 * 2


def test_a_pipeline_is_a_job():
    settings = {key: str(value) for key, value in (SMALL | {"sequence": 8}).items()}
    job = open_job(WorkloadChoice("gpt", settings=settings), 4, "pipeline:2:4")
    assert job.about["strategy"] == "pipeline:2:4"
    assert set(job.traffic.allreduce) == {(0, 2), (1, 3)}
    with pytest.raises(StrategyError, match="999 microbatches of 16 samples"):
        open_job(WorkloadChoice("gpt", settings=settings), 4, "pipeline:2:999")


@pytest.mark.parametrize("settings", [{"tables": "5-6"}, {"devices_per_server": "2-3"}, {"batch": "4-4"}])
def test_one_number_is_asked_for_where_one_is_meant(settings):
    (name,) = settings
    with pytest.raises(WorkloadError, match=f"dlrm: {name} is .*; give one whole number"):
        open_job(WorkloadChoice("dlrm", settings=settings), 4)


def test_so_it_is_for_the_devices_of_a_server():
    with pytest.raises(WorkloadError, match=r"devices_per_server is .*; give one whole number"):
        WorkloadChoice("dlrm", settings={"devices_per_server": "2-3"}).make_cluster(4)
    assert (
        WorkloadChoice("dlrm", settings={"devices_per_server": "2"}).make_cluster(4).devices_per_server == 2
    )
    assert WorkloadChoice("dlrm", "testbed").make_cluster(4).devices_per_server == 1
