"""The order in which nodes can be computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from lightning.errors import CyclicNetwork, NetworkError


class Step(Protocol):
    """What ONNX's nodes have."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def input(self) -> Sequence[str]: ...  # noqa: D102
    @property
    def output(self) -> Sequence[str]: ...  # noqa: D102


AnyStep = TypeVar("AnyStep", bound=Step)


def ordered(steps: Sequence[AnyStep], known: Iterable[str], wanted: str) -> list[AnyStep]:
    """The steps that `wanted` needs, each behind those that make its inputs; `known` tensors are there before.

    Raises `CyclicNetwork`, which names the nodes that wait for each other, and `NetworkError` for a tensor that
    nothing makes or that two nodes make.
    """
    makers = _makers(steps)
    done, given = set(known), []
    path: list[tuple[int, int]] = []

    def visit(tensor: str, reader: str) -> None:
        if not tensor or tensor in done:
            return
        if tensor not in makers:
            raise NetworkError(
                f"{reader} needs {tensor!r}, which no node makes", cure="Export the network anew"
            )
        path.append((makers[tensor], 0))

    visit(wanted, "the network's output")
    waiting: dict[int, None] = {}
    while path:
        number, place = path.pop()
        step = steps[number]
        if place == 0 and number in waiting:
            raise _cycle(steps, [*waiting, number])
        waiting[number] = None
        if place < len(step.input):
            path.append((number, place + 1))
            visit(step.input[place], f"node {step.name}")
            continue
        del waiting[number]
        done.update(output for output in step.output if output)
        given.append(step)
    return given


def _makers(steps: Sequence[Step]) -> Mapping[str, int]:
    makers: dict[str, int] = {}
    for number, step in enumerate(steps):
        for output in step.output:
            if output and output in makers:
                both = f"{steps[makers[output]].name} and {step.name}"
                raise NetworkError(f"nodes {both} both make {output!r}", cure="Export the network anew")
            makers[output] = number
    return makers


def _cycle(steps: Sequence[Step], trail: list[int]) -> CyclicNetwork:
    names = " -> ".join(steps[number].name or "?" for number in trail[trail.index(trail[-1]) :])
    return CyclicNetwork(
        f"nodes wait for each other: {names}", cure="Unroll the loop, or export the network anew"
    )
