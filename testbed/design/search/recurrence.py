"""Inner loops of the closed-form cost: plain functions over arrays, compiled if numba is installed.

Each server and each link is a queue that serves one load after the other, in the order of the program. A load that
waits for its input leaves a gap, which a later load may fill. A link has a second queue for gradients, which are summed
during the backward pass and for which no operator waits. While both queues have loads, each gets half of the link.
"""

from __future__ import annotations

from typing import Any

from lightbed.compiled import compile_function


@compile_function
def compute_finish_s(
    stage_table: Any, bounds: Any, queue_numbers: Any, service_s: Any, extra_s: Any, ready_s: Any, queues: Any
) -> float:
    """Return when the last item of a program ends, in seconds.

    `stage_table[i]` holds the stages that item i reads and writes (-1 for none). Its rows form four runs, each from
    `bounds[i, k]` to `bounds[i, k + 1]`:

    0. servers that compute for `service_s` seconds,
    1. servers that already have their input,
    2. servers that send, and links that are busy for `service_s` seconds,
    3. servers that receive, `extra_s[i]` after the last link has finished.

    `queue_numbers` holds the server of each row; links have numbers from `ready_s.shape[1]` on. `ready_s` (stages,
    servers) and `queues` (servers and links, 4) must be 0 and are overwritten. The columns of `queues` are the end of
    a queue's load, begin and end of the gap that may be filled, and the end of a link's second queue. Later loads may
    still delay the second queue, so callers must take the maximum of the return value and column 3.
    """
    nodes = ready_s.shape[1]
    latest_end_s = 0.0
    for item in range(len(stage_table)):
        stage_ready = ready_s[stage_table[item, 0]]
        for row in range(bounds[item, 0], bounds[item, 1]):
            server = queue_numbers[row]
            stage_ready[server] = _serve(queues[server], stage_ready[server], service_s[row])
            latest_end_s = max(latest_end_s, stage_ready[server])
        next_stage = stage_table[item, 1]
        for row in range(bounds[item, 1], bounds[item, 2]):
            ready_s[next_stage, queue_numbers[row]] = max(
                ready_s[next_stage, queue_numbers[row]], stage_ready[queue_numbers[row]]
            )
        if bounds[item, 2] == bounds[item, 3]:
            continue
        begin = 0.0
        for row in range(bounds[item, 2], bounds[item, 3]):
            if queue_numbers[row] < nodes:
                begin = max(begin, stage_ready[queue_numbers[row]])
        end_s = begin
        for row in range(bounds[item, 2], bounds[item, 3]):
            if queue_numbers[row] >= nodes:
                if next_stage < 0:
                    end_s = max(end_s, _serve_gradients(queues[queue_numbers[row]], begin, service_s[row]))
                else:
                    end_s = max(
                        end_s, _serve_with_gradients(queues[queue_numbers[row]], begin, service_s[row])
                    )
        end_s += extra_s[item]
        latest_end_s = max(latest_end_s, end_s)
        if next_stage < 0:
            continue
        for row in range(bounds[item, 3], bounds[item, 4]):
            ready_s[next_stage, queue_numbers[row]] = max(ready_s[next_stage, queue_numbers[row]], end_s)
    return latest_end_s


@compile_function
def _serve(queue: Any, ready_s: float, length_s: float) -> float:
    """Return when a queue (busy until, gap from, gap to) has served a load that is ready at `ready_s`."""
    begin_s = max(ready_s, queue[1])
    if begin_s + length_s <= queue[2]:
        queue[1] = begin_s + length_s
        return float(queue[1])
    begin_s = max(ready_s, queue[0])
    if begin_s - queue[0] > queue[2] - queue[1]:
        queue[1] = queue[0]
        queue[2] = begin_s
    queue[0] = begin_s + length_s
    return float(queue[0])


@compile_function
def _serve_with_gradients(queue: Any, ready_s: float, length_s: float) -> float:
    """Return the result of `_serve` for a link. Gradients in its second queue at the same time delay both queues."""
    begin_s = ready_s if ready_s >= queue[1] and ready_s + length_s <= queue[2] else max(ready_s, queue[0])
    overlap_s = min(length_s, max(queue[3] - begin_s, 0.0))
    queue[3] += overlap_s
    return _serve(queue, ready_s, length_s + overlap_s)


@compile_function
def _serve_gradients(queue: Any, ready_s: float, length_s: float) -> float:
    """Return when the second queue of a link has served a load that is ready at `ready_s`."""
    begin_s = max(ready_s, queue[3])
    overlap_s = min(length_s, max(queue[0] - max(begin_s, queue[2]), 0.0))
    queue[3] = begin_s + length_s + overlap_s
    return float(queue[3])


@compile_function
def list_path_links(
    neighbours: Any, next_slots: Any, link_numbers: Any, first_index: Any, links: Any
) -> None:
    """Write the links of the path from s to t to `links[first_index[s * n + t]:]`.

    `link_numbers[v, k]` is link k of node v.
    """
    nodes = len(neighbours)
    for source in range(nodes):
        for target in range(nodes):
            node, link_index = source, first_index[source * nodes + target]
            while node != target:
                slot = next_slots[node, target]
                links[link_index] = link_numbers[node, slot]
                node = neighbours[node, slot]
                link_index += 1


@compile_function
def add_loads(
    nodes: int,
    source: Any,
    target: Any,
    path_sets: Any,
    size_bytes: Any,
    first_index: Any,
    links: Any,
    load: Any,
) -> int:
    """Add the bytes that each link carries to `load`, and return the number of links of the longest path.

    `path_sets` is the set of paths of each message. `first_index` and `links` are as in `Paths`.
    """
    max_hops = 0
    for row in range(len(source)):
        pair = (path_sets[row] * nodes + source[row]) * nodes + target[row]
        max_hops = max(max_hops, first_index[pair + 1] - first_index[pair])
        for position in range(first_index[pair], first_index[pair + 1]):
            load[links[position]] += size_bytes[row]
    return max_hops
