"""Plan files: what the planner decided for a job, for people to read and for `testbed apply` to carry out.

JSON, `"format": "lightbed-plan/1"`; the keys are described in docs/reference/plan-file.md. Everything is checked on
reading, since people edit such files.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from errno import EISDIR
from pathlib import Path
from typing import Any, cast, get_args

from testbed.design.model import Topology
from testbed.design.plan_reading import PlanReader
from testbed.design.workload_choice import WorkloadChoice
from testbed.design.workloads.layout import Layout, Strategy
from testbed.design.workloads.model import Way
from testbed.errors import PlanFileError

FORMAT = "lightbed-plan/1"


@dataclass(frozen=True, slots=True)
class Plan:
    """What was decided. Node i of topology and strategy is `hosts[i]`; without hosts, host i of any lab that fits.

    `operators` are the names that the strategy's layouts are for. `predicted` are figures by name (`iteration_ms`,
    `bandwidth_tax`, ...), `why` sentences, `search` what finds the same plan again (seed, steps, chains).
    """

    workload: WorkloadChoice
    topology: Topology
    rate_gbps: float
    operators: tuple[str, ...]
    strategy: Strategy
    predicted: Mapping[str, Any]
    why: tuple[str, ...] = ()
    search: Mapping[str, Any] = field(default_factory=dict)
    lab: str = ""
    hosts: tuple[str, ...] = ()


def write_plan(plan: Plan, path: str | Path) -> None:
    """Write the file whole or not at all. Raises `OSError`."""
    # Pairs and grids on one line each: a plan is read by people, too.
    text = _NUMBERS.sub(_on_one_line, json.dumps(plan_json(plan), indent=1, ensure_ascii=False)) + "\n"
    target = Path(path)
    written = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        written.write_text(text, encoding="utf-8")
        written.replace(target)
    finally:
        written.unlink(missing_ok=True)


_NUMBERS = re.compile(r"\[\n[\s\d,\[\]]*\]")  # a line may not end inside a text, so no text is meant


def _on_one_line(numbers: re.Match[str]) -> str:
    return "".join(numbers[0].split()).replace(",", ", ")


def check_writable(path: str | Path) -> None:
    """Raise `PlanFileError` unless a plan can be written there, for whoever has a long search before that."""
    target = Path(path)
    tried = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if target.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        tried.touch()
        tried.unlink()
    except OSError as error:
        raise PlanFileError(f"no plan can be written to {path}: {error.strerror}: give another --out") from error


def plan_json(plan: Plan) -> dict[str, Any]:
    """The document, as it stands in the file."""
    topology = plan.topology
    return {
        "format": FORMAT,
        "lab": plan.lab,
        "hosts": list(plan.hosts),
        "workload": plan.workload.as_json(),
        "why": list(plan.why),
        "predicted": dict(plan.predicted),
        "rate_gbps": plan.rate_gbps,
        "topology": {
            "nodes": topology.nodes,
            "degree": topology.degree,
            "simplex": topology.simplex,
            "strides": list(topology.strides),
            "links": [list(link) for link in topology.links],
        },
        "strategy": {
            "microbatches": plan.strategy.microbatches,
            "operators": [
                {"name": name, "way": layout.way, "grid": [list(row) for row in layout.grid]}
                for name, layout in zip(plan.operators, plan.strategy.layouts, strict=True)
            ],
        },
        "search": dict(plan.search),
    }


def read_plan(path: str | Path) -> Plan:
    """The plan in a file. Raises `PlanFileError` that names the file, the key and what is wrong; `OSError`."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise PlanFileError(f"{path} is no plan file: not JSON ({error})") from error
    return parse_plan(document, str(path))


def parse_plan(document: Any, source: str) -> Plan:
    """The plan in a document; `source` names it in errors. Raises `PlanFileError`."""
    file = PlanReader(source, "", document)
    if file.value.get("format") != FORMAT:
        found = file.value.get("format")
        what = f"its format is {found!r}, this program reads {FORMAT!r}"
        raise PlanFileError(f"{source}: {what}: make the plan anew with `testbed optimise`")
    topology = _topology(file.inner("topology"))
    operators, strategy = _strategy(file.inner("strategy"), topology.nodes)
    return Plan(
        workload=_choice(file.inner("workload")),
        topology=topology,
        rate_gbps=file.positive("rate_gbps"),
        operators=operators,
        strategy=strategy,
        predicted=file.inner("predicted").value,
        why=tuple(file.texts("why")),
        search=file.inner("search").value,
        lab=file.text("lab"),
        hosts=_hosts(file, topology.nodes),
    )


def _choice(part: PlanReader) -> WorkloadChoice:
    settings = part.inner("settings")
    return WorkloadChoice(
        name=part.text("name"),
        preset=part.text("preset"),
        settings={name: settings.text(name) for name in settings.value},
        device=part.text("device"),
        profile=part.text("profile"),
    )


def _hosts(file: PlanReader, nodes: int) -> tuple[str, ...]:
    hosts = tuple(file.texts("hosts"))
    if hosts and len(hosts) != nodes:
        raise file.error("hosts", f"{len(hosts)} hosts for {nodes} nodes: name one a node, or none")
    twice = [name for name, times in Counter(hosts).items() if times > 1]
    if twice:
        raise file.error("hosts", f"{twice[0]!r} is there twice")
    return hosts


def _topology(part: PlanReader) -> Topology:
    nodes, degree = part.count("nodes"), part.count("degree")
    simplex = part.flag("simplex")
    links = [_link(part, place, link, nodes) for place, link in enumerate(part.items("links"))]
    edges = links if simplex else [edge for one, other in links for edge in ((one, other), (other, one))]
    for end, name in ((0, "sends"), (1, "receives")):
        used = Counter(edge[end] for edge in edges)
        full = [node for node, count in used.items() if count > degree]
        if full:
            raise part.error("links", f"node {full[0]} {name} on {used[full[0]]} links and has {degree} NICs")
    strides = tuple(part.whole(stride, "strides") for stride in part.items("strides"))
    return Topology(nodes, degree, simplex, strides, tuple(sorted(edges)))


def _link(part: PlanReader, place: int, link: Any, nodes: int) -> tuple[int, int]:
    where = f"links[{place}]"
    if not isinstance(link, list) or len(link) != 2:
        raise part.error(where, f"{link!r} is no pair of nodes")
    one, other = (part.node(end, where, nodes) for end in link)
    if one == other:
        raise part.error(where, f"joins node {one} to itself")
    return one, other


def _strategy(part: PlanReader, nodes: int) -> tuple[tuple[str, ...], Strategy]:
    names, layouts = [], []
    for place, entry in enumerate(part.items("operators")):
        operator = PlanReader(part.source, f"{part.where}.operators[{place}]", entry)
        names.append(operator.text("name"))
        layouts.append(_layout(operator, nodes))
    return tuple(names), Strategy(tuple(layouts), part.count("microbatches"))


def _layout(operator: PlanReader, nodes: int) -> Layout:
    way = operator.text("way")
    if way not in get_args(Way):
        raise operator.error("way", f"{way!r} is none of {', '.join(get_args(Way))}")
    rows = operator.items("grid")
    if not rows or not all(isinstance(row, list) and row and len(row) == len(rows[0]) for row in rows):
        raise operator.error("grid", "must be rows of equally many servers: replicas by shards")
    grid = tuple(tuple(operator.node(server, "grid", nodes) for server in row) for row in rows)
    return Layout(cast("Way", way), grid)
