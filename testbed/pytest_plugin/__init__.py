"""A plugin of pytest: the fixture `testbed_lab` gives a test a lab of its own.

    @pytest.mark.testbed_hosts(4)
    def test_a_ring_carries_light(testbed_lab):
        assert testbed_lab.apply().verified.ok

Without an option it is a simulated lab, which ends with the test. With `--lab FILE` or `--lab-server URL` it is part
of a lab that stands, leased for the test and put back as it was. pytest loads this module in every session of an
environment that has the testbed, so it imports none of it; the fixture does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from testbed.pytest_plugin.lab_of_test import LabOfTest
    from testbed.pytest_plugin.served import LabOfService

MARKERS = {
    "testbed_hosts(count)": "the test needs a lab of so many hosts, or more where they cannot be told apart",
    "testbed_degree(count)": "every host has so many optical NICs",
    "testbed_gpu(count=1)": "every host has so many GPUs; skipped where it has not, as simulated hosts have none",
    "testbed_board(name)": "a board of inference: the simulated kit, or the board that --lab-board names",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the lab."""
    group = parser.getgroup("testbed", "the lab that the fixture testbed_lab gives to tests")
    group.addoption(
        "--lab", metavar="FILE", help="lab file; a lab that stands is leased, others are simulated"
    )
    group.addoption("--lab-server", metavar="URL", help="take the lab of a service: `testbed serve`")
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
        help="where leases and journal of a lab that stands are kept (default: $LIGHTBED_RUNS, or `runs`)",
    )
    group.addoption(
        "--lab-wait",
        metavar="SECONDS",
        type=float,
        default=600.0,
        help="how long a test waits for its lease (default: 600)",
    )
    group.addoption("--lab-really-move", metavar="NAME", help="name of the lab; needed to move a real one")
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
) -> Iterator[LabOfTest | LabOfService]:
    """Provide a lab for this test alone, a `LabOfTest`, or with --lab-server a `LabOfService`; it is put back after."""
    from testbed.pytest_plugin.provision import lab_for

    with lab_for(request.node, tmp_path_factory.mktemp("testbed")) as lab:
        yield lab
