"""Computing times and memory in closed form, and measured times instead."""

from __future__ import annotations

import json

import numpy as np
import pytest

from testbed.design.workloads.iteration.task_graph import iteration
from testbed.design.workloads.model import Workload
from testbed.design.workloads.profile import check_profile, parse_profile, read_profile
from testbed.design.workloads.roofline import (
    A100,
    DEVICES,
    Cluster,
    check_memory,
    compute_memory_use,
    compute_operator_seconds,
)
from testbed.design.workloads.sharding import Sharding, Strategy, make_data_sharding, make_placed_sharding
from testbed.design.workloads.strategies import data_parallel
from testbed.errors import OutOfMemory, WorkloadError


def test_arithmetic_bounds_what_computes_much(make_operator):
    dense = make_operator("d", forward_flops=1e9, backward_flops=2e9, parameter_bytes=1000, moved_bytes=10.0)
    forward_s, backward_s = compute_operator_seconds(dense, 100, 1, Cluster(1))
    assert forward_s == pytest.approx(1e11 / (4 * 0.5 * 156e12) + 10e-6, rel=1e-12)
    assert backward_s == pytest.approx(2e11 / (4 * 0.5 * 156e12) + 10e-6, rel=1e-12)
    assert compute_operator_seconds(dense, 100, 4, Cluster(1))[0] == pytest.approx(
        25e9 / (4 * 0.5 * 156e12) + 10e-6, rel=1e-12
    )


def test_memory_bounds_what_moves_much_and_tables_are_not_read_whole(make_operator):
    sizes = {"forward_flops": 1.0, "parameter_bytes": 10**10, "moved_bytes": 10**6}
    dense, table = make_operator("d", **sizes), make_operator("t", kind="table", **sizes)
    bandwidth = 4 * 0.8 * 1.555e12
    assert compute_operator_seconds(dense, 100, 1, Cluster(1))[0] == pytest.approx(
        (1e10 + 1e8) / bandwidth + 10e-6
    )
    assert compute_operator_seconds(dense, 100, 1, Cluster(1))[1] == pytest.approx(
        2 * (1e10 + 1e8) / bandwidth + 10e-6
    )
    assert compute_operator_seconds(table, 100, 1, Cluster(1))[0] == pytest.approx(1e8 / bandwidth + 10e-6)


def test_no_samples_take_no_time(make_operator):
    assert compute_operator_seconds(make_operator("d", forward_flops=1e9), 0, 1, Cluster(1)) == (0.0, 0.0)


def test_devices_are_known_by_name():
    assert DEVICES["a100"] is A100
    assert {name: device.name.lower() for name, device in DEVICES.items()} == {name: name for name in DEVICES}


@pytest.mark.parametrize(("nodes", "devices"), [(0, 4), (-1, 4), (3, 0), (2.5, 4), (2, 1.5)])
def test_a_cluster_has_servers_and_devices(nodes, devices):
    with pytest.raises(WorkloadError, match="give integers of at least 1"):
        Cluster(nodes, devices_per_server=devices)


def test_memory_is_parameters_state_and_outputs_kept(make_operator):
    sizes = {"parameter_bytes": 1000, "state_bytes": 3000, "output_bytes": 10}
    operators = (
        *tuple(make_operator(f"d{i}", **sizes) for i in range(3)),
        make_operator("c", kind="cache", **sizes),
    )
    shardings = (
        make_data_sharding([0, 1]),
        Sharding("tensor", ((0, 1),)),
        make_placed_sharding([2]),
        Sharding("tensor", ((2, 3),)),
    )
    cluster, strategy = Cluster(4), Strategy(shardings)
    kept = np.array([4000 + 40 + 2000 + 80, 4000 + 40 + 2000 + 80, 4000 + 80 + 2000 + 40, 2000 + 40])
    assert compute_memory_use(Workload("w", operators, (), 8), strategy, cluster).tolist() == kept.tolist()
    served = compute_memory_use(Workload("w", operators, (), 8, training=False), strategy, cluster)
    assert served.tolist() == [6000, 6000, 6000 + 40, 2000 + 40]


def test_what_does_not_fit_is_named_with_its_server(make_operator):
    tables = tuple(
        make_operator(f"table{i}", parameter_bytes=40_000_000_000, state_bytes=i) for i in range(5)
    )
    workload = Workload("tables", tables, (), 8)
    spread = Strategy(tuple(make_placed_sharding([min(i, 3)]) for i in range(5)))
    check_memory(workload, spread, Cluster(4))
    with pytest.raises(OutOfMemory) as caught:
        check_memory(workload, data_parallel(workload, 4), Cluster(4))
    told = str(caught.value)
    assert told.startswith("tables: server 0 would hold 200.0 GB, but has 160.0 GB")
    assert "table4 40.0 GB, table3 40.0 GB, table2 40.0 GB" in told
    heap = Strategy(tuple(make_placed_sharding([2]) for _ in range(5)))
    with pytest.raises(OutOfMemory, match="server 2 would hold"):
        check_memory(workload, heap, Cluster(4))


MEASURED = {"samples": [10, 20, 40], "forward_s": [1.0, 2.0, 3.0], "backward_s": [2.0, 4.0, 8.0]}


@pytest.mark.parametrize(
    ("samples", "forward_s", "backward_s"),
    [(5, 1.0, 2.0), (10, 1.0, 2.0), (15, 1.5, 3.0), (30, 2.5, 6.0), (40, 3.0, 8.0), (80, 6.0, 16.0)],
)
def test_measured_times_replace_the_roofline(make_operator, samples, forward_s, backward_s):
    profile = parse_profile({"lightbed-profile": 1, "operators": {"d": MEASURED}})
    cluster = Cluster(1, profile=profile)
    assert compute_operator_seconds(make_operator("d"), samples, 1, cluster) == (forward_s, backward_s)
    assert compute_operator_seconds(make_operator("d"), samples, 4, cluster) == (
        forward_s / 4,
        backward_s / 4,
    )
    other = make_operator("other", forward_flops=1e12)
    assert compute_operator_seconds(other, samples, 1, cluster) == compute_operator_seconds(
        other, samples, 1, Cluster(1)
    )


def test_times_a_sample_are_in_proportion(make_operator):
    entry = {"forward_s_per_sample": 0.25, "backward_s_per_sample": 0.5}
    cluster = Cluster(1, profile=parse_profile({"lightbed-profile": 1, "operators": {"d": entry}}))
    assert compute_operator_seconds(make_operator("d"), 8, 1, cluster) == pytest.approx((2.0, 4.0), rel=1e-12)


def test_a_profile_that_names_other_operators_is_refused(make_operator):
    workload = Workload("w", (make_operator("top0", parameter_bytes=4), make_operator("top1")), ((0, 1),), 4)
    fitting, other, unlike = (
        Cluster(2, profile=parse_profile({"lightbed-profile": 1, "operators": {name: MEASURED}}))
        for name in ("top0", "top.0", "embedding")
    )
    assert iteration(workload, data_parallel(workload, 2), fitting).time_s.max() == 2.0
    with pytest.raises(WorkloadError, match=r"w has no operator 'top\.0'; did you mean 'top0'"):
        iteration(workload, data_parallel(workload, 2), other)
    with pytest.raises(WorkloadError, match="no operator 'embedding'; it has top0, top1"):
        check_profile(workload, unlike.profile)


@pytest.mark.parametrize("entry", [{"samples": [1], "forward_s": [1.0]}, {"forward_s_per_sample": 1.0}])
def test_training_needs_a_backward_pass(make_operator, entry):
    profile = parse_profile({"lightbed-profile": 1, "operators": {"layer": entry}})
    for training, frozen in ((True, 4), (False, 4), (True, 0)):
        operators = (make_operator("layer", parameter_bytes=frozen),)
        workload = Workload("w", operators, (), 4, training)
        if training and frozen:
            with pytest.raises(WorkloadError, match="layer has no backward pass, which training needs"):
                check_profile(workload, profile)
        else:
            graph = iteration(workload, data_parallel(workload, 1), Cluster(1, profile=profile))
            assert graph.time_s.tolist() == pytest.approx([4.0])


def test_a_profile_is_read_from_its_file(tmp_path):
    path = tmp_path / "times.json"
    path.write_text(json.dumps({"lightbed-profile": 1, "device": "A100", "operators": {"d": MEASURED}}))
    profile = read_profile(path)
    assert profile.device == "A100"
    assert profile.operators["d"].samples == (10.0, 20.0, 40.0)


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (None, "give an object"),
        ({}, "is not a finite number of 0 or more"),
        ({"forward_s_per_sample": -1}, "is not a finite number of 0 or more"),
        ({"forward_s_per_sample": float("nan")}, "is not a finite number of 0 or more"),
        (
            MEASURED | {"forward_s": [1.0, 2.0]},
            "times: top.0: samples, forward_s and backward_s must be lists of equal",
        ),
        (MEASURED | {"samples": [10, 10, 20]}, "must be above 0 and ascend"),
        (MEASURED | {"samples": [0, 10, 20]}, "must be above 0 and ascend"),
        (
            MEASURED | {"samples": []},
            "times: top.0: samples, forward_s and backward_s must be lists of equal",
        ),
        (
            MEASURED | {"backward_s": []},
            "times: top.0: samples, forward_s and backward_s must be lists of equal",
        ),
        (MEASURED | {"forward_s": [10**400, 1, 1]}, "is not a finite number of 0 or more"),
        (MEASURED | {"samples": "10"}, "samples: a list of numbers is missing"),
        (MEASURED | {"backward_s": [1.0, "fast", 2.0]}, "is not a finite number of 0 or more"),
        (MEASURED | {"backward_s": [1.0, True, 2.0]}, "is not a finite number of 0 or more"),
    ],
)
def test_damaged_entries_are_named(entry, told):
    with pytest.raises(WorkloadError, match=r"times: top\.0") as caught:
        parse_profile({"lightbed-profile": 1, "operators": {"top.0": entry}}, name="times")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [("{", "is not valid JSON"), ("[]", "not a profile of version 1"),
     ('{"lightbed-profile": 2}', "not a profile of version 1"),
     ('{"lightbed-profile": 1, "operators": []}', "must map operator names"), (b"\xff\xfe", "is not valid JSON")],
)  # fmt: skip
def test_damaged_files_are_named(tmp_path, text, told):
    path = tmp_path / "times.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(WorkloadError, match=r"times\.json") as caught:
        read_profile(path)
    assert told in str(caught.value)


def test_a_profile_that_is_not_there_is_named(tmp_path):
    with pytest.raises(WorkloadError, match="No such file or directory: give a readable file"):
        read_profile(tmp_path / "nowhere.json")
