"""Instances of devices: NVIDIA's profiles of an A100-SXM4-40GB, and names that mean none."""

from __future__ import annotations

import pytest

from testbed.design.workloads.choice import WorkloadChoice
from testbed.design.workloads.mig import divide_servers, find_device
from testbed.design.workloads.roofline import A100
from testbed.errors import WorkloadError

# NVIDIA's user guide, "A100 MIG Profiles": fractions of SMs and of memory of 3g.20gb, 2g.10gb, 1g.10gb, 1g.5gb.
PROFILES = {2: (3 / 7, 4 / 8), 3: (2 / 7, 2 / 8), 4: (1 / 7, 2 / 8), 5: (1 / 7, 1 / 8), 7: (1 / 7, 1 / 8)}


@pytest.mark.parametrize("instances", PROFILES)
def test_an_instance_has_what_its_profile_has(instances):
    arithmetic, memory = PROFILES[instances]
    device = find_device(f"a100/{instances}")

    assert device.peak_flops == pytest.approx(A100.peak_flops * arithmetic)
    assert device.memory_bytes == A100.memory_bytes * memory
    assert device.memory_bytes_per_s == pytest.approx(A100.memory_bytes_per_s * memory)
    assert device.overhead_s == A100.overhead_s
    assert instances * arithmetic <= 1
    assert instances * memory <= 1


def test_a_whole_device_is_the_device():
    assert find_device("a100") is A100


@pytest.mark.parametrize("name", ["a100/1", "a100/8", "a100/", "a100/x", "a100/-2", "a100/2/2", "a100/²"])
def test_what_is_no_instance_is_refused(name):
    with pytest.raises(WorkloadError, match="a device has 2 to 7 instances"):
        find_device(name)


def test_an_unknown_device_is_refused_by_its_name():
    with pytest.raises(WorkloadError, match="unknown device 'b200/2'; known"):
        find_device("b200/2")


def test_instances_of_different_devices_meet_on_pcie():
    """Of 31.5 GB/s a device has, each of two logical servers gets half."""
    whole, half = (WorkloadChoice("vgg16", device=name).make_cluster(4) for name in ("a100", "a100/2"))
    assert whole.local_bytes_per_s == 300e9
    assert half.local_bytes_per_s == 15.75e9


def test_links_are_dealt_out_or_shared():
    assert divide_servers(6, 4, 4) == (24, 1, 1.0)
    assert divide_servers(6, 1, 4, may_share=True) == (24, 1, 0.25)
    with pytest.raises(
        WorkloadError, match="4 links of a server cannot be divided among 3 logical servers: give a"
    ):
        divide_servers(6, 4, 3)
