"""Patch a topology without a host, and keep others from using it for an hour: drain_host.py LAB HOST."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from testbed import open_lab

LAB, HOST = sys.argv[1:3]

with TemporaryDirectory() as folder, open_lab(LAB, start=True) as lab:
    hosts = [host for host in lab.hosts if host != HOST]
    plan = Path(folder) / "plan.json"
    lab.optimise("vgg16", hosts_of=",".join(hosts), steps=0, out=plan)
    with lab.lease(reason=f"drain {HOST}", wait=60):
        print(f"{lab.apply(plan_file=plan, take_over=True).circuits} circuits without {HOST}")
    lease = lab.lease([f"host:{HOST}"], ttl="1h", reason="drained for repair")
    print(f"{HOST} is leased until it is repaired: testbed lease release {LAB} {lease.id}")
