"""`advance` and `store`: numbers that change with the fires of their counts (R6, R18)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fpga.count_action.actions.kind import (
    Edge,
    Hardware,
    Kind,
    Lines,
    Shape,
    Statements,
    TextWriter,
    UnresolvedAction,
    write_if,
)
from fpga.count_action.actions.proof import CLOCK_CONNECTIONS, Check, ProofExpressions
from fpga.count_action.defaults import compute_beat_width, compute_number_width
from fpga.count_action.diagnostics import Diagnostics, find_range_error, make_diagnostic, quote
from fpga.count_action.graph import Graph
from fpga.count_action.model import MAX_WIDTH, Action, ActionKind, Datapath, Module


class Advance(Kind):
    """An action that increments a number, and wraps from `modulo` - 1 to 0."""

    kind = ActionKind.ADVANCE
    rules = ("advance",)
    noun = "number"
    register = "the current value of the number"

    def parse(self, rule: str, *parts: Any) -> dict[str, Any]:
        name, modulo, width = parts
        return {"name": name, "width": width, "numbers": {"modulo": modulo}}

    def write(self, text_writer: TextWriter, module: Module, action: Action) -> str:
        width_text = "" if action.width == compute_number_width(action.modulo) else f" width {action.width}"
        return f"advance {action.output} modulo {action.modulo}{width_text}"

    def compute_shape(
        self, action: UnresolvedAction, get_sample_shapes: Callable[[], Sequence[Shape]]
    ) -> Shape:
        width = compute_number_width(action.numbers["modulo"]) if action.width is None else action.width
        return Shape(1, width, signed=False)

    def find_problems(self, datapath: Datapath, action: Action) -> Diagnostics:
        name = quote(action.output)
        yield from find_range_error(
            f"modulo of number {name}", action.modulo, 2, 2**MAX_WIDTH, action.location
        )
        if 1 <= action.width <= MAX_WIDTH and action.modulo > 2**action.width:
            needed_width = (action.modulo - 1).bit_length()
            message = f"number {name} has {action.width} bits and goes up to {action.modulo - 1}"
            hint = f"Give it {needed_width} bits." if needed_width <= MAX_WIDTH else "Use a smaller modulo."
            yield make_diagnostic(action.location, message, hint)

    def compute_largest(self, action: Action) -> int:
        return action.modulo - 1

    def describe(self, action: Action, name: str) -> str:
        return f"{name} counts from 0 to {action.modulo - 1}, then starts again at 0"

    def drive(self, edge: Edge, module: Module, action: Action) -> int | None:
        if not edge.fires(module, action.on):
            return None
        return (edge.read_output(module, action.output) + 1) % action.modulo

    def update(self, statements: Statements, module: Module, action: Action) -> Lines:
        name = statements.find_register(module, action)
        yield f"next_{name} = {name} + {statements.write_fire(module, action)}"
        yield f"{name} = next_{name} & ((next_{name} == {action.modulo}) - 1)"

    def build(self, hardware: Hardware, module: Module, action: Action) -> Lines:
        name = f"{module.name}_{action.output}"
        parameters = {"Width": action.width, "Last": f"{action.width}'d{action.modulo - 1}"}
        ports = {"advance_i": hardware.write_fire(module, action), "number_o": f"{name}_o"}
        return hardware.write_block("count_action_advance", f"u_{name}_advance", parameters, ports)

    def prove(self, expressions: ProofExpressions, module: Module, action: Action) -> Iterator[Check]:
        parameters = {"Width": action.width, "Last": f"{action.width}'d{action.modulo - 1}"}
        ports = {
            **CLOCK_CONNECTIONS,
            "advance_i": expressions.write_fire(module, action.on),
            "number_o": f"{module.name}_{action.output}_o",
        }
        yield Check("count_action_advance", module.name, action.output, parameters, ports)


class Store(Kind):
    """An action that stores a sample in a number."""

    kind = ActionKind.STORE
    rules = ("store",)
    noun = "number"
    shared_output_group = "store"
    register = "the current value of the number"

    def parse(self, rule: str, *parts: Any) -> dict[str, Any]:
        value, width, name, ranked = parts
        return {"name": name, "samples": (value,), "width": width, "words": {"ranked": ranked is not None}}

    def write(self, text_writer: TextWriter, module: Module, action: Action) -> str:
        (ref,) = action.refs
        order_text = " by priority" if action.ranked else ""
        return f"store {text_writer.write_sample(ref)} width {action.width} as {action.output}{order_text}"

    def compute_shape(
        self, action: UnresolvedAction, get_sample_shapes: Callable[[], Sequence[Shape]]
    ) -> Shape:
        """Return the shape of the stored number; `keep` of a stream has one bit per lane (R18)."""
        if action.width is not None:
            return Shape(1, action.width, signed=False)
        width = (
            sum(sample.lanes for sample in get_sample_shapes())
            if action.part_of
            else compute_beat_width(sample.width for sample in get_sample_shapes())
        )
        return Shape(1, width, signed=False)

    def find_problems(self, datapath: Datapath, action: Action) -> Diagnostics:
        if len(action.refs) != 1:
            message = f"{quote(action.output)} stores {len(action.refs)} samples"
            yield make_diagnostic(action.location, message, "Store one sample or formula.")

    def find_broken_rules(self, graph: Graph) -> Diagnostics:
        """Yield the errors of numbers with several stores, and of each `last` that can be other than 0 or 1."""
        for drivers in graph.drivers.values():
            stores = [action for _, action in drivers]
            if len(stores) > 1 and all(store.kind is ActionKind.STORE for store in stores):
                yield from _find_store_conflicts(stores)
        for module in graph.datapath.modules:
            for action in module.list_actions(ActionKind.STORE):
                if action.part_of and action.output == f"{action.part_of}_last":
                    shape = graph.find_source(action.refs[0])
                    if shape.signed or shape.width > 1:
                        message = f"the `last` of {quote(action.part_of)} has values besides 0 and 1 (R18)"
                        yield make_diagnostic(action.location, message, "Store a condition, such as `!= 0`.")

    def describe(self, action: Action, name: str) -> str:
        if action.part_of == action.on:
            return f"{name} follows the selected beat (R19)"
        return f"{name} stores a sample (R18)"

    def drive(self, edge: Edge, module: Module, action: Action) -> int | None:
        """Return the stored sample; None if the count does not fire, or if an earlier store of the number fires."""
        stores = (driver for driver in module.list_drivers(action.output) if edge.fires(module, driver.on))
        if next(stores, None) is not action:
            return None
        return edge.read_sample(action.refs[0]) & (1 << action.width) - 1

    def update(self, statements: Statements, module: Module, action: Action) -> Lines:
        for driver in reversed(module.list_drivers(action.output)):  # reversed, so that the first store wins
            sample = statements.write_sample(driver.refs[0], driver.width, signed=False)
            yield write_if(
                statements.write_fire(module, driver),
                [f"{statements.find_register(module, driver)} = {sample}"],
            )

    def build(self, hardware: Hardware, module: Module, action: Action) -> Lines:
        name = f"{module.name}_{action.output}"
        *ranked_stores, unranked_store = module.list_drivers(action.output)
        data = hardware.write_samples(unranked_store)
        for driver in reversed(ranked_stores):
            data = f"{hardware.write_fire(module, driver)} ? {hardware.write_samples(driver)} : {data}"
        ports = {
            "fire_i": hardware.write_any_fire(module, (*ranked_stores, unranked_store)),
            "data_i": data,
            "number_o": f"{name}_o",
        }
        return hardware.write_block("count_action_store", f"u_{name}_store", {"Width": action.width}, ports)

    def prove(self, expressions: ProofExpressions, module: Module, action: Action) -> Iterator[Check]:
        stores = [store for store in module.actions if store.output == action.output]
        store_choices = "".join(
            f"{expressions.write_fire(module, store.on)} ? {expressions.resize_sample(store.refs[0], action.width)} : "
            for store in stores
        )
        ports = {
            **CLOCK_CONNECTIONS,
            "fire_i": expressions.write_any_fire(module, stores),
            "data_i": f"{store_choices}{action.width}'d0",
            "number_o": f"{module.name}_{action.output}_o",
        }
        yield Check("count_action_store", module.name, action.output, {"Width": action.width}, ports)


def _find_store_conflicts(stores: list[Action]) -> Diagnostics:
    """Yield an error for each store that does not state its priority, or whose width differs from the first (R18)."""
    name, first_store = quote(stores[0].output), stores[0]
    first_location_text = f", first at {first_store.location}" if first_store.location else ""
    for store in stores:
        if not store.ranked or store.part_of:
            stores_text = f"{len(stores)} stores{first_location_text}"
            message = f"number {name} has {stores_text}, and this one does not say which wins"
            yield make_diagnostic(
                store.location,
                message,
                "Write `by priority` after each: the first in the text wins. Or rename one.",
            )
        elif store.width != first_store.width:
            message = (
                f"number {name} has {store.width} bits here and {first_store.width} bits in its first store"
            )
            yield make_diagnostic(
                store.location, message, f"Write `width {max(store.width, first_store.width)}` in each."
            )
