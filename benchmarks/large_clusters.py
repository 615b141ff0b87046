"""Processor time of `testbed simulate` and `compare` for 1,024 and 4,096 servers, as users get it by default.

A JSON line each, `large_clusters`: seconds of user and system time of a command with its children, the limit, and
whether it holds. A command that needs twice its limit is stopped, and `stopped` says so. `loop_s` is the time of ten
million additions just before, to compare machines. Machine code is compiled before. `--only TEXT` selects the
commands that contain the text, `--fabrics` measures every workload of the catalogue on every fabric for 1,024
servers instead.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

from testbed.design.fabrics.fabric_list import FABRICS
from testbed.design.workloads.catalogue import MODELS

LIMITS_S = {1024: 20, 4096: 60}
COMMANDS = (
    "simulate gpt",
    "simulate vgg16",
    "simulate gpt --fabric rail-only",
    "simulate dlrm",
    "simulate moe",
    "compare gpt",
    "compare dlrm",
)


def commands(*, fabrics: bool) -> Iterator[tuple[str, int]]:
    """Yield command lines and their numbers of servers."""
    if fabrics:
        lines = [f"simulate {workload} --fabric {fabric}" for workload in MODELS for fabric in FABRICS]
        yield from ((line, 1024) for line in lines)
    else:
        yield from ((line, nodes) for line in COMMANDS for nodes in LIMITS_S)


def run(line: str, nodes: int, most_s: int) -> tuple[float, int]:
    """Return the processor seconds of a command, and its exit status; it is killed after `most_s` of them."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (most_s, most_s))

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [sys.executable, "-m", "testbed.cli", *line.split(), "--nodes", str(nodes)]
    done = subprocess.run(
        words, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=limit
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.returncode


def time_loop() -> float:
    """Return the processor seconds of ten million additions."""
    began, total = time.process_time(), 0
    for number in range(10**7):
        total += number
    return time.process_time() - began


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--fabrics", action="store_true")
    options = parser.parse_args()
    run("simulate vgg16", 4, 600)  # compiles what a first run compiles
    for line, nodes in commands(fabrics=options.fabrics):
        if options.only not in line:
            continue
        limit_s, loop_s = LIMITS_S[nodes], time_loop()
        seconds, status = run(line, nodes, 2 * limit_s)
        row = {"command": f"{line} --nodes {nodes}", "seconds": round(seconds, 1), "asked_seconds": limit_s}
        held = status == 0 and seconds <= limit_s
        more = {"held": held, "stopped": status < 0, "failed": status > 0, "loop_s": round(loop_s, 2)}
        print(json.dumps({"benchmark": "large_clusters", **row, **more}), flush=True)


if __name__ == "__main__":
    main()
