"""Order of steps on devices that take one pair per command, so that circuits are dark for the shortest time.

A new circuit needs both of its ports, so it waits for the removal of the circuits that hold them. Removals wait for
nothing, so an order always exists. Circuits whose ports are free are made first. If the input of a new circuit still
holds an old circuit, the old one is removed right before the new one is made. The remaining circuits form cycles of a
permutation. The removal of one circuit of a cycle frees a port, and the other circuits follow around the cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ocs_drivers.model import CrossConnects, Step

Pair = tuple[int, int]


def order_steps(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps in the order that keeps circuits dark for the shortest time.

    The order is unchanged if any step is not the removal or addition of a single pair.

    >>> one, two = CrossConnects({1: 9}), CrossConnects({1: 10})
    >>> nothing = CrossConnects()
    >>> [
    ...     step.kind
    ...     for step in order_steps((Step("remove", one, one, nothing), Step("add", two, nothing, two)))
    ... ]
    ['remove', 'add']
    """
    removal_by_pair = {
        _read_pair(step): step for step in steps if step.kind == "remove" and len(step.pairs) == 1
    }
    addition_by_pair = {
        _read_pair(step): step for step in steps if step.kind == "add" and len(step.pairs) == 1
    }
    if len(removal_by_pair) + len(addition_by_pair) != len(steps) or not (
        removal_by_pair and addition_by_pair
    ):
        return steps
    ordered_steps = [
        removal_by_pair.get(pair) or addition_by_pair[pair]
        for pair in _order_pairs(removal_by_pair, addition_by_pair)
    ]
    return tuple(_chain_steps(steps[0].before, ordered_steps))


def _order_pairs(removals: Iterable[Pair], additions: Iterable[Pair]) -> Iterator[Pair]:
    """Yield the pairs of removals and additions, ordered so that the ports of each added pair are free."""
    old_output_by_input = dict(list(removals))
    old_input_by_output = {output: source for source, output in old_output_by_input.items()}
    new_output_by_input = dict(sorted(additions))

    def remove(source: int) -> Iterator[Pair]:
        if source in old_output_by_input:
            yield source, old_output_by_input[source]
            del old_input_by_output[old_output_by_input.pop(source)]

    while new_output_by_input:
        # An old circuit can be removed at any time if its input gets no new circuit, so the old output counts as free.
        connectable_inputs = (
            input_port
            for input_port, output in new_output_by_input.items()
            if old_input_by_output.get(output, input_port) not in new_output_by_input.keys() - {input_port}
        )
        source = next(connectable_inputs, None)
        # Only cycles remain: the removal of one circuit frees the output that another needs.
        if source is None:
            yield from remove(min(new_output_by_input))
            continue
        yield from remove(source)
        yield from remove(old_input_by_output.get(new_output_by_input[source], source))
        yield source, new_output_by_input.pop(source)
    yield from sorted(old_output_by_input.items())


def _chain_steps(circuits_before: CrossConnects, steps: Iterable[Step]) -> Iterator[Step]:
    """Yield the steps with `before` and `after` set to the circuits of the switch in this order."""
    for step in steps:
        pairs = (
            circuits_before.pairs - step.pairs.pairs
            if step.kind == "remove"
            else circuits_before.pairs | step.pairs.pairs
        )
        circuits_after = CrossConnects(pairs)
        yield replace(step, before=circuits_before, after=circuits_after)
        circuits_before = circuits_after


def _read_pair(step: Step) -> Pair:
    ((source, output),) = step.pairs.items()
    return source, output
