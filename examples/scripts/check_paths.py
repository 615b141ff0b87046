"""Follow packets from the first host to all others, as planned and as the kernels route them: check_paths.py LAB."""

import sys
from collections import Counter

from testbed import open_lab

with open_lab(sys.argv[1], start=True) as lab:
    if not lab.epochs():
        lab.apply()
    lengths = Counter()
    source, *targets = lab.hosts
    for target in targets:
        way = lab.path(source, target)
        lengths[len(way.hops)] += 1
        if way.exit_code:
            print(f"{source} -> {target}: kernels and plan differ")
for hops, pairs in sorted(lengths.items()):
    print(f"{pairs} hosts over {hops} link(s)")
