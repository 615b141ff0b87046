"""Choice of the lab for one test: its own simulated lab, or part of a running one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed.lab.inventory import load_lab, parse_lab, render_lab
from testbed.lab.model import Lab, shard_of
from testbed.lab.simulated.lifecycle import HostsChoice, find_running, is_up, start_lab
from testbed.pytest_plugin.lab_of_test import LabOfTest
from testbed.pytest_plugin.needs import DEFAULT_DEGREE, DEFAULT_HOSTS, Needs
from testbed.pytest_plugin.options import LabOptions, skip

if TYPE_CHECKING:
    from testbed.pytest_plugin.served import LabOfService

SIMULATED_BOARD = "sim://kit"


def lab_for(item: pytest.Item, scratch: Path) -> AbstractContextManager[LabOfTest | LabOfService]:
    """Return the lab of a test as a context manager; `scratch` is a directory for its files.

    A test is skipped if the lab does not meet its needs, or is marked broken.
    """
    options = LabOptions.from_config(item.config)
    try:
        needs = Needs.from_item(item)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    if options.server:
        from testbed.pytest_plugin.served import lease_served_lab

        return lease_served_lab(needs, options, item.nodeid)
    if options.file is None:
        return _own_lab(_generate_lab(needs, scratch), needs, options.hosts, scratch)
    lab = load_lab(options.file)
    running = find_running(lab)
    if lab.simulated and not is_up(running):
        return _own_lab(lab, needs, options.hosts, scratch)
    from testbed.pytest_plugin.standing import standing_lab

    return standing_lab(running, needs, options, scratch, item.nodeid)


def _generate_lab(needs: Needs, scratch: Path) -> Lab:
    from testbed.pytest_plugin.small_lab import lab_text

    text = lab_text(needs.hosts or DEFAULT_HOSTS, needs.degree or DEFAULT_DEGREE)
    return parse_lab(text, scratch / "lab.yaml")


@contextmanager
def _own_lab(lab: Lab, needs: Needs, hosts: HostsChoice, scratch: Path) -> Iterator[LabOfTest]:
    """Start a simulated lab in the first free subnet, and stop it at the end of the block."""
    if needs.gpus:
        skip(lab, "it is simulated, and its hosts have no GPUs: name a real lab by --lab")
    names = [host.name for host in lab.hosts if len(host.nics) >= (needs.degree or 1)]
    wanted = needs.hosts or len(lab.hosts)
    if len(names) < wanted:
        skip(lab, f"it has {len(names)} hosts of {needs.degree or 1} NICs, and {wanted} are needed")
    with start_lab(lab, hosts=hosts, move=True) as started:
        file = scratch / "lab.yaml"
        file.write_text(render_lab(started.lab), encoding="utf-8")
        yield LabOfTest(
            lab=shard_of(started.lab, names[:wanted]) if wanted < len(lab.hosts) else started.lab,
            file=file,
            runs_dir=scratch / "runs",
            hosts=started.hosts,
            degree=needs.degree,
            board=SIMULATED_BOARD if needs.board else "",
            control=started.control,
        )
