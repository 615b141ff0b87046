"""One iteration of a workload with a strategy: its task graph and its traffic."""

from testbed.design.workloads.iteration.task_graph import iteration
from testbed.design.workloads.iteration.totals import Traffic, sum_graph_traffic, traffic

__all__ = ["Traffic", "iteration", "sum_graph_traffic", "traffic"]
