"""Order of steps on devices that take one pair a command: each circuit is dark for as short a time as can be.

A circuit that is made needs its two ports: it waits for the removal of what holds them. Steps are the nodes of a graph
whose edges are these waits. Removals wait for nothing, so that there is always an order; it is the shortest darkness
that has to be found. Circuits whose ports are free are made first, each right after its own removal. What is left are
cycles of a permutation: there one circuit is broken first, which frees a port, and the others follow it round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ocs_drivers.model import CrossConnects, Step

Pair = tuple[int, int]


def order_steps(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return single-pair steps in the order that keeps circuits dark for the shortest time; others as they are.

    >>> one, two = CrossConnects({1: 9}), CrossConnects({1: 10})
    >>> nothing = CrossConnects()
    >>> [
    ...     step.kind
    ...     for step in order_steps((Step("remove", one, one, nothing), Step("add", two, nothing, two)))
    ... ]
    ['remove', 'add']
    """
    removals = {_pair(step): step for step in steps if step.kind == "remove" and len(step.pairs) == 1}
    additions = {_pair(step): step for step in steps if step.kind == "add" and len(step.pairs) == 1}
    if len(removals) + len(additions) != len(steps) or not (removals and additions):
        return steps
    order = [removals.get(pair) or additions[pair] for pair in _order(removals, additions)]
    return tuple(_chain(steps[0].before, order))


def _order(removals: Iterable[Pair], additions: Iterable[Pair]) -> Iterator[Pair]:
    """Yield pairs, removed and made, such that each is made when its ports are free."""
    held = dict(list(removals))
    holder = {output: source for source, output in held.items()}
    wanted = dict(sorted(additions))

    def find_broken(source: int) -> Iterator[Pair]:
        if source in held:
            yield source, held[source]
            del holder[held.pop(source)]

    while wanted:
        # A port that is held by a circuit that only goes is as good as free.
        free = (one for one, output in wanted.items() if holder.get(output, one) not in wanted.keys() - {one})
        source = next(free, None)
        if source is None:  # only cycles are left: break one circuit, and what wants its output can be made
            yield from find_broken(min(wanted))
            continue
        yield from find_broken(source)
        yield from find_broken(holder.get(wanted[source], source))
        yield source, wanted.pop(source)
    yield from sorted(held.items())


def _chain(before: CrossConnects, steps: Iterable[Step]) -> Iterator[Step]:
    """Yield steps with what the switch holds before and after each in this order."""
    for step in steps:
        pairs = before.pairs - step.pairs.pairs if step.kind == "remove" else before.pairs | step.pairs.pairs
        after = CrossConnects(pairs)
        yield replace(step, before=before, after=after)
        before = after


def _pair(step: Step) -> Pair:
    ((source, output),) = step.pairs.items()
    return source, output
