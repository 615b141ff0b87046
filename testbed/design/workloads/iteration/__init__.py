"""One iteration of a workload under a strategy: its task graph, its traffic and the totals of both."""

from testbed.design.workloads.iteration.task_graph import iteration
from testbed.design.workloads.iteration.totals import Traffic, traffic, traffic_of

__all__ = ["Traffic", "iteration", "traffic", "traffic_of"]
