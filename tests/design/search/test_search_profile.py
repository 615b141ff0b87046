"""Measured times of another workload are refused before a search begins."""

from __future__ import annotations

import pytest

from testbed.design.search.problem import Problem
from testbed.design.workloads.catalogue import workload
from testbed.design.workloads.profile import parse_profile
from testbed.design.workloads.roofline import Cluster
from testbed.errors import WorkloadError


def test_a_profile_of_another_workload_is_refused():
    times = {"samples": [1], "forward_s": [1.0], "backward_s": [1.0]}
    profile = parse_profile({"lightbed-profile": 1, "operators": {"top.0": times}})
    with pytest.raises(WorkloadError, match=r"dlrm has no operator 'top\.0'; did you mean 'top0'"):
        Problem(workload("dlrm", 4), Cluster(4, profile=profile), 2, 100.0)
