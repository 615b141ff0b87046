"""Table of all kinds of findings that `testbed verify` can report.

The module that makes a check also declares the kinds of findings that the check reports.

`docs/reference/findings.md` shows the same table; a test compares the two.
"""

from __future__ import annotations

from testbed.operate.drift import report as drift
from testbed.operate.light import EXCESS_LOSS, EXTRA_CIRCUIT, MISSING_CIRCUIT, NO_LIGHT
from testbed.operate.model import FindingKind
from testbed.operate.probe_findings import FOREIGN_FRAMES, NO_CARRIER, NOT_HEARD, SWAPPED_CABLES
from testbed.operate.proof import board_findings, host_findings, reach_findings
from testbed.operate.proof.effects import UNFINISHED
from testbed.operate.proof.judge import HOST_OFF, NOT_PROBED, SWITCH_OFF, UNDER_CHANGE
from testbed.operate.proof.receivers import DARK_CABLE, NO_MODULE_READINGS, POWER_OUT_OF_WINDOW

_DEVICE_KINDS = (SWITCH_OFF, HOST_OFF, NOT_PROBED, UNDER_CHANGE, UNFINISHED)
_CIRCUIT_KINDS = (MISSING_CIRCUIT, EXTRA_CIRCUIT)
_LIGHT_KINDS = (
    NO_LIGHT,
    EXCESS_LOSS,
    drift.SUDDEN_LOSS,
    drift.SLOW_LOSS,
    POWER_OUT_OF_WINDOW,
    NO_MODULE_READINGS,
    NO_CARRIER,
    DARK_CABLE,
)
_FIBRE_KINDS = (SWAPPED_CABLES, NOT_HEARD, FOREIGN_FRAMES)

FINDING_KINDS: dict[str, FindingKind] = {
    kind.name: kind
    for kinds in (
        _DEVICE_KINDS,
        _CIRCUIT_KINDS,
        _LIGHT_KINDS,
        _FIBRE_KINDS,
        host_findings.KINDS,
        board_findings.KINDS,
        reach_findings.KINDS,
    )
    for kind in kinds
}
"""Kinds of findings by name, in the order of the page."""
