"""Facts about a datapath: counts, targets, actions, which count triggers which, and after how many cycles.

`explain` returns the facts; `svg` draws them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fpga.count_action.actions.memory import list_memories
from fpga.count_action.graph import Graph, Link
from fpga.count_action.language.unparse import SourceWriter, format_input
from fpga.count_action.model import Action, Count, Datapath, Module


@dataclass(frozen=True, slots=True)
class ActionFacts:
    """An action: its text, its latency, and the counts that read its output.

    `latency_cycles` is the number of cycles from the external beat or flag that completes the action's count, along the
    shortest chain (R6).
    """

    text: str
    output: str
    latency_cycles: int
    triggers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CountFacts:
    """A count: its text, its target, the value of the target (None: never), and its actions."""

    name: str
    text: str
    target: str
    value: int | None
    effects: tuple[ActionFacts, ...]


@dataclass(frozen=True, slots=True)
class ModuleFacts:
    """A module and its counts."""

    name: str
    counts: tuple[CountFacts, ...]


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection from a module (or an external input, if `driver` is empty) to a module.

    `name` is the signal, `how` is `counts`, `waits for`, `sends`, `clears` or, for a memory, `loads`.
    """

    driver: str
    name: str
    reader: str
    how: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Facts about a datapath. `inputs` also has the memories, which a driver loads."""

    name: str
    digest: str
    inputs: tuple[str, ...]
    modules: tuple[ModuleFacts, ...]
    lines: tuple[Connection, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as nested dictionaries, for JSON."""
        return asdict(self)


def explain(datapath: Datapath) -> Explanation:
    """Return the facts about a datapath that `check` accepts."""
    graph = Graph(datapath)
    latencies = _find_latencies(graph)
    return Explanation(
        name=datapath.name,
        digest=f"{datapath.digest:08x}",
        inputs=(
            *(format_input(signal) for signal in datapath.inputs if not signal.loads_memory),
            *(
                f"memory {module.name}.{memory.output}: {memory.words} of {memory.width} bits"
                for module, memory in list_memories(datapath)
            ),
        ),
        modules=tuple(_describe_module(graph, module, latencies) for module in datapath.modules),
        lines=tuple(dict.fromkeys((*_find_external_connections(graph), *map(_connect, graph.links)))),
    )


def _describe_module(graph: Graph, module: Module, latencies: dict[tuple[str, str], int]) -> ModuleFacts:
    return ModuleFacts(
        module.name, tuple(_describe_count(graph, module, count, latencies) for count in module.counts)
    )


def _describe_count(
    graph: Graph, module: Module, count: Count, latencies: dict[tuple[str, str], int]
) -> CountFacts:
    writer = SourceWriter(graph)
    latency = latencies.get((module.name, count.name), 1)
    effects = [
        ActionFacts(
            writer.write_verb(module, action),
            action.output,
            latency,
            tuple(_find_triggers(graph, module, action)),
        )
        for action in module.actions
        if action.on == count.name
    ]
    value = module.target(count.target).reset or None
    return CountFacts(count.name, writer.write_sum(module, count), count.target, value, tuple(effects))


def _find_triggers(graph: Graph, module: Module, action: Action) -> dict[str, None]:
    """Return the counts that read an action's output or that it clears, in the order of the text."""
    return dict.fromkeys(
        f"{link.reader.name}.{link.count.name}"
        for link in graph.links
        if link.driver is module and link.action is action and link.relation != "sends"
    )


def _find_external_connections(graph: Graph) -> list[Connection]:
    connections = []
    for module in graph.datapath.modules:
        for count in module.counts:
            connections += [
                Connection("", ref.name, module.name, "counts") for ref in count.counted if ref.module is None
            ]
            condition_signals = [ref for condition in count.gate for ref in graph.find_signals(condition.ref)]
            connections += [
                Connection("", ref.name, module.name, "waits for")
                for ref in condition_signals
                if ref.module is None
            ]
        for action in (candidate for candidate in module.actions if candidate.on):
            connections += [
                Connection("", ref.name, module.name, "sends")
                for sample in action.refs
                for ref in graph.find_signals(sample)
                if ref.module is None
            ]
    connections += [
        Connection("", f"{module.name}.{memory.output}", module.name, "loads")
        for module, memory in list_memories(graph.datapath)
    ]
    return connections


def _connect(link: Link) -> Connection:
    name = link.action.output or f"clear {link.count.name}"
    return Connection(link.driver.name, name, link.reader.name, link.relation)


def _find_latencies(graph: Graph) -> dict[tuple[str, str], int]:
    """Return the fewest cycles from an external event to the effect of a fire, by module and count."""
    latencies = {
        (module.name, count.name): 1
        for module, count in graph.datapath.list_counts()
        if count.constant or any(term.module is None for term in count.counted)
    }
    links = [
        ((link.driver.name, link.action.on), (link.reader.name, link.count.name))
        for link in graph.links
        if link.relation == "counts"
    ]
    # Bellman-Ford: no shortest chain has more links than there are counts.
    for _ in range(sum(1 for _ in graph.datapath.list_counts())):
        earlier_latencies = dict(latencies)
        for driver, reader in links:
            if driver in latencies:
                latencies[reader] = min(latencies.get(reader, latencies[driver] + 1), latencies[driver] + 1)
        if latencies == earlier_latencies:
            break
    return latencies
