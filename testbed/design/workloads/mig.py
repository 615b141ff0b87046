"""Devices by name, and instances of devices. A server can be several logical servers, each with an instance per device.

NVIDIA's Multi-Instance GPU (MIG) cuts an A100 into equal instances that share nothing. The device has 7 slices of
arithmetic and 8 of memory, so some numbers of instances leave slices unused (NVIDIA, Multi-Instance GPU user guide,
profiles of the A100-SXM4-40GB):

| instances | profile | arithmetic | memory and its bandwidth |
|---|---|---|---|
| 2 | 3g.20gb | 3/7 | 1/2 |
| 3 | 2g.10gb | 2/7 | 1/4 |
| 4 | 1g.10gb | 1/7 | 1/4 |
| 5 to 7 | 1g.5gb | 1/7 | 1/8 |

Instances of different devices cannot use NVLink. The devices of a logical server exchange data over its share of PCIe.
"""

from __future__ import annotations

from dataclasses import replace

from testbed.design.workloads.roofline import DEVICES, Device
from testbed.errors import WorkloadError

MAX_INSTANCES = 7
PCIE_BYTES_PER_S = 31.5e9
"""Rate of a device's PCIe link, each way: 16 lanes of the fourth generation."""
_ARITHMETIC_SLICES, _MEMORY_SLICES = 7, 8


def name_instance(device: str, instances: int) -> str:
    """Return the name of an instance of a device that is cut into `instances`.

    >>> name_instance("a100", 2), name_instance("a100", 1)
    ('a100/2', 'a100')
    """
    return f"{device}/{instances}" if instances > 1 else device


def count_instances(name: str) -> int:
    """Return the number of instances in a device's name. Raises `WorkloadError` for an invalid number.

    >>> count_instances("a100-80gb/7"), count_instances("a100")
    (7, 1)
    """
    _, slash, text = name.partition("/")
    if not slash:
        return 1
    if not (text.isascii() and text.isdecimal() and 2 <= int(text) <= MAX_INSTANCES):
        raise WorkloadError(f"device {name!r}: a device has 2 to {MAX_INSTANCES} instances, as in a100/2")
    return int(text)


def find_device(name: str) -> Device:
    """Return a device or an instance of a device. Raises `WorkloadError` for an unknown name.

    One of two instances has three sevenths of 156 TFLOP/s:

    >>> round(find_device("a100/2").peak_flops / 1e12, 2), find_device("a100/2").memory_bytes
    (66.86, 20000000000)
    """
    device_name, instances = name.partition("/")[0], count_instances(name)
    if device_name not in DEVICES:
        raise WorkloadError(f"unknown device {name!r}; known: {', '.join(DEVICES)}")
    device = DEVICES[device_name]
    if instances == 1:
        return device
    arithmetic_share, memory_share = (
        _ARITHMETIC_SLICES // instances / _ARITHMETIC_SLICES,
        _MEMORY_SLICES // instances / _MEMORY_SLICES,
    )
    return replace(
        device,
        name=name_instance(device.name, instances),
        peak_flops=device.peak_flops * arithmetic_share,
        memory_bytes_per_s=device.memory_bytes_per_s * memory_share,
        memory_bytes=int(device.memory_bytes * memory_share),
    )


def divide_servers(
    nodes: int, degree: int, instances: int, *, may_share: bool = False
) -> tuple[int, int, float]:
    """Return the number of logical servers, their links, and the fraction of a link's rate that each gets.

    With `may_share`, logical servers can share a link; this needs a switch. Raises `WorkloadError` if the links cannot
    be divided.

    >>> divide_servers(12, 4, 2), divide_servers(12, 1, 2, may_share=True)
    ((24, 2, 1.0), (24, 1, 0.5))
    """
    if degree % instances == 0:
        return nodes * instances, degree // instances, 1.0
    if may_share:
        return nodes * instances, degree, 1 / instances
    raise WorkloadError(
        f"{degree} links of a server cannot be divided among {instances} logical servers: give a "
        f"--degree divisible by {instances}"
    )
