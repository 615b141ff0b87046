"""The inner loops of the closed-form cost: plain functions over arrays, compiled where numba is installed.

A server and a link are each a queue that serves one thing after the other in the order of the program. What has to
wait for its input leaves a gap, which something that comes later may still fill. A link has a second queue, for loads
that nobody waits for: gradients, which are summed while the backward pass goes on. Each of the two queues has half of
the link while both have something to serve.
"""

from __future__ import annotations

from typing import Any

from lightbed.compiled import compile_function


@compile_function
def finish_s(items: Any, bounds: Any, index: Any, amount: Any, extra_s: Any, ready: Any, busy: Any) -> float:
    """Return when the last item of a program is done, in seconds.

    An item has the stages `items[i]` that it reads and writes (-1 for none), and four runs of rows from
    `bounds[i, k]` to `bounds[i, k + 1]`: servers that compute for `amount` seconds; servers that keep what they have;
    servers that send, and links that carry for `amount` seconds, together; servers that receive, `extra_s[i]` after
    the last link. `index` names servers, and links from `ready.shape[1]` on. `ready[stage, server]` must be 0, `busy`
    (servers and links, 4) too: until when a queue is busy, the gap that may be filled, and until when a link's second
    queue is busy; what delays gradients after their turn is in there alone.
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
        done = begin
        for row in range(bounds[item, 2], bounds[item, 3]):
            if index[row] >= nodes:
                if onward < 0:
                    done = max(done, _serve_behind(busy[index[row]], begin, amount[row]))
                else:
                    done = max(done, _serve_beside(busy[index[row]], begin, amount[row]))
        done += extra_s[item]
        last = max(last, done)
        if onward < 0:
            continue
        for row in range(bounds[item, 3], bounds[item, 4]):
            ready[onward, index[row]] = max(ready[onward, index[row]], done)
    return last


@compile_function
def _serve(queue: Any, wish: float, length: float) -> float:
    """Return when a queue (busy until, gap from, gap to) has served something that is there from `wish` on."""
    begin = max(wish, queue[1])
    if begin + length <= queue[2]:
        queue[1] = begin + length
        return float(queue[1])
    begin = max(wish, queue[0])
    if begin - queue[0] > queue[2] - queue[1]:
        queue[1] = queue[0]
        queue[2] = begin
    queue[0] = begin + length
    return float(queue[0])


@compile_function
def _serve_beside(queue: Any, wish: float, length: float) -> float:
    """Do as `_serve`, on a link that may have gradients to carry meanwhile: both then take longer."""
    begin = wish if wish >= queue[1] and wish + length <= queue[2] else max(wish, queue[0])
    both = min(length, max(queue[3] - begin, 0.0))
    queue[3] += both
    return _serve(queue, wish, length + both)


@compile_function
def _serve_behind(queue: Any, wish: float, length: float) -> float:
    """Return when the second queue of a link has served something that is there from `wish` on."""
    begin = max(wish, queue[3])
    both = min(length, max(queue[0] - max(begin, queue[2]), 0.0))
    queue[3] = begin + length + both
    return float(queue[3])


@compile_function
def walk(slots: Any, choice: Any, number: Any, first: Any, links: Any) -> None:
    """Write the links from every node to every other, `links[first[s * n + t]:]`; `number[v, k]` is a slot's link."""
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
    """Add to `load` what each link carries of these bytes; returns the links of the longest path.

    `choice` is the set of paths that each message takes; `first` and `links` are those of `Paths`.
    """
    longest = 0
    for row in range(len(source)):
        pair = (choice[row] * nodes + source[row]) * nodes + target[row]
        longest = max(longest, first[pair + 1] - first[pair])
        for at in range(first[pair], first[pair + 1]):
            load[links[at]] += size[row]
    return longest
