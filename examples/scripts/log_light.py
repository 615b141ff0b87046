"""Append the loss of every fibre to a CSV file; exit code 2 if light is lost: log_light.py LAB CSV."""

import csv
import sys
from pathlib import Path

from testbed import open_lab

with open_lab(sys.argv[1], start=True) as lab:
    if not lab.epochs():
        lab.apply()
    light = lab.light()
with Path(sys.argv[2]).open("a", newline="") as file:
    rows = csv.writer(file)
    for fibre in light.series:
        rows.writerow([light.taken, fibre.place, fibre.link, fibre.loss_db, fibre.power_dbm, fibre.verdict])
print(f"{len(light.series)} readings; {len(light.findings)} findings")
for finding in light.findings:
    print(f"{finding.kind}: {finding.subject}: {finding.detail}")
sys.exit(light.exit_code)
