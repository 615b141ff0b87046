"""`clear` of a count: it begins again at 0 (R5). It drives nothing; counts look at what clears them."""

from __future__ import annotations

from typing import Any

from fpga.count_action.actions.kind import Kind, Texts
from fpga.count_action.diagnostics import Diagnostics, did_you_mean, note, quoted
from fpga.count_action.model import Action, ActionKind, Datapath, Module


class ClearCount(Kind):
    """A count begins again."""

    kind = ActionKind.CLEAR_COUNT
    noun = "clear"
    rules = ("clear",)

    def parse(self, rule: str, *parts: Any) -> dict[str, Any]:
        return {"cleared": parts[0], "wins": parts[1] is not None}

    def write(self, texts: Texts, module: Module, action: Action) -> str:
        owner, name = action.clears or ("", "")
        return f"clear {name}" if owner == module.name else f"clear {owner}.{name}"

    def find_problems(self, datapath: Datapath, action: Action) -> Diagnostics:
        owner, name = action.clears or ("", "")
        if all((owner, name) != (module.name, count.name) for module, count in datapath.counts()):
            known = [f"{each.name}.{count.name}" for each, count in datapath.counts()]
            message = f"there is no count {quoted(f'{owner}.{name}')} to clear"
            yield note(action.at, message, did_you_mean(name, known))

    def describe(self, action: Action, name: str) -> str:
        return f"{'.'.join(action.clears or ())} begins again (R5)"
