"""`clear` of a count: the count restarts at 0 (R5). It drives no output: the count reads the actions of this kind."""

from __future__ import annotations

from typing import Any

from fpga.count_action.actions.kind import Kind, TextWriter
from fpga.count_action.model import Action, ActionKind, Module


class ClearCount(Kind):
    """An action that restarts a count at 0."""

    kind = ActionKind.CLEAR_COUNT
    rules = ("clear",)

    def parse(self, rule: str, *parts: Any) -> dict[str, Any]:
        return {"cleared": parts[0], "words": {"wins": parts[1] is not None}}

    def write(self, text_writer: TextWriter, module: Module, action: Action) -> str:
        owner, name = action.clears or ("", "")
        return f"clear {name}" if owner == module.name else f"clear {owner}.{name}"

    def describe(self, action: Action, name: str) -> str:
        return f"{'.'.join(action.clears or ())} restarts at 0 (R5)"
