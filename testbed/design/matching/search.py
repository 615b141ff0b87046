"""Matching of maximum weight by primal-dual search, one free node after the other (Edmonds 1965).

Each stage grows an alternating tree from one free node. A node of the tree is *even* or *odd* by its distance from the
root. The duals of even nodes fall and the duals of odd nodes rise. Time is the amount by which they have changed. A
queue orders events by time: an edge becomes tight, or the dual of an odd blossom reaches zero. So a stage touches only
its own tree. The stage ends when the tree reaches another free node, or when the dual of an even node reaches zero, so
that this node may stay free.

Weights are even integers. Tight edges join the nodes of a tree, so their duals are all even numbers or all odd numbers.
The slack between two even nodes is therefore an even number, all values stay integers, and the matching is exact.
The worst case is O(n m log n); on sparse demands most trees have few nodes.

The state consists of plain arrays in a named tuple, so that the same code runs compiled or interpreted. Ids below n are
nodes, ids from n on are blossoms. An id outside all blossoms is a *top*. A stored dual was valid when its top got its
current label (`label_time`); it is updated when the label changes.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from heapq import heappop, heappush
from typing import NamedTuple

from lightbed.compiled import compile_function

Ints = MutableSequence[int]

NO_LABEL = 0
EVEN_LABEL = 1
ODD_LABEL = 2

#: (time, event). An event is the arc that becomes tight, or the number of arcs plus the id of an odd blossom.
Events = list[tuple[int, int]]
NOW = 0
LAST_TIME = 1
LAST_NODE = 2


class State(NamedTuple):
    """State of the search.

    Each edge is stored as two arcs with an even weight. The arcs with tail v are `first_arc[v]` to `first_arc[v + 1]`.
    The columns from `dual` on are indexed by node or by id.
    """

    first_arc: Ints
    tail: Ints
    head: Ints
    weight: Ints
    dual: Ints  # of each node
    mate: Ints  # of each node, -1 where free
    top: Ints  # of each node
    next_leaf: Ints  # the nodes of a blossom are a chain from its first_leaf to its last_leaf
    first_leaf: Ints
    last_leaf: Ints
    blossom_dual: Ints  # dual of each blossom
    base: Ints  # the node of a blossom that is matched outside, or free
    parent_blossom: Ints  # the smallest blossom that contains an id, -1 for tops
    first_child: Ints  # the child that holds the base, and the start of the ring of children
    ring_next: Ints
    ring_previous: Ints
    ring_near_node: Ints  # of the edge to the next child, the end in this child
    ring_far_node: Ints  # and the end in the next child
    label: Ints  # of tops: `NO_LABEL`, `EVEN_LABEL` or `ODD_LABEL`
    label_time: Ints  # time at which a top got its label
    tree_near_node: Ints  # end of the edge to `tree_far_node`, from an odd top to its parent
    tree_far_node: Ints
    path_marks: Ints  # marks of `find_common_top`; path_marks[-1] is the current mark
    free_blossoms: Ints  # blossom ids not in use; the count is in free_blossoms[-1]


@compile_function
def compute_dual(state: State, node: int, clock_time: int) -> int:
    """Return the dual of a node at time `clock_time` of a stage: duals of even nodes fall, duals of odd nodes rise."""
    top = state.top[node]
    if state.label[top] == EVEN_LABEL:
        return state.dual[node] - (clock_time - state.label_time[top])
    if state.label[top] == ODD_LABEL:
        return state.dual[node] + (clock_time - state.label_time[top])
    return state.dual[node]


@compile_function
def store_duals(state: State, top: int, clock_time: int) -> None:
    """Update the stored duals of a top, and of all nodes in it, to the current time."""
    elapsed = clock_time - state.label_time[top]
    state.label_time[top] = clock_time
    if elapsed == 0 or state.label[top] == NO_LABEL:
        return
    dual_decrease = elapsed if state.label[top] == EVEN_LABEL else -elapsed
    if top >= len(state.mate):
        state.blossom_dual[top] += 2 * dual_decrease
    node = state.first_leaf[top]
    while True:
        state.dual[node] -= dual_decrease
        if node == state.last_leaf[top]:
            return
        node = state.next_leaf[node]


@compile_function
def set_top(state: State, blossom: int, top: int) -> None:
    """Set `top` as the top of every node of a blossom (or of a single node)."""
    node = state.first_leaf[blossom]
    while True:
        state.top[node] = top
        if node == state.last_leaf[blossom]:
            return
        node = state.next_leaf[node]


@compile_function
def link_on_ring(state: State, child: int, next_child: int, near_node: int, far_node: int) -> None:
    """Put `next_child` after `child` on a ring of children, joined by the edge from `near_node` to `far_node`."""
    state.ring_next[child] = next_child
    state.ring_previous[next_child] = child
    state.ring_near_node[child] = near_node
    state.ring_far_node[child] = far_node


@compile_function
def form_blossom(state: State, first_child: int) -> int:
    """Make a new top, without a label, from the ring of children that begins with `first_child`, and return its id."""
    state.free_blossoms[-1] -= 1
    blossom = state.free_blossoms[state.free_blossoms[-1]]
    state.first_child[blossom] = first_child
    state.base[blossom] = state.base[first_child]
    state.blossom_dual[blossom] = 0
    state.parent_blossom[blossom] = -1
    state.label[blossom] = NO_LABEL
    state.first_leaf[blossom] = state.first_leaf[first_child]
    child = first_child
    while True:
        state.parent_blossom[child] = blossom
        state.label[child] = NO_LABEL
        set_top(state, child, blossom)
        state.last_leaf[blossom] = state.last_leaf[child]
        if state.ring_next[child] == first_child:
            return blossom
        state.next_leaf[state.last_leaf[child]] = state.first_leaf[state.ring_next[child]]
        child = state.ring_next[child]


@compile_function
def dissolve_blossom(state: State, blossom: int) -> None:
    """Make the children of a blossom tops without labels, and free its id."""
    child = state.first_child[blossom]
    while True:
        state.parent_blossom[child] = -1
        state.label[child] = NO_LABEL
        set_top(state, child, child)
        child = state.ring_next[child]
        if child == state.first_child[blossom]:
            break
    state.label[blossom] = NO_LABEL
    state.free_blossoms[state.free_blossoms[-1]] = blossom
    state.free_blossoms[-1] += 1


@compile_function
def find_ring_position(state: State, blossom: int, child: int) -> int:
    """Return the position of `child` on its ring, counted from the child that holds the base."""
    ring_position = 0
    current_child = state.first_child[blossom]
    while current_child != child:
        current_child = state.ring_next[current_child]
        ring_position += 1
    return ring_position


@compile_function
def find_child_of(state: State, blossom: int, node: int) -> int:
    """Return the child of a blossom that contains a node."""
    child = node
    while state.parent_blossom[child] != blossom:
        child = state.parent_blossom[child]
    return child


@compile_function
def move_base(state: State, blossom: int, node: int) -> None:
    """Match the nodes of a blossom among themselves except for `node`, the new base."""
    node_count = len(state.mate)
    pending = [(blossom, node)]
    while len(pending) > 0:
        current_blossom, base = pending.pop()
        if current_blossom < node_count:
            continue
        child = find_child_of(state, current_blossom, base)
        pending.append((child, base))
        is_odd = find_ring_position(state, current_blossom, child) % 2 == 1
        current_child = state.ring_next[child] if is_odd else state.first_child[current_blossom]
        end_child = state.ring_next[state.first_child[current_blossom]] if is_odd else child
        while current_child != end_child:
            near_node, far_node = state.ring_near_node[current_child], state.ring_far_node[current_child]
            next_child = state.ring_next[current_child]
            state.mate[near_node] = far_node
            state.mate[far_node] = near_node
            pending.append((current_child, near_node))
            pending.append((next_child, far_node))
            current_child = state.ring_next[next_child]
        state.first_child[current_blossom] = child
        state.base[current_blossom] = base


@compile_function
def make_odd(
    state: State, top: int, near_node: int, far_node: int, clock: Ints, tops: Ints, events: Events
) -> None:
    """Add an odd top to the tree by the edge from `near_node` to `far_node`.

    For a blossom, queue the time when its dual is zero.
    """
    state.label[top] = ODD_LABEL
    state.label_time[top] = clock[NOW]
    state.tree_near_node[top] = near_node
    state.tree_far_node[top] = far_node
    tops.append(top)
    if top >= len(state.mate):
        heappush(events, (clock[NOW] + state.blossom_dual[top] // 2, len(state.tail) + top))


@compile_function
def make_even(state: State, top: int, clock: Ints, tops: Ints, events: Events) -> None:
    """Label a top as even, so that its duals fall, and queue the times when its edges become tight."""
    state.label[top] = EVEN_LABEL
    state.label_time[top] = clock[NOW]
    tops.append(top)
    queue_edges(state, top, clock, events)


@compile_function
def queue_edges(state: State, top: int, clock: Ints, events: Events) -> None:
    """Queue the times when the edges of a new even top become tight, up to the end of the stage."""
    node = state.first_leaf[top]
    while True:
        if clock[NOW] + state.dual[node] < clock[LAST_TIME]:
            clock[LAST_TIME] = clock[NOW] + state.dual[node]
            clock[LAST_NODE] = node
        for arc in range(state.first_arc[node], state.first_arc[node + 1]):
            other_top = state.top[state.head[arc]]
            if other_top == top or state.label[other_top] == ODD_LABEL:
                continue
            slack = state.dual[node] + compute_dual(state, state.head[arc], clock[NOW]) - state.weight[arc]
            time = clock[NOW] + (slack // 2 if state.label[other_top] == EVEN_LABEL else slack)
            if time < clock[LAST_TIME]:
                heappush(events, (time, arc))
        if node == state.last_leaf[top]:
            return
        node = state.next_leaf[node]


@compile_function
def queue_edges_back(state: State, top: int, clock: Ints, events: Events) -> None:
    """Queue the times when edges from even tops to a top that lost its label become tight."""
    node = state.first_leaf[top]
    while True:
        for arc in range(state.first_arc[node], state.first_arc[node + 1]):
            if state.label[state.top[state.head[arc]]] == EVEN_LABEL:
                other_dual = compute_dual(state, state.head[arc], clock[NOW])
                time = clock[NOW] + state.dual[node] + other_dual - state.weight[arc]
                if time < clock[LAST_TIME]:
                    heappush(events, (time, arc))
        if node == state.last_leaf[top]:
            return
        node = state.next_leaf[node]


@compile_function
def find_common_top(state: State, near_node: int, far_node: int) -> int:
    """Return the nearest common even top of the paths from two even tops of the tree to its root."""
    state.path_marks[-1] += 1
    mark = state.path_marks[-1]
    current_top, other_top = state.top[near_node], state.top[far_node]
    while True:
        if current_top >= 0:
            if state.path_marks[current_top] == mark:
                return current_top
            state.path_marks[current_top] = mark
            mate = state.mate[state.base[current_top]]
            current_top = -1 if mate < 0 else state.top[state.tree_near_node[state.top[mate]]]
        current_top, other_top = (current_top, other_top) if other_top < 0 else (other_top, current_top)


@compile_function
def join_path(state: State, node: int, common_top: int, is_downward: bool, clock: Ints) -> Ints:
    """Join the tops on the path from a node up to `common_top` to a ring, and update their duals.

    Return -1 followed by the odd tops of the path. `is_downward` reverses the direction of the ring.
    """
    odd_tops = [-1]
    even_top = state.top[node]
    while even_top != common_top:
        base = state.base[even_top]
        odd_top = state.top[state.mate[base]]
        parent_top = state.top[state.tree_near_node[odd_top]]
        if is_downward:
            link_on_ring(state, odd_top, even_top, state.mate[base], base)
            link_on_ring(
                state, parent_top, odd_top, state.tree_near_node[odd_top], state.tree_far_node[odd_top]
            )
        else:
            link_on_ring(state, even_top, odd_top, base, state.mate[base])
            link_on_ring(
                state, odd_top, parent_top, state.tree_far_node[odd_top], state.tree_near_node[odd_top]
            )
        store_duals(state, even_top, clock[NOW])
        store_duals(state, odd_top, clock[NOW])
        odd_tops.append(odd_top)
        even_top = parent_top
    return odd_tops


@compile_function
def queue_edges_of_child(state: State, child: int, blossom: int, clock: Ints, events: Events) -> None:
    """Queue the edges of one child of an even blossom: the nodes of the other children were even before."""
    first_leaf, last_leaf = state.first_leaf[blossom], state.last_leaf[blossom]
    state.first_leaf[blossom], state.last_leaf[blossom] = state.first_leaf[child], state.last_leaf[child]
    queue_edges(state, blossom, clock, events)
    state.first_leaf[blossom], state.last_leaf[blossom] = first_leaf, last_leaf


@compile_function
def match_all(state: State) -> None:
    """Set `state.mate` to a matching of maximum weight, and the duals so that they prove it."""
    lower_duals(state)
    for node in range(len(state.mate)):
        if state.mate[node] < 0 and state.dual[node] > 0:
            run_stage(state, node)


@compile_function
def lower_duals(state: State) -> None:
    """Lower each dual as far as the other duals allow, in one pass, and match along edges that become tight."""
    for node in range(len(state.mate)):
        required_dual = 0
        partner = -1
        for arc in range(state.first_arc[node], state.first_arc[node + 1]):
            required_by_arc = state.weight[arc] - state.dual[state.head[arc]]
            if required_by_arc > required_dual:
                required_dual = required_by_arc
                partner = -1
            if required_by_arc == required_dual and partner < 0 and state.mate[state.head[arc]] < 0:
                partner = state.head[arc]
        state.dual[node] = required_dual
        if partner >= 0 and state.mate[node] < 0:
            state.mate[node] = partner
            state.mate[partner] = node


@compile_function
def run_stage(state: State, root: int) -> None:
    """Match `root`, or leave it or another node of its tree free, if the duals prove that this is optimal."""
    clock = [0, state.dual[root], root]  # now; time and node of the first even node whose dual reaches zero
    tops = [state.top[root]]
    events = [(0, 0)]
    events.pop()
    make_even(state, state.top[root], clock, tops, events)
    is_matched = False
    while not is_matched and len(events) > 0 and events[0][0] < clock[LAST_TIME]:
        time, event = heappop(events)
        clock[NOW] = time
        if event >= len(state.tail):
            expand_if_empty(state, event - len(state.tail), clock, tops, events)
        else:
            is_matched = take_edge(state, event, clock, tops, events)
    if not is_matched:
        clock[NOW] = clock[LAST_TIME]
    for top in tops:
        store_duals(state, top, clock[NOW])
    if not is_matched:
        augment_path(state, clock[LAST_NODE], -1)
    for top in tops:
        state.label[top] = NO_LABEL


@compile_function
def take_edge(state: State, arc: int, clock: Ints, tops: Ints, events: Events) -> bool:
    """Use an edge that may be tight now, and return whether it reached a free node, which ends the stage."""
    even_node, target_node = state.tail[arc], state.head[arc]
    if state.label[state.top[even_node]] != EVEN_LABEL:
        even_node, target_node = target_node, even_node
    target = state.top[target_node]
    if state.top[even_node] == target or state.label[target] == ODD_LABEL:
        return False
    if (
        compute_dual(state, even_node, clock[NOW]) + compute_dual(state, target_node, clock[NOW])
        > state.weight[arc]
    ):
        return (
            False  # an outdated event: one end became odd and lost its label since; a later event is queued
        )
    if state.label[target] == EVEN_LABEL:
        close_ring(state, even_node, target_node, clock, tops, events)
        return False
    if state.mate[state.base[target]] < 0:
        augment_path(state, even_node, target_node)
        move_base(state, target, target_node)
        state.mate[target_node] = even_node
        return True
    make_odd(state, target, even_node, target_node, clock, tops, events)
    make_even(state, state.top[state.mate[state.base[target]]], clock, tops, events)
    return False


@compile_function
def close_ring(state: State, near_node: int, far_node: int, clock: Ints, tops: Ints, events: Events) -> None:
    """Make a blossom of the odd ring that an edge between two even tops closes; queue edges of its former odd tops."""
    common_top = find_common_top(state, near_node, far_node)
    link_on_ring(state, state.top[near_node], state.top[far_node], near_node, far_node)
    former_odd_tops = join_path(state, near_node, common_top, True, clock)
    former_odd_tops += join_path(state, far_node, common_top, False, clock)
    store_duals(state, common_top, clock[NOW])
    blossom = form_blossom(state, common_top)
    state.label[blossom] = EVEN_LABEL
    state.label_time[blossom] = clock[NOW]
    tops.append(blossom)
    for child in former_odd_tops[1:]:
        if child >= 0:
            queue_edges_of_child(state, child, blossom, clock, events)


@compile_function
def expand_if_empty(state: State, blossom: int, clock: Ints, tops: Ints, events: Events) -> None:
    """Dissolve an odd blossom if its dual is zero. The part of its ring from entry to base stays in the tree."""
    if state.label[blossom] != ODD_LABEL or state.blossom_dual[blossom] != 2 * (
        clock[NOW] - state.label_time[blossom]
    ):
        return
    store_duals(state, blossom, clock[NOW])
    tree_node, ring_node = state.tree_near_node[blossom], state.tree_far_node[blossom]
    entry_child = find_child_of(state, blossom, ring_node)
    # The path from entry to base must have an even number of edges, which determines the direction on the ring.
    is_forward = find_ring_position(state, blossom, entry_child) % 2 == 1
    dissolve_blossom(state, blossom)
    even_children = [-1]
    child = entry_child
    while True:
        make_odd(state, child, tree_node, ring_node, clock, tops, events)
        if child == state.first_child[blossom]:
            break
        even_child = state.ring_next[child] if is_forward else state.ring_previous[child]
        state.label[even_child] = EVEN_LABEL
        state.label_time[even_child] = clock[NOW]
        even_children.append(even_child)
        child = state.ring_next[even_child] if is_forward else state.ring_previous[even_child]
        tree_node = state.ring_near_node[even_child] if is_forward else state.ring_far_node[child]
        ring_node = state.ring_far_node[even_child] if is_forward else state.ring_near_node[child]
    for even_child in even_children[1:]:
        make_even(state, even_child, clock, tops, events)
    child = entry_child
    while True:
        # The children on the other part of the ring leave the tree.
        if state.label[child] == NO_LABEL:
            queue_edges_back(state, child, clock, events)
        child = state.ring_next[child]
        if child == entry_child:
            return


@compile_function
def augment_path(state: State, node: int, partner: int) -> None:
    """Match an even node to `partner` (-1: leave it free), and swap matched and free edges on its path to the root."""
    while True:
        top = state.top[node]
        former_mate = state.mate[state.base[top]]
        move_base(state, top, node)
        state.mate[node] = partner
        if former_mate < 0:
            return
        odd_top = state.top[former_mate]
        node, partner = state.tree_near_node[odd_top], state.tree_far_node[odd_top]
        move_base(state, odd_top, partner)
        state.mate[partner] = node
