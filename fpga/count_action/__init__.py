"""The count-action language: write a datapath module once, simulate it, prove it, build it, drive it."""

from fpga.count_action.model import (
    Action,
    ActionKind,
    Condition,
    Count,
    CountKind,
    Datapath,
    Location,
    Module,
    Ref,
    Signal,
    SignalKind,
    Target,
    datapath_from_json,
)

__all__ = [
    "Action",
    "ActionKind",
    "Condition",
    "Count",
    "CountKind",
    "Datapath",
    "Location",
    "Module",
    "Ref",
    "Signal",
    "SignalKind",
    "Target",
    "datapath_from_json",
]
