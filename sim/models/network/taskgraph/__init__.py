"""An iteration of a training job as a graph of tasks, and its file."""

from __future__ import annotations

from sim.models.network.taskgraph.file import read_task_graph
from sim.models.network.taskgraph.graph import Kind, TaskGraph, TaskGraphBuilder

__all__ = ["Kind", "TaskGraph", "TaskGraphBuilder", "read_task_graph"]
