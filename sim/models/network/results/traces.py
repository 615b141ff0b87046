"""Results of an iteration as tables of flows, links and tasks, and as Parquet files.

| file | row | columns |
|---|---|---|
| `flows.parquet` | a message of a round | task, round, source, target, size_bytes, begin_s, end_s |
| `links.parquet` | an interval of constant rate | link, source, target, begin_s, end_s, rate_bps, capacity_bps |
| `tasks.parquet` | a task | task, kind, device, begin_s, end_s |

Times are seconds from the begin of the iteration. Times of a flow cover its data, without handshake and flight.
Capacities are the initial capacities of the fabric.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightbed.wording import describe_extra
from sim.models.network.execution.simulation import Execution, Trace
from sim.models.network.taskgraph import Kind

Table = dict[str, NDArray[Any]]


def make_flow_table(execution: Execution) -> Table:
    """Return the flows in the order of their ends. Raise `ValueError` without a trace."""
    rows, messages = _get_trace(execution).flows, execution.lowered.messages
    message = rows[:, 0].astype(np.int64)
    return {
        "task": messages.task[message],
        "round": rows[:, 1].astype(np.int64),
        "source": messages.source[message],
        "target": messages.target[message],
        "size_bytes": execution.lowered.program.message_bytes[message],
        "begin_s": rows[:, 2],
        "end_s": rows[:, 3],
    }


def make_link_table(execution: Execution) -> Table:
    """Return the busy intervals of constant rate of each link, sorted by link and time.

    The sum of rate x duration over a link is the number of bits that it carried. Raise `ValueError` without a trace.
    """
    rows = _get_trace(execution).rates
    rows = rows[np.lexsort((np.arange(len(rows)), rows[:, 1]))]
    link = rows[:, 1].astype(np.int64)
    end_s = np.append(rows[1:, 0], execution.iteration_s)[: len(rows)]
    is_last = np.append(link[1:] != link[:-1], np.ones(1, dtype=bool))[: len(rows)]
    end_s[is_last] = execution.iteration_s
    is_busy = (rows[:, 2] > 0) & (end_s > rows[:, 0])
    link = link[is_busy]
    return {
        "link": link,
        "source": execution.fabric.sources[link],
        "target": execution.fabric.targets[link],
        "begin_s": rows[is_busy, 0],
        "end_s": end_s[is_busy],
        "rate_bps": rows[is_busy, 2] * 8,
        "capacity_bps": execution.fabric.capacity_bps[link],
    }


def make_task_table(execution: Execution) -> Table:
    """Return all tasks in the order of the graph."""
    names = np.array([kind.name.lower() for kind in Kind])
    return {
        "task": np.arange(execution.graph.task_count),
        "kind": names[execution.graph.kind],
        "device": execution.graph.device,
        "begin_s": execution.begin_s,
        "end_s": execution.end_s,
    }


def write_traces(execution: Execution, folder: str | Path) -> tuple[Path, ...]:
    """Write the three tables into a folder, which is created if missing, and return the paths.

    Raise `ValueError` without a trace, `ModuleNotFoundError` without pyarrow, `OSError` if writing fails.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"writing Parquet needs pyarrow: {describe_extra('testbed')}", name=error.name
        ) from error
    tables = {
        "flows": make_flow_table(execution),
        "links": make_link_table(execution),
        "tasks": make_task_table(execution),
    }
    Path(folder).mkdir(parents=True, exist_ok=True)
    files = []
    for name, table in tables.items():
        files.append(Path(folder) / f"{name}.parquet")
        parquet.write_table(pa.table(table), files[-1])
    return tuple(files)


def _get_trace(execution: Execution) -> Trace:
    if execution.trace is None:
        raise ValueError("this iteration has no trace: simulate it with trace=True")
    return execution.trace
