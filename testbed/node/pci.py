"""Print where the NICs and the NVIDIA GPUs of this machine are on its PCI buses, as one line of JSON.

    python3 pci.py nic1 nic2

`{"arch", "processor": {"vendor", "family", "model"} or null, "affinity": {NUMA node: mask},
"nics": {NIC: {"index", "path": [...]}}, "gpus": [[...], ...]}`. A path lists the bridges above a device, outermost
first, and then the device. It skips every second level of the tree, because a PCI switch is two bridges in a row.
The path of a NIC without a PCI device is empty. A NIC that does not exist is left out. `index` is the kernel's number
of the interface. GPUs are in the order of their addresses, as in the driver.
Standard library only: this file is copied to the hosts. Needs Linux.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from pathlib import Path
from typing import Any

ADDRESS_PATTERN = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
NVIDIA_VENDOR = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")
TEXT_FILES = ("class", "vendor", "device", "subsystem_vendor", "subsystem_device")
NAME_BY_PROCESSOR_KEY = {"vendor": "vendor_id", "family": "cpu family", "model": "model"}


def read_text(path: Path) -> str:
    """Return the text of a file without blanks around it, or '' if it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _parse_rate(text: str) -> float:
    """Return a link speed in GT/s, or infinity for a text without a number."""
    number_match = re.match(r"[0-9.]+", text)
    return float(number_match[0]) if number_match else float("inf")


def describe_device(device: Path) -> dict[str, Any]:
    """Return the document of a PCI device. Speed and width are the smaller of the device's and its port's."""
    speed_texts = [read_text(folder / "max_link_speed") for folder in (device, device.parent)]
    width_texts = [read_text(folder / "max_link_width") for folder in (device, device.parent)]
    valid_widths = [int(width) for width in width_texts if width.isdigit() and 0 < int(width) < 255]
    return {
        "address": device.name,
        "numa": read_text(device / "numa_node") or "-1",
        **{key: read_text(device / key) for key in TEXT_FILES},
        "link_speed": min(speed_texts, key=_parse_rate),
        "link_width": min(valid_widths, default=0),
    }


def read_path(device: Path) -> list[dict[str, Any]]:
    """Return the bridges above a PCI device and then the device, or [] for a device that is not on a PCI bus."""
    path = device.resolve()
    device_paths = []
    while ADDRESS_PATTERN.fullmatch(path.name):
        device_paths.append(path)
        path = path.parent
    return [describe_device(device_path) for device_path in reversed(device_paths[::2])]


def read_nics(root: Path, nic_names: list[str]) -> dict[str, Any]:
    """Return index and path of each interface that exists."""
    document_by_nic = {}
    for name in nic_names:
        interface = root / "sys/class/net" / name
        index = read_text(interface / "ifindex")
        if index.isdigit():
            document_by_nic[name] = {"index": int(index), "path": read_path(interface / "device")}
    return document_by_nic


def read_gpus(root: Path) -> list[Any]:
    """Return the paths of all NVIDIA GPUs, by address."""
    gpu_devices = []
    for device in (root / "sys/bus/pci/devices").glob("*"):
        is_gpu = read_text(device / "class").startswith(GPU_CLASSES)
        if is_gpu and read_text(device / "vendor") == NVIDIA_VENDOR:
            gpu_devices.append(device)
    return [read_path(device) for device in sorted(gpu_devices, key=lambda gpu: gpu.name)]


def read_processor(root: Path) -> dict[str, str] | None:
    """Return vendor, family and model of the first processor, or None if one of them is unknown."""
    first_entry = read_text(root / "proc/cpuinfo").partition("\n\n")[0]
    value_by_name = dict(re.findall(r"^([^\t:]+?)\s*: ?(.*)$", first_entry, re.MULTILINE))
    values = {key: value_by_name.get(name, "") for key, name in NAME_BY_PROCESSOR_KEY.items()}
    return values if all(values.values()) else None


def read_machine(root: Path, nic_names: list[str]) -> dict[str, Any]:
    """Return the document to print. `root` is the root of the file system."""
    numa_nodes = (root / "sys/devices/system/node").glob("node[0-9]*")
    return {
        "arch": platform.machine(),
        "processor": read_processor(root),
        "affinity": {node.name[4:]: read_text(node / "cpumap") for node in sorted(numa_nodes)},
        "nics": read_nics(root, nic_names),
        "gpus": read_gpus(root),
    }


if __name__ == "__main__":
    print(json.dumps(read_machine(Path("/"), sys.argv[1:])))
