"""Heaviest matching by primal-dual search, one free node after the other (Edmonds 1965).

Each stage grows an alternating tree from one free node. Time is the amount by which the duals of even nodes
have fallen; what happens next (an edge becomes tight, the dual of an odd blossom reaches zero) waits in
a queue by time, so that a stage touches nothing but its own tree. The stage ends when the tree reaches another
free node, or when the dual of an even node reaches zero: then that node may stay free.

Weights are even integers. The nodes of a tree are joined by tight edges, so their duals are all even or all
odd, the slack between two even ones is even, and every number stays an integer: the answer is exact.
Worst case O(n m log n); on sparse demands most trees hold few nodes.
"""

from __future__ import annotations

from heapq import heappop

from lightbed.compiled import compiled
from testbed.design.matching.state import (
    EVEN,
    NONE,
    ODD,
    Ints,
    State,
    child_with,
    dissolve,
    join,
    new_blossom,
    place_on_ring,
    rebase,
    settle,
    value,
)
from testbed.design.matching.tree import (
    LAST_NODE,
    LAST_TIME,
    NOW,
    Events,
    climb,
    look_around_inside,
    look_back,
    make_even,
    make_odd,
    meet,
)


@compiled
def match_all(state: State) -> None:
    """Make `state.mate` a matching of greatest weight, and the duals its proof."""
    lower_duals(state)
    for node in range(len(state.mate)):
        if state.mate[node] < 0 and state.dual[node] > 0:
            run_stage(state, node)


@compiled
def lower_duals(state: State) -> None:
    """Begin with the least duals that one pass finds, and match along edges that are tight at once."""
    for node in range(len(state.mate)):
        least = 0
        partner = -1
        for arc in range(state.first[node], state.first[node + 1]):
            need = state.weight[arc] - state.dual[state.head[arc]]
            if need > least:
                least = need
                partner = -1
            if need == least and partner < 0 and state.mate[state.head[arc]] < 0:
                partner = state.head[arc]
        state.dual[node] = least
        if partner >= 0 and state.mate[node] < 0:
            state.mate[node] = partner
            state.mate[partner] = node


@compiled
def run_stage(state: State, root: int) -> None:
    """Match `root`, or prove that it (or another node in its place) stays free."""
    clock = [0, state.dual[root], root]  # now; when and where the first dual of an even node is zero
    tops = [state.top[root]]
    events = [(0, 0)]
    events.pop()
    make_even(state, state.top[root], clock, tops, events)
    found = False
    while not found and len(events) > 0 and events[0][0] < clock[LAST_TIME]:
        time, what = heappop(events)
        clock[NOW] = time
        if what >= len(state.tail):
            expand_if_empty(state, what - len(state.tail), clock, tops, events)
        else:
            found = take_edge(state, what, clock, tops, events)
    if not found:
        clock[NOW] = clock[LAST_TIME]
    for top in tops:
        settle(state, top, clock[NOW])
    if not found:
        flip(state, clock[LAST_NODE], -1)
    for top in tops:
        state.label[top] = NONE


@compiled
def take_edge(state: State, arc: int, clock: Ints, tops: Ints, events: Events) -> bool:
    """Use an edge that may be tight now; True when it led to a free node and the stage is over."""
    here, there = state.tail[arc], state.head[arc]
    if state.label[state.top[here]] != EVEN:
        here, there = there, here
    target = state.top[there]
    if state.top[here] == target or state.label[target] == ODD:
        return False
    if value(state, here, clock[NOW]) + value(state, there, clock[NOW]) > state.weight[arc]:
        return False  # it was noted before its end turned odd and back; a later note stands
    if state.label[target] == EVEN:
        close_ring(state, here, there, clock, tops, events)
        return False
    if state.mate[state.base[target]] < 0:
        flip(state, here, there)
        rebase(state, target, there)
        state.mate[there] = here
        return True
    make_odd(state, target, here, there, clock, tops, events)
    make_even(state, state.top[state.mate[state.base[target]]], clock, tops, events)
    return False


@compiled
def close_ring(state: State, here: int, there: int, clock: Ints, tops: Ints, events: Events) -> None:
    """Make a blossom of the odd ring that an edge between two even tops closes."""
    meeting = meet(state, here, there)
    join(state, state.top[here], state.top[there], here, there)
    were_odd = climb(state, here, meeting, True, clock)
    were_odd += climb(state, there, meeting, False, clock)
    settle(state, meeting, clock[NOW])
    blossom = new_blossom(state, meeting)
    state.label[blossom] = EVEN
    state.since[blossom] = clock[NOW]
    tops.append(blossom)
    for child in were_odd[1:]:
        if child >= 0:
            look_around_inside(state, child, blossom, clock, events)


@compiled
def expand_if_empty(state: State, blossom: int, clock: Ints, tops: Ints, events: Events) -> None:
    """Take an odd blossom apart when its dual is zero; a part of its ring stays in the tree."""
    if state.label[blossom] != ODD or state.z[blossom] != 2 * (clock[NOW] - state.since[blossom]):
        return
    settle(state, blossom, clock[NOW])
    here, there = state.tree_from[blossom], state.tree_to[blossom]
    entry = child_with(state, blossom, there)
    forward = place_on_ring(state, blossom, entry) % 2 == 1
    dissolve(state, blossom)
    evens = [-1]
    child = entry
    while True:
        make_odd(state, child, here, there, clock, tops, events)
        if child == state.child[blossom]:
            break
        even = state.ring_next[child] if forward else state.ring_previous[child]
        state.label[even] = EVEN
        state.since[even] = clock[NOW]
        evens.append(even)
        child = state.ring_next[even] if forward else state.ring_previous[even]
        here = state.ring_here[even] if forward else state.ring_there[child]
        there = state.ring_there[even] if forward else state.ring_here[child]
    for even in evens[1:]:
        make_even(state, even, clock, tops, events)
    child = entry
    while True:
        if state.label[child] == NONE:
            look_back(state, child, clock, events)
        child = state.ring_next[child]
        if child == entry:
            return


@compiled
def flip(state: State, node: int, partner: int) -> None:
    """Match an even node to `partner` (-1: leave it free), and change mates on its way to the root."""
    while True:
        top = state.top[node]
        former = state.mate[state.base[top]]
        rebase(state, top, node)
        state.mate[node] = partner
        if former < 0:
            return
        odd = state.top[former]
        node, partner = state.tree_from[odd], state.tree_to[odd]
        rebase(state, odd, partner)
        state.mate[partner] = node
