"""Inner loops of the closed-form cost: plain functions over arrays, compiled if numba is installed.

A server and a link are each a queue that serves one load after the other, in the order of the program. A load that
waits for its input leaves a gap, which a later load may fill. A link has a second queue for loads that no operator
waits for: gradients, which are summed during the backward pass. While both queues have loads, each gets half of the
link.
"""

from __future__ import annotations

from typing import Any

from lightbed.compiled import compile_function


@compile_function
def finish_s(items: Any, bounds: Any, index: Any, amount: Any, extra_s: Any, ready: Any, busy: Any) -> float:
    """Return when the last item of a program ends, in seconds.

    An item has the stages `items[i]` that it reads and writes (-1 for none), and four runs of rows from
    `bounds[i, k]` to `bounds[i, k + 1]`: servers that compute for `amount` seconds; servers that keep what they have;
    servers that send, and links that carry for `amount` seconds, together; servers that receive, `extra_s[i]` after
    the last link. `index` holds servers, and links from `ready.shape[1]` on. `ready` (stages, servers) and `busy`
    (servers and links, 4) must be 0 and are overwritten. The columns of `busy` are: the end of a queue's load, begin
    and end of the gap that may be filled, and the end of a link's second queue. Later loads may still delay that
    second queue, so the return value does not contain it in full: take the maximum with column 3.
    """
    nodes = ready.shape[1]
    last = 0.0
    for item in range(len(items)):
        now = ready[items[item, 0]]
        for row in range(bounds[item, 0], bounds[item, 1]):
            server = index[row]
            now[server] = _serve(busy[server], now[server], amount[row])
            last = max(last, now[server])
        onward = items[item, 1]
        for row in range(bounds[item, 1], bounds[item, 2]):
            ready[onward, index[row]] = max(ready[onward, index[row]], now[index[row]])
        if bounds[item, 2] == bounds[item, 3]:
            continue
        begin = 0.0
        for row in range(bounds[item, 2], bounds[item, 3]):
            if index[row] < nodes:
                begin = max(begin, now[index[row]])
        end_s = begin
        for row in range(bounds[item, 2], bounds[item, 3]):
            if index[row] >= nodes:
                if onward < 0:
                    end_s = max(end_s, _serve_gradients(busy[index[row]], begin, amount[row]))
                else:
                    end_s = max(end_s, _serve_with_gradients(busy[index[row]], begin, amount[row]))
        end_s += extra_s[item]
        last = max(last, end_s)
        if onward < 0:
            continue
        for row in range(bounds[item, 3], bounds[item, 4]):
            ready[onward, index[row]] = max(ready[onward, index[row]], end_s)
    return last


@compile_function
def _serve(queue: Any, wish_s: float, length_s: float) -> float:
    """Return when a queue (busy until, gap from, gap to) has served a load of `length` that is ready at `wish`."""
    begin = max(wish_s, queue[1])
    if begin + length_s <= queue[2]:
        queue[1] = begin + length_s
        return float(queue[1])
    begin = max(wish_s, queue[0])
    if begin - queue[0] > queue[2] - queue[1]:
        queue[1] = queue[0]
        queue[2] = begin
    queue[0] = begin + length_s
    return float(queue[0])


@compile_function
def _serve_with_gradients(queue: Any, wish: float, length: float) -> float:
    """Return the same as `_serve` for a link whose second queue may carry gradients meanwhile: both take longer."""
    begin = wish if wish >= queue[1] and wish + length <= queue[2] else max(wish, queue[0])
    both = min(length, max(queue[3] - begin, 0.0))
    queue[3] += both
    return _serve(queue, wish, length + both)


@compile_function
def _serve_gradients(queue: Any, wish: float, length: float) -> float:
    """Return when the second queue of a link has served a load of `length` that is ready at `wish`."""
    begin = max(wish, queue[3])
    both = min(length, max(queue[0] - max(begin, queue[2]), 0.0))
    queue[3] = begin + length + both
    return float(queue[3])


@compile_function
def walk(slots: Any, choice: Any, number: Any, first: Any, links: Any) -> None:
    """Write the links of the path from s to t to `links[first[s * n + t]:]`; `number[v, k]` is the link of a slot."""
    nodes = len(slots)
    for source in range(nodes):
        for target in range(nodes):
            at, place = source, first[source * nodes + target]
            while at != target:
                slot = choice[at, target]
                links[place] = number[at, slot]
                at = slots[at, slot]
                place += 1


@compile_function
def add_loads(
    nodes: int, source: Any, target: Any, choice: Any, size: Any, first: Any, links: Any, load: Any
) -> int:
    """Add the bytes that each link carries to `load`, and return the number of links of the longest path.

    `choice` is the set of paths that each message takes; `first` and `links` are those of `Paths`.
    """
    longest = 0
    for row in range(len(source)):
        pair = (choice[row] * nodes + source[row]) * nodes + target[row]
        longest = max(longest, first[pair + 1] - first[pair])
        for at in range(first[pair], first[pair + 1]):
            load[links[at]] += size[row]
    return longest
