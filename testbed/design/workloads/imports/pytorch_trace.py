"""Reads PyTorch's execution traces, and the times that its profiler records.

`torch.profiler.ExecutionTraceObserver` writes the operators of a rank with their tensors, in the order in which they
ended. `export_chrome_trace` of `torch.profiler` (Kineto) writes when each operator ran, on which thread, and which
kernels it started. A node of the trace and an event of the profile match if they have the same record function id.
Together they become the nodes of a Chakra trace:

- An operator computes on the CPU for the time that it spends outside the operators that it calls. Operators of a thread
  follow each other. Time between operators is left out: it is spent in the interpreter or on waiting.
- A kernel computes on the GPU after the operator that started it, in the order of its stream.
- A collective (`gloo:all_reduce`, `nccl:all_reduce`) waits for earlier operators that wrote its tensors or called it.
  Operators that read these tensors later wait for the collective.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.design.workloads.imports.chakra_wire import COLLECTIVE, COMPUTE, METADATA, Node

_COLLECTIVE = re.compile(r"(gloo|nccl|mpi|ucc):(\w+)")
_GROUPS = "process_group:init"

UNTIMED = "lightbed_untimed"
"""Attribute of nodes without a known time, because there is no profile."""


@dataclass(slots=True)
class _Operator:
    """An operator of a rank: its node in the execution trace, and its event in the profile, if any.

    `inner_us` is the time in operators that it calls.
    """

    document: Mapping[str, Any]
    begin_us: float = 0.0
    length_us: float = 0.0
    thread: Any = 0
    event_id: int | None = None
    inner_us: float = 0.0
    predecessors: list[int] = field(default_factory=list)

    @property
    def number(self) -> int:
        """Number of the node."""
        return int(self.document["id"])

    @property
    def name(self) -> str:
        """Name of the operator."""
        return str(self.document.get("name", ""))


def is_execution_trace(document: Any) -> bool:
    """Return whether a JSON document is an execution trace of PyTorch."""
    return isinstance(document, dict) and "nodes" in document and "schema" in document


def is_profile(document: Any) -> bool:
    """Return whether a JSON document is a profile that Kineto wrote."""
    return isinstance(document, dict) and "traceEvents" in document


def read_execution_trace(document: Mapping[str, Any], profile: Mapping[str, Any] | None) -> list[Node]:
    """Return the Chakra nodes of a rank. Raises `ValueError` for a document in another form than PyTorch's.

    Without a profile, operators take no time and are in the order of their record function ids.
    """
    try:
        operators = _match_events(document["nodes"], (profile or {}).get("traceEvents", ()))
        metadata = [
            Node(op.number, op.name, METADATA, inputs=json.dumps(op.document["inputs"]["values"]))
            for op in operators
            if _GROUPS in op.name
        ]
        timed_operators = [op for op in operators if op.event_id is not None or profile is None]
        _chain_threads(timed_operators)
        _follow_tensors(timed_operators)
        nodes = [_make_node(op) for op in timed_operators if _is_task(op)]
        return [*metadata, *nodes, *_list_kernels(timed_operators, (profile or {}).get("traceEvents", ()))]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not an execution trace as PyTorch writes it: {error!r}") from error


def _match_events(
    documents: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]
) -> list[_Operator]:
    """Return the operators with their events, in the order in which they begin."""
    operator_by_id: dict[Any, _Operator] = {}
    operators = []
    for document in documents:
        op = _Operator(document)
        operators.append(op)
        record_id = _read_attributes(document).get("rf_id")
        op.begin_us = float(record_id or 0)
        operator_by_id[record_id] = op
    for event in events:
        matching_operator = operator_by_id.get(event.get("args", {}).get("Record function id"))
        if matching_operator is None or event.get("ph") != "X":
            continue
        matching_operator.begin_us, matching_operator.length_us = (
            float(event["ts"]),
            float(event.get("dur", 0)),
        )
        matching_operator.thread = event.get("tid", 0)
        matching_operator.event_id = event["args"].get("External id")
        # An annotation only groups operators, unless it is a collective.
        if event.get("cat") == "user_annotation" and not _COLLECTIVE.fullmatch(matching_operator.name):
            matching_operator.event_id, matching_operator.length_us = None, 0.0
    return sorted(operators, key=lambda op: (op.begin_us, -op.length_us))


def _read_attributes(document: Mapping[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry["value"] for entry in document.get("attrs", ())}


def _is_task(op: _Operator) -> bool:
    return _GROUPS not in op.name


def _chain_threads(operators: list[_Operator]) -> None:
    """Make the operators of a thread follow each other, and count the time of inner operators for the outer one."""
    running_by_thread: dict[Any, list[_Operator]] = defaultdict(list)
    previous_by_thread: dict[Any, int] = {}
    for op in operators:
        if not _is_task(op) or _COLLECTIVE.fullmatch(op.name):
            continue
        running_operators = running_by_thread[op.thread]
        while (
            running_operators
            and running_operators[-1].begin_us + running_operators[-1].length_us <= op.begin_us
        ):
            running_operators.pop()
        if running_operators:
            running_operators[-1].inner_us += op.length_us
        running_operators.append(op)
        if op.thread in previous_by_thread:
            op.predecessors.append(previous_by_thread[op.thread])
        previous_by_thread[op.thread] = op.number


def _follow_tensors(operators: list[_Operator]) -> None:
    """Make collectives wait for the writers of their tensors, and later readers wait for the collectives."""
    writer_by_storage: dict[int, int] = {}
    collective_by_storage: dict[int, int] = {}
    for op in operators:
        input_storages = _list_storages(op.document.get("inputs", {}).get("values", ()))
        if _COLLECTIVE.fullmatch(op.name):
            op.predecessors += [
                writer_by_storage[storage] for storage in input_storages if storage in writer_by_storage
            ]
            collective_by_storage |= dict.fromkeys(input_storages, op.number)
        else:
            op.predecessors += [
                collective_by_storage[storage]
                for storage in input_storages
                if storage in collective_by_storage
            ]
            written_storages = {
                *input_storages,
                *_list_storages(op.document.get("outputs", {}).get("values", ())),
            }
            writer_by_storage |= dict.fromkeys(written_storages, op.number)
            for storage in written_storages:
                collective_by_storage.pop(storage, None)


def _list_tensors(values: Any) -> Iterator[list[Any]]:
    """Yield the tensors in nested values: [tensor, storage, offset, elements, bytes of an element, device]."""
    if isinstance(values, list | tuple):
        if (
            len(values) == 6
            and isinstance(values[5], str)
            and all(isinstance(entry, int) for entry in values[:5])
        ):
            yield list(values)
            return
        for entry in values:
            yield from _list_tensors(entry)


def _list_storages(values: Any) -> set[int]:
    return {tensor[1] for tensor in _list_tensors(values)}


def _make_node(op: _Operator) -> Node:
    predecessors = tuple(dict.fromkeys(op.predecessors))
    collective_match = _COLLECTIVE.fullmatch(op.name)
    if collective_match is None:
        own_us = max(round(op.length_us - op.inner_us), 0)
        untimed = {UNTIMED: 1} if op.event_id is None else {}
        return Node(op.number, op.name, COMPUTE, predecessors, own_us, {"is_cpu_op": 1, **untimed})
    size = sum(tensor[3] * tensor[4] for tensor in _list_tensors(op.document["inputs"]["values"]))
    attributes = {"comm_size": size, **_describe_group(_read_attributes(op.document))}
    return Node(op.number, op.name, COLLECTIVE, predecessors, round(op.length_us), attributes)


def _describe_group(attributes: Mapping[str, Any]) -> dict[str, str]:
    name = attributes.get("pg_name")
    return {"pg_name": str(name)} if name not in (None, "") else {}


def _list_kernels(operators: list[_Operator], events: Iterable[Mapping[str, Any]]) -> Iterator[Node]:
    """Yield the kernels that operators started, except collectives, which include their kernels."""
    operator_by_event = {op.event_id: op for op in operators if op.event_id is not None}
    number = max((op.number for op in operators), default=0)
    previous_by_stream: dict[Any, int] = {}
    for event in sorted(
        (entry for entry in events if entry.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")),
        key=lambda entry: float(entry["ts"]),
    ):
        starter = operator_by_event.get(event.get("args", {}).get("External id"))
        if starter is None or _COLLECTIVE.fullmatch(starter.name):
            continue
        number += 1
        stream = event["args"].get("stream", event.get("tid"))
        predecessors = [
            starter.number,
            *([previous_by_stream[stream]] if stream in previous_by_stream else []),
        ]
        previous_by_stream[stream] = number
        yield Node(
            number,
            str(event.get("name", "")),
            COMPUTE,
            tuple(predecessors),
            round(float(event.get("dur", 0))),
        )
