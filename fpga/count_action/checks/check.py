"""Checks of a datapath, from source text or from Python.

`check` returns errors, `find_warnings` possible mistakes. `check` first examines each part (names, widths, references).
If all parts are valid, it examines the rules between them (`rules`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fpga.count_action.actions import KINDS
from fpga.count_action.checks.formulas import (
    find_constant_conditions,
    find_count_formula_errors,
    find_formula_errors,
    find_value_errors,
)
from fpga.count_action.checks.rules import find_broken_rules
from fpga.count_action.checks.warnings import find_possible_mistakes
from fpga.count_action.diagnostics import (
    Diagnostic,
    Diagnostics,
    explain_memory_in_formula,
    find_range_error,
    make_diagnostic,
    quote,
    suggest_name,
)
from fpga.count_action.graph import Graph, list_read_signals
from fpga.count_action.language.syntax import MAX_NAME_LENGTH, RESERVED_WORDS
from fpga.count_action.model import (
    MAX_INPUT_WIDTH,
    MAX_LANES,
    MAX_WIDTH,
    Action,
    ActionKind,
    Count,
    Datapath,
    Location,
    Module,
    Ref,
    Signal,
    SignalKind,
    Target,
    is_formula_ref,
)
from fpga.count_action.ports import make_ports
from fpga.count_action.verilog.text import KEYWORDS


def check(datapath: Datapath) -> tuple[Diagnostic, ...]:
    """Return the errors of a datapath; if there are none, it can be simulated, built and proven."""
    part_errors = tuple(_PartChecker(datapath).find_problems())
    if part_errors:
        return part_errors
    return (*_find_name_clashes(datapath), *find_broken_rules(Graph(datapath))) or tuple(
        _find_port_clashes(datapath)
    )


def find_warnings(datapath: Datapath) -> tuple[Diagnostic, ...]:
    """Return the possible mistakes in a datapath without errors."""
    graph = Graph(datapath)
    return (*find_possible_mistakes(graph), *find_constant_conditions(graph))


def _find_name_clashes(datapath: Datapath) -> Diagnostics:
    for module in datapath.modules:
        local_names = {count.name for count in module.counts} | {action.output for action in module.actions}
        for ref in list_read_signals(module):
            if ref.module is None and ref.name in local_names:
                message = f"{quote(ref.name)} is an input, and a count or an output of {quote(module.name)}"
                yield make_diagnostic(ref.location or module.location, message, "Rename one of them.")


def _find_port_clashes(datapath: Datapath) -> Diagnostics:
    ports = make_ports(datapath)
    names = {"clk_i", "rst_i"}
    parts: list[Signal | Module] = [*datapath.inputs, *datapath.modules]
    for port in (*ports.inputs, *ports.outputs):
        if port.name in names:
            message = f"two ports of the hardware would have the name {quote(port.name)}"
            first_location = next((part.location for part in parts if port.name.startswith(part.name)), None)
            yield make_diagnostic(first_location, message, "Rename an input, a module or an output.")
        names.add(port.name)


@dataclass
class _PartChecker:
    """Checks of each part of a datapath, regardless of the rules between parts."""

    datapath: Datapath

    def __post_init__(self) -> None:
        self._graph = Graph(self.datapath)
        self._signals = {signal.name: signal for signal in self.datapath.inputs}
        self._modules = {module.name: module for module in self.datapath.modules}

    def find_problems(self) -> Diagnostics:
        if self.datapath.name in KEYWORDS:
            message = f"datapath name {quote(self.datapath.name)} is a SystemVerilog keyword"
            yield make_diagnostic(None, message, "Rename the datapath, or its file.")
        yield from find_name_errors("datapath", self.datapath.name, None)
        if not self.datapath.modules:
            yield make_diagnostic(None, "the datapath has no module", "Add one.")
        yield from find_duplicates(
            [("input", signal.name, signal.location) for signal in self.datapath.inputs]
            + self._list_modules()
        )
        for signal in self.datapath.inputs:
            yield from _find_signal_errors(signal)
        for module in self.datapath.modules:
            yield from self._find_module_errors(module)

    def _list_modules(self) -> list[tuple[str, str, Location | None]]:
        return [("module", module.name, module.location) for module in self.datapath.modules]

    def _find_module_errors(self, module: Module) -> Diagnostics:
        yield from find_name_errors("module", module.name, module.location)
        if not module.counts:
            hint = "Add `counts: { sum ... }` and `targets: { ... }`."
            yield make_diagnostic(module.location, f"module {quote(module.name)} counts nothing", hint)
        named_counts = [("count", count.name, count.location) for count in module.counts]
        named_outputs = [
            (KINDS[action.kind].noun, name, action.location) for name, action in module.map_outputs().items()
        ]
        yield from find_duplicates([*named_counts, *named_outputs])
        yield from find_duplicates([("target", target.name, target.location) for target in module.targets])
        for target in module.targets:
            yield from _find_target_errors(target)
        for count in module.counts:
            yield from self._find_count_errors(module, count)
        for action in module.actions:
            yield from self._find_action_errors(module, action)
        yield from find_duplicates([("property", claim.name, claim.location) for claim in module.claims])
        for claim in module.claims:
            yield from find_name_errors("property", claim.name, claim.location)
            if claim.kind not in {"always", "never", "assume"}:
                message = f"property {quote(claim.name)} has the unknown kind {quote(claim.kind)}"
                yield make_diagnostic(claim.location, message, "Use always, never or assume.")
        yield from find_formula_errors(self._graph, module, self._find_signal_errors)

    def _find_count_errors(self, module: Module, count: Count) -> Diagnostics:
        yield from find_name_errors("count", count.name, count.location)
        yield from find_range_error(
            f"width of count {quote(count.name)}", count.width, 1, MAX_WIDTH, count.location
        )
        yield from find_range_error(
            f"constant of count {quote(count.name)}", abs(count.constant), 0, 2**MAX_WIDTH - 1, count.location
        )
        names = [target.name for target in module.targets]
        if count.target not in names:
            message = (
                f"count {quote(count.name)} names the target {quote(count.target)}, which does not exist"
            )
            yield make_diagnostic(count.location, message, suggest_name(count.target, names))
        if not count.counted and not count.constant:
            yield make_diagnostic(
                count.location, f"count {quote(count.name)} adds nothing", "Name a signal to count."
            )
        for ref in count.counted:
            yield from self._find_signal_errors(ref, count.location)
        yield from find_count_formula_errors(self._graph, module, count)
        for condition in count.gate:
            yield from self._find_ref_errors(module, condition.ref, count.location)

    def _find_ref_errors(self, module: Module, ref: Ref, location: Location | None) -> Diagnostics:
        """Yield errors of a module's reference to one of its formulas or to a signal."""
        if is_formula_ref(ref) and ref.module == module.name:
            yield from find_value_errors(module, ref, location)
        else:
            yield from self._find_signal_errors(ref, location)

    def _find_signal_errors(self, ref: Ref, location: Location | None) -> Diagnostics:
        """Yield errors of a reference to a signal."""
        location = ref.location or location
        if ref.module is None:
            if ref.name not in self._signals:
                message = f"there is no input {quote(ref.name)}"
                yield make_diagnostic(location, message, suggest_name(ref.name, self._signals))
                return
        elif ref.module not in self._modules:
            message = f"there is no module {quote(ref.module)}"
            yield make_diagnostic(location, message, suggest_name(ref.module, self._modules))
            return
        elif (ref.module, ref.name) not in self._graph.drivers:
            outputs = [output for module, output in self._graph.drivers if module == ref.module]
            message = f"module {quote(ref.module)} does not drive {quote(ref.name)}"
            yield make_diagnostic(location, message, suggest_name(ref.name, outputs))
            return
        elif self._graph.drivers[ref.module, ref.name][0][1].kind is ActionKind.MEMORY:
            yield make_diagnostic(location, *explain_memory_in_formula(ref.name))
        shape = self._graph.find_source(ref)
        yield from find_range_error(f"index of {ref.name}", ref.index, 0, shape.size - 1, location)
        yield from find_range_error(f"lane of {ref.name}", ref.lane, 0, max(shape.lanes, 1) - 1, location)

    def _find_action_errors(self, module: Module, action: Action) -> Diagnostics:
        names = [count.name for count in module.counts]
        if action.on not in names and action.kind is not ActionKind.MEMORY:
            message = f"an action is on the count {quote(action.on)}, which is not in {quote(module.name)}"
            yield make_diagnostic(action.location, message, suggest_name(action.on, names))
        kind = KINDS[action.kind]
        for ref in action.refs:
            yield from self._find_ref_errors(module, ref, action.location)
        if kind.kind.drives:
            yield from find_name_errors(kind.noun, action.output, action.location)
            max_width = 1 if kind.kind.drives is SignalKind.FLAG else MAX_WIDTH
            description = f"width of {kind.noun} {quote(action.output)}"
            yield from find_range_error(description, action.width, 1, max_width, action.location)
        if action.clears is not None or action.kind is ActionKind.CLEAR_COUNT:
            yield from self._find_clear_errors(action)
        yield from kind.find_problems(self.datapath, action)

    def _find_clear_errors(self, action: Action) -> Diagnostics:
        owner, name = action.clears or ("", "")
        if all((owner, name) != (module.name, count.name) for module, count in self.datapath.list_counts()):
            count_names = [f"{module.name}.{count.name}" for module, count in self.datapath.list_counts()]
            message = f"there is no count {quote(f'{owner}.{name}')} to clear"
            yield make_diagnostic(action.location, message, suggest_name(name, count_names))


_MAX_WIDTHS = {SignalKind.FLAG: 1, SignalKind.NUMBER: MAX_INPUT_WIDTH, SignalKind.STREAM: MAX_WIDTH}


def _find_signal_errors(signal: Signal) -> Diagnostics:
    name, location = quote(signal.name), signal.location
    yield from find_name_errors("input", signal.name, location)
    yield from find_range_error(f"number of elements of {name}", signal.size, 1, MAX_LANES, location)
    lanes = MAX_LANES // max(signal.size, 1) if signal.kind is SignalKind.STREAM else 1
    yield from find_range_error(f"number of lanes of {name}", signal.lanes, 1, max(lanes, 1), location)
    max_width = MAX_WIDTH if signal.loads_memory else _MAX_WIDTHS[signal.kind]
    yield from find_range_error(f"width of {name}", signal.width, 1, max_width, location)
    if signal.signed and signal.kind is not SignalKind.STREAM:
        yield make_diagnostic(
            location, f"{name} is signed, but not a stream", "Only samples of streams have a sign."
        )
    if signal.buffered and signal.kind is not SignalKind.STREAM:
        yield make_diagnostic(
            location, f"{name} is buffered, but not a stream", "Only streams can be buffered."
        )


def _find_target_errors(target: Target) -> Diagnostics:
    yield from find_name_errors("target", target.name, target.location)
    yield from find_range_error(
        f"width of target {quote(target.name)}", target.width, 1, MAX_WIDTH, target.location
    )
    if target.reset < 0:
        yield make_diagnostic(
            target.location, f"target {quote(target.name)} is {target.reset}", "Targets are not negative."
        )
    elif 1 <= target.width <= MAX_WIDTH and target.reset >= 2**target.width:
        needed_bits = target.reset.bit_length()
        hint = (
            f"Write `width {needed_bits}` after its counts."
            if needed_bits <= MAX_WIDTH
            else "Count in two steps."
        )
        message = f"target {quote(target.name)} is {target.reset} and does not fit in {target.width} bits"
        yield make_diagnostic(target.location, message, hint)


def find_name_errors(noun: str, name: str, location: Location | None) -> Diagnostics:
    """Yield an error if a name is not valid."""
    article = "an" if noun[0] in "aeio" else "a"
    if len(name) > MAX_NAME_LENGTH:
        message = f"{quote(name)}, the name of {article} {noun}, has {len(name)} characters"
        yield make_diagnostic(
            location, message, f"Shorten it to {MAX_NAME_LENGTH}, or the names of which it consists."
        )
    elif not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        message = f"{quote(name)} cannot be the name of {article} {noun}"
        yield make_diagnostic(location, message, "Use letters, digits and underscores.")
    elif name in RESERVED_WORDS:
        yield make_diagnostic(
            location,
            f"{quote(name)} is a keyword of the language and cannot be a name",
            "Choose another name.",
        )


def find_duplicates(named_items: Iterable[tuple[str, str, Location | None]]) -> Diagnostics:
    """Yield an error for each name that an earlier entry has. Entries are (kind of thing, name, location)."""
    first_items: dict[str, tuple[str, Location | None]] = {}
    for noun, name, location in named_items:
        if name in first_items:
            earlier_noun, earlier_location = first_items[name]
            location_text = f" ({earlier_location})" if earlier_location else ""
            yield make_diagnostic(
                location,
                f"{quote(name)} is a {noun} here and a {earlier_noun} elsewhere{location_text}",
                "Rename one of them.",
            )
        first_items.setdefault(name, (noun, location))
