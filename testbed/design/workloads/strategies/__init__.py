"""Parallelisation strategies: the default ones, pipelines, and those that people name."""

from testbed.design.workloads.strategies.strategies import (
    data_parallel,
    default_strategy,
    disaggregated_strategy,
    fitting_strategy,
)

__all__ = ["data_parallel", "default_strategy", "disaggregated_strategy", "fitting_strategy"]
