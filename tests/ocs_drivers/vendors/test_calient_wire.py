"""The Calient drivers over real sockets, on a twin in a process of its own: the contract, and every fault once more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from needs import needs

from ocs_drivers import CrossConnects, OcsError, Status, open_switch
from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.errors import (
    DeviceError,
    PartialApply,
    PermissionDenied,
    PortBusy,
    PortDisabled,
    PortFailed,
    PortLocked,
    VerifyMismatch,
)
from ocs_drivers.testing import SwitchContract


@pytest.fixture
@needs("process", "socket")
def twin(shared_twin) -> Any:
    return shared_twin("calient", "--size=8x8", "--speed=20")


def opened(twin: Any, front: str, *, timeout_s: float = 5.0, activation_s: float = 10.0) -> Any:
    if front == "rest":
        pytest.importorskip("h11")
    url = f"{twin.urls[front]}?activation_s={activation_s}"
    return open_switch(url, timeout_s=timeout_s)


class OverFront(SwitchContract):
    """The contract, over one of the fronts."""

    front = ""

    @pytest.fixture
    def switch(self, twin: Any) -> Iterator[OpticalSwitch]:
        with opened(twin, self.front) as switch:
            yield switch


class TestTl1(OverFront):
    front = "tl1"


@pytest.mark.long
class TestInteractiveTl1(OverFront):
    front = "tl1-interactive"


class TestRest(OverFront):
    front = "rest"


del OverFront, SwitchContract

REAL = [
    ({"fault": "drop_command"}, (DeviceError, VerifyMismatch)),
    ({"fault": "skip_activate"}, DeviceError),
    ({"fault": "stuck", "pair": [1, 9]}, DeviceError),
    ({"fault": "fail_port", "port": 9}, PortFailed),
    ({"fault": "disable_port", "port": 9}, PortDisabled),
    ({"fault": "lock_port", "port": 9}, PortLocked),
    ({"fault": "close_connection", "after_commands": 1, "executed": False}, PartialApply),
    ({"fault": "close_connection", "after_bytes": 10}, (PartialApply, None)),
    ({"fault": "half_open"}, PartialApply),
    ({"fault": "delay_reply", "seconds": 2.0}, None),
    ({"fault": "oc_fail", "pair": [1, 9]}, None),
    ({"fault": "expire_session"}, None),
    ({"fault": "swap_fibres", "pair": [1, 2]}, None),
]
OF_ONE = [
    ("tl1", {"fault": "report_noise", "count": 2}, None),
    ("tl1-interactive", {"fault": "report_noise", "count": 2}, None),
    ("rest", {"fault": "fail_item", "item": 1}, DeviceError),
    ("rest", {"fault": "deny_writes"}, PermissionDenied),
    ("rest", {"fault": "close_connection", "after_commands": 1, "executed": True}, None),
]


def armed_once(twin: Any, **fault: Any) -> Callable[[], None]:
    armed: list[Any] = []
    return lambda: armed or armed.append(twin.do("set_fault", **fault))


@pytest.mark.long
@pytest.mark.parametrize(
    ("front", "fault", "errors"),
    [(front, *row) for front in ("tl1", "tl1-interactive", "rest") for row in REAL] + OF_ONE,
    ids=lambda value: str(value)[:70],
)
def test_faults_over_a_socket(twin, front, fault, errors):
    wanted = errors if isinstance(errors, tuple) else (errors,)
    with opened(twin, front, timeout_s=0.5, activation_s=0.2) as switch:
        before = twin.do("truth")["fired"].get(fault["fault"], 0)
        try:
            report = switch.apply(CrossConnects({1: 9}), guard=armed_once(twin, **fault))
        except OcsError as raised:
            assert any(error and isinstance(raised, error) for error in wanted), raised  # noqa: PT017
            report = raised.report
        else:
            assert None in wanted
        truth = twin.do("truth")
        assert truth["fired"][fault["fault"]] > before
        for pair, status in report.pairs.items():
            assert status is Status.UNKNOWN or (status is Status.DONE) == (list(pair) in truth["connections"])
        twin.do("clear_fault", fault="all")
        assert switch.apply(CrossConnects({1: 10})).complete
    assert twin.truth() == {1: 10}


@pytest.mark.parametrize("front", ["tl1", "tl1-interactive"])
def test_pages_over_a_socket(twin, front):
    twin.do("set_fault", fault="page_rows", count=3)
    with opened(twin, front) as switch:
        assert len(switch.ports()) == 16
        assert switch.apply(CrossConnects({n: 8 + n for n in range(1, 9)})).complete
    assert twin.do("truth")["fired"]["page_rows"] >= 3


@pytest.mark.parametrize("front", ["tl1", "rest"])
def test_a_port_taken_meanwhile_over_a_socket(twin, front):
    with opened(twin, front) as switch:
        (step,) = switch.plan(CrossConnects({1: 9}), switch.read(), {1})
        outcome = switch.execute(step, lambda: twin.do("operator", connect=[[2, 9]]))
    assert isinstance(outcome.error, PortBusy)
    assert outcome.error.peer == 2


@pytest.mark.parametrize("front", ["tl1", "rest"])
def test_a_power_cycle_over_a_socket(twin, front):
    with opened(twin, front) as switch:
        switch.connect({1: 9})
        twin.do("power_cycle")
        assert switch.read().connections == CrossConnects()
