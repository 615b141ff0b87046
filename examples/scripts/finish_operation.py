"""Complete an unfinished operation, or roll it back if it cannot be proven: finish_operation.py LAB."""

import sys

from testbed import open_lab

with open_lab(sys.argv[1], start=True) as lab:
    unfinished = lab.plan().unfinished
    for each in unfinished:
        print(f"{each.operation}: {each.detail}")
    if not unfinished:
        print("nothing is unfinished")
    elif lab.resume().exit_code:
        print(f"not proven; back to epoch {lab.rollback().to_epoch}")
    else:
        print("complete and verified")
