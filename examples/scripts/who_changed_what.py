"""List the epochs of a lab, and the devices that each changed: who_changed_what.py LAB."""

import sys

from testbed import open_lab

with open_lab(sys.argv[1], start=True) as lab:
    for epoch in lab.epochs():
        devices = ", ".join(change.device for change in epoch.changes) or "no device"
        print(
            f"{epoch.id}: {epoch.at[:16]} {epoch.kind} by {epoch.who or 'unknown'} ({epoch.why}): {devices}"
        )
    for lease in lab.command("lease list").leases:
        print(f"lease {lease.id} of {lease.owner}, {lease.state}: {lease.reason}")
