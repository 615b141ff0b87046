"""Choice of the lab for one test: its own simulated lab, or part of a running one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from testbed.lab.inventory import load_lab, parse_lab, render_lab
from testbed.lab.model import Lab
from testbed.lab.simulated.lifecycle import find_running_lab, is_up, start_lab
from testbed.leases.heartbeat import TTL_S
from testbed.pytest_plugin.lab_of_test import LabOfTest
from testbed.pytest_plugin.needs import DEFAULT_DEGREE, DEFAULT_HOSTS, LabNeeds
from testbed.pytest_plugin.options import LabOptions, skip
from testbed.scripting.backends import LocalBackend

SIMULATED_BOARD_URL = "sim://kit"


def provide_lab(item: pytest.Item, scratch_dir: Path) -> AbstractContextManager[LabOfTest]:
    """Return the lab of a test as a context manager; `scratch_dir` is a directory for its files.

    Skip the test if the lab does not meet its needs or is marked broken.
    """
    options = LabOptions.from_config(item.config)
    try:
        needs = LabNeeds.from_item(item)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    if options.server:
        from testbed.pytest_plugin.served import lease_served_lab

        return lease_served_lab(needs, options, item.nodeid)
    if options.file is None:
        return _start_own_lab(_generate_lab(needs, scratch_dir), needs, options, scratch_dir, item.nodeid)
    lab = load_lab(options.file)
    running_lab = find_running_lab(lab)
    if lab.simulated and not is_up(running_lab):
        return _start_own_lab(lab, needs, options, scratch_dir, item.nodeid)
    from testbed.pytest_plugin.standing import lease_running_lab

    return lease_running_lab(running_lab, options.file, needs, options, item.nodeid)


def _generate_lab(needs: LabNeeds, scratch_dir: Path) -> Lab:
    from testbed.pytest_plugin.small_lab import render_lab_text

    text = render_lab_text(needs.host_count or DEFAULT_HOSTS, needs.degree or DEFAULT_DEGREE)
    return parse_lab(text, scratch_dir / "lab.yaml")


@contextmanager
def _start_own_lab(
    lab: Lab, needs: LabNeeds, options: LabOptions, scratch_dir: Path, test_name: str
) -> Iterator[LabOfTest]:
    """Start a simulated lab in the first free subnet, lease it, and stop it at the end of the block."""
    if needs.gpu_count_per_host:
        skip(lab, "it is simulated, and its hosts have no GPUs: name a real lab by --lab")
    suitable_host_names = [host.name for host in lab.hosts if len(host.nics) >= (needs.degree or 1)]
    host_count = needs.host_count or len(lab.hosts)
    if len(suitable_host_names) < host_count:
        skip(
            lab,
            f"it has {len(suitable_host_names)} hosts of {needs.degree or 1} NICs, and {host_count} are needed",
        )
    with start_lab(lab, hosts=options.hosts_choice, may_move=True) as simulated_lab:
        lab_file = scratch_dir / "lab.yaml"
        lab_file.write_text(render_lab(simulated_lab.lab), encoding="utf-8")
        host_names = suitable_host_names[:host_count] if host_count < len(lab.hosts) else []
        lab_of_test = LabOfTest(
            LocalBackend(lab_file, scratch_dir / "runs"),
            simulated_lab.hosts_mode,
            hosts_of=host_names,
            board=SIMULATED_BOARD_URL if needs.needs_board else "",
            control_by_twin=simulated_lab.control_addresses,
        )
        # Nobody else uses the lab, but under a lease a program gets the existing circuits.
        resources = [f"host:{host}" for host in host_names]
        with lab_of_test.lease(resources, ttl=f"{TTL_S:g}s", reason=f"pytest: {test_name}"):
            yield lab_of_test
