"""Lease the lab, and let a colleague use the lease: reserve.py LAB USER [MINUTES]."""

import sys

from testbed import open_lab

LAB, USER, *rest = sys.argv[1:]
MINUTES = int(rest[0]) if rest else 60

with open_lab(LAB, start=True) as lab:
    lease = lab.lease(ttl=f"{MINUTES}m", wait=300, reason=f"for {USER}", allow=[USER])
    print(f"{lease.id}: {', '.join(lease.resources)} for {MINUTES} minutes")
    print(f"{USER} sets LIGHTBED_LEASE={lease.id}, and ends it with: testbed lease release {LAB} {lease.id}")
