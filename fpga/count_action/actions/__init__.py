"""Kinds of actions: one file each, or one for kinds that belong together, and the table of them.

| module | kinds |
|---|---|
| `kind` | what a kind says, and what it may ask of each back-end |
| `proof` | instances of checks, as kinds make them for proofs |
| `beat` | `stream`, `merge` |
| `emit` | `emit sum`, `emit max`, `emit min` |
| `flag` | `pulse`, `set`, `clear` of a flag |
| `number` | `advance`, `store` |
| `clear_count` | `clear` of a count |

A new kind is a file here, a line in `KINDS`, a member of `model.ActionKind`, and its verb in `grammar.lark`.
"""

from fpga.count_action.actions.beat import Beat
from fpga.count_action.actions.clear_count import ClearCount
from fpga.count_action.actions.emit import Emit
from fpga.count_action.actions.flag import ClearFlag, Pulse, SetFlag
from fpga.count_action.actions.kind import Kind
from fpga.count_action.actions.number import Advance, Store
from fpga.count_action.model import Action, ActionKind

KINDS: dict[ActionKind, Kind] = {
    each.kind: each
    for each in (Beat(), Emit(), Store(), Pulse(), SetFlag(), ClearFlag(), ClearCount(), Advance())
}
"""Every kind, by its name in the representation, in the order in which messages list their verbs."""
VERBS = {rule: kind for kind in KINDS.values() for rule in kind.rules}
"""Kinds by their rules of the grammar; of `clear`, which may be of a flag, that of counts."""


def collects(action: Action) -> bool:
    """Return whether an action looks at its samples in every cycle that counts them (R11)."""
    return KINDS[action.kind].collects


__all__ = ["KINDS", "VERBS", "Kind", "collects"]
