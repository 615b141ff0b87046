"""`pulse`, `set` and `clear` of a flag: bits that change with the fires of their counts (R6, R9)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from fpga.count_action.actions.kind import Edge, Hardware, Kind, Lines, Statements, TextWriter
from fpga.count_action.actions.proof import CLOCK_CONNECTIONS, TRUE, Check, ProofExpressions, write_bit
from fpga.count_action.diagnostics import Diagnostics, make_diagnostic, quote
from fpga.count_action.graph import Graph
from fpga.count_action.model import Action, ActionKind, Count, Module


class Pulse(Kind):
    """An action that drives a bit to 1 for one cycle."""

    kind = ActionKind.PULSE
    noun = "pulse"
    rules = ("pulse",)
    register = "the number of pulses since reset, modulo 2^32"

    def parse(self, rule: str, *parts: Any) -> dict[str, Any]:
        return {"name": parts[0]}

    def write(self, text_writer: TextWriter, module: Module, action: Action) -> str:
        return f"pulse {action.output}"

    def describe(self, action: Action, name: str) -> str:
        return f"{name} is 1 for one cycle"

    def drive(self, edge: Edge, module: Module, action: Action) -> int | None:
        return int(edge.fires(module, action.on))

    def update(self, statements: Statements, module: Module, action: Action) -> Lines:
        yield f"{statements.find_register(module, action)} = {statements.write_fire(module, action)}"

    def build(self, hardware: Hardware, module: Module, action: Action) -> Lines:
        name = f"{module.name}_{action.output}"
        ports = {
            "set_i": hardware.write_fire(module, action),
            "clear_i": hardware.write_bit(True),
            "flag_o": f"{name}_o",
        }
        return hardware.write_block("count_action_flag", f"u_{name}_flag", {}, ports)

    def prove(self, expressions: ProofExpressions, module: Module, action: Action) -> Iterator[Check]:
        ports = {
            **CLOCK_CONNECTIONS,
            "set_i": expressions.write_any_fire(module, [action]),
            "clear_i": TRUE,
            "flag_o": f"{module.name}_{action.output}_o",
        }
        yield Check("count_action_flag", module.name, action.output, {"ClearWins": write_bit(False)}, ports)


class Flag(Kind):
    """A flag that `set` and `clear` drive together."""

    noun = "flag"
    register = "the current value of the flag"
    shared_output_group = "flag"

    def update(self, statements: Statements, module: Module, action: Action) -> Lines:
        name = statements.find_register(module, action)
        set_actions, clear_actions = _split_drivers(module.list_drivers(action.output))
        set_condition = (
            " | ".join(dict.fromkeys(statements.write_fire(module, set_action) for set_action in set_actions))
            or "0"
        )
        clear_condition = (
            " | ".join(
                dict.fromkeys(statements.write_fire(module, clear_action) for clear_action in clear_actions)
            )
            or "0"
        )
        if any(clear_action.wins for clear_action in clear_actions):
            yield f"{name} = ({set_condition} | {name}) & (({clear_condition}) ^ 1)"
        else:
            yield f"{name} = {set_condition} | {name} & (({clear_condition}) ^ 1)"

    def build(self, hardware: Hardware, module: Module, action: Action) -> Lines:
        name = f"{module.name}_{action.output}"
        drivers = module.list_drivers(action.output)
        set_actions = [driver for driver in drivers if driver.kind is ActionKind.SET]
        clear_actions = [driver for driver in drivers if driver.kind is ActionKind.CLEAR_FLAG]
        ports = {
            "set_i": hardware.write_any_fire(module, set_actions),
            "clear_i": hardware.write_any_fire(module, clear_actions),
            "flag_o": f"{name}_o",
        }
        parameters = (
            {"ClearWins": hardware.write_bit(True)}
            if any(clear_action.wins for clear_action in clear_actions)
            else {}
        )
        return hardware.write_block("count_action_flag", f"u_{name}_flag", parameters, ports)

    def prove(self, expressions: ProofExpressions, module: Module, action: Action) -> Iterator[Check]:
        drivers = [candidate for candidate in module.actions if candidate.output == action.output]
        clear_actions = [driver for driver in drivers if driver.kind is ActionKind.CLEAR_FLAG]
        set_actions = [driver for driver in drivers if driver.kind is not ActionKind.CLEAR_FLAG]
        ports = {
            **CLOCK_CONNECTIONS,
            "set_i": expressions.write_any_fire(module, set_actions),
            "clear_i": expressions.write_any_fire(module, clear_actions),
            "flag_o": f"{module.name}_{action.output}_o",
        }
        clear_wins = any(clear_action.wins for clear_action in clear_actions)
        yield Check(
            "count_action_flag", module.name, action.output, {"ClearWins": write_bit(clear_wins)}, ports
        )


class SetFlag(Flag):
    """An action that sets a flag to 1."""

    kind = ActionKind.SET
    rules = ("set",)
    cleared_by = ActionKind.CLEAR_FLAG

    def parse(self, rule: str, *parts: Any) -> dict[str, Any]:
        return {"name": parts[0], "words": {"wins": parts[1] is not None}}

    def write(self, text_writer: TextWriter, module: Module, action: Action) -> str:
        return f"set {action.output}{' wins' if action.wins else ''}"

    def describe(self, action: Action, name: str) -> str:
        return f"{name} becomes 1"

    def drive(self, edge: Edge, module: Module, action: Action) -> int | None:
        if not edge.fires(module, action.on):
            return None
        clear_actions = [
            clear_action
            for clear_action in module.list_actions(ActionKind.CLEAR_FLAG)
            if clear_action.output == action.output
        ]
        is_cleared = any(edge.fires(module, clear_action.on) for clear_action in clear_actions)
        return int(not (is_cleared and any(clear_action.wins for clear_action in clear_actions)))

    def find_broken_rules(self, graph: Graph) -> Diagnostics:
        for module in graph.datapath.modules:
            for flag, (set_actions, clear_actions) in _group_flag_drivers(module).items():
                if any(flag_action.wins for flag_action in set_actions) and any(
                    flag_action.wins for flag_action in clear_actions
                ):
                    conflicting_clear = next(
                        clear_action for clear_action in clear_actions if clear_action.wins
                    )
                    message = f"both the set and the clear of flag {quote(flag)} win"
                    yield make_diagnostic(conflicting_clear.location, message, "Remove one `wins` (R9).")

    def find_mistakes(self, graph: Graph) -> Diagnostics:
        """Yield a warning for each flag that can be set and cleared in one cycle without a `wins`."""
        for module in graph.datapath.modules:
            for flag, (set_actions, clear_actions) in _group_flag_drivers(module).items():
                if any(flag_action.wins for flag_action in (*set_actions, *clear_actions)):
                    continue
                for set_action, clear_action in product(set_actions, clear_actions):
                    if _can_fire_together(
                        graph, module, module.count(set_action.on), module.count(clear_action.on)
                    ):
                        message = (
                            f"flag {quote(flag)} is set and cleared when {quote(set_action.on)}"
                            f" and {quote(clear_action.on)} fire in one cycle, and is 1 then: the clear is lost (R9)"
                        )
                        hint = f"Write `set {flag} wins` if that is intended, `clear {flag} wins` if not."
                        yield make_diagnostic(clear_action.location, message, hint)
                        break


class ClearFlag(Flag):
    """An action that clears a flag to 0, unless it is set in the same cycle and the clear does not win."""

    kind = ActionKind.CLEAR_FLAG
    can_set_output = False

    def write(self, text_writer: TextWriter, module: Module, action: Action) -> str:
        return f"clear {action.output}{' wins' if action.wins else ''}"

    def describe(self, action: Action, name: str) -> str:
        return f"{name} becomes 0{'' if action.wins else ', unless it is set as well'} (R9)"

    def drive(self, edge: Edge, module: Module, action: Action) -> int | None:
        if not edge.fires(module, action.on):
            return None
        set_actions = [
            set_action
            for set_action in module.list_actions(ActionKind.SET)
            if set_action.output == action.output
        ]
        is_set = any(edge.fires(module, set_action.on) for set_action in set_actions)
        clear_actions = [
            clear_action
            for clear_action in module.list_actions(ActionKind.CLEAR_FLAG)
            if clear_action.output == action.output
        ]
        return None if is_set and not any(clear_action.wins for clear_action in clear_actions) else 0

    def find_broken_rules(self, graph: Graph) -> Diagnostics:
        for (name, output), drivers in graph.drivers.items():
            if all(action.kind is ActionKind.CLEAR_FLAG for _, action in drivers):
                message = f"flag {quote(output)} of module {quote(name)} is cleared, and nothing sets it"
                yield make_diagnostic(drivers[0][1].location, message, f"Add `set {output}`.")


def _split_drivers(drivers: tuple[Action, ...]) -> tuple[list[Action], list[Action]]:
    """Return the actions that set a flag, and the actions that clear it."""
    set_actions = [driver for driver in drivers if driver.kind is ActionKind.SET]
    return set_actions, [driver for driver in drivers if driver.kind is ActionKind.CLEAR_FLAG]


def _group_flag_drivers(module: Module) -> dict[str, tuple[list[Action], list[Action]]]:
    """Return the setting and the clearing actions of each flag that has both."""
    drivers = {flag: _split_drivers(module.list_drivers(flag)) for flag in module.map_outputs()}
    return {
        flag: (set_actions, clear_actions)
        for flag, (set_actions, clear_actions) in drivers.items()
        if set_actions and clear_actions
    }


def _can_fire_together(graph: Graph, module: Module, count: Count, rival: Count) -> bool:
    """Return whether two counts can fire in one cycle: they share no stream, and their conditions agree."""
    if count in graph.find_rivals(module, rival) or rival in graph.find_rivals(module, count):
        return False
    conditions = {(condition.ref, condition.negated) for condition in count.gate}
    return not any((condition.ref, not condition.negated) in conditions for condition in rival.gate)
