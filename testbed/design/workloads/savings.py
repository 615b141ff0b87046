"""Less memory for a training job: state cut over replicas (ZeRO), outputs computed again for the backward pass.

ZeRO (Rajbhandari et al., 2020) keeps of what replicas have alike one part on each: from stage 1 on the state of the
optimiser, from 2 on gradients, from 3 on parameters. Stages 1 and 2 send what AllReduce sends, as a ReduceScatter and
an AllGather; stage 3 gathers the parameters for both passes, which is half as much again.

Recomputation (Chen et al., 2016) keeps the outputs of every so many operators, about the square root of their number.
The others are computed again, one segment at a time, with their sums among shards. Tables and experts keep
theirs, and what other servers sent is not sent again.
"""

from __future__ import annotations

from dataclasses import replace
from math import isqrt

from testbed.design.workloads.model import READ_BY_ROWS, Operator, Workload
from testbed.errors import WorkloadError

STAGES = (0, 1, 2, 3)


def with_savings(workload: Workload, *, zero: int = 0, recompute: bool = False) -> Workload:
    """Return the workload with a stage of ZeRO, and with recomputation. Raises `WorkloadError` where there is none."""
    if zero not in STAGES:
        raise WorkloadError(f"ZeRO has no stage {zero}: choose {', '.join(map(str, STAGES))}")
    if not (zero or recompute):
        return workload
    if not workload.training:
        raise WorkloadError(f"{workload.name} is served, not trained: leave out --zero and --recompute")
    operators = [_divided(operator, zero) for operator in workload.operators]
    if recompute:
        operators = _segmented(operators)
    return replace(workload, operators=tuple(operators))


def _divided(operator: Operator, zero: int) -> Operator:
    """Return an operator of which each replica keeps a part."""
    if not operator.gradient_bytes:
        return operator
    gradient = min(operator.gradient_bytes, operator.state_bytes)
    parts = (operator.state_bytes - gradient, gradient, operator.parameter_bytes)
    sent = operator.gradient_bytes * 3 // 2 if zero == 3 else operator.gradient_bytes
    return replace(operator, divided_bytes=sum(parts[:zero]), gradient_bytes=sent)


def _segmented(operators: list[Operator]) -> list[Operator]:
    """Return the operators in segments of about equal outputs, of which the last one's are kept."""
    again = [place for place, operator in enumerate(operators) if _is_cheap(operator)]
    total, done, segments = sum(operators[place].output_bytes for place in again), 0, isqrt(len(again))
    found = list(operators)
    for place in again:
        segment = 1 + done * segments // max(total, 1)
        done += operators[place].output_bytes
        if done * segments // max(total, 1) < segment and place != again[-1]:
            reduced = operators[place].backward_reduce_bytes + operators[place].forward_reduce_bytes
            found[place] = replace(operators[place], segment=segment, backward_reduce_bytes=reduced)
    return found


def _is_cheap(operator: Operator) -> bool:
    """Return whether computing it again sends nothing but sums among its shards."""
    return operator.kind not in READ_BY_ROWS and "expert" not in operator.ways
