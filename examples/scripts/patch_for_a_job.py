"""Find a plan for a workload, patch it under a lease, and prove it: patch_for_a_job.py LAB WORKLOAD."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from testbed import open_lab

LAB, WORKLOAD = sys.argv[1:3]

with TemporaryDirectory() as folder, open_lab(LAB, start=True) as lab:
    plan = Path(folder) / "plan.json"
    found = lab.optimise(WORKLOAD, steps=0, out=plan)
    print(f"{WORKLOAD}: {found.predicted.iteration_ms:.1f} ms an iteration predicted")
    with lab.lease(reason=f"job {WORKLOAD}", wait=60):
        applied = lab.apply(plan_file=plan)
        print(f"{applied.circuits} circuits, epoch {applied.epoch}, verified: {applied.verified}")
        proof = lab.verify()
        print(f"{proof.pairs_reached} of {proof.pairs} pairs reached, {len(proof.findings)} findings")
sys.exit(proof.exit_code)
