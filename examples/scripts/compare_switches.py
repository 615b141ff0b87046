"""Print the mean and the worst excess loss of each switch: compare_switches.py LAB."""

import sys
from collections import defaultdict

from testbed import open_lab

with open_lab(sys.argv[1], start=True) as lab:
    if not lab.epochs():
        lab.apply()
    excess = defaultdict(list)
    for fibre in lab.light().series:
        switch, colon, _ = fibre.place.partition(":")
        if colon:  # the others are fibres between a host and a switch
            excess[switch].append(fibre.excess_db)
for switch, values in sorted(excess.items()):
    mean_db = sum(values) / len(values)
    print(f"{switch}: {len(values)} circuits, mean {mean_db:.2f} dB, worst {max(values):.2f} dB")
