"""The order in which nodes can be computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lightning.errors import CyclicNetwork, NetworkError

AGAIN = "Export the network again"


def ordered(steps: Sequence[Any], known: Iterable[str], wanted: str) -> list[Any]:
    """Return the nodes that `wanted` needs, each behind those that make its inputs; `known` tensors are there before.

    Nodes have `name`, `input` and `output`, as ONNX's do. Raises `CyclicNetwork`, which names the nodes that wait for
    each other, and `NetworkError` for a tensor that nothing makes or that two nodes make.
    """
    makers, done = _makers(steps), {"", *known}
    given: list[Any] = []
    path = [] if wanted in done else [_maker(makers, wanted, "the network's output")]
    while path:  # each node waits for the one behind it
        step = steps[path[-1]]
        missing = next((tensor for tensor in step.input if tensor not in done), None)
        if missing is None:
            path.pop()
            done.update(step.output)
            given.append(step)
            continue
        path.append(_maker(makers, missing, f"node {step.name}"))
        if path[-1] in path[:-1]:
            raise _cycle(steps, path)
    return given


def _maker(makers: Mapping[str, int], tensor: str, reader: str) -> int:
    if tensor not in makers:
        raise NetworkError(f"{reader} needs {tensor!r}, which no node makes", hint=AGAIN)
    return makers[tensor]


def _makers(steps: Sequence[Any]) -> Mapping[str, int]:
    makers: dict[str, int] = {}
    for number, step in enumerate(steps):
        for output in step.output:
            if output and output in makers:
                both = f"{steps[makers[output]].name} and {step.name}"
                raise NetworkError(f"nodes {both} both make {output!r}", hint=AGAIN)
            makers[output] = number
    return makers


def _cycle(steps: Sequence[Any], trail: list[int]) -> CyclicNetwork:
    names = " -> ".join(steps[number].name or "?" for number in trail[trail.index(trail[-1]) :])
    return CyclicNetwork(
        f"nodes wait for each other: {names}", hint="Unroll the loop, or export the network again"
    )
