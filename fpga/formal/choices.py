"""The checks of a count that chooses among its streams (R19), written from the count alone: not from its formulas."""

from __future__ import annotations

from fpga.count_action.actions.proof import CLOCKED, NEVER, Check, bit, concatenated
from fpga.count_action.arbitration import last_of, registers
from fpga.count_action.model import Count, Module
from fpga.formal.meaning import Meaning


def choice(meaning: Meaning, module: Module, count: Count) -> Check:
    """Return the checks of one choice."""
    kept = registers(count.order, whole=count.whole, streams=len(count.terms))
    shown = {name: f"{module.name}_{count.name}_{name}_o" for name in kept}
    lasts = [str(meaning.sample(last_of(each))) for each in count.terms] if count.whole else []
    parameters = {
        "Streams": len(count.terms),
        "TurnWidth": kept.get("turn", 1),
        "Turns": bit(count.order == "turns"),
        "Whole": bit(count.whole),
    }
    ports = {
        **CLOCKED,
        "fire_i": meaning.fire(module, count.name),
        "valid_i": concatenated(meaning.valid(each) for each in count.terms),
        "ready_i": concatenated(meaning.accepted(each) for each in count.terms),
        "last_i": concatenated(lasts) if lasts else f"{len(count.terms)}'d0",
        "turn_i": shown.get("turn", NEVER),
        "open_i": shown.get("open", NEVER),
    }
    return Check("count_action_choice", module.name, count.name, parameters, ports)
