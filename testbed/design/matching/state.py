"""State of a search for a heaviest matching: duals, mates, and blossoms as rings of children.

Plain arrays in a named tuple, so that the same text runs compiled or interpreted. Ids below n are nodes, ids
from n on are blossoms; an id that lies in no blossom is a *top*. Duals are kept as they were when their top got
its present label (`since`), and brought up to date when the label changes.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import NamedTuple

from lightbed.compiled import compiled

Ints = MutableSequence[int]

NONE = 0
EVEN = 1
ODD = 2


class State(NamedTuple):
    """Arcs by their tail (`first[v]` to `first[v + 1]`), each edge twice; weights are even numbers."""

    first: Ints
    tail: Ints
    head: Ints
    weight: Ints
    dual: Ints  # of each node
    mate: Ints  # of each node, -1 where free
    top: Ints  # of each node
    leaf_next: Ints  # the nodes of a blossom are a chain from its leaf_head to its leaf_tail
    leaf_head: Ints
    leaf_tail: Ints
    z: Ints  # dual of each blossom
    base: Ints  # the node of a blossom that is matched outside, or free
    outer: Ints  # the blossom around an id, -1 for tops
    child: Ints  # the child that holds the base; from there the children form a ring
    ring_next: Ints
    ring_previous: Ints
    ring_here: Ints  # the edge to the next child: its end in this one,
    ring_there: Ints  # and its end in the next
    label: Ints  # of tops
    since: Ints
    tree_from: Ints  # an odd top hangs on the tree by the edge tree_from -> tree_to
    tree_to: Ints
    stamp: Ints
    spare: Ints  # blossom ids not in use; the count is in spare[-1]


@compiled
def value(state: State, node: int, now: int) -> int:
    """Return the dual of a node at time `now` of a stage: even nodes fall, odd ones rise."""
    top = state.top[node]
    if state.label[top] == EVEN:
        return state.dual[node] - (now - state.since[top])
    if state.label[top] == ODD:
        return state.dual[node] + (now - state.since[top])
    return state.dual[node]


@compiled
def settle(state: State, top: int, now: int) -> None:
    """Write down the duals of a top and all in it as they are now."""
    passed = now - state.since[top]
    state.since[top] = now
    if passed == 0 or state.label[top] == NONE:
        return
    fall = passed if state.label[top] == EVEN else -passed
    if top >= len(state.mate):
        state.z[top] += 2 * fall
    node = state.leaf_head[top]
    while True:
        state.dual[node] -= fall
        if node == state.leaf_tail[top]:
            return
        node = state.leaf_next[node]


@compiled
def set_top(state: State, blossom: int, top: int) -> None:
    """Make `top` the outermost id of every node of a blossom (or node)."""
    node = state.leaf_head[blossom]
    while True:
        state.top[node] = top
        if node == state.leaf_tail[blossom]:
            return
        node = state.leaf_next[node]


@compiled
def join(state: State, one: int, other: int, here: int, there: int) -> None:
    """Put `other` behind `one` on a ring of children, joined by the edge here -> there."""
    state.ring_next[one] = other
    state.ring_previous[other] = one
    state.ring_here[one] = here
    state.ring_there[one] = there


@compiled
def new_blossom(state: State, first: int) -> int:
    """Close the ring of children that begins with `first` into a top of its own, without a label."""
    state.spare[-1] -= 1
    blossom = state.spare[state.spare[-1]]
    state.child[blossom] = first
    state.base[blossom] = state.base[first]
    state.z[blossom] = 0
    state.outer[blossom] = -1
    state.label[blossom] = NONE
    state.leaf_head[blossom] = state.leaf_head[first]
    child = first
    while True:
        state.outer[child] = blossom
        state.label[child] = NONE
        set_top(state, child, blossom)
        state.leaf_tail[blossom] = state.leaf_tail[child]
        if state.ring_next[child] == first:
            return blossom
        state.leaf_next[state.leaf_tail[child]] = state.leaf_head[state.ring_next[child]]
        child = state.ring_next[child]


@compiled
def dissolve(state: State, blossom: int) -> None:
    """Make tops of the children of a blossom, without labels, and free its id."""
    child = state.child[blossom]
    while True:
        state.outer[child] = -1
        state.label[child] = NONE
        set_top(state, child, child)
        child = state.ring_next[child]
        if child == state.child[blossom]:
            break
    state.label[blossom] = NONE
    state.spare[state.spare[-1]] = blossom
    state.spare[-1] += 1


@compiled
def place_on_ring(state: State, blossom: int, child: int) -> int:
    """Return how many children stand before `child`, counted from the one that holds the base."""
    place = 0
    at = state.child[blossom]
    while at != child:
        at = state.ring_next[at]
        place += 1
    return place


@compiled
def child_with(state: State, blossom: int, node: int) -> int:
    """Return the child of a blossom that holds a node."""
    child = node
    while state.outer[child] != blossom:
        child = state.outer[child]
    return child


@compiled
def rebase(state: State, blossom: int, node: int) -> None:
    """Match the nodes of a blossom inside it so that `node` alone is left over: the new base."""
    nodes = len(state.mate)
    waiting = [(blossom, node)]
    while len(waiting) > 0:
        inside, base = waiting.pop()
        if inside < nodes:
            continue
        child = child_with(state, inside, base)
        waiting.append((child, base))
        odd = place_on_ring(state, inside, child) % 2 == 1
        at = state.ring_next[child] if odd else state.child[inside]
        stop = state.ring_next[state.child[inside]] if odd else child
        while at != stop:
            here, there = state.ring_here[at], state.ring_there[at]
            following = state.ring_next[at]
            state.mate[here] = there
            state.mate[there] = here
            waiting.append((at, here))
            waiting.append((following, there))
            at = state.ring_next[following]
        state.child[inside] = child
        state.base[inside] = base
