"""Strategies as people name them: `default`, `data`, `pipeline:S:M`, `disaggregated:P`; all else is a plan file."""

from __future__ import annotations

from testbed.design.workloads.model import Workload
from testbed.design.workloads.roofline import Cluster
from testbed.design.workloads.sharding.sharding import Strategy
from testbed.design.workloads.strategies.pipeline import pipeline_parallel
from testbed.design.workloads.strategies.strategies import (
    data_parallel,
    disaggregated_strategy,
    fitting_strategy,
)
from testbed.errors import StrategyError

FORMS = {
    "default": "default",
    "data": "data",
    "pipeline": "pipeline:STAGES:MICROBATCHES",
    "disaggregated": "disaggregated or disaggregated:PREFILL_SERVERS",
}


def is_named(text: str) -> bool:
    """Return whether it is one of these names, rather than a file."""
    return text.partition(":")[0] in FORMS


def strategy_by_name(text: str, workload: Workload, cluster: Cluster) -> Strategy:
    """Return the strategy of that name for a workload.

    Raises `StrategyError` that shows the form, or says what cannot be.
    """
    name, *words = text.split(":")
    numbers = [int(word) for word in words if word.isascii() and word.isdecimal()]
    match name, numbers:
        case _ if len(numbers) < len(words):
            pass
        case "default", []:
            return fitting_strategy(workload, cluster)
        case "data", []:
            return data_parallel(workload, cluster.nodes)
        case "pipeline", [stages, microbatches]:
            return pipeline_parallel(workload, cluster.nodes, stages, microbatches)
        case "disaggregated", []:
            return disaggregated_strategy(workload, cluster)
        case "disaggregated", [prefill_nodes]:
            return disaggregated_strategy(workload, cluster, prefill_nodes)
    form = FORMS.get(name) or f"one of {', '.join(FORMS)}"
    raise StrategyError(f"strategy {text!r}: give {form}, the numbers whole, or a plan file")
