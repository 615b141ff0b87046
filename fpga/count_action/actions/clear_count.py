"""`clear` of a count: it begins again at 0 (R5). It drives nothing; counts look at what clears them."""

from __future__ import annotations

from typing import Any

from fpga.count_action.actions.kind import Kind, Texts
from fpga.count_action.model import Action, ActionKind, Module


class ClearCount(Kind):
    """A count begins again."""

    kind = ActionKind.CLEAR_COUNT
    rules = ("clear",)

    def parse(self, rule: str, *parts: Any) -> dict[str, Any]:
        return {"cleared": parts[0], "words": {"wins": parts[1] is not None}}

    def write(self, texts: Texts, module: Module, action: Action) -> str:
        owner, name = action.clears or ("", "")
        return f"clear {name}" if owner == module.name else f"clear {owner}.{name}"

    def describe(self, action: Action, name: str) -> str:
        return f"{'.'.join(action.clears or ())} begins again (R5)"
