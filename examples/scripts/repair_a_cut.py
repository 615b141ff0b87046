"""Find lost fibres, show the repair, and apply it: repair_a_cut.py LAB."""

import sys

from testbed import open_lab

with open_lab(sys.argv[1], start=True) as lab:
    if not lab.epochs():
        lab.apply()
    planned = lab.repair()
    for loss in planned.lost:
        print(f"lost: the {loss.fibre} fibre of {loss.nic}, for {loss.link}")
    for detour in planned.detours or ():
        print(f"at once: {detour.link} over {', '.join(detour.path)}")
    if planned.lost and not planned.repair_record:
        with lab.lease(reason="repair of a cut"):
            done = lab.repair(apply=True).repaired
        print(f"repaired, verified: {done.verified.ok}")
    else:
        print("nothing to repair")
