"""Plan files: the planner's decisions for a job, for people to read and for `testbed apply` to execute.

A plan file is JSON with `"format": "lightbed-plan/1"`; docs/reference/plan-file.md describes the keys. The reader
checks everything, since people edit plan files. It also checks that all nodes reach each other, that the links contain
the ring of every stride, and that the rows of a grid have equal length.

Each path of a pair is an entry `{source, target, set, weight, path}` of the routes. `path` lists the nodes that it
visits. It uses the first of parallel links, unless `copies` gives the number of the link for each hop.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from lightbed.output_file import check_output, write_output
from testbed.design.model import MAX_GBPS, MIN_GBPS, Topology
from testbed.design.routing.route_sets import MAX_SETS, PairRoute, RouteSets
from testbed.design.topology.circulants import list_circulant_edges
from testbed.design.topology.strides import list_direct_strides
from testbed.design.workloads.choice import DEFAULT_DEVICE, WorkloadChoice
from testbed.design.workloads.mig import find_device
from testbed.design.workloads.model import Way
from testbed.design.workloads.sharding import Sharding, Strategy
from testbed.design.workloads.strategies import find_sharding_fault
from testbed.errors import PlanFileError, WorkloadError

TEXT_KEYS = ("bound_by",)
"""Keys of `predicted` whose values are texts, not numbers."""

FORMAT = "lightbed-plan/1"

_NUMBER_LIST_PATTERN = re.compile(
    r"\[\n[\s\d,\[\]]*\]"
)  # JSON strings contain no line breaks, so this never matches within a string
_ROUTE_PATTERN = re.compile(r'\{\n\s*"source": \d[^{}"]*("[a-z]+":[^{}"]*)*\}')
Edge = tuple[int, int]
MAX_NICS = 1024
"""Maximum NICs per server, far above any real server: a typo is refused before it costs memory."""
_WEIGHT_TOLERANCE = 1e-6
"""The weights of a pair must sum to 1 within this tolerance."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions of a search.

    - `operators`: the name of the operator of each sharding in `strategy`.
    - `predicted`: figures by name (`iteration_ms`, `bandwidth_tax`, ...).
    - `reasons`: the reasons for the decisions, in sentences.
    - `search`: the settings that reproduce the plan (seed, steps, chains).
    - `hosts`: the host of each node. If empty, node i is host i of any lab that fits.
    - `routes`: the routes to simulate and install. A file written by hand may have none.
    """

    workload: WorkloadChoice
    topology: Topology
    rate_gbps: float
    operators: tuple[str, ...]
    strategy: Strategy
    predicted: Mapping[str, Any]
    reasons: tuple[str, ...] = ()
    search: Mapping[str, Any] = field(default_factory=dict)
    lab: str = ""
    hosts: tuple[str, ...] = ()
    routes: RouteSets | None = None


def write_plan(plan: Plan, path: str | Path) -> None:
    """Write a plan to a file. Raises `OSError`."""
    # Write each pair, grid and route on one line, for human readers.
    text = (
        _NUMBER_LIST_PATTERN.sub(_join_lines, json.dumps(plan_to_json(plan), indent=1, ensure_ascii=False))
        + "\n"
    )
    text = _ROUTE_PATTERN.sub(lambda route: " ".join(route[0].split()), text)
    write_output(path, text)


def _join_lines(numbers: re.Match[str]) -> str:
    return "".join(numbers[0].split()).replace(",", ", ")


def check_writable(path: str | Path) -> None:
    """Raise `PlanFileError` unless a plan can be written to `path`; call it before a long search."""
    try:
        check_output(path)
    except OSError as error:
        raise PlanFileError(
            f"cannot write the plan to {path}: {error.strerror}: give another --out"
        ) from error


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """Return the JSON document of a plan."""
    topology = plan.topology
    return {
        "format": FORMAT,
        "lab": plan.lab,
        "hosts": list(plan.hosts),
        "workload": plan.workload.as_json(),
        "why": list(plan.reasons),
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
        **({"routes": render_routes(plan.routes)} if plan.routes else {}),
    }


def read_plan(path: str | Path) -> Plan:
    """Return the plan in a file. Raises `PlanFileError` with the file, the key and the fault, and `OSError`."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise PlanFileError(f"{path} is not a plan file: not JSON ({error})") from error
    return parse_plan(document, str(path))


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


def parse_plan(document: Any, source: str) -> Plan:
    """Return the plan in a JSON document. `source` names the document in errors. Raises `PlanFileError`."""
    reader = PlanReader(source, "", document)
    if reader.value.get("format") != FORMAT:
        fault = f"its format is {reader.value.get('format')!r}, this program reads {FORMAT!r}"
        raise PlanFileError(f"{source}: {fault}: make the plan again with `testbed optimise`")
    topology = read_topology(reader.read_object("topology"))
    operators, strategy = read_strategy(reader.read_object("strategy"), topology.nodes)
    return Plan(
        workload=_read_choice(reader.read_object("workload")),
        topology=topology,
        rate_gbps=reader.read_number("rate_gbps", MIN_GBPS, MAX_GBPS),
        operators=operators,
        strategy=strategy,
        predicted=reader.read_figures("predicted", required_key="iteration_ms"),
        reasons=tuple(reader.read_texts("why")),
        search=reader.read_object("search").value,
        lab=reader.read_text("lab"),
        hosts=_read_hosts(reader, topology.nodes),
        routes=read_routes(reader, topology) if "routes" in reader.value else None,
    )


def _read_choice(reader: PlanReader) -> WorkloadChoice:
    settings, device = reader.read_object("settings"), reader.read_text("device")
    try:
        find_device(device or DEFAULT_DEVICE)
    except WorkloadError as error:
        raise reader.make_error("device", str(error)) from error
    return WorkloadChoice(
        name=reader.read_text("name"),
        preset=reader.read_text("preset"),
        settings={name: settings.read_text(name) for name in settings.value},
        device=device,
        profile=reader.read_text("profile"),
        zero=reader.check_integer(reader.value.get("zero", 0), "zero"),
        recompute=reader.read_flag("recompute") if "recompute" in reader.value else False,
    )


def _read_hosts(reader: PlanReader, node_count: int) -> tuple[str, ...]:
    hosts = tuple(reader.read_texts("hosts"))
    if hosts and len(hosts) != node_count:
        raise reader.make_error(
            "hosts", f"{len(hosts)} hosts for {node_count} nodes: name one per node, or none"
        )
    repeated_names = [name for name, times in Counter(hosts).items() if times > 1]
    if repeated_names:
        raise reader.make_error("hosts", f"{repeated_names[0]!r} appears twice")
    return hosts


def read_topology(reader: PlanReader) -> Topology:
    """Return the topology. Raises `PlanFileError` if it is not connected, or lacks NICs or the ring of a stride."""
    nodes, degree = reader.read_count("nodes"), reader.read_count("degree", MAX_NICS)
    is_simplex = reader.read_flag("simplex")
    links = [_read_link(reader, index, link, nodes) for index, link in enumerate(reader.read_list("links"))]
    edges = (
        links
        if is_simplex
        else [edge for source, target in links for edge in ((source, target), (target, source))]
    )
    strides = tuple(reader.check_integer(stride, "strides") for stride in reader.read_list("strides"))
    topology = Topology(nodes, degree, is_simplex, strides, tuple(sorted(edges)))
    _check_nics(reader, topology)
    _check_connected(reader, topology)
    _check_strides(reader, topology)
    return topology


def read_strategy(reader: PlanReader, node_count: int) -> tuple[tuple[str, ...], Strategy]:
    """Return the names of the operators, and their strategy on `node_count` nodes. Raises `PlanFileError`."""
    names, shardings = [], []
    for index, entry in enumerate(reader.read_list("operators")):
        operator = PlanReader(reader.source, f"{reader.key_path}.operators[{index}]", entry)
        names.append(operator.read_text("name"))
        way = operator.read_text("way")
        if way not in get_args(Way):
            raise operator.make_error("way", f"{way!r} is not one of {', '.join(get_args(Way))}")
        rows = operator.read_list("grid")
        if not rows or not all(isinstance(row, list) and row and len(row) == len(rows[0]) for row in rows):
            raise operator.make_error("grid", "must be rows of equal length: replicas by shards")
        grid = tuple(tuple(operator.check_node(server, "grid", node_count) for server in row) for row in rows)
        sharding = Sharding(cast("Way", way), grid)
        fault = find_sharding_fault(sharding, node_count)
        if fault:
            raise operator.make_error("grid", fault)
        shardings.append(sharding)
    if not names:
        raise reader.make_error("operators", "it is empty: give at least one entry")
    return tuple(names), Strategy(tuple(shardings), reader.read_count("microbatches"))


def _read_link(reader: PlanReader, index: int, link: Any, node_count: int) -> Edge:
    key = f"links[{index}]"
    if not isinstance(link, list) or len(link) != 2:
        raise reader.make_error(key, f"{link!r} is not a pair of nodes")
    source, target = (reader.check_node(end, key, node_count) for end in link)
    if source == target:
        raise reader.make_error(key, f"joins node {source} to itself")
    return source, target


def _check_nics(reader: PlanReader, topology: Topology) -> None:
    for end_index, verb in ((0, "sends"), (1, "receives")):
        link_counts = Counter(edge[end_index] for edge in topology.edges)
        overfull_nodes = [node for node, count in link_counts.items() if count > topology.degree]
        if overfull_nodes:
            node = overfull_nodes[0]
            fault = f"node {node} {verb} on {link_counts[node]} links and has {topology.degree} NICs"
            raise reader.make_error("links", fault)


def _check_connected(reader: PlanReader, topology: Topology) -> None:
    node_count, edges = topology.nodes, topology.edges
    if (
        node_count > 1 and len(edges) < node_count
    ):  # checked before any loop over nodes: `node_count` may be a huge typo
        raise reader.make_error(
            "links", f"{len(topology.links)} links cannot join {node_count} nodes: add links"
        )
    unreached_node = _find_unreached_node(node_count, edges)
    if unreached_node is not None:
        raise reader.make_error(
            "links", f"node 0 has no path to node {unreached_node}: add links between their parts"
        )
    unreached_node = _find_unreached_node(node_count, ((target, source) for source, target in edges))
    if unreached_node is not None:
        raise reader.make_error(
            "links", f"node {unreached_node} has no path to node 0: add links between their parts"
        )


def _find_unreached_node(node_count: int, edges: Iterable[Edge]) -> int | None:
    """Return the first node without a path from node 0, or None."""
    targets_by_source: dict[int, list[int]] = {}
    for source, target in edges:
        targets_by_source.setdefault(source, []).append(target)
    reached_nodes, pending_nodes = {0}, [0]
    while pending_nodes:
        unvisited = set(targets_by_source.get(pending_nodes.pop(), ())) - reached_nodes
        reached_nodes |= unvisited
        pending_nodes.extend(unvisited)
    return next((node for node in range(node_count) if node not in reached_nodes), None)


def _check_strides(reader: PlanReader, topology: Topology) -> None:
    node_count = topology.nodes
    invalid_strides = [stride for stride in topology.strides if not 0 < stride < node_count]
    if invalid_strides:
        raise reader.make_error(
            "strides",
            f"{invalid_strides[0]} is not a stride on {node_count} nodes: strides are 1 to {node_count - 1}",
        )
    direct_strides = list_direct_strides(node_count, topology.strides, simplex=topology.simplex)
    if len(direct_strides) > topology.degree:
        raise reader.make_error(
            "strides",
            f"their rings need {len(direct_strides)} NICs per node, but nodes have {topology.degree}",
        )
    missing_edges = Counter(list_circulant_edges(node_count, direct_strides)) - Counter(topology.edges)
    if missing_edges:
        source, target = min(missing_edges)
        stride = (target - source) % node_count
        fault = (
            f"the links lack the ring of stride {stride}: it needs a link from node {source} to node {target}"
        )
        raise reader.make_error("strides", fault)


def render_routes(routes: RouteSets) -> list[dict[str, Any]]:
    """Return an entry for each route of the first set, and for each other route with a weight in either direction."""
    return [_render_route(routes, route) for route in routes.list_routes()]


def _render_route(routes: RouteSets, route: PairRoute) -> dict[str, Any]:
    edges = routes.topology.edges
    copies = [edge - bisect_left(edges, edges[edge]) for edge in route.path]
    entry = {"source": route.source, "target": route.target, "set": route.set_number, "weight": route.weight}
    return entry | {"path": list(routes.list_nodes(route.path))} | ({"copies": copies} if any(copies) else {})


def read_routes(reader: PlanReader, topology: Topology) -> RouteSets:
    """Return the routes of a document. Raises `PlanFileError` if they are invalid or incomplete."""
    node_count, route_entries = topology.nodes, reader.read_list("routes")
    next_edge = np.full((MAX_SETS, node_count, node_count), -1, dtype=np.int64)
    weights = np.zeros((MAX_SETS, node_count, node_count))
    first_index_by_edge = {edge: index for index, edge in reversed(list(enumerate(topology.edges)))}
    for index, value in enumerate(route_entries):
        route_reader = PlanReader(reader.source, f"routes[{index}]", value)
        source, target = (
            route_reader.check_node(route_reader.value.get(end), end, node_count)
            for end in ("source", "target")
        )
        set_number = route_reader.check_integer(route_reader.value.get("set"), "set")
        if not 0 <= set_number < MAX_SETS:
            raise route_reader.make_error(
                "set", f"there is no set {set_number}: sets are 0 to {MAX_SETS - 1}"
            )
        if weights[set_number, source, target]:
            raise route_reader.make_error(
                "set", f"{source} -> {target} already has a route in set {set_number}"
            )
        weights[set_number, source, target] = route_reader.read_number("weight", 0.0, 1.0)
        path = [
            route_reader.check_node(node, "path", topology.nodes) for node in route_reader.read_list("path")
        ]
        if len(path) < 2 or (path[0], path[-1]) != (source, target) or len(set(path)) != len(path):
            raise route_reader.make_error(
                "path", f"{path} does not lead from {source} to {target} through different nodes"
            )
        hops = list(pairwise(path))
        copy_numbers = route_reader.read_list("copies") if "copies" in route_reader.value else [0] * len(hops)
        if len(copy_numbers) != len(hops):
            raise route_reader.make_error(
                "copies", f"{len(copy_numbers)} copy numbers for {len(hops)} hops: give one per hop"
            )
        path_edges = []
        for hop, copy_number in zip(hops, copy_numbers, strict=True):
            edge = first_index_by_edge.get(hop, -1) + route_reader.check_integer(copy_number, "copies")
            if (
                hop not in first_index_by_edge
                or not first_index_by_edge[hop] <= edge < len(topology.edges)
                or topology.edges[edge] != hop
            ):
                raise route_reader.make_error(
                    "path", f"there is no link from node {hop[0]} to node {hop[1]} (copy {copy_number})"
                )
            path_edges.append(edge)
        for edge in path_edges:
            earlier_edge = next_edge[set_number, target, topology.edges[edge][0]]
            if earlier_edge not in (-1, edge):
                node = topology.edges[edge][0]
                fault = (
                    f"an earlier route of set {set_number} leaves node {node} for {target} by another link"
                )
                raise route_reader.make_error(
                    "path", f"{fault}; within a set, a node has one link per destination"
                )
            next_edge[set_number, target, topology.edges[edge][0]] = edge
    np.einsum("ii->i", weights[0])[:] = 1.0
    _check_complete(reader, next_edge, weights)
    set_count = 1 + max(
        (set_number for set_number in range(MAX_SETS) if (next_edge[set_number] >= 0).any()), default=0
    )
    return RouteSets(topology, next_edge[:set_count], weights[:set_count])


def _check_complete(
    reader: PlanReader, next_edge: np.ndarray[Any, Any], weights: np.ndarray[Any, Any]
) -> None:
    """Raise `PlanFileError` unless every pair has a route in the first set and weights that sum to 1."""
    nodes = weights.shape[1]
    off_diagonal = ~np.eye(nodes, dtype=bool)
    missing_routes = np.argwhere((next_edge[0].T < 0) & off_diagonal)
    if missing_routes.size:
        source, target = missing_routes[0]
        raise reader.make_error(
            "routes",
            f"set 0 has no route from node {source} to node {target}: set 0 must have a route for every pair",
        )
    invalid_sums = np.argwhere(abs(weights.sum(axis=0) - 1) > _WEIGHT_TOLERANCE)
    if invalid_sums.size:
        source, target = invalid_sums[0]
        weight_sum = weights[:, source, target].sum()
        raise reader.make_error(
            "routes", f"the weights of {source} -> {target} sum to {weight_sum:g}, not to 1"
        )


class PlanReader:
    """Reader of one JSON object, `value`, at the key path `key_path` of the file `source`.

    Its methods return the checked value of a key. They raise `PlanFileError` for a missing key or an invalid value.
    """

    def __init__(self, source: str, path: str, value: Any) -> None:
        self.source = source
        self.key_path = path
        if not isinstance(value, dict):
            raise PlanFileError(f"{source}: {path or 'the document'} is not a JSON object")
        self.value: dict[str, Any] = value

    def make_error(self, key: str, fault: str) -> PlanFileError:
        """Return an error that names the file, the key and the fault."""
        return PlanFileError(f"{self.source}: {f'{self.key_path}.' if self.key_path else ''}{key}: {fault}")

    def read_object(self, key: str) -> PlanReader:
        """Return a reader of the object under a key."""
        return PlanReader(self.source, f"{self.key_path}.{key}".lstrip("."), self._get(key))

    def read_text(self, key: str) -> str:
        """Return a string."""
        value = self._get(key)
        if not isinstance(value, str):
            raise self.make_error(key, f"{value!r} is not a string")
        return value

    def read_texts(self, key: str) -> list[str]:
        """Return a list of strings."""
        values = self.read_list(key)
        if not all(isinstance(value, str) for value in values):
            raise self.make_error(key, "must be a list of strings")
        return values

    def read_list(self, key: str) -> list[Any]:
        """Return a list."""
        value = self._get(key)
        if not isinstance(value, list):
            raise self.make_error(key, f"{value!r} is not a list")
        return value

    def read_flag(self, key: str) -> bool:
        """Return a boolean."""
        value = self._get(key)
        if not isinstance(value, bool):
            raise self.make_error(key, f"{value!r} is not a boolean")
        return value

    def read_number(self, key: str, minimum: float, maximum: float) -> float:
        """Return a number from `minimum` to `maximum`."""
        value = self._get(key)
        if not _is_number(value) or not minimum <= value <= maximum:
            raise self.make_error(key, f"{value!r} is not a number from {minimum:g} to {maximum:g}")
        return float(value)

    def read_figures(self, key: str, required_key: str) -> dict[str, Any]:
        """Return figures by name. The figure `required_key` must be present.

        A figure is a finite number of 0 or more, an object of such numbers, or a text for the keys in `TEXT_KEYS`.
        """
        figures = self.read_object(key)
        for name, value in figures.value.items():
            if name in TEXT_KEYS:
                figures.read_text(name)
                continue
            numbers = value.values() if isinstance(value, dict) else (value,)
            if not all(_is_number(number) and 0 <= number < math.inf for number in numbers):
                raise figures.make_error(name, f"{value!r} is not a finite number of 0 or more")
        if required_key not in figures.value:
            raise figures.make_error(required_key, "is missing")
        return figures.value

    def read_count(self, key: str, maximum: float = math.inf) -> int:
        """Return an integer from 1 to `maximum`."""
        value = self.check_integer(self._get(key), key)
        if value < 1:
            raise self.make_error(key, f"{value} is less than 1")
        if value > maximum:
            raise self.make_error(key, f"{value} is more than {maximum}")
        return value

    def check_integer(self, value: Any, key: str) -> int:
        """Return `value` if it is an integer. Errors name `key`."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.make_error(key, f"{value!r} is not an integer")
        return value

    def check_node(self, value: Any, key: str, node_count: int) -> int:
        """Return `value` if it is a node, 0 to `node_count` - 1. Errors name `key`."""
        node = self.check_integer(value, key)
        if not 0 <= node < node_count:
            raise self.make_error(key, f"there is no node {node}: nodes are 0 to {node_count - 1}")
        return node

    def _get(self, key: str) -> Any:
        if key not in self.value:
            raise self.make_error(key, "is missing")
        return self.value[key]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
