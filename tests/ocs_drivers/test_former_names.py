"""Paths and names of the release before, which the docs showed: they work, with a warning."""

from __future__ import annotations

import importlib
import sys
import threading

import pytest

from ocs_drivers import Capabilities, CrossConnects, Identity, Snapshot
from ocs_drivers.engine import planning
from ocs_drivers.engine.driver import SwitchDriver


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("driver", "engine.driver"),
        ("lines", "transports.lines"),
        ("recording", "transports.recording"),
        ("tl1_session", "protocols.tl1_session"),
        ("transport", "transports.transport"),
        ("polatis", "vendors.polatis"),
    ],
)
def test_former_paths_name_the_same_modules(monkeypatch, former, now):
    monkeypatch.delitem(sys.modules, f"ocs_drivers.{former}", raising=False)
    with pytest.warns(DeprecationWarning, match=f"ocs_drivers.{former} is now ocs_drivers.{now}"):
        module = importlib.import_module(f"ocs_drivers.{former}")
    assert module is importlib.import_module(f"ocs_drivers.{now}")


class FormerSession:
    """A session of a third party, as the page of the release before had it."""

    event_count = connections = 0
    in_use = True

    def __init__(self) -> None:
        self.dropped = 0

    def open(self) -> None: ...

    def close(self) -> None: ...

    def ready(self) -> None: ...

    def turn(self):
        return threading.RLock()

    def hang_up(self) -> None:
        self.dropped += 1


class FormerDriver(SwitchDriver):
    def _discover(self):
        return Identity("", "", "", ""), Capabilities(1, 1)

    def _read(self):
        return Snapshot(CrossConnects(), 0.0)

    def _perform(self, step, guard): ...

    def ports(self):
        return planning.plain_ports(self.capabilities)


def test_a_session_with_the_former_names_drives():
    session = FormerSession()
    with pytest.warns(
        DeprecationWarning, match=r"FormerSession\.(turn is now lock|hang_up is now disconnect)"
    ):
        driver = FormerDriver("former://h", session, timeout_s=1.0)
    assert driver.read().connections == CrossConnects()
    driver._session.disconnect()
    assert session.dropped == 1
