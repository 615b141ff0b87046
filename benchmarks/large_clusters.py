"""Processor time of `testbed simulate` and `compare` for 1,024 and 4,096 servers, as users get it by default.

One JSON line, `large_clusters`: seconds of user and system time of each command, its children's included, with machine
code that is compiled already. A first run of each kind is not counted.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

LIMITS_S = {1024: 20.0, 4096: 60.0}
CASES = {
    "simulate gpt": ("simulate", "gpt"),
    "simulate vgg16": ("simulate", "vgg16"),
    "simulate gpt, rail-only": ("simulate", "gpt", "--fabric", "rail-only"),
    "simulate dlrm": ("simulate", "dlrm"),
    "compare gpt": ("compare", "gpt"),
    "compare dlrm": ("compare", "dlrm"),
}


def measure_seconds(*words: str) -> float:
    """Return the processor seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    program = Path(sys.executable).with_name("testbed")
    subprocess.run([program, *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the line."""
    rows = {}
    for name, words in CASES.items():
        measure_seconds(*words, "--nodes", "300")
        for nodes, limit_s in LIMITS_S.items():
            seconds = measure_seconds(*words, "--nodes", str(nodes))
            rows[f"{name}, {nodes}"] = {"seconds": round(seconds, 1), "held": seconds <= limit_s}
    print(json.dumps({"benchmark": "large_clusters", "limits_s": LIMITS_S, "rows": rows}))


if __name__ == "__main__":
    main()
