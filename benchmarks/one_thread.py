"""Restriction of a benchmark to one core, and of each library to one thread."""

from __future__ import annotations

import os
import sys

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def on_one_thread() -> None:
    """Pin this process to one core, and restart the program unless all libraries are set to one thread.

    Libraries read these variables only when they are loaded.
    """
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if any(os.environ.get(name) != "1" for name in THREADS):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | dict.fromkeys(THREADS, "1"))
