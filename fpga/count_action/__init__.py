"""The count-action language: write a datapath module once, simulate it, prove it, build it, drive it."""

from fpga.count_action.checks.check import check, warnings_of
from fpga.count_action.diagnostics import CountActionError, Diagnostic
from fpga.count_action.load import Checked, load, parse_text
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
    "Checked",
    "Condition",
    "Count",
    "CountActionError",
    "CountKind",
    "Datapath",
    "Diagnostic",
    "Location",
    "Module",
    "Ref",
    "Signal",
    "SignalKind",
    "Target",
    "check",
    "datapath_from_json",
    "load",
    "parse_text",
    "warnings_of",
]
