"""A pytest plugin: the fixture `testbed_lab` gives each test its own lab.

    @pytest.mark.testbed_hosts(4)
    def test_a_ring_carries_light(testbed_lab):
        assert testbed_lab.apply().verified

Without options the lab is simulated and ends with the test. With `--lab FILE` or `--lab-server URL` it is part of a
running lab, leased for the test and restored after it. pytest loads this module in every environment that contains
lightbed, so only the fixture imports the testbed, to keep pytest fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from testbed.pytest_plugin.lab_of_test import LabOfTest

MARKERS = {
    "testbed_hosts(count)": "the test needs a lab with at least this number of hosts",
    "testbed_degree(count)": "every host needs this number of optical NICs",
    "testbed_gpu(count=1)": "every host needs this number of GPUs; skipped otherwise, also on simulated hosts",
    "testbed_board(name)": "the test needs an inference board: the simulated kit, or the board of --lab-board",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the lab."""
    group = parser.getgroup("testbed", "the lab that the fixture testbed_lab gives to tests")
    group.addoption(
        "--lab", metavar="FILE", help="lab file; a real or running lab is leased, others are started"
    )
    group.addoption("--lab-server", metavar="URL", help="use a lab of a service (`testbed serve`)")
    group.addoption(
        "--lab-name", metavar="NAME", help="which lab of the service; not needed where it has only one"
    )
    group.addoption(
        "--lab-hosts",
        choices=("auto", "kernel", "model"),
        default="auto",
        help="simulated hosts: kernel namespaces (needs root), or only a model of them",
    )
    group.addoption(
        "--lab-runs-dir",
        metavar="DIR",
        help="folder with leases and journal of a running lab (default: $LIGHTBED_RUNS, or `runs`)",
    )
    group.addoption(
        "--lab-wait",
        metavar="SECONDS",
        type=float,
        default=600.0,
        help="how long a test waits for its lease (default: 600)",
    )
    group.addoption(
        "--lab-really-move", metavar="NAME", help="name of the lab; required to change a real one"
    )
    group.addoption(
        "--lab-board", metavar="NAME=ADDRESS", help="the board for testbed_board; leased by its name"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers."""
    for marker, text in MARKERS.items():
        config.addinivalue_line("markers", f"{marker}: {text}")


@pytest.fixture
def testbed_lab(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LabOfTest]:
    """Yield a lab that is leased for one test; restore it afterwards."""
    from testbed.pytest_plugin.provision import provide_lab

    with provide_lab(request.node, tmp_path_factory.mktemp("testbed")) as lab:
        yield lab
