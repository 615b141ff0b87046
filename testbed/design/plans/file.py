"""Plan files: what the planner decided for a job, for people to read and for `testbed apply` to carry out.

JSON, `"format": "lightbed-plan/1"`; the keys are described in docs/reference/plan-file.md. Everything is checked on
reading, since people edit such files.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightbed.output_file import check_output, write_output
from testbed.design.model import Topology
from testbed.design.plans.parts import read_strategy, read_topology
from testbed.design.plans.reading import PlanReader
from testbed.design.plans.routes import read_routes, routes_json
from testbed.design.rates import LEAST_GBPS, MOST_GBPS
from testbed.design.routing.route_sets import RouteSets
from testbed.design.workloads.choice import DEFAULT_DEVICE, WorkloadChoice
from testbed.design.workloads.mig import device_named
from testbed.design.workloads.sharding.sharding import Strategy
from testbed.errors import PlanFileError, WorkloadError

FORMAT = "lightbed-plan/1"


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions of a search. Node i of topology and strategy is `hosts[i]`; without hosts, host i of any lab that fits.

    `operators` are the names that the strategy's shardings are for. `predicted` are figures by name (`iteration_ms`,
    `bandwidth_tax`, ...), `why` sentences, `search` what finds the same plan again (seed, steps, chains).
    `routes` are those that are simulated and installed; a file that somebody wrote by hand may have none.
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
    routes: RouteSets | None = None


def write_plan(plan: Plan, path: str | Path) -> None:
    """Write the file of a plan. Raises `OSError`."""
    # Pairs and grids on one line each: a plan is read by people, too.
    text = _NUMBERS.sub(_on_one_line, json.dumps(plan_json(plan), indent=1, ensure_ascii=False)) + "\n"
    text = _ROUTE.sub(lambda route: " ".join(route[0].split()), text)
    write_output(path, text)


_NUMBERS = re.compile(r"\[\n[\s\d,\[\]]*\]")  # a line may not end inside a text, so no text is meant
_ROUTE = re.compile(r'\{\n\s*"source": \d[^{}"]*("[a-z]+":[^{}"]*)*\}')


def _on_one_line(numbers: re.Match[str]) -> str:
    return "".join(numbers[0].split()).replace(",", ", ")


def check_writable(path: str | Path) -> None:
    """Raise `PlanFileError` unless a plan can be written there, for whoever has a long search before that."""
    try:
        check_output(path)
    except OSError as error:
        raise PlanFileError(
            f"no plan can be written to {path}: {error.strerror}: give another --out"
        ) from error


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return the document, as it stands in the file."""
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
                {"name": name, "way": sharding.way, "grid": [list(row) for row in sharding.grid]}
                for name, sharding in zip(plan.operators, plan.strategy.shardings, strict=True)
            ],
        },
        "search": dict(plan.search),
        **({"routes": routes_json(plan.routes)} if plan.routes else {}),
    }


def read_plan(path: str | Path) -> Plan:
    """Return the plan in a file. Raises `PlanFileError` that names the file, the key and what is wrong; `OSError`."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise PlanFileError(f"{path} is no plan file: not JSON ({error})") from error
    return parse_plan(document, str(path))


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number")


def parse_plan(document: Any, source: str) -> Plan:
    """Return the plan in a document; `source` names it in errors. Raises `PlanFileError`."""
    file = PlanReader(source, "", document)
    if file.value.get("format") != FORMAT:
        found = file.value.get("format")
        what = f"its format is {found!r}, this program reads {FORMAT!r}"
        raise PlanFileError(f"{source}: {what}: make the plan again with `testbed optimise`")
    topology = read_topology(file.inner("topology"))
    operators, strategy = read_strategy(file.inner("strategy"), topology.nodes)
    return Plan(
        workload=_choice(file.inner("workload")),
        topology=topology,
        rate_gbps=file.between("rate_gbps", LEAST_GBPS, MOST_GBPS),
        operators=operators,
        strategy=strategy,
        predicted=file.figures("predicted", needed="iteration_ms"),
        why=tuple(file.texts("why")),
        search=file.inner("search").value,
        lab=file.text("lab"),
        hosts=_hosts(file, topology.nodes),
        routes=read_routes(file, topology) if "routes" in file.value else None,
    )


def _choice(part: PlanReader) -> WorkloadChoice:
    settings, device = part.inner("settings"), part.text("device")
    try:
        device_named(device or DEFAULT_DEVICE)
    except WorkloadError as error:
        raise part.error("device", str(error)) from error
    return WorkloadChoice(
        name=part.text("name"),
        preset=part.text("preset"),
        settings={name: settings.text(name) for name in settings.value},
        device=device,
        profile=part.text("profile"),
        zero=part.whole(part.value.get("zero", 0), "zero"),
        recompute=part.flag("recompute") if "recompute" in part.value else False,
    )


def _hosts(file: PlanReader, nodes: int) -> tuple[str, ...]:
    hosts = tuple(file.texts("hosts"))
    if hosts and len(hosts) != nodes:
        raise file.error("hosts", f"{len(hosts)} hosts for {nodes} nodes: name one a node, or none")
    twice = [name for name, times in Counter(hosts).items() if times > 1]
    if twice:
        raise file.error("hosts", f"{twice[0]!r} is there twice")
    return hosts
