"""For benchmarks to import: one thread for every library, and one core for all of them."""

from __future__ import annotations

import os
import sys

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def on_one_thread() -> None:
    """Stay on one core; start the program over where libraries have been given more threads."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if any(os.environ.get(name) != "1" for name in THREADS):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | dict.fromkeys(THREADS, "1"))
