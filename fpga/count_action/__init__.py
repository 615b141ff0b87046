"""The count-action language: one description of a datapath module to simulate, prove, build and drive.

| module | contents | imports from |
|---|---|---|
| `model`, `ports` | the representation of a datapath, and the ports of its top | |
| `diagnostics`, `graph` | errors with source locations; drivers and readers of signals | |
| `actions` | kinds of actions, one file each: syntax, checks, simulators, hardware and proof | |
| `language` | source text: the grammar, the syntax tree, `unparse` | `actions` |
| `verilog` | the SystemVerilog of a datapath | `actions` |
| `elaboration` | from syntax trees to the representation | `language` |
| `checks` | errors and warnings of a datapath | `language`, `verilog` |
| `load` | from a file or a text to a checked datapath | `checks`, `elaboration` |
| `simulate` | the reference simulator, the fast one, stimuli, waveforms | |
| `explanation` | facts about a datapath, and drawings of it | `language` |
"""

from fpga.count_action.checks.check import check, find_warnings
from fpga.count_action.diagnostics import CountActionError, Diagnostic
from fpga.count_action.json_form import datapath_from_json
from fpga.count_action.load import CheckedDatapath, load, parse_text
from fpga.count_action.model import (
    Action,
    ActionKind,
    Condition,
    Count,
    CountKind,
    Datapath,
    Location,
    Module,
    Operation,
    Ref,
    Signal,
    SignalKind,
    Target,
)

__all__ = [
    "Action",
    "ActionKind",
    "CheckedDatapath",
    "Condition",
    "Count",
    "CountActionError",
    "CountKind",
    "Datapath",
    "Diagnostic",
    "Location",
    "Module",
    "Operation",
    "Ref",
    "Signal",
    "SignalKind",
    "Target",
    "check",
    "datapath_from_json",
    "find_warnings",
    "load",
    "parse_text",
]
