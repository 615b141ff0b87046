"""The alternating tree of one stage: labels given, edges noted by the time they become tight, ways to the root.

`clock` holds the time, and when and where the first dual of an even node will be zero: the stage ends there.
"""

from __future__ import annotations

from heapq import heappush

from lightbed.compiled import compiled
from testbed.design.matching.state import EVEN, ODD, Ints, State, join, settle, value

#: (time, what): an arc, or the number of arcs plus the id of an odd blossom.
Events = list[tuple[int, int]]

NOW = 0
LAST_TIME = 1
LAST_NODE = 2


@compiled
def make_odd(state: State, top: int, here: int, there: int, clock: Ints, tops: Ints, events: Events) -> None:
    """Hang a top on the tree by the edge here -> there."""
    state.label[top] = ODD
    state.since[top] = clock[NOW]
    state.tree_from[top] = here
    state.tree_to[top] = there
    tops.append(top)
    if top >= len(state.mate):
        heappush(events, (clock[NOW] + state.z[top] // 2, len(state.tail) + top))


@compiled
def make_even(state: State, top: int, clock: Ints, tops: Ints, events: Events) -> None:
    """Lower the duals of a top, and note when its edges will be tight."""
    state.label[top] = EVEN
    state.since[top] = clock[NOW]
    tops.append(top)
    look_around(state, top, clock, events)


@compiled
def look_around(state: State, top: int, clock: Ints, events: Events) -> None:
    """Note when the edges of a new even top will be tight, if that is before the stage must end."""
    node = state.leaf_head[top]
    while True:
        if clock[NOW] + state.dual[node] < clock[LAST_TIME]:
            clock[LAST_TIME] = clock[NOW] + state.dual[node]
            clock[LAST_NODE] = node
        for arc in range(state.first[node], state.first[node + 1]):
            other = state.top[state.head[arc]]
            if other == top or state.label[other] == ODD:
                continue
            slack = state.dual[node] + value(state, state.head[arc], clock[NOW]) - state.weight[arc]
            time = clock[NOW] + (slack // 2 if state.label[other] == EVEN else slack)
            if time < clock[LAST_TIME]:
                heappush(events, (time, arc))
        if node == state.leaf_tail[top]:
            return
        node = state.leaf_next[node]


@compiled
def look_back(state: State, top: int, clock: Ints, events: Events) -> None:
    """Note when edges from even tops to a top that lost its label will be tight."""
    node = state.leaf_head[top]
    while True:
        for arc in range(state.first[node], state.first[node + 1]):
            if state.label[state.top[state.head[arc]]] == EVEN:
                other = value(state, state.head[arc], clock[NOW])
                time = clock[NOW] + state.dual[node] + other - state.weight[arc]
                if time < clock[LAST_TIME]:
                    heappush(events, (time, arc))
        if node == state.leaf_tail[top]:
            return
        node = state.leaf_next[node]


@compiled
def meet(state: State, here: int, there: int) -> int:
    """Return the nearest even top that the ways from two even tops to the root have in common."""
    state.stamp[-1] += 1
    mark = state.stamp[-1]
    one, other = state.top[here], state.top[there]
    while True:
        if one >= 0:
            if state.stamp[one] == mark:
                return one
            state.stamp[one] = mark
            mate = state.mate[state.base[one]]
            one = -1 if mate < 0 else state.top[state.tree_from[state.top[mate]]]
        one, other = (one, other) if other < 0 else (other, one)


@compiled
def climb(state: State, node: int, meeting: int, down: bool, clock: Ints) -> Ints:
    """Join the tops between a node's and `meeting` to a ring, and settle them; the odd ones, after a -1."""
    odd_ones = [-1]
    even = state.top[node]
    while even != meeting:
        base = state.base[even]
        odd = state.top[state.mate[base]]
        above = state.top[state.tree_from[odd]]
        if down:
            join(state, odd, even, state.mate[base], base)
            join(state, above, odd, state.tree_from[odd], state.tree_to[odd])
        else:
            join(state, even, odd, base, state.mate[base])
            join(state, odd, above, state.tree_to[odd], state.tree_from[odd])
        settle(state, even, clock[NOW])
        settle(state, odd, clock[NOW])
        odd_ones.append(odd)
        even = above
    return odd_ones


@compiled
def look_around_inside(state: State, child: int, blossom: int, clock: Ints, events: Events) -> None:
    """Do `look_around` for the nodes of one child alone: the others were even before."""
    head, tail = state.leaf_head[blossom], state.leaf_tail[blossom]
    state.leaf_head[blossom], state.leaf_tail[blossom] = state.leaf_head[child], state.leaf_tail[child]
    look_around(state, blossom, clock, events)
    state.leaf_head[blossom], state.leaf_tail[blossom] = head, tail
