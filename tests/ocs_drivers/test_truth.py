"""For any sequence of applies and faults: the switch holds the target, or the report tells the truth.

Against the twin, whose control socket tells what is really connected.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ocs_drivers import CrossConnects, Status, open_switch
from ocs_drivers.errors import DeviceError, PartialApply, PortError, VerifyMismatch

SIZE = 8

configurations = st.permutations(range(SIZE + 1, 2 * SIZE + 1)).flatmap(
    lambda outputs: st.sets(st.integers(1, SIZE)).map(
        lambda inputs: CrossConnects({source: outputs[source - 1] for source in inputs})
    )
)
FAULTS = [
    None,
    None,
    {"fault": "drop_command"},
    {"fault": "garbage"},
    {"fault": "close_connection", "after_commands": 1},
    {"fault": "close_connection", "after_commands": 1, "executed": False},
    {"fault": "close_connection", "after_bytes": 3},
    {"fault": "fail_port", "port": 3},
    {"fault": "disable_port", "port": SIZE + 4},
    {"fault": "stuck", "pair": [1, SIZE + 2]},
]
applies = st.lists(st.tuples(configurations, st.sampled_from(FAULTS)), min_size=1, max_size=4)


@pytest.mark.parametrize("language", ["scpi", "tl1"])
def test_the_target_is_held_or_the_report_tells_the_truth(twin, language):
    if language == "scpi":
        pytest.importorskip("pyvisa_py")
    met = {"done": 0, "failed": 0}

    def apply_with_fault(switch, target, fault) -> None:
        armed = []

        def arm() -> None:  # once a write is about to go out, so that reads before it are not what fails
            if fault and not armed:
                armed.append(twin.do("set_fault", **fault))

        before = twin.truth()
        try:
            report = switch.apply(target, guard=arm)
        except (DeviceError, PartialApply, PortError, VerifyMismatch) as error:
            met["failed"] += 1
            report = error.report
        else:
            met["done"] += 1
            assert twin.truth() == dict(target)
        truth = set(twin.truth().items())
        for pair, status in report.pairs.items():
            as_wanted = (pair in truth) == (pair in target.pairs)
            assert status is Status.UNKNOWN or (status is Status.DONE) == as_wanted
        assert truth ^ set(before.items()) <= set(report.pairs)

    with open_switch(getattr(twin, language)) as switch:

        @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
        @given(applies)
        def check(sequence):
            for target, fault in sequence:
                apply_with_fault(switch, target, fault)
                twin.do("clear_fault", fault="all")

        check()
    assert met["done"] >= 20
    assert met["failed"] >= 20
