"""Execution traces as PyTorch writes them, and the times that its profiler records beside them.

`torch.profiler.ExecutionTraceObserver` writes the operators of a rank with their tensors, in the order in which they
ended; `export_chrome_trace` of `torch.profiler` (Kineto) writes when each ran, on which thread, and the kernels that it
started. A node of the one is the event of the other with the same record function id. Together they become the nodes
of a Chakra trace:

- An operator computes on the CPU for the time that it spends outside the operators that it calls. Operators of a thread
  follow each other. Time between operators is left out: it is the interpreter's, or a wait.
- A kernel computes on the GPU after the operator that started it, in the order of its stream.
- A collective (`gloo:all_reduce`, `nccl:all_reduce`) waits for the operators that began before it and wrote its
  tensors, or called it; an operator that reads them afterwards waits for it.
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
"""Attribute of nodes whose time is not known, because there is no profile."""


@dataclass(slots=True)
class _Operator:
    """An operator of a rank: its node in the execution trace, and its event in the profile if there is one."""

    document: Mapping[str, Any]
    begin_us: float = 0.0
    length_us: float = 0.0
    thread: Any = 0
    event: int | None = None
    inside_us: float = 0.0
    after: list[int] = field(default_factory=list)

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
    """Return the Chakra nodes of a rank. Raises `ValueError` for a document that is not as PyTorch writes it.

    Without a profile operators take no time, in the order of their record function ids.
    """
    try:
        operators = _join(document["nodes"], (profile or {}).get("traceEvents", ()))
        metadata = [
            Node(one.number, one.name, METADATA, inputs=json.dumps(one.document["inputs"]["values"]))
            for one in operators
            if _GROUPS in one.name
        ]
        timed = [one for one in operators if one.event is not None or profile is None]
        _chain_threads(timed)
        _follow_tensors(timed)
        nodes = [_to_node(one) for one in timed if _is_task(one)]
        return [*metadata, *nodes, *_list_kernels(timed, (profile or {}).get("traceEvents", ()))]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not an execution trace as PyTorch writes it: {error!r}") from error


def _join(documents: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]) -> list[_Operator]:
    """Return the operators in the order of their begin."""
    by_id: dict[Any, _Operator] = {}
    operators = []
    for document in documents:
        one = _Operator(document)
        operators.append(one)
        recorded = _attributes(document).get("rf_id")
        one.begin_us = float(recorded or 0)
        by_id[recorded] = one
    for event in events:
        known = by_id.get(event.get("args", {}).get("Record function id"))
        if known is None or event.get("ph") != "X":
            continue
        known.begin_us, known.length_us = float(event["ts"]), float(event.get("dur", 0))
        known.thread = event.get("tid", 0)
        known.event = event["args"].get("External id")
        # An annotation only groups operators, unless it is a collective.
        if event.get("cat") == "user_annotation" and not _COLLECTIVE.fullmatch(known.name):
            known.event, known.length_us = None, 0.0
    return sorted(operators, key=lambda one: (one.begin_us, -one.length_us))


def _attributes(document: Mapping[str, Any]) -> dict[str, Any]:
    return {each["name"]: each["value"] for each in document.get("attrs", ())}


def _is_task(one: _Operator) -> bool:
    return _GROUPS not in one.name


def _chain_threads(operators: list[_Operator]) -> None:
    """Make operators of a thread follow each other, and take the time of inner ones from the outer ones."""
    running: dict[Any, list[_Operator]] = defaultdict(list)
    last: dict[Any, int] = {}
    for one in operators:
        if not _is_task(one) or _COLLECTIVE.fullmatch(one.name):
            continue
        outer = running[one.thread]
        while outer and outer[-1].begin_us + outer[-1].length_us <= one.begin_us:
            outer.pop()
        if outer:
            outer[-1].inside_us += one.length_us
        outer.append(one)
        if one.thread in last:
            one.after.append(last[one.thread])
        last[one.thread] = one.number


def _follow_tensors(operators: list[_Operator]) -> None:
    """Make collectives wait for the writers of their tensors, and the readers of these for the collectives."""
    writer: dict[int, int] = {}
    sum_of: dict[int, int] = {}
    for one in operators:
        inputs = _storages(one.document.get("inputs", {}).get("values", ()))
        if _COLLECTIVE.fullmatch(one.name):
            one.after += [writer[storage] for storage in inputs if storage in writer]
            sum_of |= dict.fromkeys(inputs, one.number)
        else:
            one.after += [sum_of[storage] for storage in inputs if storage in sum_of]
            written = {*inputs, *_storages(one.document.get("outputs", {}).get("values", ()))}
            writer |= dict.fromkeys(written, one.number)
            for storage in written:
                sum_of.pop(storage, None)


def _tensors(values: Any) -> Iterator[list[Any]]:
    """Yield the tensors in values, at any depth: [tensor, storage, offset, elements, bytes of an element, device]."""
    if isinstance(values, list | tuple):
        if (
            len(values) == 6
            and isinstance(values[5], str)
            and all(isinstance(each, int) for each in values[:5])
        ):
            yield list(values)
            return
        for each in values:
            yield from _tensors(each)


def _storages(values: Any) -> set[int]:
    return {tensor[1] for tensor in _tensors(values)}


def _to_node(one: _Operator) -> Node:
    after = tuple(dict.fromkeys(one.after))
    found = _COLLECTIVE.fullmatch(one.name)
    if found is None:
        own_us = max(round(one.length_us - one.inside_us), 0)
        untimed = {UNTIMED: 1} if one.event is None else {}
        return Node(one.number, one.name, COMPUTE, after, own_us, {"is_cpu_op": 1, **untimed})
    size = sum(tensor[3] * tensor[4] for tensor in _tensors(one.document["inputs"]["values"]))
    attributes = {"comm_size": size, **_describe_group(_attributes(one.document))}
    return Node(one.number, one.name, COLLECTIVE, after, round(one.length_us), attributes)


def _describe_group(attributes: Mapping[str, Any]) -> dict[str, str]:
    name = attributes.get("pg_name")
    return {"pg_name": str(name)} if name not in (None, "") else {}


def _list_kernels(operators: list[_Operator], events: Iterable[Mapping[str, Any]]) -> Iterator[Node]:
    """Yield the kernels that operators started; those of collectives are the collectives' own."""
    started_by = {one.event: one for one in operators if one.event is not None}
    number = max((one.number for one in operators), default=0)
    last: dict[Any, int] = {}
    for event in sorted(
        (each for each in events if each.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")),
        key=lambda each: float(each["ts"]),
    ):
        starter = started_by.get(event.get("args", {}).get("External id"))
        if starter is None or _COLLECTIVE.fullmatch(starter.name):
            continue
        number += 1
        stream = event["args"].get("stream", event.get("tid"))
        after = [starter.number, *([last[stream]] if stream in last else [])]
        last[stream] = number
        yield Node(
            number, str(event.get("name", "")), COMPUTE, tuple(after), round(float(event.get("dur", 0)))
        )
