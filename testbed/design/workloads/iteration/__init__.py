"""One iteration of a workload with a strategy: its task graph and its traffic."""

from testbed.design.workloads.iteration.task_graph import iteration
from testbed.design.workloads.iteration.totals import Traffic, traffic, traffic_of

__all__ = ["Traffic", "iteration", "traffic", "traffic_of"]
