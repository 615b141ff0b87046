"""Kinds of changes of a lab: an apply, a repair, a rollback, a trial, or one of these that is resumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from testbed.operate.design import Design

Kind = Literal["apply", "repair", "rollback", "trial"]


@dataclass(frozen=True, slots=True)
class Change:
    """Kind of a change and why it is made.

    `again` and `epoch` name the operation and the epoch that are resumed. With a `detour` hosts are led around lost
    fibres before any circuit moves. `confirm` says after how many seconds, and to which epoch, it is taken back.
    """

    kind: Kind = "apply"
    why: str = ""
    again: str | None = None
    epoch: int | None = None
    detour: Design | None = None
    confirm: tuple[float, int] | None = None


APPLY = Change()
