"""What holds for every test: hypothesis profiles, and which tests need a machine that lets us build namespaces."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from functools import cache

import pytest
from hypothesis import HealthCheck, settings

# Whoever runs the suite in the background has Ctrl-C ignored, and every child of ours would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The machine is shared with a simulated lab: no deadline per example. The same examples on every run,
# so that a red build is red again; `make test-long` draws new ones, and many more.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile(
    "long", max_examples=2000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

KERNEL_TOOLS = ("ip", "tc", "sshd", "unshare")


@cache
def why_no_kernel_hosts() -> str:
    """Why hosts in network namespaces cannot be built here; empty when they can."""
    if os.geteuid() != 0:
        return "needs root: hosts live in network namespaces"
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    missing = [tool for tool in KERNEL_TOOLS if shutil.which(tool, path=path) is None]
    if missing:
        return f"needs {', '.join(missing)}: run `make install` as root"
    made = subprocess.run(["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, check=False)
    return "" if made.returncode == 0 else "this kernel or container refuses new namespaces"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not any(item.get_closest_marker("kernel") for item in items):
        return
    reason = why_no_kernel_hosts()
    for item in items:
        if reason and item.get_closest_marker("kernel"):
            item.add_marker(pytest.mark.skip(reason=reason))
