"""Kinds of actions, one file for each group of related kinds, and the table of all kinds.

| module | kinds |
|---|---|
| `kind` | the interface of a kind, and the methods of each backend that a kind may call |
| `proof` | instances of checks for proofs |
| `beat` | `stream`, `merge` |
| `emit` | `emit sum`, `emit max`, `emit min` |
| `flag` | `pulse`, `set`, `clear` of a flag |
| `number` | `advance`, `store` |
| `memory` | `memory`, `store ... in`, `read` |
| `clear_count` | `clear` of a count |

To add a kind, add a file here, a line in `KINDS`, a member of `model.ActionKind`, and its verb in `grammar.lark`.
"""

from fpga.count_action.actions.beat import Beat
from fpga.count_action.actions.clear_count import ClearCount
from fpga.count_action.actions.emit import Emit
from fpga.count_action.actions.flag import ClearFlag, Pulse, SetFlag
from fpga.count_action.actions.kind import Kind
from fpga.count_action.actions.memory import Memory, Read, StoreWord
from fpga.count_action.actions.number import Advance, Store
from fpga.count_action.model import Action, ActionKind

_KINDS: tuple[Kind, ...] = (
    Beat(), Emit(), Store(), Pulse(), SetFlag(), ClearFlag(), ClearCount(), Advance(), StoreWord(), Read(), Memory()
)  # fmt: skip
KINDS: dict[ActionKind, Kind] = {kind.kind: kind for kind in _KINDS}
"""Every kind, in the order in which messages list the verbs."""
VERBS = {rule: kind for kind in KINDS.values() for rule in kind.rules}
"""Kinds by grammar rule. The rule `clear` maps to the kind that clears a count; for a flag, elaboration replaces that
kind."""


def samples_every_cycle(action: Action) -> bool:
    """Return whether an action reads its samples in every cycle in which they are counted, not only on a fire (R11)."""
    return KINDS[action.kind].samples_every_cycle


__all__ = ["KINDS", "VERBS", "Kind", "samples_every_cycle"]
