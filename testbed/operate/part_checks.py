"""The last check of each part of a lab, for leases: hosts and NICs that failed their proof are not granted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from testbed.lab.model import Lab
from testbed.leases.model import parts_of, parts_of_lab
from testbed.operate.model import LinkFinding, VerifyReport

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.design.model import Wiring
    from testbed.operate.journal import Journal

FAULTY = frozenset({"host_off", "switch_off", "no_light", "no_carrier", "dark_cable", "missing_interface"})
"""Findings by which a part is at fault, and not what was applied to it."""
_NIC = re.compile(r"[^\s/]+/[^\s/]+")


def checks_of(lab: Lab, wiring: Wiring, findings: Iterable[LinkFinding]) -> dict[str, str]:
    """Return the hosts and NICs that a proof has looked at, each with what is at fault, empty for nothing."""
    hosts = {lab.hosts[nic.node].name for link in wiring.links for nic in link}
    looked_at = {
        part for name in hosts for part in parts_of(lab, [f"host:{name}"]) if not part.startswith("port:")
    }
    checks = dict.fromkeys(sorted(looked_at), "")
    known = parts_of_lab(lab)
    for finding in findings:
        if finding.kind not in FAULTY:
            continue
        named = [f"host:{finding.subject}", *(f"nic:{nic}" for nic in _NIC.findall(finding.subject))]
        if finding.kind == "switch_off":
            named = [part for part in known if part.startswith(f"port:{finding.subject}/")]
        checks |= {part: finding.kind for part in named if part in known}
    return checks


def note_checks(runs_dir: Path, lab: Lab, wiring: Wiring, report: VerifyReport) -> None:
    """Write what a look found of hosts and NICs, as `record_checks` does, beside what else is stored."""
    from testbed.operate.journal import journal_in

    with journal_in(runs_dir) as journal:
        record_checks(journal, lab, wiring, report)


def record_checks(journal: Journal, lab: Lab, wiring: Wiring, report: VerifyReport) -> None:
    """Write what a proof found of hosts and NICs. Raises `JournalError`."""
    from testbed.leases.fence import database_errors
    from testbed.leases.store import LeaseStore

    with database_errors(journal.database):
        LeaseStore(journal.database, lab.name).write_checks(checks_of(lab, wiring, report.findings))
